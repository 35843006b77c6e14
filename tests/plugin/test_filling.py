"""``--vlm-fill`` and ``--vlm-shard``: stores that are filled in parts, merged, and judged offline like one run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from pytest_vlmrobust.backends.served import ServerRecord, ServerRecords
from pytest_vlmrobust.cli import main
from pytest_vlmrobust.store import Store
from pytest_vlmrobust.store.journal import read_journal

from .conftest import Project, ends


def records(store: Path) -> list[str]:
    (run,) = (store / "runs").iterdir()
    return [repr(dataclasses.replace(record, seconds=0.0, n_inferred=0, n_recalled=0)) for record in read_journal(run)]


@pytest.fixture(autouse=True)
def _no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX", "CI_NODE_INDEX", "BUILDKITE_PARALLEL_JOB", "CIRCLE_NODE_INDEX"):
        monkeypatch.delenv(name, raising=False)


def test_parts_that_are_merged_are_judged_like_one_run(project: Project) -> None:
    for number in (1, 2):
        part = project.run("--vlm-fill", f"--vlm-shard={number}/2", f"--vlm-store=part{number}")
        ends(part, 0, f"part {number}/2: * answers, * of them inferred, 0 are missing", "*; nothing was judged")
        part.stdout.no_fnmatch_line("*INCONCLUSIVE*")
        assert not (project.path / f"part{number}/runs").exists()
    assert main(["merge", "part1", "part2", "--out", "all"]) == 0
    offline = project.run("--vlm-store=all", "--vlm-offline")
    direct = project.run("--vlm-store=direct")
    assert offline.ret == direct.ret
    assert records(project.path / "all") == records(project.path / "direct")


def test_a_part_that_is_lost_is_incomplete(project: Project) -> None:
    assert project.run("--vlm-fill", "--vlm-shard=1/2", "--vlm-store=part1").ret == 0
    assert main(["merge", "part1", "--out", "all"]) == 0
    ends(project.run("--vlm-store=all", "--vlm-offline"), 11, "*answers are not in the store, and --vlm-offline forbids asking*")


def test_stores_that_asked_two_servers_are_not_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    identity = {"model": "m", "revision": "1"}
    for name in ("one", "two"):
        Store.open(tmp_path / name).close()
        ServerRecords(tmp_path / name / "servers", identity).add(ServerRecord(identity, letters=name == "one"))
    assert main(["merge", str(tmp_path / "one"), str(tmp_path / "two"), "--out", str(tmp_path / "all")]) == 4
    assert "Stores of two models are not merged" in capsys.readouterr().err
    assert not (tmp_path / "all").exists()


def test_parts_that_two_models_of_one_name_answered_are_not_merged(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert project.run("--vlm-fill", "--vlm-shard=1/2", "--vlm-store=part1").ret == 0
    project.script({"setting": "invert", "answer": "A"})
    assert project.run("--vlm-fill", "--vlm-shard=2/2", "--vlm-store=part2").ret == 0
    capsys.readouterr()
    assert main(["merge", "part1", "part2", "--out", "all"]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert "part2/predictions.sqlite: its answers of 'model' have the fingerprint" in line
    assert not (project.path / "all").exists()


def test_a_filled_store_is_asked_nothing_again(any_project: Project) -> None:
    first, again = (any_project.run("--vlm-fill") for _ in range(2))
    assert (first.ret, again.ret) == (0, 0)
    again.stdout.fnmatch_lines(["* answers, 0 of them inferred, 0 are missing"])
    any_project.run().stdout.fnmatch_lines(["0 inferences; *"])


def test_what_is_not_answered_is_said(project: Project) -> None:
    project.script({"setting": "invert", "error": "the server is gone"})
    ends(project.run("--vlm-fill"), 11, "* answers, * of them inferred, 8 are missing", "missing: 8 x *the server is gone*")


def test_a_scheduler_says_which_part_is_asked(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")
    monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "2")
    project.run("--vlm-fill").stdout.fnmatch_lines(["part 2/2, as SLURM_ARRAY_TASK_ID says", "part 2/2: *"])
    assert project.run().ret in (0, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--vlm-shard=1/2",), "*--vlm-shard: a part of the answers decides nothing. Add --vlm-fill*"),
        (("--vlm-fill", "--vlm-shard=3/2"), "*--vlm-shard '3/2': expected i/n with i from 1 to n, such as 1/4"),
        (("--vlm-fill", "--vlm-offline"), "*--vlm-fill judges nothing, so --vlm-offline would do nothing*"),
        (("--vlm-fill", "--vlm-aa", "--vlm-report=out"), "*so --vlm-aa and --vlm-report would do nothing*"),
    ],
)
def test_what_contradicts_filling_is_refused(project: Project, options: tuple[str, ...], message: str) -> None:
    ends(project.run(*options), 4, message)


def test_where_nothing_is_selected_or_a_plan_is_wanted_nothing_is_filled(project: Project) -> None:
    assert project.run("--vlm-fill", "-k", "nosuch").ret == 5
    assert project.run("--vlm-fill", "--vlm-plan").ret == 5
