"""A store that may only be read, as evidence is that others answer for: verdicts come from it, and nothing goes into it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_vlmrobust.cli import main
from pytest_vlmrobust.store import Evidence

from .conftest import Project, ends

HELD = 6 + 2
"""Tests of the suite."""
Snapshot = dict[str, tuple[int, bytes]]


@pytest.fixture
def seal(project: Project, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Takes the permission to write from directories, also from root, who needs none: the system says no to whoever asks."""
    sealed: list[Path] = []
    allowed = os.access

    def access(path: os.PathLike[str] | str, mode: int, **options: bool) -> bool:
        inside = any(Path(path).is_relative_to(folder) for folder in sealed)
        return allowed(path, mode, **options) and not (inside and mode & os.W_OK)

    monkeypatch.setattr("os.access", access)
    return lambda *names: sealed.extend(project.path / name for name in names)


@pytest.fixture
def filled(project: Project) -> Project:
    """A project whose store answers for itself."""
    project.run("--vlm-store=store").assert_outcomes(passed=HELD)
    return project


def snapshot(directory: Path) -> Snapshot:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def runs_in(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []


def test_verdicts_come_from_a_store_that_is_only_read(filled: Project, seal: Callable[..., None]) -> None:
    before = snapshot(filled.path / "store")
    seal("store")
    result = ends(filled.run("--vlm-store=store", "--vlm-offline"), 0)
    result.assert_outcomes(passed=HELD)
    (run,) = runs_in(filled.path / ".vlmrobust-runs")
    result.stdout.fnmatch_lines([f"vlm: the store is read-only, so this run is kept in {run}"])
    assert snapshot(filled.path / "store") == before
    with Evidence.open(run, read_only=True) as evidence:
        assert len(evidence.cells()) == 6
    assert main(["report", str(run), "--out", str(filled.path / "page")]) == 0
    assert filled.results("page")["decision"] == "GO"


def test_where_only_the_report_can_be_written_the_run_is_kept_in_it(
    filled: Project, seal: Callable[..., None], tmp_path: Path
) -> None:
    seal(".")
    out = tmp_path / "out"
    assert filled.run("--vlm-store=store", "--vlm-offline", f"--vlm-report={out}").ret == 0
    (run,) = runs_in(out / "runs")
    assert (run / "records.jsonl").is_file()
    assert not runs_in(filled.path / ".vlmrobust-runs")


@pytest.mark.slow
def test_workers_keep_one_run_in_one_place(filled: Project, seal: Callable[..., None]) -> None:
    (filled.path / "store" / "runs").rename(filled.path / "runs")
    (filled.path / "store" / "predictions.sqlite").chmod(0o444)
    filled.write("conftest.py", CLOSED)
    assert filled.run("--vlm-store=store", "--vlm-offline", "-n2", subprocess=True).ret == 0
    (run,) = runs_in(filled.path / ".vlmrobust-runs")
    with Evidence.open(run, read_only=True) as evidence:
        assert len(evidence.cells()) == 6
    assert [path.name for path in (filled.path / "store").iterdir()] == ["predictions.sqlite"]


CLOSED = """
import os
from pathlib import Path

STORE = Path(__file__).parent / "store"
allowed = os.access
os.access = lambda path, mode: allowed(path, mode) and not (Path(path).is_relative_to(STORE) and mode & os.W_OK)
"""


def test_permissions_of_the_file_system_are_kept(filled: Project) -> None:
    before = snapshot(filled.path / "store")
    directories = [filled.path / "store", *(path for path in (filled.path / "store").rglob("*") if path.is_dir())]
    for directory in directories:
        directory.chmod(0o555)
    try:
        if os.access(filled.path / "store", os.W_OK):
            pytest.skip("this user may write everywhere")
        assert filled.run("--vlm-store=store").ret == pytest.ExitCode.USAGE_ERROR
        filled.run("--vlm-store=store", "--vlm-offline").assert_outcomes(passed=HELD)
    finally:
        for directory in directories:
            directory.chmod(0o755)
    assert snapshot(filled.path / "store") == before


def test_whoever_asks_a_model_needs_a_store_that_can_be_written_to(filled: Project, seal: Callable[..., None]) -> None:
    seal("store")
    result = ends(filled.run("--vlm-store=store"), pytest.ExitCode.USAGE_ERROR)
    remedy = "Add --vlm-offline to take all of them from it, or name a directory that can be written to with --vlm-store"
    result.stderr.fnmatch_lines([f"ERROR: --vlm-store '*store' cannot be written to: answers could not be kept. {remedy}"])


def test_a_run_that_nothing_can_hold_is_refused(filled: Project, seal: Callable[..., None]) -> None:
    seal(".")
    result = ends(filled.run("--vlm-store=store", "--vlm-offline"), pytest.ExitCode.USAGE_ERROR)
    result.stderr.fnmatch_lines(["ERROR: --vlm-store '*store' cannot be written to, and neither can *with --vlm-report"])


def test_a_plan_only_reads(filled: Project, seal: Callable[..., None]) -> None:
    before = snapshot(filled.path / "store")
    seal(".")
    result = filled.run("--vlm-store=store", "--vlm-plan")
    ends(result, pytest.ExitCode.NO_TESTS_COLLECTED, "48 inferences, at most 0 of them not cached")
    result.stdout.no_fnmatch_line("*is kept in*")
    assert snapshot(filled.path / "store") == before


def test_what_failed_in_such_a_run_is_found_again(filled: Project, seal: Callable[..., None]) -> None:
    filled.script({"setting": "invert", "answer": "A"}, name="worse")
    filled.run("--vlm-store=store", models=("worse",))
    seal("store")
    offline = ("--vlm-store=store", "--vlm-offline")
    filled.run(*offline, models=("worse",))
    (run,) = runs_in(filled.path / ".vlmrobust-runs")
    result = filled.run(*offline, "--vlm-rerun=failed", models=("worse",))
    result.stdout.fnmatch_lines(
        [f"vlm: --vlm-rerun failed: 2 tests to run again of run {run.name} (2 FAIL, 2 not judged, 4 PASS)"]
    )
    result.assert_outcomes(failed=2, deselected=6)


def test_writes_that_were_never_merged_are_not_overlooked(filled: Project, seal: Callable[..., None]) -> None:
    writer = sqlite3.connect(filled.path / "store" / "predictions.sqlite")
    writer.execute("create table left_behind (x)")
    seal("store")
    result = filled.run("--vlm-store=store", "--vlm-offline")
    writer.close()
    assert result.ret == 11
    result.stdout.fnmatch_lines(["*unmerged writes in predictions.sqlite-wal, and its directory is read-only. Open it once*"])


def test_thumbnails_are_found_in_the_store_of_a_run_that_is_kept_elsewhere(filled: Project, seal: Callable[..., None]) -> None:
    filled.script({"setting": "invert", "answer": "A"}, name="worse")
    filled.run("--vlm-store=store", models=("worse",))
    seal("store")
    filled.run("--vlm-store=store", "--vlm-offline", models=("worse",))
    (run,) = runs_in(filled.path / ".vlmrobust-runs")
    main(["report", str(run), "--out", str(filled.path / "page")])
    assert "data:image/webp" in (filled.path / "page" / "report.html").read_text(encoding="utf-8")
