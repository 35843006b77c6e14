"""Policies: `vlmrobust init` and `vlmrobust check`."""

from __future__ import annotations

import argparse
import math
import os
import re
import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from pytest_vlmrobust.core.errors import PolicyError, UsageError, typed_path
from pytest_vlmrobust.core.words import quantity

from .arguments import Commands, add_command, counting, in_color, run_directory, say, show, tell, width

if TYPE_CHECKING:
    from pytest_vlmrobust.policies import Policy


def add(commands: Commands) -> None:
    """Adds them to the parser."""
    _add_init(commands)
    _add_check(commands)


# `vlmrobust check`.


_FEWEST = 2
"""Options among which there is a choice."""


class _Noise(NamedTuple):
    """The lines of an A/A measurement about rules, and its warnings."""

    lines: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def _add_check(commands: Commands) -> None:
    check = add_command(
        commands,
        "check",
        "read thresholds files as a gate would and list what they contain",
        "vlmrobust check default ours.yaml",
        "vlmrobust check ours.yaml --samples 500",
    )
    check.add_argument("files", nargs="+", help="thresholds files, or names of shipped ones")
    check.add_argument(
        "--samples",
        type=counting("samples"),
        metavar="N",
        help="name the rules that N independent samples of a dataset can hardly decide",
    )
    check.add_argument(
        "--options",
        type=_options,
        metavar="K",
        help="refuse bounds that no outcome could break where questions have K options: 2 for yes/no, or open",
    )
    check.add_argument(
        "--accuracy", type=_accuracy, metavar="A", help="say which bounds a model of this clean accuracy cannot break: 0.8"
    )
    check.add_argument(
        "--noise",
        type=run_directory,
        metavar="RUN",
        help="say which rules are tighter than the noise of a run made with --vlm-aa",
    )
    check.add_argument("--strict", action="store_true", help="exit with 1 when there is a warning")
    check.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.evaluation.after.policy_lint import lacks_basics, lint
    from pytest_vlmrobust.evaluation.judge.scopes import is_relative, known_metrics, thresholds_file
    from pytest_vlmrobust.evaluation.power.sample_size import rules_without_sample_size
    from pytest_vlmrobust.evaluation.run.clock import utc_today
    from pytest_vlmrobust.metrics.registry import AMBIGUOUS
    from pytest_vlmrobust.policies import load_policy
    from pytest_vlmrobust.reporting.policy_table import render_policy

    files = [thresholds_file(name, Path, given_as="FILE") for name in options.files]
    policy = load_policy(files, known_metrics=known_metrics(), ambiguous=AMBIGUOUS, root=Path.cwd())
    noise = _noise(options.noise, policy) if options.noise else _Noise()
    say(f"{quantity(len(policy.rules), 'rule')}, {quantity(len(policy.waivers), 'waiver')}")
    say(f"sha256 {policy.sha256}")
    show(f"\n{render_policy(policy, width=width(), color=in_color())}")
    if relative := [rule.id for rule in policy.rules if is_relative(rule)]:
        tell(f"note: {', '.join(relative)}: compared with an earlier run, and not applicable without --vlm-baseline RUN")
    for line in noise.lines:
        say(line)
    findings = lint(
        policy,
        today=utc_today(),
        samples=options.samples,
        options=options.options,
        clean=options.accuracy,
    )
    for note in (finding for finding in findings if finding.noted):
        tell(f"note: {note}")
    if options.samples and (unknown := rules_without_sample_size(policy)):
        rules = ", ".join(f"{rule.id} ({rule.metric})" for rule in unknown)
        tell(f"note: not checked at this size: {rules}")
    printed = [finding for finding in findings if not (finding.refused or finding.noted)]
    warnings = [*map(str, [*printed, *lacks_basics(policy)]), *noise.warnings]
    for finding in warnings:
        tell(f"warning: {finding}")
    if refused := [finding for finding in findings if finding.refused]:
        raise PolicyError("\n".join(f"refused: {finding}" for finding in refused))
    return int(options.strict and bool(warnings))


def _options(text: str) -> float:
    """Reads a number of options: ``4``, or ``open`` for questions without any."""
    if text == "open":
        return math.inf
    if not text.isascii() or not text.isdigit() or int(text) < _FEWEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of options. Expected 2 or more, or open")
    return float(text)


