from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import pytest_vlmrobust
from pytest_vlmrobust.metrics import REGISTRY, get, names
from pytest_vlmrobust.testing import memory
from pytest_vlmrobust.testing.memory import FILE_NAME, CheckMemory, installation, is_shipped


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
    one, other = CheckMemory(store, "here"), CheckMemory(store, "here")
    one.remember("test_metric", "accuracy", 3)
    other.remember("test_metric", "accuracy_drop", 3)
    one.remember("test_verdict", "accuracy", 3)
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
    found = json.loads(line)
    assert set(found) == {"test", "metric", "examples", "date", "installation"}
    parts = (f"pytest-vlmrobust {pytest_vlmrobust.__version__} (", ", numpy ", ", scipy ", ", Python ")
    assert all(part in found["installation"] for part in parts)


@pytest.mark.parametrize("file", ["metrics/statistics/paired.py", "testing/oracles.py", "policies/judge.py", "core/estimate.py"])
def test_the_digest_is_of_the_code_that_checks_depend_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    monkeypatch.setattr(pytest_vlmrobust, "__file__", str(tmp_path / "__init__.py"))
    digests = set()
    for text in ("a = 1\n", "a = 2\n"):
        path.write_text(text)
        digests.add(memory._code_digest())
    path.rename(path.with_name("renamed.py"))
    digests.add(memory._code_digest())
    assert len(digests) == 3
    assert (Path(memory.__file__).parents[1] / file).is_file()


def test_every_metric_of_the_package_is_shipped() -> None:
    assert all(map(is_shipped, names()))


def test_a_metric_of_the_package_with_one_fact_replaced_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY._things, "accuracy", replace(get("accuracy"), interval=None))
    assert not is_shipped("accuracy")
    assert is_shipped("accuracy_drop")
