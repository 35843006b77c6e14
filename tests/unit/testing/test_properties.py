from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st

import pytest_vlmrobust
from pytest_vlmrobust.core.errors import UnknownName
from pytest_vlmrobust.metrics import REGISTRY, get, names
from pytest_vlmrobust.testing import PROFILES, examples_of, properties
from pytest_vlmrobust.testing.properties import (
    FILE_NAME,
    VARIABLE,
    CheckMemory,
    fails,
    installation,
    is_shipped,
    is_thorough,
    try_examples,
)


def test_the_fast_profile_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert examples_of() == examples_of("") == PROFILES["vlm-fast"] < PROFILES["vlm-thorough"]


def test_the_environment_chooses_and_the_option_beats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "vlm-thorough")
    assert examples_of() == PROFILES["vlm-thorough"]
    assert examples_of("vlm-fast") == PROFILES["vlm-fast"]


def test_thorough_is_what_the_option_or_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert not is_thorough()
    assert is_thorough("vlm-thorough")
    monkeypatch.setenv(VARIABLE, "vlm-thorough")
    assert is_thorough()
    assert not is_thorough("vlm-fast")


def test_a_profile_of_the_users_own_is_honoured() -> None:
    settings.register_profile("of-their-own", max_examples=7)
    assert examples_of("of-their-own") == 7


def test_a_misspelt_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "vlm-thorugh")
    message = r"VLMROBUST_PROFILE: unknown profile 'vlm-thorugh'\. Did you mean 'vlm-thorough'\? Known: vlm-fast, vlm-thorough"
    with pytest.raises(UnknownName, match=message):
        examples_of()


def test_profiles_are_known_to_hypothesis_and_always_draw_the_same() -> None:
    for name, examples in PROFILES.items():
        assert (settings.get_profile(name).max_examples, settings.get_profile(name).derandomize) == (examples, True)


def test_examples_are_the_same_each_time() -> None:
    runs: list[list[int]] = []
    for _ in range(2):
        drawn: list[int] = []
        try_examples("mine", st.integers(0, 10**6), drawn.append, 20)
        runs.append(drawn)
    assert runs[0] == runs[1]
    assert len(set(runs[0])) > 10


def test_the_smallest_example_that_fails_is_reported() -> None:
    def below(number: int) -> None:
        if number >= 17:
            fails("mine", "is too large", str(number))

    with pytest.raises(AssertionError, match=r"^metric 'mine' is too large\n    called with 17$"):
        try_examples("mine", st.integers(0, 1000), below, 50)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_a_pass_is_remembered_by_whoever_opens_the_store(store: Path) -> None:
    CheckMemory(store, "here").remember("test_metric", "accuracy", 3)
    opened = CheckMemory(store, "here")
    assert opened.passed("test_metric", "accuracy", 3)
    assert opened.passed("test_metric", "accuracy", 2)
    assert not opened.passed("test_metric", "accuracy", 4)
    assert not opened.passed("test_verdict", "accuracy", 3)
    assert not opened.passed("test_metric", "accuracy_drop", 3)
    assert not CheckMemory(store, "elsewhere").passed("test_metric", "accuracy", 3)


def test_two_processes_that_share_a_store_lose_nothing(store: Path) -> None:
    first, second = CheckMemory(store, "here"), CheckMemory(store, "here")
    first.remember("test_metric", "accuracy", 3)
    second.remember("test_metric", "accuracy_drop", 3)
    first.remember("test_verdict", "accuracy", 3)
    opened = CheckMemory(store, "here")
    passes = [("test_metric", "accuracy"), ("test_metric", "accuracy_drop"), ("test_verdict", "accuracy")]
    assert all(opened.passed(test, metric, 3) for test, metric in passes)


def test_a_torn_line_is_no_pass_and_costs_no_other(store: Path) -> None:
    CheckMemory(store, "here").remember("test_metric", "accuracy", 3)
    file = store / FILE_NAME
    file.write_bytes(file.read_bytes().rstrip()[:-9])
    assert not CheckMemory(store, "here").passed("test_metric", "accuracy", 3)
    CheckMemory(store, "here").remember("test_metric", "accuracy_drop", 3)
    assert CheckMemory(store, "here").passed("test_metric", "accuracy_drop", 3)


@pytest.mark.parametrize("line", ["[]", "7", "{}", '{"installation": "here"}', "\xff"])
def test_what_is_no_pass_is_passed_over(store: Path, line: str) -> None:
    store.mkdir()
    (store / FILE_NAME).write_bytes(line.encode("latin-1"))
    assert not CheckMemory(store, "here").passed("test_metric", "accuracy", 3)


def test_where_nothing_can_be_written_nothing_is_remembered(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    CheckMemory(tmp_path / "file", "here").remember("test_metric", "accuracy", 3)
    assert not CheckMemory(tmp_path / "file", "here").passed("test_metric", "accuracy", 3)


def test_a_line_says_what_passed_where_and_when(store: Path) -> None:
    CheckMemory(store, installation()).remember("test_metric", "accuracy", 3)
    (line,) = (store / FILE_NAME).read_text(encoding="utf-8").split("\n")[1:-1]
    entry = json.loads(line)
    assert set(entry) == {"test", "metric", "examples", "date", "installation"}
    parts = (f"pytest-vlmrobust {pytest_vlmrobust.__version__} (", ", numpy ", ", scipy ", ", Python ")
    assert all(part in entry["installation"] for part in parts)


@pytest.mark.parametrize("file", ["metrics/statistics/paired.py", "testing/oracles.py", "policies/judge.py", "core/estimate.py"])
def test_the_digest_is_of_the_code_that_checks_depend_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    monkeypatch.setattr(pytest_vlmrobust, "__file__", str(tmp_path / "__init__.py"))
    digests = set()
    for text in ("a = 1\n", "a = 2\n"):
        path.write_text(text)
        digests.add(properties._code_digest())
    path.rename(path.with_name("renamed.py"))
    digests.add(properties._code_digest())
    assert len(digests) == 3
    assert (Path(properties.__file__).parents[1] / file).is_file()


def test_every_metric_of_the_package_is_shipped() -> None:
    assert all(map(is_shipped, names()))


def test_a_metric_of_the_package_with_one_fact_replaced_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY._things, "accuracy", replace(get("accuracy"), interval=None))
    assert not is_shipped("accuracy")
    assert is_shipped("accuracy_drop")
