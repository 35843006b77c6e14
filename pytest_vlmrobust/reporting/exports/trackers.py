"""Experiment trackers, MLflow and Weights & Biases: a tracked run for each model, with its numbers and report.

Both get the same content: the manifest, each finite number under one name, and the files of the report. An
undefined or unmeasured number is absent. An INCOMPLETE run ends there as failed.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, isnan
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.decision import EXIT_CODES, Decision
from pytest_vlmrobust.core.errors import MissingExtra, UsageError
from pytest_vlmrobust.core.words import on_one_line

from ..facts import ci_variables
from ..files import REPORT, RunFiles, write_report
from ..junit import FILE_NAME as JUNIT
from ..markdown import SUMMARY
from ..results import CSV_FILE
from ..results import FILE_NAME as RESULTS
from ..view import RunView
from . import chosen_models

FILES = (REPORT, JUNIT, RESULTS, CSV_FILE, SUMMARY, "manifest.json", "model_card.md")
_STEPS = {"low": 1, "mid": 2, "high": 3}
_PLAIN = re.compile(r"[^\w.\- /:]")
"""Characters not allowed in MLflow metric names."""
_LONGEST_NAME, _LONGEST_VALUE = 250, 6000
_LONGEST_TAG = 64
"""Characters of a tag that W&B takes."""
_BATCH, _METRICS = 100, 900
"""Parameters or tags, and metrics, that a server of MLflow takes at once."""
_COLUMNS = ("test", "dataset", "setting", "family", "level", "metric", "category")
_JUDGED = ("value", "low", "high", "n", "threshold", "outcome", "rule", "source", "waiver")


@dataclass(frozen=True, slots=True)
class Series:
    """A number of a run."""

    name: str
    """``DATASET/METRIC/SETTING``; for a summary metric its split, or ``all``."""
    value: float
    step: int
    """The severity: 1 to 3 for low to high, the size of ``resolution:448``, else 0."""


@dataclass(frozen=True, slots=True)
class ModelRun:
    """The tracked content for a model of a run."""

    run: str
    model: str
    decision: Decision
    parameters: Mapping[str, str]
    tags: Mapping[str, str]
    numbers: Sequence[Series]
    undefined: int
    """How many measures have no finite value, and so no number."""
    view: RunView
    """Its tests."""

    @property
    def name(self) -> str:
        """The name of the tracked run."""
        return on_one_line(f"{self.run}-{self.model}")

    @property
    def word(self) -> str:
        """The decision for display."""
        return on_one_line(self.view.word_of(self.decision))


def write_mlflow(run: RunFiles, *, uri: str, experiment: str, model: str = "") -> list[tuple[ModelRun, str]]:
    """Adds a run for each model to an MLflow store, and returns where; nothing is sent anywhere else.

    ``uri`` is the store: ``sqlite:///FILE``, a directory or a server; MLflow's default if empty. ``experiment`` is created. An
    empty ``model`` means all of the run. A run that the store has already is a UsageError.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # disables its telemetry
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
    except ImportError as error:
        raise MissingExtra("exporting to MLflow", "mlflow", extra="mlflow") from error
    try:
        client = MlflowClient(uri or None)
        existing = client.get_experiment_by_name(experiment)
        place = client.create_experiment(experiment) if existing is None else existing.experiment_id
        written = []
        for part in _model_runs(run, model):
            same = f"tags.`vlm.run` = '{_quoted(part.run)}' and tags.`vlm.model` = '{_quoted(part.model)}'"
            for earlier in client.search_runs([place], same, max_results=1):
                raise UsageError(
                    f"{on_one_line(part.name)} is in experiment {experiment!r} already, as run {earlier.info.run_id}: "
                    "delete it there, or name another --experiment"
                )
            made = client.create_run(place, run_name=part.name)
            try:
                _fill(client, made.info.run_id, part, run)
            except BaseException:
                client.delete_run(made.info.run_id)  # a part of a run would be taken for the whole
                raise
            written.append((part, f"experiment {experiment}, run {made.info.run_id}"))
    except MlflowException as error:
        raise UsageError(f"MLflow refused {uri or 'its default store'!r}: {on_one_line(str(error))}") from error
    return written


def _fill(client: Any, number: str, part: ModelRun, run: RunFiles) -> None:
    from mlflow.entities import Metric, Param, RunTag

    now = client.get_run(number).info.start_time
    parameters = [Param(name, value[:_LONGEST_VALUE]) for name, value in part.parameters.items()]
    metrics = [Metric(_mlflow_name(entry.name), entry.value, now, entry.step) for entry in part.numbers]
    for start in range(0, len(parameters), _BATCH):
        client.log_batch(number, params=parameters[start : start + _BATCH])
    client.log_batch(number, tags=[RunTag(name, value[:_LONGEST_VALUE]) for name, value in part.tags.items()])
    for start in range(0, len(metrics), _METRICS):
        client.log_batch(number, metrics=metrics[start : start + _METRICS])
    with tempfile.TemporaryDirectory() as folder:
        for file in _report_files(run, Path(folder)):
            client.log_artifact(number, str(file))
    client.set_terminated(number, "FAILED" if part.decision is Decision.INCOMPLETE else "FINISHED")


