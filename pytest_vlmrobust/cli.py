"""The `vlmrobust` command: what belongs to a gate and is no test run."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

from . import __version__
from .core.errors import UsageError, VlmRobustError
from .core.seeding import AUGMENTATION_SEED
from .core.verdict import EXIT_CODES

USAGE_ERROR = 4
_LOG_WIDTH = 160
"""Of what is no terminal: a log has no right edge."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0, 1 for what differs, 4 for a mistake, or a decision's own code."""
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

    explain = commands.add_parser("explain", help="say what a metric is: formula, source, bounds, interval, what to beware of")
    explain.add_argument("metric", nargs="?", metavar="METRIC", help="a metric (default: list all of them)")
    explain.set_defaults(run=_explain)

    check = commands.add_parser("check", help="read thresholds files as a gate would and say what they hold")
    check.add_argument("files", nargs="+", help="thresholds files, or names of shipped ones")
    check.add_argument(
        "--samples", type=_count, metavar="N", help="say which rules N independent samples of a data set hardly decide"
    )
    check.add_argument("--strict", action="store_true", help="exit with 1 when there is a warning")
    check.set_defaults(run=_check)

    report = commands.add_parser("report", help="write report.html and the other files of a run, also of one that was killed")
    report.add_argument("run_directory", metavar="RUN", type=Path, help="a run: a directory below .vlmrobust/runs")
    report.add_argument("--out", type=Path, help="where to (default: the run's directory)")
    report.set_defaults(run=_report)

    junit = commands.add_parser("junit", help="write junit.xml of a run from its journal, also of one that was killed")
    junit.add_argument("run_directory", metavar="RUN", type=Path, help="a run: a directory below .vlmrobust/runs")
    junit.add_argument("--out", type=Path, metavar="FILE", help="what to write (default: junit.xml in the run's directory)")
    junit.set_defaults(run=_junit)

    compare = commands.add_parser("compare", help="say what changed between two runs on the same samples")
    compare.add_argument("before", metavar="A", type=Path, help="the earlier run: a directory that holds predictions.sqlite")
    compare.add_argument("after", metavar="B", type=Path, help="the later run")
    compare.add_argument("--out", type=Path, metavar="DIR", help="write comparison.json and comparison.md there")
    compare.add_argument("--model", default="", metavar="NAME", help="a model of the later run (default: all of them)")
    compare.set_defaults(run=_compare)

    bundle = commands.add_parser("bundle", help="put everything that a run's verdicts rest on into one ZIP file")
    bundle.add_argument("run_directory", metavar="RUN", type=Path, help="a run: a directory below .vlmrobust/runs")
    bundle.add_argument("--out", type=Path, metavar="FILE", help="what to write (default: RUN.zip here)")
    bundle.set_defaults(run=_bundle)

    verify = commands.add_parser("verify", help="compute every verdict of a bundle again, offline, and say what differs")
    verify.add_argument("bundle", metavar="BUNDLE", type=Path, help="what vlmrobust bundle wrote")
    verify.set_defaults(run=_verify)

    _add_show(commands.add_parser("show", help="draw one picture under many settings: a contact sheet in HTML or PNG"))
    return parser


def _add_show(show: argparse.ArgumentParser) -> None:
    show.add_argument("image", metavar="IMAGE", type=Path, help="a picture in any format that Pillow reads")
    show.add_argument("--out", required=True, type=Path, metavar="FILE", help="what to write: FILE.html or FILE.png")
    show.add_argument("--set", action="append", default=[], metavar="NAME", help="a set of settings, or all; repeatable")
    show.add_argument("--setting", action="append", default=[], help="a setting, such as fog:mid+flip_h; repeatable")
    show.add_argument("--seed", type=int, default=AUGMENTATION_SEED, metavar="N", help="of random ones (default: %(default)s)")
    show.add_argument("--tile", type=int, default=200, metavar="PIXELS", help="width of a tile (default: %(default)s)")
    show.set_defaults(run=_show)


