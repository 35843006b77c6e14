"""Start: `vlmrobust init`, which copies the shipped suites or writes a first gate, and `vlmrobust open`."""

from __future__ import annotations

import os
import re
import shlex
import sys
import tomllib
import webbrowser
from contextlib import suppress
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple
from urllib.parse import urlsplit

from typer import Argument, Option

from pytest_vlmrobust.core.errors import StoreError, UsageError, requirements_of, typed_path
from pytest_vlmrobust.core.words import percent, quantity

from .arguments import LATEST, STORE, run_directory, runs_of, say, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_vlmrobust.core.sample import Sample
    from pytest_vlmrobust.policies import Policy


# `vlmrobust open`.


REPORT = "report"
"""The report directory in the first gate's ini file."""
_PAGE = "report.html"


def open_(
    place: Annotated[
        Path | None,
        Argument(
            metavar="RUN",
            parser=run_directory,
            help="a report or a run",
            show_default=f"{REPORT}, else the latest run",
        ),
    ] = None,
) -> int:
    """Open a report in the browser: of a report directory, or of a run.

    Examples:
        vlmrobust open
        vlmrobust open last-release
    """
    here = Path(REPORT)
    directory = place or (here if (here / _PAGE).is_file() else run_directory(LATEST))
    page = directory / _PAGE
    if not page.is_file():
        named = shlex.quote(str(place or LATEST))
        raise StoreError(
            f"{directory} has no {_PAGE}. Write it: vlmrobust report {named}. Or browse: vlmrobust view {named} --open"
        )
    say(str(page))
    if not place:
        _say_if_older(directory)
    if not webbrowser.open(page.resolve().as_uri()):
        tell("there is no browser here. Copy the page to a machine that has one; it needs no other file")
    return 0


def _say_if_older(report: Path) -> None:
    """Says so where a report is not about the newest run, which wrote no report, or one elsewhere."""
    from pytest_vlmrobust.store import read_manifest

    with suppress(StoreError):  # nothing is known of a report without a manifest
        run, newest = read_manifest(report).get("run"), runs_of(STORE)[:1]
        if run and newest and newest[0].name != run:
            tell(f"this page is about run {run}. The newest run is {newest[0].name}: vlmrobust open {LATEST}")


# `vlmrobust init`.

Service = Literal["github", "gitlab", "jenkins"]
_RECIPES: dict[Service, tuple[tuple[str, str], tuple[str, str]]] = {
    "github": (("github.yml", ".github/workflows/vlm-gate.yml"), ("action.yml", ".github/actions/vlm-gate/action.yml")),
    "gitlab": (("gitlab.yml", ".gitlab-ci.yml"), ("templates/vlm-gate.yml", ".gitlab/vlm-gate.yml")),
    "jenkins": (("Jenkinsfile", "Jenkinsfile"), ("vars/vlmGate.groovy", "vlmGate.groovy")),
}
"""By service, its recipe and the gate that this calls: the file and the destination of each."""
_FILL_IN = re.compile(r"""(?P<name>package:) (?P<quote>["'])(?P=quote) +(?:#|//) FILL IN.*$""", re.MULTILINE)
"""The line of a recipe with the package that CI installs."""
_SHIPPED_GATE = re.compile(r"""^ +(?:model: '?tiny'?|suites: '?suites/'?),?\n""", re.MULTILINE)
"""The lines of a recipe that name the shipped gate; without them, pytest's ini file defines the gate."""
_ADDRESS = re.compile(r"(?:pytest-vlmrobust(?:\[[\w.,-]+\])? ?@ ?)?(?P<url>(?:(?:git\+)?https?|git\+ssh)://[^\s/]+/\S+)")
_PATH = re.compile(r"(?P<path>.+?)(?P<extras>\[[\w.,-]+\])?")
_NAME = "pytest-vlmrobust"
_UNQUOTABLE = "\"'\\$`"
"""Characters with a special meaning inside quotes in YAML, Groovy or the services."""
_SOURCES = "a wheel or a checkout of it in the repository, or git+https://HOST/REPOSITORY@TAG"
_EXAMPLES = {
    "what a run would ask, without asking it": "pytest --vlm=tiny suites/test_patches.py --vlm-plan",
    "the gate on the model that ships with the package": "pytest --vlm=tiny suites/ --vlm-report=report",
    "the gate on your own model and data": "pytest --vlm=./my-checkpoint --vlm-dataset=my.tsv suites/",
}
"""Commands to run after suites were copied, by their purpose."""


