"""Inspect AI: a run as evaluation logs for `inspect view` and ``inspect_ai.log.read_eval_log``, a log for each cell.

A cell is a task, its samples are samples, and the views of a setting with several images (``patches:2``) are epochs. The
best epoch counts. Missing stays missing: a failed inference is a sample with an error and a score that no metric counts, a
skipped view is absent, and a cell that ended in an error or without a verdict is a log that says so. Logs contain no images.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, isfinite, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import MissingExtra
from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.words import on_one_line, without_halves
from pytest_vlmrobust.store import Answer, Evidence

from ..explanation import ViewedTest
from ..files import RunFiles
from ..junit import LOST
from . import UNASKED, best_view, chosen_models, new_directory, targets_of

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample
    from inspect_ai.scorer import Score

FORMATS = ("eval", "json")
_SCORER = "vlmrobust"
_STOPS = {"stop": "stop", "length": "max_tokens", "content_filter": "content_filter"}


@dataclass(frozen=True, slots=True)
class Written:
    """The output for a cell."""

    cell: str
    file: Path
    status: str
    """``success``, ``error`` or ``cancelled``, the last of a test that left no verdict."""
    scored: int
    unscored: int
    """Samples without a score: an inference failed."""


def write_inspect(run: RunFiles, out: Path, *, form: str = FORMATS[0], model: str = "") -> list[Written]:
    """Writes a log for each cell of a run into a new directory, atomically.

    ``form`` is ``eval``, the format of Inspect, or ``json``; an empty ``model`` means all of the run.
    """
    try:
        from inspect_ai.log import write_eval_log
    except ImportError as error:
        raise MissingExtra("exporting to Inspect", "inspect-ai", extra="inspect") from error
    written = []
    danger = "logs of two runs would be mixed up"
    with Evidence.open(run.directory, read_only=True) as evidence, new_directory(out, danger) as staged:
        for cell, test in _cells(evidence, run, model).items():
            log = _log(evidence, cell, test, run)
            name = f"{log.eval.created.replace(':', '-')}_{_file_name(str(cell))}_{log.eval.task_id}.{form}"
            write_eval_log(log, str(staged / name))
            scores = log.results.scores if log.results else []
            counts = [(score.scored_samples or 0, score.unscored_samples or 0) for score in scores[:1]] or [(0, 0)]
            written.append(Written(str(cell), out / name, log.status, *counts[0]))
    return written


def _cells(evidence: Evidence, run: RunFiles, model: str) -> dict[Cell, ViewedTest | None]:
    tests = {
        Cell(test.record.model, test.record.dataset, Setting.parse(test.record.setting)): test
        for test in run.tests
        if test.record.test == "cell" and test.record.setting
    }
    cells = sorted({*evidence.cells(), *tests})
    chosen = chosen_models(run.directory, sorted({cell.model for cell in cells}), model)
    return {cell: tests.get(cell) for cell in cells if cell.model in chosen}


def _log(evidence: Evidence, cell: Cell, test: ViewedTest | None, run: RunFiles) -> EvalLog:
    from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalResults, EvalSpec

    stored = evidence.get_cell(cell, whole=False) if cell in set(evidence.cells()) else None
    questions = evidence.samples(cell.dataset, cell.model, cell.setting) if stored else ()
    pairs = [(questions[place], answers) for place, answers in stored.by_sample] if stored else []
    samples = [sample for question, answers in pairs for sample in _samples(question, answers, cell)]
    views = 1 if stored is None else stored.views
    spec = EvalSpec(
        created=_created(run.manifest),
        eval_id=_number("eval", run.name, str(cell)),
        run_id=_number("run", run.name),
        task_id=_number("task", str(cell)),
        task=on_one_line(f"{cell.dataset}-{cell.setting}"),
        model=on_one_line(cell.model),
        dataset=EvalDataset(name=on_one_line(cell.dataset), samples=len(pairs), sample_ids=[q.id for q, _ in pairs]),
        config=EvalConfig(epochs=views, epochs_reducer=["max"]),
        packages={"pytest_vlmrobust": str(run.manifest.get("version", ""))},
        tags=[on_one_line(run.word)],
        metadata=_metadata(cell, test, run),
    )
    failed = test is not None and test.record.outcome is Outcome.ERROR
    lost = test is None and _is_lost(cell, run)
    views_that_count = [(answers, best_view(answers)) for _, answers in pairs]
    scores = [answers[view].score.value for answers, view in views_that_count if view is not None]
    return EvalLog(
        status="cancelled" if lost else "error" if failed else "success",
        eval=spec,
        results=EvalResults(
            total_samples=len(pairs) * views,
            completed_samples=sum(sample.error is None for sample in samples),
            scores=[_score_of_cell(scores, len(pairs), test)],
        ),
        error=_error(test.record.reason) if test is not None and failed else None,
        samples=samples,
    )


def _is_lost(cell: Cell, run: RunFiles) -> bool:
    return any(nodeid.endswith(f"[{cell}]") for nodeid in run.facts.lost(run.records))


def _metadata(cell: Cell, test: ViewedTest | None, run: RunFiles) -> dict[str, Any]:
    none = LOST if _is_lost(cell, run) else "no test was about this cell alone"
    facts = {
        "run": run.manifest.get("run", ""),
        "decision_of_run": run.word,
        "verdict": "" if test is None else test.record.outcome,
        "reason": none if test is None else test.record.reason,
        "setting": cell.setting,
        "policy_sha256": "" if test is None else test.record.policy_sha256,
        "commit": run.manifest.get("commit", ""),
        "pictures": "not in this log",
    }
    return {name: on_one_line(str(value)) for name, value in facts.items() if str(value)}


def _score_of_cell(values: Sequence[float], total: int, test: ViewedTest | None) -> Any:
    """Returns the mean of the scores and the measures of the test; undefined values are left out."""
    from inspect_ai.log import EvalMetric, EvalScore

    metrics = {"mean": EvalMetric(name="mean", value=fsum(values) / len(values))} if values else {}
    for measure in test.record.measures if test is not None else ():
        if measure.metric and not measure.category and isfinite(measure.value):
            ends = {name: value for name, value in (("low", measure.low), ("high", measure.high)) if isfinite(value)}
            judged = {"verdict": str(measure.outcome), "bound": measure.bound, "n": measure.n, **ends}
            metrics[measure.metric] = EvalMetric(name=measure.metric, value=measure.value, metadata=judged)
    return EvalScore(
        name=_SCORER,
        scorer=_SCORER,
        reducer="max",
        scored_samples=len(values),
        unscored_samples=total - len(values),
        metrics=metrics,
    )


def _samples(sample: Sample, answers: Sequence[Answer], cell: Cell) -> Iterator[EvalSample]:
    """Yields a sample of Inspect for each evaluated view."""
    from inspect_ai.log import EvalSample
    from inspect_ai.model import ChatMessageUser, ModelOutput

    targets = [*map(without_halves, targets_of(sample))]
    question = without_halves(sample.question)
    for view, answer in enumerate(answers, 1):
        if answer.score.state == UNASKED:
            continue
        prediction = answer.prediction
        failed = isnan(answer.score.value)
        stop: Any = _STOPS.get(prediction.finish_reason, "unknown")
        output = ModelOutput.from_content(on_one_line(cell.model), without_halves(prediction.text), stop)
        facts = {
            "category": sample.category,
            "group": sample.group,
            "task": sample.task,
            "view": view if len(answers) > 1 else "",
        }
        why = on_one_line(prediction.error or answer.score.rule)
        yield EvalSample(
            id=without_halves(sample.id),
            epoch=view,
            input=question,
            choices=[*map(without_halves, sample.options.values())] or None,
            target=targets[0] if len(targets) == 1 else targets,
            messages=[ChatMessageUser(content=question), *([] if failed else [output.message])],
            output=ModelOutput(model=on_one_line(cell.model), error=why) if failed else output,
            scores={_SCORER: _score(answer)},
            metadata={name: without_halves(str(value)) for name, value in facts.items() if value},
            error=_error(why) if failed else None,
        )


def _error(reason: str) -> Any:
    from inspect_ai.log import EvalError

    return EvalError(message=on_one_line(reason), traceback="", traceback_ansi="")


def _score(answer: Answer) -> Score:
    from inspect_ai.scorer import Score

    score = answer.score
    content: dict[str, Any] = {
        "answer": None if score.answer is None else without_halves(score.answer),
        "explanation": on_one_line(score.rule),
        "metadata": {"state": score.state},
    }
    return Score.unscored(**content) if isnan(score.value) else Score(value=score.value, **content)


def _created(manifest: Mapping[str, Any]) -> str:
    """Returns the start of a run from its name, else its date, with the zone that Inspect requires."""
    began = re.match(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)-", str(manifest.get("run", "")))
    day = re.fullmatch(r"\d{4}-\d\d-\d\d", str(manifest.get("date", "")))
    if began:
        year, month, date, hour, minute, second = began.groups()
        return f"{year}-{month}-{date}T{hour}:{minute}:{second}+00:00"
    return f"{day.group() if day else '1970-01-01'}T00:00:00+00:00"


def _number(*parts: str) -> str:
    """Returns an id that is the same whenever the same is exported again."""
    return fingerprint(list(parts))[:22]


def _file_name(name: str) -> str:
    """Returns the name of a cell as every file system and Inspect take it; the id of the task behind it is unique."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", name)[:100]