def write_wandb(run: RunFiles, out: Path, *, project: str, model: str = "") -> list[tuple[ModelRun, str]]:
    """Writes an offline Weights & Biases run for each model, and returns where; only `wandb sync` sends it.

    ``wandb`` is created in ``out``; an empty ``model`` means all of the run.
    """
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    try:
        import wandb
    except ImportError as error:
        raise MissingExtra("exporting to Weights & Biases", "wandb", extra="wandb") from error
    out.mkdir(parents=True, exist_ok=True)
    untold = ("disable_git", "disable_code", "silent", "x_disable_stats", "x_disable_machine_info")
    private = wandb.Settings(console="off", x_save_requirements=False, **dict.fromkeys(untold, True))
    written = []
    for part in _model_runs(run, model):
        tracked = wandb.init(
            mode="offline",
            dir=str(out),
            project=project,
            name=part.name,
            group=part.run,
            tags=[part.word[:_LONGEST_TAG]],
            config={**part.parameters, **part.tags},
            reinit="create_new",
            settings=private,
        )
        rows = list(_rows(part.view))
        tracked.log({"measures": wandb.Table(columns=[*_COLUMNS, *_JUDGED], data=rows, allow_mixed_types=True)})
        tracked.summary.update({"decision": part.word, **{number.name: number.value for number in part.numbers}})
        for file in _report_files(run, Path(tracked.dir)):
            tracked.save(str(file), base_path=tracked.dir, policy="now")
        where = Path(tracked.settings.sync_dir)
        tracked.finish(exit_code=EXIT_CODES[part.decision] if part.decision is Decision.INCOMPLETE else 0)
        written.append((part, str(where)))
    return written


def _model_runs(run: RunFiles, model: str) -> list[ModelRun]:
    models = [*run.facts.models] or sorted({record.model for record in run.records} - {""})
    return [_model_run(run, name) for name in chosen_models(run.directory, models, model)]


def _model_run(run: RunFiles, model: str) -> ModelRun:
    view = RunView([record for record in run.records if record.model == model], run.facts, model)
    numbers = {number.name: number for number in _numbers(view)}
    measures = [measure for record in view.records for measure in record.measures if not measure.category]
    manifest = run.manifest
    decision = run.facts.decisions(run.records).get(model, run.decision)
    settings = manifest.get("settings", {})
    described = manifest.get("models", {}).get(model, {})
    parameters = {
        **{f"model.{name}": value for name, value in described.items()},
        **{f"option.{name}": value for name, value in settings.items()},
        **{f"dataset.{name}": digest for name, digest in manifest.get("datasets", {}).items()},
        "policy_sha256": manifest.get("policies", {}).get(model, {}).get("sha256", ""),
    }
    tags = {
        "vlm.run": run.name,
        "vlm.model": model,
        "vlm.decision": view.word_of(decision),
        "vlm.decision_of_run": run.word,
        "vlm.date": manifest.get("date", ""),
        "vlm.version": manifest.get("version", ""),
        "vlm.commit": manifest.get("commit", ""),
        "vlm.stopped": manifest.get("stopped", ""),
        "vlm.tests": f"{sum(record.is_gated for record in run.records)} of {run.facts.selected}",
        **{f"ci.{name}": value for name, value in ci_variables(manifest).items()},
    }
    undefined = sum(not isfinite(measure.value) for measure in measures)
    return ModelRun(
        run=str(tags["vlm.run"]),
        model=model,
        decision=decision,
        parameters=_texts(parameters),
        tags=_texts({**tags, "vlm.undefined": str(undefined)}),
        numbers=list(numbers.values()),
        undefined=undefined,
        view=view,
    )


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Returns values as printable text under names valid for every tracker."""
    texts = {_PLAIN.sub("_", on_one_line(name))[:_LONGEST_NAME]: on_one_line(_text(value)) for name, value in values.items()}
    return {name: text for name, text in texts.items() if text}


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def _numbers(view: RunView) -> Iterator[Series]:
    """Yields the finite value and ends of each measure of a whole dataset, and the counts of answers of each cell."""
    for record in view.records:
        values = {
            f"{measure.metric}{suffix}": value
            for measure in record.measures
            if measure.metric and not measure.category
            for suffix, value in (("", measure.value), (".low", measure.low), (".high", measure.high))
        }
        if record.test == "cell":
            values |= {name: float(getattr(record, name)) for name in ("n", "n_errors", "n_unparsed", "n_refused")}
        over = record.setting or record.split or "all"
        for name, value in values.items():
            if isfinite(value):
                yield Series(on_one_line(f"{record.dataset}/{name}/{over}"), value, _step(record.level))


def _step(level: str) -> int:
    return _STEPS.get(level, int(level) if level.isascii() and level.isdigit() else 0)


def _rows(view: RunView) -> Iterator[list[Any]]:
    """Yields a row for each measure, including categories; undefined values are empty."""
    for record in view.records:
        first = [record.test, record.dataset, record.setting or record.split, record.family, record.level]
        for measure in record.measures:
            judged = [getattr(measure, name) for name in _JUDGED]
            yield [*map(on_one_line, [*first, measure.metric, measure.category]), *map(_cell, judged)]


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return None if isnan(value) else value
    return on_one_line(str(value)) if isinstance(value, str) else value


def _report_files(run: RunFiles, folder: Path) -> list[Path]:
    """Writes the report into a folder, and returns the files for trackers."""
    write_report(folder, run, run.manifest)
    return [folder / name for name in FILES if (folder / name).is_file()]


def _mlflow_name(name: str) -> str:
    allowed = _PLAIN.sub("_", name)[:_LONGEST_NAME]
    return allowed.replace(":", "=") if os.name == "nt" else allowed  # MLflow refuses colons there


def _quoted(text: str) -> str:
    return text.replace("'", "''")
