"""Waivers hold by universal time; where the clock of a machine is behind what it already made, they waive nothing."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta

import pytest

from pytest_vlmrobust.cli import main

from .conftest import Project, ends

POLICY = """
version: 1
defaults: {{judge: point}}
rules:
  - {{id: drop, metric: accuracy_drop, max: 20pp}}
  - {{id: worst, metric: worst_case_drop, max: 20pp}}
waivers:
  - {{id: W1, owner: jo, reason: known, expires: {expires}, metric: accuracy_drop, where: {{setting: invert}}, cap: 99%}}
  - {{id: W2, owner: jo, reason: known, expires: {expires}, metric: worst_case_drop, where: {{model: model}}, cap: 99%}}
"""


def day(ahead: int) -> str:
    return (datetime.now(UTC) + timedelta(days=ahead)).date().isoformat()


@pytest.fixture
def waived(any_project: Project) -> Project:
    """A gate that is GO by waivers that end tomorrow."""
    project = any_project
    project.script({"setting": "invert", "sample": "q[1-7]", "answer": "A"})
    project.write("policy.yaml", POLICY.format(expires=day(1)))
    return project


def test_go_says_by_which_date_it_waived(waived: Project) -> None:
    result = ends(waived.run("--vlm-report=out"), 0)
    said = f"2 waived (dates as of {day(0)} UTC), none failed"
    result.stdout.fnmatch_lines([f"GO WITH WAIVERS  * passed, {said.replace('(', '[(]')}*"])
    assert said in (waived.path / "out" / "summary.md").read_text()


@pytest.mark.parametrize("later", ["policy", "run", "answers"])
@pytest.mark.parametrize("mode", ["full", "adaptive"])
def test_a_clock_that_is_behind_revives_no_waiver(waived: Project, later: str, mode: str) -> None:
    if later == "run":
        (waived.path / ".vlmrobust" / "runs" / f"{day(7).replace('-', '')}-120000-abcdef01").mkdir(parents=True)
    else:
        if later == "answers":
            assert waived.run().ret == 0
        path = waived.path / ("policy.yaml" if later == "policy" else ".vlmrobust/predictions.sqlite")
        os.utime(path, (time.time() + 7 * 86400,) * 2)
    result = waived.run("--vlm-report=out", f"--vlm-mode={mode}")
    ends(result, 10, "vlm: warning: the clock of this machine says * set the clock, *", "INCONCLUSIVE *")
    records = waived.results("out")["records"]
    (breach,) = [record for record in records if record["id"] == "model-data-invert"]
    assert breach["outcome"] == "INCONCLUSIVE"
    assert f"it is not known whether W1 (owner jo, until {day(1)}) still holds" in breach["reason"]
    assert "the clock of this machine says" in (waived.path / "out" / "summary.md").read_text()
    (newest,) = [
        run
        for run in (waived.path / ".vlmrobust" / "runs").glob("*/docket.json")
        if f'"latest": "{day(0)}"' not in run.read_text()
    ]
    assert main(["bundle", str(newest.parent), "--out", str(waived.path / "run.zip")]) == 0
    assert main(["verify", str(waived.path / "run.zip")]) == 0


def test_a_waiver_that_holds_until_later_still_waives(waived: Project) -> None:
    waived.write("policy.yaml", POLICY.format(expires=day(30)))
    os.utime(waived.path / "policy.yaml", (time.time() + 7 * 86400,) * 2)
    ends(waived.run(), 0, "vlm: warning: the clock of this machine says *")


def test_a_policy_file_a_day_ahead_is_no_sign(waived: Project) -> None:
    os.utime(waived.path / "policy.yaml", (time.time() + 20 * 3600,) * 2)
    result = ends(waived.run(), 0)
    assert "the clock of this machine" not in result.stdout.str()


@pytest.mark.parametrize("zone", ["XXX+24", "XXX-24"])
def test_a_time_zone_moves_no_waiver(project: Project, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    project.script({"setting": "invert", "sample": "q[1-7]", "answer": "A"})
    monkeypatch.setenv("TZ", zone)
    for ahead, code in ((-1, 1), (0, 0)):
        project.write("policy.yaml", POLICY.format(expires=day(ahead)))
        assert project.run(subprocess=True).ret == code