def _init(options: argparse.Namespace) -> int:
    from .shipped import shipped

    copies = [
        (file, options.directory / folder / file.name)
        for folder, pattern in (("suites", "*.py"), ("thresholds", "*.*"))
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


def _explain(options: argparse.Namespace) -> int:
    from . import metrics
    from .metrics.description import describe

    if options.metric:
        record = metrics.FAMILY_METRICS.get(options.metric) or metrics.get(options.metric)
        _say(describe(record).text(min(100, shutil.get_terminal_size().columns)))
        return 0
    summaries = {name: describe(metrics.get(name)).summary for name in metrics.names()}
    summaries |= {name: describe(record).summary for name, record in metrics.FAMILY_METRICS.items()}
    for name, summary in sorted(summaries.items()):
        _say(f"{name:<{max(map(len, summaries))}}  {summary}")
    return 0


def _check(options: argparse.Namespace) -> int:
    from .evaluation.policy_files import is_relative, known_metrics, thresholds_file
    from .evaluation.policy_lint import lint
    from .metrics.registry import AMBIGUOUS
    from .policies import load_policy
    from .reporting.policy_table import render_policy

    files = [thresholds_file(name, Path) for name in options.files]
    policy = load_policy(files, known_metrics=known_metrics(), ambiguous=AMBIGUOUS, root=Path.cwd())
    _say(f"{len(policy.rules)} rules, {len(policy.waivers)} waivers, sha256 {policy.sha256}")
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else _LOG_WIDTH
    _say(f"\n{render_policy(policy, width=width, color=terminal)}")
    if relative := [rule.id for rule in policy.rules if is_relative(rule)]:
        _say(f"note: {', '.join(relative)}: compared with an earlier run, and not applicable without --vlm-baseline RUN")
    findings = lint(policy, today=date.today(), samples=options.samples)  # noqa: DTZ011 - waivers expire by local date
    for finding in findings:
        _say(f"warning: {finding}")
    return int(options.strict and bool(findings))


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of samples. Expected 1 or more")
    return int(text)


def _report(options: argparse.Namespace) -> int:
    from .reporting import write_report
    from .reporting.files import summary
    from .reporting.runs import read_run
    from .reporting.step_summary import add_step_summary

    run = read_run(options.run_directory)
    out = options.out or options.run_directory
    write_report(out, run.records, run.facts, None)
    if said := add_step_summary(summary(run.records, run.facts)):
        print(f"vlmrobust: {said}", file=sys.stderr)  # noqa: T201 - a command line speaks by printing
    _say(f"{run.decision}: {len(run.records)} of {run.facts.selected} records, {out / 'report.html'}")
    return EXIT_CODES[run.decision]


def _junit(options: argparse.Namespace) -> int:
    from .reporting.junit import FILE_NAME
    from .reporting.runs import read_run
    from .reporting.writing import write_text

    run = read_run(options.run_directory)
    out = options.out or options.run_directory / FILE_NAME
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, run.junit)
    _say(f"{run.decision}: {len(run.records)} tests, {len(run.facts.lost(run.records))} without a verdict, {out}")
    return 0


def _compare(options: argparse.Namespace) -> int:
    from .evaluation.comparison import compare
    from .reporting.comparison import render_comparison, write_comparison

    found = compare(options.before, options.after, model=options.model)
    if options.out:
        write_comparison(options.out, found)
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else _LOG_WIDTH
    _say(render_comparison(found, width=width, color=terminal).rstrip("\n"))
    return 0


def _bundle(options: argparse.Namespace) -> int:
    from .reporting.bundle import write_bundle

    out = options.out or Path(f"{options.run_directory.resolve().name}.zip")
    names = write_bundle(options.run_directory, out)
    _say(f"{out}: {len(names)} files, {out.stat().st_size} bytes")
    return 0


def _verify(options: argparse.Namespace) -> int:
    import tempfile

    from .evaluation.verification import verify
    from .reporting.bundle import not_derived, unpack
    from .reporting.runs import read_run

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
            _say(f"policy of {name}: {sha256}")
        if (made := run.manifest.get("version", __version__)) != __version__:
            _say(f"note: the run was made by release {made}, and this is {__version__}: what differs may come from that")
        for note in found.notes:
            _say(f"note: {note}")
        differences += [*found.differences, *not_derived(run)]
        _say(
            f"{run.decision}: {found.answers} answers scored again, {found.records} of {len(run.records)} records computed again"
        )
        return _told([one.replace(folder, str(options.bundle)) for one in differences])


def _told(differences: Sequence[str]) -> int:
    """Says what differs, and returns the exit code of a verification."""
    for difference in differences:
        _say(f"DIFFERS  {difference}")
    _say(f"{len(differences)} differences" if differences else "all agrees")
    return int(bool(differences))


def _show(options: argparse.Namespace) -> int:
    from .perturbations.gallery import printable, show

    begun = time.perf_counter()
    made = show(options.image, options.out, sets=options.set, settings=options.setting, seed=options.seed, tile=options.tile)
    _say(f"{printable(str(options.out))}: {made.count} settings in {time.perf_counter() - begun:.1f} s")
    return 0


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
