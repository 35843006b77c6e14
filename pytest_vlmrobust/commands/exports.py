"""A run for others: `vlmrobust export FORMAT RUN` for another program, `bundle` for people who `verify` it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from pytest_vlmrobust import __version__
from pytest_vlmrobust.core.errors import StoreError, VlmRobustError, typed_path
from pytest_vlmrobust.core.words import on_one_line, quantity

from .arguments import Run, in_quarantine, path, read_and_complain, say, shortened, tell

if TYPE_CHECKING:
    from pytest_vlmrobust.reporting.exports.trackers import ModelRun

_PROJECT = "vlmrobust"


Model = Annotated[str, Option(metavar="NAME", help="a model of the run", show_default="all; of nel, its only one")]


@in_quarantine()
def mlflow(
    run: Run,
    *,
    model: Model = "",
    uri: Annotated[str, Option(help="the store, such as sqlite:///mlflow.db", show_default="what MLflow takes by itself")] = "",
    experiment: Annotated[str, Option(metavar="NAME", help="the experiment")] = _PROJECT,
) -> int:
    """A run of MLflow for each model: parameters, metrics, tags and the report.

    Examples:
        vlmrobust export mlflow latest --uri sqlite:///mlflow.db
    """
    from pytest_vlmrobust.reporting.exports.trackers import write_mlflow

    return _tell(write_mlflow(read_and_complain(run), uri=uri, experiment=experiment, model=model))


@in_quarantine()
def wandb(
    run: Run,
    *,
    model: Model = "",
    out: Annotated[Path, path("where wandb/ is created", "DIR", default="here")] = Path(),
    project: Annotated[str, Option(metavar="NAME", help="the project")] = _PROJECT,
) -> int:
    """A run of Weights & Biases for each model, offline: wandb sync sends it.

    Examples:
        vlmrobust export wandb latest --out tracked
    """
    from pytest_vlmrobust.reporting.exports.trackers import write_wandb

    tracked = write_wandb(read_and_complain(run), out, project=project, model=model)
    _tell(tracked)
    say("\n".join(f"send it: wandb sync {where}" for _, where in tracked))
    return 0


def _tell(tracked: Iterable[tuple[ModelRun, str]]) -> int:
    for run, where in tracked:
        undefined = f"; {quantity(run.undefined, 'measure is', 'measures are')} undefined and left out" if run.undefined else ""
        say(f"{run.model}: {run.word}, {quantity(len(run.numbers), 'number')}, {where}{undefined}")
    return 0


NewFolder = Annotated[Path, Option("--out", metavar="DIR", parser=typed_path, help="the directory to create")]


@in_quarantine()
def inspect(
    run: Run,
    *,
    out: NewFolder,
    model: Model = "",
    form: Annotated[Literal["eval", "json"], Option("--format", help="of the files")] = "eval",
) -> int:
    """Evaluation logs of Inspect AI, one for each cell, for inspect view.

    Examples:
        vlmrobust export inspect latest --out logs
    """
    from pytest_vlmrobust.reporting.exports.inspect_logs import write_inspect
    from pytest_vlmrobust.reporting.files import read_run

    written = write_inspect(read_run(run), out, form=form, model=model)
    say(f"{out}: {quantity(len(written), 'log')}, {sum(log.scored for log in written)} scored samples")
    for log in written:
        if log.status != "success" or log.unscored:
            tell(f"note: {log.cell}: {log.status}, {quantity(log.unscored, 'sample')} without a score")
    return 0


@in_quarantine()
def nel(run: Run, *, out: NewFolder, model: Model = "") -> int:
    """Results of NVIDIA NeMo Evaluator, for nel compare and nel gate.

    Examples:
        vlmrobust export nel latest --out nel
    """
    from pytest_vlmrobust.reporting.exports.nel import MEAN, write_nel

    written = write_nel(run, out, model=model)
    say(f"{out}: {len(written)} benchmarks, {sum(benchmark.results for benchmark in written)} results")
    for benchmark in written:
        if benchmark.unscored:
            total = benchmark.results + benchmark.unscored
            tell(
                f"note: {benchmark.name}: {benchmark.unscored} of {quantity(total, 'sample')} left out: "
                "inferences failed, which nel cannot express"
            )
    for dataset, metric in sorted({(benchmark.dataset, benchmark.corpus_metric) for benchmark in written}):
        if metric != MEAN:
            tell(f"note: {dataset}: nel compares the mean of the samples' scores, which is not {metric}")
    return 0


@in_quarantine()
def sarif(
    run: Run, *, out: Annotated[Path | None, path("what to write", default="results.sarif in the run's directory")] = None
) -> int:
    """SARIF 2.1.0: what is broken or undecided, for code scanning.

    Examples:
        vlmrobust export sarif latest --out gate.sarif
    """
    from pytest_vlmrobust.reporting.exports.sarif import FILE_NAME
    from pytest_vlmrobust.reporting.exports.sarif import sarif as sarif_log
    from pytest_vlmrobust.reporting.writing import json_text, write_result

    files = read_and_complain(run)
    log = sarif_log(files)
    place = write_result(out, run / FILE_NAME, json_text(log))
    say(f"{files.word}: {quantity(len(log['runs'][0]['results']), 'result')}, {place}")
    return 0


# `vlmrobust bundle` and `vlmrobust verify`.


_OF_DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors on reading values of types that a run does not write."""
_UNTOLD = (
    "fingerprints of models, digests of datasets and of images, images in report.html, keys of answers, earlier gates of the "
    "store, and versions and options in manifest.json were not compared: they cannot be recomputed from a bundle"
)


