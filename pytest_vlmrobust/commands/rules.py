"""Rules: `vlmrobust check`."""

from __future__ import annotations

import argparse
from datetime import date
from pathlib import Path

from .parsing import Commands, count
from .printing import in_color, say, width


def add(commands: Commands) -> None:
    """Adds them to the parser."""
    check = commands.add_parser("check", help="read thresholds files as a gate would and say what they hold")
    check.add_argument("files", nargs="+", help="thresholds files, or names of shipped ones")
    check.add_argument(
        "--samples", type=count, metavar="N", help="say which rules N independent samples of a data set hardly decide"
    )
    check.add_argument("--strict", action="store_true", help="exit with 1 when there is a warning")
    check.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.evaluation.policy_files import is_relative, known_metrics, thresholds_file
    from pytest_vlmrobust.evaluation.policy_lint import lint
    from pytest_vlmrobust.metrics.registry import AMBIGUOUS
    from pytest_vlmrobust.policies import load_policy
    from pytest_vlmrobust.reporting.policy_table import render_policy

    files = [thresholds_file(name, Path) for name in options.files]
    policy = load_policy(files, known_metrics=known_metrics(), ambiguous=AMBIGUOUS, root=Path.cwd())
    say(f"{len(policy.rules)} rules, {len(policy.waivers)} waivers, sha256 {policy.sha256}")
    say(f"\n{render_policy(policy, width=width(), color=in_color())}")
    if relative := [rule.id for rule in policy.rules if is_relative(rule)]:
        say(f"note: {', '.join(relative)}: compared with an earlier run, and not applicable without --vlm-baseline RUN")
    findings = lint(policy, today=date.today(), samples=options.samples)  # noqa: DTZ011 - waivers expire by local date
    for finding in findings:
        say(f"warning: {finding}")
    return int(options.strict and bool(findings))
