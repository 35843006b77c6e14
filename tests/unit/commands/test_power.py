"""`vlmrobust power` at the command line: what it prints, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pytest_vlmrobust.cli import main

Captured = pytest.CaptureFixture[str]
POLICY = """\
version: 1
coverage: {rules: partial}
rules:
  - {id: answers, metric: clean_accuracy, min: 80%}
  - {id: mean-drop, metric: mean_drop, max: 10pp}
  - {id: said, metric: benign_at_low, min: 45%, tier: warn, judge: point}
  - {id: elsewhere, metric: clean_accuracy, where: {dataset: "*MMMU*"}, min: 10%}
"""


@pytest.fixture
def policy(tmp_path: Path) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return str(path)


def printed(capsys: Captured, *arguments: str, code: int = 0) -> str:
    assert main(["power", *arguments]) == code
    out, err = capsys.readouterr()
    return err if code else out


def as_json(capsys: Captured, *arguments: str) -> list[dict[str, Any]]:
    (rows,) = json.loads(printed(capsys, *arguments, "--json", "--no-search")).values()
    assert isinstance(rows, list)
    return rows


def test_a_policy_is_told_rule_by_rule_with_what_has_no_say(policy: str, capsys: Captured) -> None:
    said = printed(capsys, policy, "--samples", "400", "--runs", "20", "--no-search").splitlines()
    assert said[0] == "nothing-lost on MMBench: 400 samples, 20 simulated runs"
    assert said[1].startswith("  GO 1.00 ± 0.")  # 88.6 % of 400 is five standard errors above 80 %
    assert [line.split()[:3] for line in said[3:5]] == [["answers", "1.00", "0.00"], ["mean-drop", "1.00", "0.00"]]
    assert said[5:] == [
        "  fewer source images than this cannot pass, even if no answer changes: mean-drop 27",
        "  no say: said: only warns",
        "  no say: elsewhere: no test of a run on MMBench is in its scope",
    ]


def test_a_table_has_a_line_for_each_profile_and_what_keeps_it_from_go(policy: str, capsys: Captured) -> None:
    arguments = ("--table", "--samples", "400", "--runs", "5", "--profile", "MMBench/Qwen3-VL-8B")
    said = printed(capsys, policy, *arguments, "--shift", "mean_drop=25pp").splitlines()
    assert said[0] == "### mine"
    assert said[2].startswith("| true model | dataset | n | GO | NO-GO | INCONCLUSIVE |")
    assert "| MMBench/Qwen3-VL-8B with mean_drop 0.25 | MMBench | 400 | 0.00 | 1.00 | 0.00 | mean-drop 1.00 |" in said


def test_json_holds_the_shares_and_their_errors(policy: str, capsys: Captured) -> None:
    (row,) = as_json(capsys, policy, "--samples", "200", "--runs", "10", "--shift", "clean_accuracy=60%")
    assert row["profile"] == "nothing-lost with clean_accuracy 0.6"
    assert row["decisions"] == {"GO": 0.0, "NO-GO": 1.0, "INCONCLUSIVE": 0.0}  # six standard errors under 80 %
    assert row["rules"]["answers"]["FAIL"] == 1.0
    assert row["standard_errors"]["GO"] > 0.0
    assert row["samples_for_80_percent"] is None


@pytest.mark.study
def test_several_models_are_all_go_less_often_than_one(policy: str, capsys: Captured) -> None:
    at_the_brink = (policy, "--samples", "400", "--runs", "40", "--shift", "clean_accuracy=83.5%")
    single, three = (as_json(capsys, *at_the_brink, "--models", str(models))[0]["decisions"]["GO"] for models in (1, 3))
    assert 0.0 < three == pytest.approx(single**3)
    assert single < 1.0


def test_the_dataset_says_which_rules_apply_and_which_models_are_meant(policy: str, capsys: Captured) -> None:
    (row,) = as_json(capsys, policy, "--dataset", "MMMU-Pro", "--profile", "Molmo2-8B", "--runs", "3")
    assert (row["dataset"], row["samples"], row["profile"]) == ("MMMU-Pro", 324, "MMMU-Pro/Molmo2-8B")
    assert set(row["rules"]) == {"answers", "mean-drop", "elsewhere"}
    assert row["rules"]["answers"]["FAIL"] == 1.0  # 31.2 %


@pytest.mark.study
def test_how_many_samples_decide_is_a_range(policy: str, capsys: Captured) -> None:
    report = printed(capsys, policy, "--samples", "60", "--runs", "20", "--shift", "clean_accuracy=97%")
    low, high = map(int, re.findall(r"80 % of runs end GO or NO-GO with between (\d+) and (\d+) samples", report)[0])
    assert 10 <= low < high <= 120  # 46 of 60 right are needed for GO at all, and 17 percentage points are three standard errors


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--profile", "Qwen3-VL-8C"], "unknown profile 'Qwen3-VL-8C'. Did you mean"),
        (["--profile", "gema"], "Did you mean one like 'M"),
        (["--profile", "equal-to-baselines"], "Did you mean 'equal-to-baseline'?"),
        (["--profile", "./runs/gone"], "--profile ./runs/gone: there is no such directory"),
        (["--profile", "runs/2026/gone"], "--profile runs/2026/gone: there is no such directory"),
        (["--shift", "mean_drop"], "--shift 'mean_drop': expected METRIC=VALUE"),
        (["--shift", "mean_drop=20pp"], "it cannot be moved there"),
    ],
)
def test_what_cannot_be_simulated_is_refused(policy: str, arguments: list[str], said: str, capsys: Captured) -> None:
    assert said in printed(capsys, policy, "--samples", "50", "--runs", "1", *arguments, code=4)


def test_a_suite_that_cannot_be_read_cannot_be_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.yaml"
    path.write_text(POLICY.replace("{rules: partial}", "{rules: partial, suites: [phone]}"), encoding="utf-8")
    said = printed(capsys, str(path), "--samples", "50", "--runs", "1", code=4)
    assert said.startswith(
        "vlmrobust: power does not know the suite 'phone' of the coverage: run in the folder with suites/test_p"
    )
    assert "names some of corruptions, " in said
    (tmp_path / "suites").mkdir()
    mark = "import pytest\n\n@pytest.mark.vlm_settings(*grid())\ndef test_cell(vlm_cell): ...\n"
    (tmp_path / "suites" / "test_phone.py").write_text(mark, encoding="utf-8")
    said = printed(capsys, str(path), "--samples", "50", "--runs", "1", code=4)
    assert said.startswith("vlmrobust: power cannot tell without running suites/test_phone.py what it tests: ")


def test_an_unknown_policy_is_the_argument_and_not_an_option(capsys: Captured) -> None:
    said = printed(capsys, "defautl", code=4)
    assert said.startswith("vlmrobust: POLICY 'defautl': there is no file")
    assert "Did you mean 'default'?" in said
    assert "--vlm-thresholds" not in said


@pytest.mark.parametrize("option", ["runs", "models", "samples", "groups"])
def test_a_number_below_one_is_refused_by_its_name(option: str, capsys: Captured) -> None:
    assert main(["power", "default", f"--{option}", "0"]) == 2
    assert f"'0' is not a number of {option}. Expected 1 or more" in capsys.readouterr().err


def test_what_is_taken_as_kept_stands_beside_the_shares(policy: str, tmp_path: Path, capsys: Captured) -> None:
    more = tmp_path / "more.yaml"
    more.write_text("version: 1\nrules:\n- {id: cider, metric: corpus_score, min: 50%}\n", encoding="utf-8")
    arguments = (policy, str(more), "--samples", "100", "--runs", "2", "--no-search", "--profile", "typical")
    said = printed(capsys, *arguments).splitlines()
    assert said[1].endswith(", given that cider is kept")
    assert (
        "  not simulated and assumed to be kept: cider: the number that a benchmark publishes for all of its answers" in said[6]
    )
    assert "| GO (given that cider is kept) |" in printed(capsys, *arguments, "--table")


def test_a_policy_of_which_nothing_is_simulated_is_refused(tmp_path: Path, capsys: Captured) -> None:
    policy_file = tmp_path / "mine.yaml"
    policy_file.write_text("version: 1\nrules:\n- {id: cider, metric: corpus_score, min: 50%}\n", encoding="utf-8")
    said = printed(capsys, str(policy_file), "--samples", "100", "--runs", "2", code=4)
    assert "no rule of mine can be simulated: cider the number that a benchmark publishes" in said


@pytest.mark.study
def test_the_observatory_is_simulated_on_the_embedded_collections(capsys: Captured) -> None:
    (row,) = as_json(capsys, "observatory", "--dataset", "words", "--samples", "40", "--runs", "1", "--profile", "one-cell")
    assert (row["dataset"], row["given"], row["not_simulated"]) == ("words", "", {})
    assert row["decisions"]["NO-GO"] == 1.0
    assert row["rules"]["one-place-for-all"] == {"FAIL": 1.0}
    for arguments, said in (
        (["--profile", "one-sel"], "Did you mean 'one-cell'?"),
        (["--dataset", "face"], "Did you mean 'faces'?"),
        (["--shift", "mean_drop=1pp"], "this policy is about the Observatory's tasks"),
    ):
        assert said in printed(capsys, "observatory", "--runs", "1", *arguments, code=4)


@pytest.mark.parametrize("name", ["pcri", "rci", "strict", "default", "robustbench", "resbench"])
def test_of_shipped_policies_no_rule_is_taken_as_kept(name: str) -> None:
    from pytest_vlmrobust.commands.power import _policy
    from pytest_vlmrobust.evaluation.power.published import typical
    from pytest_vlmrobust.evaluation.power.simulation import plan

    planned = plan(_policy([name]), typical())
    assert planned.tests
    assert planned.left_out == {}


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """120 questions on 40 pictures, of two categories."""
    rows = [
        {"id": f"q{i}", "image": f"{i // 3}.png", "question": "?", "options": ["a", "b"], "answer": "A", "category": "xy"[i % 2]}
        for i in range(120)
    ]
    for i in range(40):
        Image.new("RGB", (8, 8), (i, 0, 0)).save(tmp_path / f"{i}.png")
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


@pytest.mark.study
def test_samples_that_share_a_picture_decide_less(policy: str, capsys: Captured) -> None:
    """86 % of 400 are 3.3 standard errors above 80 %; of 40 groups whose ten answers are the same, one."""
    arguments = (policy, "--samples", "400", "--runs", "30", "--shift", "clean_accuracy=86%")
    (plain,), (grouped,) = as_json(capsys, *arguments), as_json(capsys, *arguments, "--groups", "40", "--correlation", "1")
    assert (plain["groups"], plain["correlation"]) == (None, None)
    assert (grouped["samples"], grouped["groups"], grouped["correlation"]) == (400, 40, 1.0)
    assert plain["rules"]["answers"]["PASS"] > 0.8
    assert grouped["rules"]["answers"]["PASS"] < 0.6
    assert as_json(capsys, *arguments, "--groups", "40", "--correlation", "1") == [grouped]


@pytest.mark.study
def test_groups_of_equal_size_are_said_in_every_form(policy: str, capsys: Captured) -> None:
    arguments = (policy, "--samples", "100", "--runs", "2", "--no-search", "--groups", "30")
    assert printed(capsys, *arguments).startswith(
        "nothing-lost on MMBench: 100 samples in 30 groups of latent correlation 0.5, 2 simulated runs\n"
    )
    table = printed(capsys, *arguments, "--table")
    assert "| nothing-lost | MMBench | 100 in 30 groups |" in table
    assert "latent correlation within a group 0.5; 2 simulated runs a row" in table


def test_data_say_how_many_samples_there_are_and_which_go_together(policy: str, pictures: Path, capsys: Captured) -> None:
    by_category = Path(policy).with_name("more.yaml")
    by_category.write_text(
        "version: 1\nrules:\n- {id: of-x, metric: accuracy_drop, where: {category: x}, max: 99pp}\n", encoding="utf-8"
    )
    (row,) = as_json(capsys, policy, str(by_category), "--dataset", str(pictures), "--runs", "2", "--correlation", "0.7")
    assert (row["dataset"], row["samples"], row["groups"], row["correlation"]) == ("mine", 120, 40, 0.7)
    assert row["rules"]["of-x"] == {"PASS": 1.0}
    (more,) = as_json(capsys, policy, "--dataset", "mine", "--data", str(pictures.parent), "--samples", "240", "--runs", "1")
    assert (more["samples"], more["groups"], more["correlation"]) == (240, 80, 0.5)
    (shipped,) = as_json(capsys, policy, "--dataset", "shapes", "--runs", "1")
    assert (shipped["dataset"], shipped["samples"]) == ("shapes", 128)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dataset", "{data}", "--groups", "5"], "--groups 5: {data} already has groups"),
        (["--correlation", "0.5"], "--correlation 0.5: samples are independent without groups. Expected --groups N"),
        (["--dataset", "MMBench", "--correlation", "0"], "--correlation 0: samples are independent without groups"),
        (["--groups", "51"], "--groups 51: 50 samples of nothing-lost have at most 50 groups"),
        (["--groups", "9", "--profile", "{run}"], "a run is drawn again with its own samples and groups"),
        (["--dataset", "{data}", "--profile", "{run}"], "a run is drawn again with its own samples and groups"),
        (["--dataset", "{run}/mien.jsonl"], "mien.jsonl' was not found. Did you mean"),
        (["--dataset", "mien", "--data", "{run}"], "'mien' was not found. Did you mean 'mine'?"),
        (["--data", "{run}"], "there is no --dataset to look for in this folder"),
    ],
)
def test_groups_that_contradict_something_are_refused(
    policy: str, pictures: Path, arguments: list[str], said: str, capsys: Captured
) -> None:
    names = {"data": str(pictures), "run": str(pictures.parent)}
    filled = [argument.format(**names) for argument in arguments]
    assert said.format(**names) in printed(capsys, policy, "--samples", "50", "--runs", "1", *filled, code=4)


@pytest.mark.parametrize("option", ["--groups", "--correlation", "--data"])
def test_the_observatory_has_groups_of_its_own(option: str, capsys: Captured) -> None:
    assert f"{option} is about questions" in printed(capsys, "observatory", "--runs", "1", option, "1", code=4)


@pytest.mark.parametrize("value", ["1.1", "-0.1", "nan", "much"])
def test_a_correlation_is_a_number_from_0_to_1(value: str, capsys: Captured) -> None:
    assert main(["power", "default", "--groups", "9", f"--correlation={value}"]) == 2
    assert f"{value!r} is not a correlation. Expected a number from 0 to 1" in capsys.readouterr().err


def test_without_a_policy_it_says_what_to_name(capsys: Captured) -> None:
    assert "name a policy" in printed(capsys, code=4)
    for option in ("--groups", "--correlation"):
        assert "name a policy about them" in printed(capsys, "--table", option, "1", code=4)


def test_settings_that_change_fewer_questions_than_are_drawn_are_named(tmp_path: Path, capsys: Captured) -> None:
    rows = [{"id": str(place), "image": "i.png", "question": f"Is {place} even?", "answer": "A"} for place in range(12)]
    options = [{"options": ["yes", "no"]} if place < 8 else {"options": [], "answer": "yes"} for place in range(12)]
    Image.new("RGB", (8, 8)).save(tmp_path / "i.png")
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(row | more) + "\n" for row, more in zip(rows, options, strict=True)), encoding="utf-8")
    said = printed(capsys, "options", "--dataset", str(data), "--runs", "2", "--no-search")
    assert "rules about these hold less often than simulated: option_order:1 8" in said
    (row,) = as_json(capsys, "options", "--dataset", str(data), "--runs", "2")
    assert row["changed_questions"]["option_order:1"] == 8
    assert "hold less often" not in printed(capsys, "pcri", "--dataset", str(data), "--runs", "2", "--no-search")