@in_quarantine()
def bundle(run: Run, *, out: Annotated[Path | None, path("what to write", default="RUN.zip here")] = None) -> int:
    """Pack the evidence of a run into one ZIP file.

    Examples:
        vlmrobust bundle latest --out evidence.zip
    """
    from pytest_vlmrobust.reporting.bundle import write_bundle

    place = out or Path(f"{run.resolve().name}.zip")
    names = write_bundle(run, place)
    say(f"{place}: {quantity(len(names), 'file')}, {quantity(place.stat().st_size, 'byte')}")
    return 0


@in_quarantine()
def verify(bundle: Annotated[Path, Argument(parser=typed_path, help="a ZIP file that vlmrobust bundle wrote")]) -> int:
    """Recompute every verdict of a bundle, offline, and report what differs.

    Examples:
        vlmrobust verify evidence.zip
    """
    import tempfile

    from pytest_vlmrobust.reporting.bundle import unpack

    with tempfile.TemporaryDirectory(prefix="vlmrobust-") as folder:
        unpacked = Path(folder)
        differences = unpack(bundle, unpacked)
        try:
            differences += _compare_bundle(unpacked)
        except VlmRobustError as error:
            reason = _with_bundle(str(error), folder, bundle)
            if not differences:
                raise StoreError(reason) from error
            differences.append(f"nothing could be recomputed: {reason}")
        return _print_differences([_with_bundle(difference, folder, bundle) for difference in differences])


def _compare_bundle(unpacked: Path) -> list[str]:
    """Prints the notes on an unpacked bundle, and returns the differences."""
    from pytest_vlmrobust.evaluation.after.verification import (
        gate_contradictions,
        manifest_contradictions,
        repeated_records,
        verify,
    )
    from pytest_vlmrobust.reporting.bundle import underivable_claims
    from pytest_vlmrobust.reporting.files import read_run

    with _damage_as_store_error(unpacked, "manifest.json, docket.json or records.jsonl"):
        run = read_run(unpacked)
        word, unrecorded = run.word, run.unrecorded
        wrong, notes = repeated_records(unpacked)
    with _damage_as_store_error(unpacked, "docket.json, predictions.sqlite or a file in policies"):
        verification = verify(unpacked, run.records, unrecorded=unrecorded)
    with _damage_as_store_error(unpacked, "manifest.json or docket.json"):
        contradicted = [*manifest_contradictions(unpacked, run.manifest), *gate_contradictions(unpacked, run.manifest)]
        differences = [*wrong, *verification.differences, *contradicted, *underivable_claims(run)]
    for name, sha256 in verification.policies.items():
        say(f"policy of {name}: {sha256}")
    for gate in run.facts.gates:
        tell(str(gate))
    if (made := run.manifest.get("version", __version__)) != __version__:
        tell(f"note: the run was made by release {made}, and this is {__version__}: differences may come from that")
    for note in [*notes, *verification.notes, _UNTOLD]:
        tell(f"note: {shortened(note)}")
    say(
        f"{word}: {quantity(verification.answers, 'answer')} scored again, "
        f"{verification.records} of {quantity(len(run.records), 'record')} computed again"
    )
    return differences


@contextlib.contextmanager
def _damage_as_store_error(unpacked: Path, names: str) -> Iterator[None]:
    """Turns the errors of malformed files into a StoreError that names the files."""
    try:
        yield
    except _OF_DAMAGE as error:
        raise StoreError(
            f"{unpacked}/{names}: is not what a run of this release wrote ({type(error).__name__}: {error})"
        ) from error


def _with_bundle(sentence: str, folder: str, bundle: Path) -> str:
    """Returns a sentence with the bundle in place of the folder into which it was unpacked."""
    return sentence.replace(f"{folder}/", f"{bundle}: ").replace(folder, str(bundle))


def _print_differences(differences: Sequence[str]) -> int:
    """Prints the differences, and returns the exit code of a verification."""
    for difference in differences:
        say(f"DIFFERS  {on_one_line(difference)}")
    say(quantity(len(differences), "difference") if differences else "everything agrees")
    return int(bool(differences))
