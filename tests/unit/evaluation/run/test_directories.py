"""Where a run may be kept. Permissions are not tested here: the tests of a store that can only be read do that, as no root."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import pytest

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.evaluation.run import directories as directories_module
from pytest_vlmrobust.evaluation.run.directories import RUNS, RunDirectories, is_writable
from pytest_vlmrobust.store.database import network_file_system


def test_a_run_is_kept_in_its_store(tmp_path: Path) -> None:
    directories = RunDirectories("r", tmp_path, tmp_path / "store")
    directories.check()
    assert directories.run == tmp_path / "store" / RUNS / "r"
    assert directories.earlier == [tmp_path / "store" / RUNS]
    assert directories.notice == ""
    assert not (tmp_path / "store").exists()  # nothing is made before the first test


def test_what_is_not_there_is_writable_where_its_parent_is(tmp_path: Path) -> None:
    assert is_writable(tmp_path / "a" / "b")
    (tmp_path / "file").write_text("x")
    assert is_writable(tmp_path / "file" / "a") is True  # whoever opens it says that a file stands in its place


@pytest.mark.parametrize(("baseline", "report"), [("first", "first"), ("first", "./first"), ("a/../first", "first")])
def test_a_report_does_not_replace_the_baseline(tmp_path: Path, baseline: str, report: str) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "a").mkdir()
    directories = RunDirectories("r", tmp_path, tmp_path / "store", report_given=report, baseline_given=baseline)
    with pytest.raises(UsageError, match=f"--vlm-report '{report}' would replace --vlm-baseline '{baseline}'"):
        directories.check()


@pytest.mark.parametrize("given", ["store", "./store", "a/../store", "link"])
@pytest.mark.parametrize("option", ["report", "baseline"])
def test_neither_a_report_nor_a_baseline_replaces_the_store(tmp_path: Path, option: str, given: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("store")

    def named(name: str) -> RunDirectories:
        report, baseline = (name, "") if option == "report" else ("", name)
        return RunDirectories("r", tmp_path, tmp_path / "store", report_given=report, baseline_given=baseline)

    with pytest.raises(UsageError, match=f"--vlm-{option} '{given}' is the directory of --vlm-store.*Name another directory"):
        named(given).check()
    (tmp_path / "store").mkdir()
    with pytest.raises(UsageError, match="would replace the answers of all runs"):
        named(given).check()
    named(f"store/{option}").check()


def test_a_report_elsewhere_is_fine(tmp_path: Path) -> None:
    RunDirectories("r", tmp_path, tmp_path / "store", report_given="second", baseline_given="first").check()


@pytest.mark.parametrize("offline", [False, True])
def test_a_store_on_a_network_file_system_is_refused_unless_the_user_knows_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: bool
) -> None:
    table = tmp_path / "mounts"
    table.write_text(f"server:/x {tmp_path}/shared lustre rw 0 0\n")
    monkeypatch.setattr(directories_module, "network_file_system", partial(network_file_system, mounts=table))
    here = RunDirectories("r", tmp_path, tmp_path / "store", offline=offline)
    here.check()
    shared = RunDirectories("r", tmp_path, tmp_path / "shared" / "store", offline=offline)
    with pytest.raises(UsageError, match=r"is on a network file system \(lustre\).*Name a directory on a local disk.*--vlm-fill"):
        shared.check()
    dataclasses.replace(shared, network_store=True).check()
