"""Whatever stands in a file that a user writes, its reader reads it or raises one error that names the file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_vlmrobust.backends.models_file import read_models
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.core.errors import DatasetError, ModelError, PolicyError, UsageError
from pytest_vlmrobust.datasets.benchmarks import read_benchmark
from pytest_vlmrobust.datasets.faces_folder_table import read_settings
from pytest_vlmrobust.files.document import DEEPEST, LARGEST_FILE, LONGEST_NUMBER
from pytest_vlmrobust.policies import load_policy
from tests.hostile_values import VALUES

FORMATS: dict[str, Callable[[Path], object]] = {
    "thresholds.yaml": lambda path: load_policy([path], known_metrics=["accuracy_drop", "pcri"]),
    "models.yaml": read_models,
    "ours.benchmark.yaml": read_benchmark,
    "faces.yaml": lambda path: read_settings(path.parent),
    "answers.yaml": ScriptedBackend.from_file,
}
VALID = {
    "thresholds.yaml": (
        "version: 1\ndefaults: {alpha_pass: 0.05, judge: interval}\nbudgets: {max_error_rate: 1%}\n"
        "coverage: {tests: whole, samples: 20%, suites: [corruptions]}\n"
        "rules:\n- {id: r, metric: accuracy_drop, max: 5pp, where: {level: low, setting: ['*']}, reason: why}\n"
        "- {id: s, metric: pcri, within: [0.1, 0.2]}\n"
        "waivers:\n- {id: w, metric: pcri, where: {model: m}, cap: 60pp, owner: o, reason: why, expires: 2027-06-30}\n"
    ),
    "models.yaml": (
        "models:\n  m:\n    path: x\n    dtype: auto\n    max_pixels: 9\n    parameters_billion: 2.2\n    revision: a\n"
        "    generation: {top_k: 3, temperature: 0.5}\n"
    ),
    "ours.benchmark.yaml": (
        "about: x\nfiles: [a]\nkinds: [{task: choice, scorer: exact}]\ncircular: true\ntogether: k\n"
        "tsv: {columns: {category: '{a}-{b}'}, keys: {k: a}, parts: {c: '(?P<d>.)'}, answers: {'1': x}, drop: {c: {v: why}},\n"
        "  unattacked: {c: v}}\n"
    ),
    "faces.yaml": "domain: face\nhinted: nose\nlandmarks: x.task\nencoder: a/b@c\n",
    "answers.yaml": (
        "default: A\nrules:\n- {setting: 'fog:*', answer: x}\n- {sample: s, letter: B, logprobs: {A: -2.3, B: -0.1}}\n"
        "- {text: how, error: down}\n- {right: 0.8, luck: 0.1, task: choice}\n- {right: chance}\n- {always: majority}\n"
    ),
}


def outcome_of(name: str, content: bytes) -> str:
    """Returns the error that a reader raises for a file of that name, and an empty text where it reads it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            FORMATS[name](path)
        except UsageError as error:
            message = str(error)
        else:
            return ""
    assert name in message
    return message


def replaced(node: yaml.Node, place: int, text: str, source: str) -> str:
    """Returns a file in which one value, counted from the first, is replaced by a text as it stands."""
    scalars = [scalar for scalar in _nodes(node) if scalar is not node]
    chosen = scalars[place % len(scalars)]
    return source[: chosen.start_mark.index] + text + source[chosen.end_mark.index :]


def _nodes(node: Any) -> list[yaml.Node]:
    children = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else []
    children = list(node.value) if isinstance(node, yaml.SequenceNode) else children
    return [node, *(deeper for child in children for deeper in _nodes(child))]


@pytest.mark.parametrize("name", FORMATS)
def test_the_files_that_are_changed_below_can_be_read(name: str) -> None:
    assert outcome_of(name, VALID[name].encode()) == ""


@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("name", FORMATS)
@given(place=st.integers(0, 100), text=st.sampled_from(VALUES))
def test_a_hostile_value_in_any_place_is_one_error_or_a_value(name: str, place: int, text: str) -> None:
    node = yaml.compose(VALID[name], yaml.SafeLoader)
    assert node is not None
    assert len(outcome_of(name, replaced(node, place, f" {text} ", VALID[name]).encode())) < 2000