def _accuracy(text: str) -> float:
    """Reads a clean accuracy, above 0 and at most 1: ``0.8`` or ``80%``."""
    try:
        accuracy = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        accuracy = math.nan
    if not 0.0 < accuracy <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected an accuracy above 0 and at most 1, such as 0.8 or 80%")
    return accuracy


def _noise(directory: Path, policy: Policy) -> _Noise:
    """Reads the A/A measurement of a run and sets it beside the rules of a policy.

    Raises:
        StoreError: the directory holds no run.
        UsageError: the run has no such measurement.
    """
    from pytest_vlmrobust.evaluation.after.repeat import compare_with_rules, uncompared_rules
    from pytest_vlmrobust.reporting.comparison import noise_lines, noise_warnings
    from pytest_vlmrobust.reporting.files import read_run

    run = read_run(directory)
    if not run.facts.repeatability:
        command = run.facts.command.whole("--vlm-aa") if run.facts.command else "pytest --vlm=... --vlm-aa ..."
        raise UsageError(
            f"--noise {directory}: the run has no A/A measurement: its questions were asked once, or it ended before they were "
            f"asked again. Make a run that has one: {command}"
        )
    noise = [compare_with_rules(repeat, policy.rules, run.records) for repeat in run.facts.repeatability]
    known = [line for repeat in noise if repeat.measured for line in noise_lines(repeat)]
    unknown = [line for repeat in noise if not repeat.measured for line in noise_lines(repeat)]
    notes = [f"note: {sentence}" for sentence in uncompared_rules(noise, policy.rules, run.records)]
    return _Noise((*known, *notes), (*noise_warnings(noise), *unknown))


# `vlmrobust init`.


_RECIPES = {
    "github": ("github.yml", Path(".github/workflows/vlm-gate.yml")),
    "gitlab": ("gitlab.yml", Path(".gitlab-ci.yml")),
    "jenkins": ("Jenkinsfile", Path("Jenkinsfile")),
}
"""Service to the file of its recipe, and where that goes."""
_FILL_IN = re.compile(r"""(?P<name>VLM_PACKAGE(?::| =)) (?P<quote>["'])(?P=quote) +(?:#|//) FILL IN$""", re.MULTILINE)
"""The line of a recipe that says what CI installs."""
_ADDRESS = re.compile(r"(?:pytest-vlmrobust(?:\[[\w.,-]+\])? ?@ ?)?(?P<url>(?:(?:git\+)?https?|git\+ssh)://[^\s/]+/\S+)")
_PATH = re.compile(r"(?P<path>.+?)(?P<extras>\[[\w.,-]+\])?")
_NAME = "pytest-vlmrobust"
_UNQUOTABLE = "\"'\\$`"
"""Characters that mean something to YAML, Groovy or the services between quotes."""
_SOURCES = "a wheel or a checkout of it in the repository, or git+https://HOST/REPOSITORY@TAG"
_NEXT = {
    "what a run would ask, without asking it": "pytest --vlm=tiny suites/test_patches.py --vlm-plan",
    "the gate on the model that ships with the package": "pytest --vlm=tiny suites/ --vlm-report=report",
    "the gate on your own model and data": "pytest --vlm=./my-checkpoint --vlm-dataset=my.tsv suites/",
}
"""What a command is for, and the command: what to run after ``vlmrobust init``."""


def _add_init(commands: Commands) -> None:
    init = add_command(
        commands,
        "init",
        "copy the shipped suites and thresholds into a directory",
        "vlmrobust init",
        "vlmrobust init gate --ci github",
        "vlmrobust init --ci gitlab --package dist/pytest_vlmrobust-0.1.0-py3-none-any.whl",
    )
    init.add_argument("directory", nargs="?", type=typed_path, default=Path(), help="where to (default: here)")
    init.add_argument("--ci", choices=sorted(_RECIPES), help="also write a recipe for this service of continuous integration")
    init.add_argument(
        "--package",
        metavar="SPEC",
        help="what CI installs: a wheel or a checkout of this project below DIRECTORY, or git+https://HOST/REPOSITORY@TAG",
    )
    init.add_argument("--force", action="store_true", help="overwrite files that differ")
    init.set_defaults(run=_init)


