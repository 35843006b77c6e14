"""Gates in which an earlier judge decided by luck, or `vlmrobust power` said something else than the run."""

from __future__ import annotations

import json
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_vlmrobust.cli import main
from tests.small_gate import write_questions

from .conftest import Project, ends

MEAN_DROP = "version: 1\nrules:\n  - {id: small-mean, metric: mean_drop, max: 5pp}\n"
SUITE = """
import pytest


@pytest.mark.vlm_settings("clean", "no_image", "grayscale", "invert")
def test_cell(vlm_cell):
    vlm_cell.check()


@pytest.mark.vlm_settings("grayscale", "invert")
@pytest.mark.vlm_metrics("mean_drop", "mean_relative_corruption_error", "visual_gain")
def test_sweep(vlm_sweep):
    vlm_sweep.check()
"""


def ask_about(project: Project, pictures: int, each: int) -> None:
    """Writes so many pictures with so many questions about each."""
    write_questions(project.path, "B" * pictures)
    data = project.path / "data.jsonl"
    rows = [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]
    several = [{**row, "id": f"{row['id']}-{turn}", "question": f"Turn {turn}?"} for row in rows for turn in range(each)]
    data.write_text("".join(json.dumps(row) + "\n" for row in several), encoding="utf-8")


def share_of_go(capsys: pytest.CaptureFixture[str], *arguments: str) -> float:
    """Returns how often `vlmrobust power` says GO of a model that loses nothing."""
    capsys.readouterr()
    assert main(["power", "policy.yaml", "--no-search", "--runs=20", "--json", *arguments]) == 0
    ((row,),) = json.loads(capsys.readouterr().out).values()
    return float(row["decisions"]["GO"])


def test_power_says_of_copies_what_the_run_says(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """96 questions about 24 pictures show little more than 24 questions; power took them as 96."""
    project.write("suite/test_suite.py", SUITE)
    project.write("policy.yaml", MEAN_DROP)
    ask_about(project, pictures=24, each=4)
    result = project.run()
    ends(
        result,
        10,
        "INCONCLUSIVE *mean_drop 0.0 pp *, too few questions to tell if <= 5 pp*questions (*images) would decide it if *",
    )
    result.stdout.fnmatch_lines(["vlm: warning: model: data: with 96 questions (24 images) even *needs about *questions (*"])
    assert share_of_go(capsys, "--dataset=./data.jsonl", "--correlation=0.7") == 0.0
    assert share_of_go(capsys, "--samples=96") >= 0.9


@pytest.mark.parametrize(("pictures", "code"), [(52, 10), (53, 0)])
def test_run_and_power_name_the_pictures_that_a_rule_needs(
    project: Project, capsys: pytest.CaptureFixture[str], pictures: int, code: int
) -> None:
    """If no answer changes, 53 pictures show a mean drop of at most 5 pp, however many questions each has."""
    project.write("suite/test_corruptions.py", SUITE)
    (project.path / "suite" / "test_suite.py").unlink()
    project.write("policy.yaml", MEAN_DROP)
    ask_about(project, pictures=pictures, each=3)
    result = ends(project.run(), code)
    assert "and at least 159 questions (53 images) even if no answer changes" in " ".join(result.stdout.str().split())
    assert main(["power", "policy.yaml", "--no-search", "--runs=1", "--dataset=./data.jsonl"]) == 0
    assert "fewer source images than this cannot pass, even if no answer changes: small-mean 53" in capsys.readouterr().out


TRANSCRIBED = "the quick brown foxes"


@pytest.mark.parametrize(("wrong_letters", "code"), [(1, 10), (5, 1)])
def test_an_even_loss_of_graded_scores_is_no_breach_while_rare_gains_may_be_unseen(
    project: Project, wrong_letters: int, code: int
) -> None:
    """All of 100 answers lose 1/21. If 1 % of all gain everything the drop is 3.7 pp: FAIL came in 36 % of such runs."""
    write_questions(project.path, "B" * 100)
    data = project.path / "data.jsonl"
    rows = [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]
    graded = [{"id": row["id"], "image": row["image"], "question": "What does it say?", **SCORED} for row in rows]
    data.write_text("".join(json.dumps(row) + "\n" for row in graded), encoding="utf-8")
    project.write(
        "policy.yaml", "version: 1\nrules:\n  - {id: drop, metric: accuracy_drop, where: {setting: invert}, max: 3.8pp}\n"
    )
    worse = "x" * wrong_letters + TRANSCRIBED[wrong_letters:]
    project.write("model.yaml", json.dumps({"default": TRANSCRIBED, "rules": [{"setting": "invert", "answer": worse}]}))
    assert project.run("-k", "invert").ret == code


SCORED: dict[str, Any] = {"answer": TRANSCRIBED, "task": "open", "scorer": "anls"}
SHIPPED = Path(__file__).parents[2] / "thresholds" / "default.yaml"


@pytest.mark.parametrize(("lost", "code"), [(9, 10), (0, 0)])
def test_a_nearly_blind_model_that_loses_most_of_what_seeing_brings_is_no_go(project: Project, lost: int, code: int) -> None:
    """Of 300 it answers 150 with and 135 without pictures, and 141 under each setting: the shipped rule only warned of that."""
    about_seeing = {"looks-at-the-image", "mean-relative-error"}
    rules = [rule for rule in yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))["rules"] if rule["id"] in about_seeing]
    assert {rule["id"] for rule in rules} == about_seeing
    policy = {"version": 1, "coverage": {"blind_models": "allow"}, "rules": rules}  # it says B whatever it sees
    project.write("policy.yaml", yaml.safe_dump(policy))
    project.write("suite/test_suite.py", SUITE)
    write_questions(project.path, "B" * 150 + "A" * 150)
    blind = [{"setting": "no_image", "sample": f"q{number}", "answer": "A"} for number in range(15)]
    loses = [{**rule, "setting": setting} for setting in ("grayscale", "invert") for rule in blind[:lost]]
    project.write("model.yaml", json.dumps({"default": "B", "rules": [*blind, *loses]}))
    result = ends(project.run(), code)
    if lost:
        result.stdout.fnmatch_lines(
            ["INCONCLUSIVE *mean_relative_corruption_error 60.0 % *, too few questions to tell if <= 50 %*"]
        )


