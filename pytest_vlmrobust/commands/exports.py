"""A run for others: `vlmrobust export FORMAT RUN` for another program, `bundle` for people who `verify` it."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vlmrobust import __version__
from pytest_vlmrobust.core.errors import StoreError, VlmRobustError, typed_path
from pytest_vlmrobust.core.words import on_one_line, quantity

from .arguments import RUN_HELP, Commands, add_command, run_directory, say, shortened, tell

if TYPE_CHECKING:
    from pytest_vlmrobust.reporting.exports.trackers import ModelRun

_PROJECT = "vlmrobust"


def add(commands: Commands) -> None:
    """Adds them to the parser."""
    _add_exports(commands)
    _add_bundles(commands)


def _add_exports(commands: Commands) -> None:
    export = add_command(commands, "export", "write a run in the file format of another program", "vlmrobust export sarif latest")
    formats = export.add_subparsers(required=True, metavar="FORMAT")

    mlflow = add_command(
        formats,
        "mlflow",
        "a run of MLflow for each model: parameters, metrics, tags and the report",
        "vlmrobust export mlflow latest --uri sqlite:///mlflow.db",
    )
    _add_run(mlflow, _mlflow)
    mlflow.add_argument("--uri", default="", help="the store, such as sqlite:///mlflow.db (default: what MLflow takes by itself)")
    mlflow.add_argument("--experiment", default=_PROJECT, metavar="NAME", help="the experiment (default: %(default)s)")

    wandb = add_command(
        formats,
        "wandb",
        "a run of Weights & Biases for each model, offline: wandb sync sends it",
        "vlmrobust export wandb latest --out tracked",
    )
    _add_run(wandb, _wandb)
    wandb.add_argument("--out", type=typed_path, default=Path(), metavar="DIR", help="where wandb/ is created (default: here)")
    wandb.add_argument("--project", default=_PROJECT, metavar="NAME", help="the project (default: %(default)s)")

    inspect = add_command(
        formats,
        "inspect",
        "evaluation logs of Inspect AI, one for each cell, for inspect view",
        "vlmrobust export inspect latest --out logs",
    )
    _add_run(inspect, _inspect)
    inspect.add_argument("--out", required=True, type=typed_path, metavar="DIR", help="the directory to create")
    inspect.add_argument("--format", default="eval", choices=("eval", "json"), help="of the files (default: %(default)s)")

    nel = add_command(
        formats, "nel", "results of NVIDIA NeMo Evaluator, for nel compare and nel gate", "vlmrobust export nel latest --out nel"
    )
    _add_run(nel, _nel)
    nel.add_argument("--out", required=True, type=typed_path, metavar="DIR", help="the directory to create")

    sarif = add_command(
        formats,
        "sarif",
        "SARIF 2.1.0: what is broken or undecided, for code scanning",
        "vlmrobust export sarif latest --out gate.sarif",
    )
    _add_run(sarif, _sarif, of_a_model=False)
    sarif.add_argument(
        "--out", type=typed_path, metavar="FILE", help="what to write (default: results.sarif in the run's directory)"
    )


def _add_run(parser: argparse.ArgumentParser, run: object, *, of_a_model: bool = True) -> None:
    parser.add_argument("run_directory", metavar="RUN", type=run_directory, help=RUN_HELP)
    if of_a_model:
        parser.add_argument("--model", default="", metavar="NAME", help="a model of the run (default: all; of nel, its only one)")
    parser.set_defaults(run=run, limits={})


def _mlflow(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.reporting.exports.trackers import write_mlflow
    from pytest_vlmrobust.reporting.files import read_run

    run = read_run(options.run_directory)
    return _tell(write_mlflow(run, uri=options.uri, experiment=options.experiment, model=options.model))


def _wandb(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.reporting.exports.trackers import write_wandb
    from pytest_vlmrobust.reporting.files import read_run

    run = read_run(options.run_directory)
    tracked = write_wandb(run, options.out, project=options.project, model=options.model)
    _tell(tracked)
    say("\n".join(f"send it: wandb sync {where}" for _, where in tracked))
    return 0


def _tell(tracked: Iterable[tuple[ModelRun, str]]) -> int:
    for each, where in tracked:
        undefined = f"; {quantity(each.undefined, 'measure is', 'measures are')} undefined and left out" if each.undefined else ""
        say(f"{each.model}: {each.decision}, {quantity(len(each.numbers), 'number')}, {where}{undefined}")
    return 0


def _inspect(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.reporting.exports.inspect_logs import write_inspect
    from pytest_vlmrobust.reporting.files import read_run

    run = read_run(options.run_directory)
    written = write_inspect(run, options.out, form=options.format, model=options.model)
    say(f"{options.out}: {quantity(len(written), 'log')}, {sum(each.scored for each in written)} scored samples")
    for each in written:
        if each.status != "success" or each.unscored:
            tell(f"note: {each.cell}: {each.status}, {quantity(each.unscored, 'sample')} without a score")
    return 0


def _nel(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.reporting.exports.nel import MEAN, write_nel

    written = write_nel(options.run_directory, options.out, model=options.model)
    say(f"{options.out}: {len(written)} benchmarks, {sum(benchmark.results for benchmark in written)} results")
    for benchmark in written:
        if benchmark.unscored:
            asked = benchmark.results + benchmark.unscored
            tell(
                f"note: {benchmark.name}: {benchmark.unscored} of {quantity(asked, 'sample')} left out: "
                "inferences failed, which nel cannot express"
            )
    for dataset, metric in sorted({(benchmark.dataset, benchmark.corpus_metric) for benchmark in written}):
        if metric != MEAN:
            tell(f"note: {dataset}: nel compares the mean of the samples' scores, which is not {metric}")
    return 0


def _sarif(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.reporting.exports.sarif import FILE_NAME, sarif
    from pytest_vlmrobust.reporting.files import read_run
    from pytest_vlmrobust.reporting.writing import json_text, write_out, write_text

    run = read_run(options.run_directory)
    out = options.out or options.run_directory / FILE_NAME
    log = sarif(run)
    out.parent.mkdir(parents=True, exist_ok=True)
    (write_out if options.out else write_text)(out, json_text(log))
    say(f"{run.word}: {quantity(len(log['runs'][0]['results']), 'result')}, {out}")
    return 0


# `vlmrobust bundle` and `vlmrobust verify`.


_OF_DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors on reading values of types that a run does not write."""
_UNTOLD = (
    "fingerprints of models, digests of datasets and of images, images in report.html, keys of answers, earlier gates of the "
    "store, and versions and options in manifest.json were not compared: they cannot be recomputed from a bundle"
)


