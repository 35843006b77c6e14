"""Bundles: `vlmrobust bundle` and `vlmrobust verify`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from pytest_vlmrobust import __version__
from pytest_vlmrobust.core.errors import VlmRobustError

from .parsing import Commands
from .printing import say


def add(commands: Commands) -> None:
    """Adds them to the parser."""
    bundle = commands.add_parser("bundle", help="put everything that a run's verdicts rest on into one ZIP file")
    bundle.add_argument("run_directory", metavar="RUN", type=Path, help="a run: a directory below .vlmrobust/runs")
    bundle.add_argument("--out", type=Path, metavar="FILE", help="what to write (default: RUN.zip here)")
    bundle.set_defaults(run=_bundle)

    verify = commands.add_parser("verify", help="compute every verdict of a bundle again, offline, and say what differs")
    verify.add_argument("bundle", metavar="BUNDLE", type=Path, help="what vlmrobust bundle wrote")
    verify.set_defaults(run=_verify)


def _bundle(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.reporting.bundle import write_bundle

    out = options.out or Path(f"{options.run_directory.resolve().name}.zip")
    names = write_bundle(options.run_directory, out)
    say(f"{out}: {len(names)} files, {out.stat().st_size} bytes")
    return 0


def _verify(options: argparse.Namespace) -> int:
    import tempfile

    from pytest_vlmrobust.evaluation.verification import verify
    from pytest_vlmrobust.reporting.bundle import not_derived, unpack
    from pytest_vlmrobust.reporting.runs import read_run

    with tempfile.TemporaryDirectory(prefix="vlmrobust-") as folder:
        unpacked = Path(folder)
        differences = unpack(options.bundle, unpacked)
        try:
            run = read_run(unpacked)
            found = verify(unpacked, run.records, unrecorded=run.unrecorded)
        except VlmRobustError as error:
            if not differences:
                raise
            return _told([*differences, f"nothing could be computed again: {error}".replace(folder, str(options.bundle))])
        for name, sha256 in found.policies.items():
            say(f"policy of {name}: {sha256}")
        if (made := run.manifest.get("version", __version__)) != __version__:
            say(f"note: the run was made by release {made}, and this is {__version__}: what differs may come from that")
        for note in found.notes:
            say(f"note: {note}")
        differences += [*found.differences, *not_derived(run)]
        say(f"{run.decision}: {found.answers} answers scored again, {found.records} of {len(run.records)} records computed again")
        return _told([one.replace(folder, str(options.bundle)) for one in differences])


def _told(differences: Sequence[str]) -> int:
    """Says what differs, and returns the exit code of a verification."""
    for difference in differences:
        say(f"DIFFERS  {difference}")
    say(f"{len(differences)} differences" if differences else "all agrees")
    return int(bool(differences))