def _init(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.shipped import shipped

    if options.package is not None and not options.ci:
        raise UsageError("--package: it is written into a recipe. Name the service as well: --ci github, gitlab or jenkins")
    copies = [
        (file.read_bytes(), options.directory / folder / file.name)
        for folder, pattern in (("suites", "*.py"), ("thresholds", "*.*"))
        for file in sorted(shipped(folder).glob(pattern))
    ]
    steps: list[str] = []
    if options.ci:
        name, place = _RECIPES[options.ci]
        recipe = (shipped("recipes") / name).read_text(encoding="utf-8")
        if options.package is None:
            steps = [f"# {place} fails until its VLM_PACKAGE says where this package comes from:", f"# {_SOURCES}"]
        else:
            package = _package(options.package, options.directory)
            recipe = _FILL_IN.sub(lambda line: f"{line['name']} {line['quote']}{package}{line['quote']}", recipe)
            if package.startswith("./"):
                steps = ["# CI installs this package from the repository", f"git add {shlex.quote(package.partition('[')[0])}"]
        copies.append((recipe.encode(), options.directory / place))
    kept = [to for content, to in copies if to.exists() and to.read_bytes() != content and not options.force]
    if kept:
        raise UsageError(f"{', '.join(map(str, kept))} exist and differ from what is shipped. Use --force to overwrite them")
    for content, to in copies:
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(content)
        say(str(to))
    say("\nNext:")
    if options.directory != Path():
        say(f"  cd {shlex.quote(str(options.directory))}")
    for line in [*steps, *(line for about, command in _NEXT.items() for line in (f"# {about}", command))]:
        say(f"  {line}")
    return 0


def _package(text: str, directory: Path) -> str:
    """Returns what a recipe gives to ``uv pip install``.

    Args:
        text: as typed.
        directory: the repository that CI checks out.

    Raises:
        UsageError: it is neither an address nor a path that CI can install.
    """
    matched = _PATH.fullmatch(text)
    if refused := [character for character in text if not character.isprintable() or character in _UNQUOTABLE]:
        problem = f"{refused[0]!r} is not written into a recipe"
    elif address := _ADDRESS.fullmatch(text):
        _refuse_secrets(address["url"])
        return text
    elif not matched or text.startswith("-"):
        problem = "that is nothing to install"
    else:
        path = typed_path(matched["path"], directory, given_as="--package")
        packed = path.name.endswith((".whl", ".tar.gz"))
        if not path.resolve().is_relative_to(directory.resolve()):
            problem = f"CI sees only what is below {directory.resolve()}"
        elif (packed and path.is_file()) or _is_this_package(path):
            below = Path(os.path.relpath(path, directory)).as_posix()
            return f"{below if below == '.' else f'./{below}'}{matched['extras'] or ''}"
        elif path.exists():
            problem = f"{path} is neither a wheel nor a directory whose pyproject.toml has the name {_NAME!r}"
        elif packed or "/" in text:
            problem = f"{path} does not exist"
        else:
            problem = "no package index has this project, and anybody may register a name there"
    raise UsageError(f"--package {text!r:.200}: {problem}. Expected {_SOURCES}")


def _refuse_secrets(address: str) -> None:
    """Refuses an address with what may be a token: the recipe is committed.

    Raises:
        UsageError: it has a user, a password or a query.
    """
    parts = urlsplit(address)
    if parts.password is None and not parts.query and (parts.username is None or "ssh" in parts.scheme):
        return
    raise UsageError(
        f"--package: the address on {parts.hostname} has a user, a password or a query, not shown here, and the recipe is "
        "committed. Leave it out. If CI needs a token there, keep it as a secret variable of the CI service, and give it to git "
        f"in a step before: git config --global url.https://USER:$TOKEN@{parts.hostname}/.insteadOf https://{parts.hostname}/"
    )


def _is_this_package(directory: Path) -> bool:
    try:
        content = tomllib.loads((directory / "pyproject.toml").read_text(encoding="utf-8"))
        return bool(content["project"]["name"] == _NAME)
    except (OSError, ValueError, KeyError, TypeError):
        return False
