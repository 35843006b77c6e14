"""The docket and the policies beside it are kept as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.store.docket import planned_tests, read_docket, write_docket


def test_what_went_in_comes_out(tmp_path: Path) -> None:
    policies = [("a/p.yaml", "1" * 64, b"one\r\n"), ("b/p.yaml", "2" * 64, b"two")]
    tests = [{"nodeid": "a", "about": {"model": "m"}}, {"nodeid": "b", "about": {"family": "f"}}, {"nodeid": "c"}]
    for _ in range(2):  # every worker writes the same
        write_docket(tmp_path / "run", {"date": "2026-06-01", "tests": tests}, policies)
    assert read_docket(tmp_path / "run") == {"date": "2026-06-01", "tests": tests, "docket_version": 1}
    kept = {path.name: path.read_bytes() for path in (tmp_path / "run" / "policies").iterdir()}
    assert kept == {"111111111111-p.yaml": b"one\r\n", "222222222222-p.yaml": b"two"}
    assert planned_tests(tmp_path / "run") == {"a": "m", "b": "f", "c": ""}


def test_a_run_that_measured_nothing_has_no_tests(tmp_path: Path) -> None:
    assert planned_tests(tmp_path) == {}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not a docket"),
        ("[]", "has docket_version None, and this release reads 1"),
        ('{"docket_version": 2}', "has docket_version 2, and this release reads 1"),
    ],
)
def test_what_is_none_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "docket.json").write_text(content)
    with pytest.raises(StoreError, match=words):
        read_docket(tmp_path)


def test_an_absent_one_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"docket\.json: cannot read the docket: No such file.*Expected the directory of a run"):
        read_docket(tmp_path)


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(StoreError, match=r"cannot write docket\.json"):
        write_docket(tmp_path / "run", {}, [])