def init(
    directory: Annotated[Path, Argument(parser=typed_path, help="where to", show_default="here")] = Path(),
    *,
    model: Annotated[
        str | None, Option(metavar="NAME", help="what to gate, as after --vlm: with it, a first gate is written")
    ] = None,
    data: Annotated[str | None, Option(metavar="FILE", help="the questions to ask, as after --vlm-dataset")] = None,
    ci: Annotated[Service | None, Option(help="also write a recipe for this service of continuous integration")] = None,
    package: Annotated[
        str | None,
        Option(
            metavar="SPEC",
            help="what CI installs: a wheel or a checkout of this project below DIRECTORY, or git+https://HOST/REPOSITORY@TAG",
        ),
    ] = None,
    force: Annotated[bool, Option("--force", help="overwrite files that differ")] = False,
) -> int:
    """Write a first gate of your model and data, or copy the shipped suites and thresholds.

    Examples:
        vlmrobust init --model ./my-checkpoint --data questions.jsonl
        vlmrobust init
        vlmrobust init gate --ci github
        vlmrobust init --ci gitlab --package dist/pytest_vlmrobust-0.1.0-py3-none-any.whl
    """
    from pytest_vlmrobust.shipped import shipped

    if package is not None and not ci:
        raise UsageError("--package: it is written into a recipe. Name the service as well: --ci github, gitlab or jenkins")
    notes: list[str] = []
    commands = _EXAMPLES
    if named := _named(model, data, ask=bool(model or data or not ci)):
        first = _first_gate(*named, directory)
        copies, notes, commands = first.files, first.notes, _FIRST_COMMANDS
    else:
        copies = {
            Path(folder, file.name): file.read_bytes()
            for folder, pattern in (("suites", "*.py"), ("thresholds", "*.*"))
            for file in sorted(shipped(folder).glob(pattern))
        }
    steps: list[str] = []
    if ci:
        recipes, steps = _recipe(ci, package, directory, ships=commands is _EXAMPLES)
        copies |= recipes
    files = {directory / place: content for place, content in copies.items()}
    kept = [to for to, content in files.items() if to.exists() and to.read_bytes() != content and not force]
    if kept:
        raise UsageError(f"{', '.join(map(str, kept))} differs from what init would write; --force overwrites it")
    for to, content in files.items():
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(content)
        say(str(to))
    for note in notes:
        tell(f"note: {note}")
    say("\nNext:")
    if directory != Path():
        say(f"  cd {shlex.quote(str(directory))}")
    for line in [*steps, *(line for comment, command in commands.items() for line in (f"# {comment}", command))]:
        say(f"  {line}")
    return 0


def _recipe(service: Service, package: str | None, directory: Path, *, ships: bool) -> tuple[dict[Path, bytes], list[str]]:
    """Returns the files of a CI service by place, and the remaining manual steps. If it ``ships``, the gate is named."""
    from pytest_vlmrobust.shipped import shipped

    (recipe, to), (gate, gate_to) = _RECIPES[service]
    text = (shipped("recipes") / recipe).read_text(encoding="utf-8")
    text = text if ships else _SHIPPED_GATE.sub("", text)
    steps = [f"# {to} fails until its package says where this package comes from:", f"# {_SOURCES}"]
    if package is not None:
        installed = _package(package, directory)
        text = _FILL_IN.sub(lambda line: f"{line['name']} {line['quote']}{installed}{line['quote']}", text)
        added = shlex.quote(installed.partition("[")[0])
        steps = ["# CI installs this package from the repository", f"git add {added}"] if installed.startswith("./") else []
    return {Path(to): text.encode(), Path(gate_to): shipped(gate).read_bytes()}, steps


# The first gate: an ini file, a suite, and a policy whose bounds the data can decide.