@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
def test_any_bytes_in_any_place_are_one_error_or_a_value(name: str, data: st.DataObject) -> None:
    content = VALID[name].encode()
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(len(content), start + 20)))
    noise = data.draw(
        st.one_of(st.binary(max_size=20), st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")))
    )
    assert len(outcome_of(name, content[:start] + noise + content[end:])) < 2000


@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("name", FORMATS)
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    )
)
@example(value={"version": 1, "rules": [], "models": {}, "kinds": [], "domain": {}, "default": []})
def test_any_yaml_is_one_error_or_a_value(name: str, value: object) -> None:
    outcome_of(name, yaml.safe_dump(value, allow_unicode=True).encode("utf-8", "surrogatepass"))


@pytest.mark.cases("name", FORMATS)
@pytest.mark.cases(
    ("content", "problem"),
    [
        (b"# caf\xe9\n", ":1: byte 0xe9 is not UTF-8. Save the file as UTF-8"),
        (b"a: \0\n", ":1: not YAML: unacceptable character #x0000. Remove it"),
        (b'#\na: "\\0"\n', ":2: '\\x00' holds the character NUL. Remove it"),
        (b'#\na: "\\ud800"\n', ":2: '\\ud800' holds half a surrogate pair, which is no character. Remove it"),
        (b'#\na: "\\UFFFFFFFF"\n', ":2: not YAML: "),
        (b"#\na: " + b"[" * 2000, ":2: lists or mappings are nested too deeply. Expected at most 40 levels"),
        (
            b"#\na: " + b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1),
            ":2: lists or mappings are nested too deeply. Expected at most 40 levels",
        ),
        (b"#\na: &b {c: *b}\n", ":2: a mapping contains itself (&). Write its values out"),
        (b"#\na: &b [*b]\n", ":2: a list contains itself (&). Write its values out"),
        (b"a: 1\na: 2\n", ""),
        (b"", ": the file is empty. Expected "),
        (b"---\na: 1\n---\na: 2\n", ":3: not YAML: but found another document"),
        (b"#" * (LARGEST_FILE + 1), "is larger than 8 MiB. Expected a smaller YAML file"),
    ],
)
def test_what_no_file_may_be_is_said_alike_by_every_reader(name: str, content: bytes, problem: str) -> None:
    error = outcome_of(name, content)
    assert problem in error
    assert all(name in line for line in error.splitlines())


@pytest.mark.parametrize("name", FORMATS)
def test_a_bomb_of_aliases_is_refused_where_it_becomes_too_large(name: str) -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    assert ":7: the aliases (*) stand for more than 16 million characters. Write fewer of them" in outcome_of(name, bomb.encode())


@pytest.mark.parametrize("name", FORMATS)
def test_a_folder_in_the_place_of_a_file_is_named(name: str, tmp_path: Path) -> None:
    if name == "faces.yaml":
        pytest.skip("only a file of that name is looked for in a folder of identities")
    with pytest.raises(UsageError, match=f"{tmp_path}: cannot read the .*: Is a directory. Expected a YAML file"):
        FORMATS[name](tmp_path)


def test_a_number_that_is_too_long_to_be_read_says_so() -> None:
    digits = "9" * (LONGEST_NUMBER + 1)
    error = outcome_of("models.yaml", f"models:\n  m:\n    path: x\n    max_pixels: {digits}\n".encode())
    assert f"models.yaml:4: models.m.max_pixels is '{'9' * 57}...'. Expected at most 1000 characters; 1001 given" in error


@pytest.mark.parametrize(
    ("name", "kind"), [*zip(FORMATS, (PolicyError, ModelError, DatasetError, DatasetError, ModelError), strict=True)]
)
def test_errors_are_of_the_readers_own_class(name: str, kind: type[UsageError], tmp_path: Path) -> None:
    (tmp_path / name).write_text("nonsense")
    with pytest.raises(kind, match=f"{name}:1: the file is the text 'nonsense'. Expected a mapping"):
        FORMATS[name](tmp_path / name)
