"""The `vlmrobust` command: what belongs to a gate and is no test run."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from . import __version__
from .core.errors import UsageError, VlmRobustError
from .core.verdict import EXIT_CODES, decide

USAGE_ERROR = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0, 4 for a mistake in what was asked, or a decision's own code."""
    options = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except (VlmRobustError, OSError) as error:
        print(f"vlmrobust: {error}", file=sys.stderr)  # noqa: T201 - a command line speaks by printing
        return USAGE_ERROR


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vlmrobust", description=__doc__)
    parser.add_argument("--version", action="version", version=f"vlmrobust {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    init = commands.add_parser("init", help="copy the shipped suites and thresholds into a directory")
    init.add_argument("directory", nargs="?", type=Path, default=Path(), help="where to (default: here)")
    init.add_argument("--force", action="store_true", help="overwrite files that differ")
    init.set_defaults(run=_init)

    listing = commands.add_parser("list", help="list what is known by name")
    listing.add_argument("kind", choices=sorted(_LISTS), help="what to list")
    listing.set_defaults(run=_list)

    check = commands.add_parser("check", help="read thresholds files as a gate would and say what they hold")
    check.add_argument("files", nargs="+", help="thresholds files, or names of shipped ones")
    check.set_defaults(run=_check)

    report = commands.add_parser("report", help="write results.json and summary.md of a run, also of one that was killed")
    report.add_argument("run_directory", metavar="RUN", type=Path, help="a run: a directory below .vlmrobust/runs")
    report.add_argument("--out", type=Path, help="where to (default: the run's directory)")
    report.set_defaults(run=_report)
    return parser


def _init(options: argparse.Namespace) -> int:
    from .shipped import shipped

    copies = [
        (file, options.directory / folder / file.name)
        for folder, pattern in (("suites", "*.py"), ("thresholds", "*.yaml"))
        for file in sorted(shipped(folder).glob(pattern))
    ]
    kept = [to for file, to in copies if to.exists() and to.read_bytes() != file.read_bytes() and not options.force]
    if kept:
        raise UsageError(f"{', '.join(map(str, kept))} exist and differ from what is shipped. Use --force to overwrite them")
    for file, to in copies:
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, to)
        _say(str(to))
    return 0


def _list(options: argparse.Namespace) -> int:
    for name in _LISTS[options.kind]():
        _say(name)
    return 0


def _check(options: argparse.Namespace) -> int:
    from .evaluation.policy_files import known_metrics, thresholds_file
    from .metrics.registry import AMBIGUOUS
    from .policies import load_policy

    files = [thresholds_file(name, Path) for name in options.files]
    policy = load_policy(files, known_metrics=known_metrics(), ambiguous=AMBIGUOUS, root=Path.cwd())
    _say(f"{len(policy.rules)} rules, {len(policy.waivers)} waivers, sha256 {policy.sha256}")
    return 0


def _report(options: argparse.Namespace) -> int:
    from .reporting import RunFacts, write_report
    from .store import read_journal, read_manifest

    records = list({record.key: record for record in read_journal(options.run_directory)}.values())
    out = options.out or options.run_directory
    begun = read_manifest(options.run_directory)
    facts = RunFacts(planned=begun["planned"], selected=begun["selected"])
    write_report(out, records, facts, None)
    decision = decide((record.outcome for record in records), missing=facts.missing(records))
    _say(f"{decision}: {len(records)} of {facts.selected} records, {out / 'summary.md'}")
    return EXIT_CODES[decision]


def _models() -> list[str]:
    from .backends.builtin import names

    return list(names())


def _datasets() -> list[str]:
    from .datasets import names

    return list(names())


def _settings() -> list[str]:
    from . import perturbations

    return perturbations.names("all")


def _metrics() -> list[str]:
    from . import metrics

    return metrics.names()


_LISTS: dict[str, Callable[[], list[str]]] = {
    "models": _models,
    "datasets": _datasets,
    "settings": _settings,
    "metrics": _metrics,
}


def _say(text: str) -> None:
    print(text)  # noqa: T201 - a command line speaks by printing


if __name__ == "__main__":
    sys.exit(main())