_FIRST_COMMANDS = {
    "what it will cost": "pytest --vlm-plan",
    "the gate": "pytest",
    "its report": "vlmrobust open",
}
_SUITE = "suites/test_everyday.py"
_POLICY = "policy.yaml"
_INI = "pytest.ini"
_SETTINGS = (
    "gaussian_noise:mid",
    "motion_blur:mid",
    "defocus_blur:mid",
    "jpeg_compression:mid",
    "brightness:mid",
    "contrast:mid",
    "rotate:low",
    "downsample:mid",
)
_METRICS = ("accuracy_above_chance", "visual_gain", "mean_drop")
_DROPS = ("accuracy_drop", "mean_drop")
_BOUNDS = (0.03, 0.05, 0.075, 0.10, 0.125, 0.15, 0.20, 0.25, 0.30, 0.40, 0.50)
"""Bounds of a drop to try, the strictest first. A first policy takes the step after the strictest bound that the questions
decide: the strictest is decided for a model that loses nothing, and a real model loses a little."""
_LEAST_GAIN = 0.05

_SUITE_TEXT = '''"""Damage that images meet every day: one test for each setting, and one for each summary metric."""

import pytest

SETTINGS = {settings}


@pytest.mark.vlm_settings("clean", "no_image", *SETTINGS)
def test_cell(vlm_cell):
    vlm_cell.check()


@pytest.mark.vlm_settings(*SETTINGS)
@pytest.mark.vlm_metrics({metrics})
def test_sweep(vlm_sweep):
    vlm_sweep.check()
'''
_POLICY_TEXT = """\
# A first policy, sized to {data}: {size}.
# A bound holds when the questions show it, so few questions need wide bounds. Tighten them when there are more.
version: 1
coverage:
  suites: [everyday]
rules:
  - id: knows-something
    metric: accuracy_above_chance
    min: {gain:g}pp
    reason: a model that guesses has nothing to lose
  - id: looks
    metric: visual_gain
    min: {gain:g}pp
    reason: a model that answers as well without the image does not look at it
  - id: drop
    metric: accuracy_drop
    unless: {{setting: no_image}}
    max: {drop:g}pp
    reason: {drop_reason}
  - id: mean-drop
    metric: mean_drop
    max: {mean:g}pp
    reason: {mean_reason}
"""


class _FirstGate(NamedTuple):
    """The files of a first gate by place, and notes on them."""

    files: dict[Path, bytes]
    notes: list[str]


def _named(model: str | None, data: str | None, *, ask: bool) -> tuple[str, str] | None:
    """Returns the model and the data; None if the shipped suites are to be copied.

    On a terminal, missing values are asked for, and no model means to copy.

    Raises:
        UsageError: one of them is missing.
    """
    if ask and sys.stdin.isatty() and sys.stdout.isatty():
        begin = not model and not data
        model = model or _ask(f"Model, such as ./my-checkpoint{' (Enter: copy the shipped suites)' if begin else ''}")
        data = data or (model and _ask("Questions, such as questions.jsonl"))
    if not model and not data:
        return None
    if not model or not data:
        missing = "--data FILE, the questions to ask" if model else "--model NAME, what to gate"
        raise UsageError(f"a first gate needs a model and data: add {missing}")
    return model, data


def _ask(question: str) -> str:
    try:
        return input(f"{question}: ").strip()
    except EOFError:
        raise UsageError(
            "the input ended before an answer, and nothing was written. Name both: --model NAME --data FILE"
        ) from None


