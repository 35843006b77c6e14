"""Which tests run again; what earlier runs say about them is tested through ``--vlm-rerun``."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import pytest

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.evaluation.after import rerun
from pytest_vlmrobust.evaluation.after.rerun import Rerun, find_rerun
from pytest_vlmrobust.store import Journal

TEST = "suites/test_a.py::TestA::test_b[m-d-{}]"


def write_run(runs: Path, name: str, **outcomes: Outcome) -> None:
    journal = Journal(runs / name)
    for setting, outcome in outcomes.items():
        nodeid = TEST.format(setting)
        journal.append(Record("cell", f"m-d-{setting}", "m", "d", setting, outcome=outcome, nodeid=nodeid))
    journal.close()


def test_the_examples_hold() -> None:
    assert doctest.testmod(rerun).failed == 0


def test_the_newest_run_counts(tmp_path: Path) -> None:
    write_run(tmp_path, "20260101-000000-a", fog=Outcome.FAIL, blur=Outcome.PASS)
    write_run(tmp_path, "20260102-000000-b", fog=Outcome.PASS, blur=Outcome.FAIL, snow=Outcome.ERROR)
    rerun = find_rerun("failed", Outcome.FAIL, ["m"], [tmp_path])
    assert (rerun.run, rerun.nodeids) == ("20260102-000000-b", (TEST.format("blur"),))
    assert str(rerun) == "--vlm-rerun failed: 1 test to run again of run 20260102-000000-b (1 ERROR, 1 FAIL, 1 PASS)"


def test_undecided_tests_name_the_option_that_runs_them(tmp_path: Path) -> None:
    write_run(tmp_path, "20260101-000000-a", fog=Outcome.INCONCLUSIVE)
    rerun = find_rerun("failed", Outcome.FAIL, ["m"], [tmp_path])
    assert str(rerun).endswith(
        "nothing to run again of run 20260101-000000-a (1 INCONCLUSIVE); --vlm-rerun=inconclusive runs those"
    )


def test_tests_are_found_by_themselves_their_class_and_their_file() -> None:
    rerun = Rerun("failed", "r", ("suites/test_a.py", TEST.format("fog")), "")
    assert rerun.includes("suites/test_a.py::test_c[m-d-blur]")
    assert Rerun("failed", "r", (TEST.format("fog"),), "").includes(TEST.format("fog"))
    assert not Rerun("failed", "r", (TEST.format("fog"),), "").includes(TEST.format("blur"))


def test_workers_are_told(tmp_path: Path) -> None:
    write_run(tmp_path, "20260101-000000-a", fog=Outcome.FAIL)
    rerun = find_rerun("failed", Outcome.FAIL, ["m"], [tmp_path])
    assert Rerun.at_worker(json.loads(json.dumps(rerun.to_worker()))) == rerun
    assert Rerun.at_worker({}) is None


def test_another_model_has_no_earlier_run(tmp_path: Path) -> None:
    write_run(tmp_path, "20260101-000000-a", fog=Outcome.FAIL)
    with pytest.raises(UsageError, match="has no earlier run about other"):
        find_rerun("failed", Outcome.FAIL, ["other"], [tmp_path])
