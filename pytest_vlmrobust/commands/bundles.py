"""Bundles: `vlmrobust bundle` and `vlmrobust verify`."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_vlmrobust import __version__
from pytest_vlmrobust.core.errors import StoreError, VlmRobustError, typed_path
from pytest_vlmrobust.core.words import on_one_line, quantity

from .arguments import RUN_HELP, Commands, add_command, run_directory, say, shortened, tell

_OF_DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors on reading values of types that a run does not write."""
_UNTOLD = (
    "fingerprints of models, digests of datasets and of images, keys of answers, earlier gates of the store, and versions and "
    "options in manifest.json were not compared: they cannot be recomputed from a bundle"
)


def add(commands: Commands) -> None:
    """Adds them to the parser."""
    bundle = add_command(
        commands,
        "bundle",
        "pack the evidence of a run into one ZIP file",
        "vlmrobust bundle latest --out evidence.zip",
    )
    bundle.add_argument("run_directory", metavar="RUN", type=run_directory, help=RUN_HELP)
    bundle.add_argument("--out", type=typed_path, metavar="FILE", help="what to write (default: RUN.zip here)")
    bundle.set_defaults(run=_bundle)

    verify = add_command(
        commands,
        "verify",
        "recompute every verdict of a bundle, offline, and report what differs",
        "vlmrobust verify evidence.zip",
    )
    verify.add_argument("bundle", metavar="BUNDLE", type=typed_path, help="a ZIP file that vlmrobust bundle wrote")
    verify.set_defaults(run=_verify)


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
    from pytest_vlmrobust.reporting.bundle import page_notes, refuse_many_measures, underivable_claims
    from pytest_vlmrobust.reporting.files import read_run

    refuse_many_measures(unpacked)
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
    for note in [*notes, *verification.notes, *page_notes(unpacked), _UNTOLD]:
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