@pytest.mark.parametrize(("budgets", "code"), [("", 0), ("budgets: {max_unparsed_rate: 5%, max_refusal_rate: 5%}\n", 10)])
def test_a_budget_that_the_answers_do_not_decide_is_never_passed_in_silence(
    project: Project, capsys: pytest.CaptureFixture[str], budgets: str, code: int
) -> None:
    """Of 240 answers 9 are unreadable, always about the same 3 pictures. Built in, the budget passed by its value in silence."""
    write_questions(project.path, "B" * 80)
    project.write("suite/test_suite.py", SUITE)
    rule = "rules:\n  - {id: mean, metric: mean_drop, max: 20pp}\n"
    project.write("policy.yaml", f"version: 1\ncoverage: {{tests: partial, blind_models: allow}}\n{budgets}{rule}")
    ids = [json.loads(line)["id"] for line in (project.path / "data.jsonl").read_text(encoding="utf-8").splitlines()]
    unread = [{"sample": name, "answer": "banana banana"} for name in ids[:3]]
    project.write("model.yaml", json.dumps({"default": "B", "rules": [{"setting": "no_image", "answer": "A"}, *unread]}))
    result = ends(project.run("--vlm-report=report"), code)
    if code:
        return
    result.stdout.fnmatch_lines(["GO *1 rule is not shown to hold"])
    bound = "<= 5 % (rule max_unparsed_rate, built-in default)"
    opened = f"unparsed_rate 3.8 % [[]1.0*, too few questions to tell if *{bound}; *would decide it*"
    for name in ("summary.md", "model_card.md", "junit.xml", "results.json", "report.html"):
        text = (project.path / "report" / name).read_text(encoding="utf-8").replace("&lt;", "<").replace("&#39;", "'")
        assert fnmatch(text, f"*{opened}"), name
    capsys.readouterr()
    assert (
        main(["bundle", str(project.the_run), "--out", str(project.path / "b.zip")])
        == main(["verify", str(project.path / "b.zip")])
        == 0
    )
    assert "8 of 8 records computed again" in capsys.readouterr().out