def _add_bundles(commands: Commands) -> None:
    bundle = add_command(
        commands,
        "bundle",
        "pack the evidence of a run into one ZIP file",
        "vlmrobust bundle latest --out evidence.zip",
    )
    bundle.add_argument("run_directory", metavar="RUN", type=run_directory, help=RUN_HELP)
    bundle.add_argument("--out", type=typed_path, metavar="FILE", help="what to write (default: RUN.zip here)")
    bundle.set_defaults(run=_bundle, limits={})

    verify = add_command(
        commands,
        "verify",
        "recompute every verdict of a bundle, offline, and report what differs",
        "vlmrobust verify evidence.zip",
    )
    verify.add_argument("bundle", metavar="BUNDLE", type=typed_path, help="a ZIP file that vlmrobust bundle wrote")
    verify.set_defaults(run=_verify, limits={})


def _bundle(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.reporting.bundle import write_bundle

    out = options.out or Path(f"{options.run_directory.resolve().name}.zip")
    names = write_bundle(options.run_directory, out)
    say(f"{out}: {quantity(len(names), 'file')}, {quantity(out.stat().st_size, 'byte')}")
    return 0


def _verify(options: argparse.Namespace) -> int:
    import tempfile

    from pytest_vlmrobust.reporting.bundle import unpack

    with tempfile.TemporaryDirectory(prefix="vlmrobust-") as folder:
        unpacked = Path(folder)
        differences = unpack(options.bundle, unpacked)
        try:
            differences += _compare_bundle(unpacked)
        except VlmRobustError as error:
            reason = _with_bundle(str(error), folder, options.bundle)
            if not differences:
                raise StoreError(reason) from error
            differences.append(f"nothing could be recomputed: {reason}")
        return _print_differences([_with_bundle(difference, folder, options.bundle) for difference in differences])


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