def _first_gate(model: str, data: str, directory: Path) -> _FirstGate:
    """Returns the files of a first gate, with bounds that the data can decide."""
    import warnings

    from pytest_vlmrobust.backends import resolve as resolve_model
    from pytest_vlmrobust.datasets import resolve

    try:
        ref = resolve_model(model)
    except UsageError as error:  # names the option that was typed
        raise UsageError(re.sub(r"^--vlm(?= )", "--model", str(error))) from None
    dataset = resolve(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the gate prints them
        samples = dataset.samples()
    size = _size(samples)
    drop, mean = _decided_bounds(dataset.name, samples).values()
    if drop is None or mean is None:
        raise UsageError(
            f"{data}: too few questions ({size}) to decide a bound up to {percent(_BOUNDS[-1], 0)} of accuracy. "
            "Add questions about other images: from about 30 images on a gate says something"
        )
    reason = f"what {size} can decide about {{}}; replace it by what your users accept"
    policy = _POLICY_TEXT.format(
        data=data,
        size=size,
        gain=100 * _LEAST_GAIN,
        drop=100 * drop,
        mean=100 * mean,
        drop_reason=reason.format("one setting"),
        mean_reason=reason.format("all settings together"),
    )
    suite = _SUITE_TEXT.format(
        settings="[\n" + "".join(f'    "{name}",\n' for name in _SETTINGS) + "]",
        metrics=", ".join(f'"{name}"' for name in _METRICS),
    )
    ini = {
        "vlm": _from(directory, model),
        "vlm_dataset": _from(directory, data),
        "vlm_thresholds": _POLICY,
        "vlm_report": REPORT,
        "testpaths": "suites",
    }
    text = "[pytest]\n" + "".join(f"{key} = {value}\n" for key, value in ini.items())
    notes = [f"{data}: {size}, enough for bounds of {100 * drop:g} pp a setting, and of {100 * mean:g} pp in the mean"]
    if ref.backend == "openai":
        if find_spec("openai") is None:
            notes.append(f"{model} needs a package that is not installed: pip install {requirements_of('openai') or 'openai'}")
        if not ref.revision:
            notes.append(f"{model}: add @REVISION, or this is never GO: nobody can see which weights a server runs")
    files = {Path(_INI): text.encode(), Path(_SUITE): suite.encode(), Path(_POLICY): policy.encode()}
    return _FirstGate(files, notes)


def _size(samples: Sequence[Sample]) -> str:
    images = len({sample.source_image for sample in samples})
    questions = quantity(len(samples), "question")
    return questions if images == len(samples) else f"{questions} about {quantity(images, 'image')}"


def _decided_bounds(dataset: str, samples: Sequence[Sample]) -> dict[str, float | None]:
    """Returns for each metric of a drop a bound that the samples can decide for a model that loses little, if there is one."""
    from pytest_vlmrobust import perturbations
    from pytest_vlmrobust.evaluation.power.sample_size import undecided_ids
    from pytest_vlmrobust.evaluation.run.clock import utc_today
    from pytest_vlmrobust.policies import MetricKey

    tests = [MetricKey("model", dataset, name) for name in _METRICS]
    for name in _SETTINGS:
        info = perturbations.info(name)
        tests.append(MetricKey("model", dataset, "accuracy_drop", name, info.family, str(info.level or "")))
    images = {dataset: len({sample.source_image for sample in samples})}
    undecided = undecided_ids(_every_bound(), tests, images, today=utc_today(), questions={dataset: len(samples)})
    return {
        metric: next((bound for strictest, bound in pairwise(_BOUNDS) if f"{metric}-{strictest}" not in undecided), None)
        for metric in _DROPS
    }


def _every_bound() -> Policy:
    """Returns a policy with a rule for each bound of each metric of a drop."""
    import tempfile

    from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
    from pytest_vlmrobust.policies import load_policy

    rules = "".join(
        f"  - {{id: {metric}-{bound}, metric: {metric}, max: {100 * bound:g}pp, reason: sizes the first gate}}\n"
        for metric in _DROPS
        for bound in _BOUNDS
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, _POLICY)
        file.write_text(f"version: 1\nrules:\n{rules}", encoding="utf-8")
        return load_policy([file], known_metrics=known_metrics())


def _from(directory: Path, name: str) -> str:
    """Returns a name for the ini file in ``directory``: an existing path becomes relative to it."""
    scheme, colon, rest = name.partition(":")
    if colon and scheme == "scripted":
        return f"{scheme}:{_from(directory, rest)}"
    path = typed_path(name)
    if path.is_absolute() or not path.exists():
        return name
    below = Path(os.path.relpath(path, directory)).as_posix()
    return f"./{below}" if path.is_dir() and not below.startswith(".") else below


def _package(text: str, directory: Path) -> str:
    """Returns the argument of ``uv pip install`` in a recipe. ``directory`` is the repository that CI checks out."""
    matched = _PATH.fullmatch(text)
    if refused := [character for character in text if not character.isprintable() or character in _UNQUOTABLE]:
        problem = f"{refused[0]!r} is not written into a recipe"
    elif address := _ADDRESS.fullmatch(text):
        _refuse_secrets(address["url"])
        return text
    elif not matched or text.startswith("-"):
        problem = "it cannot be installed"
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
    """Refuses an address that may contain a token, because the recipe is committed."""
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
