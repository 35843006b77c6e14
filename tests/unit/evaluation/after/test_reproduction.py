"""Published numbers beside those of runs, on scores whose table is worked out by hand."""

from __future__ import annotations

import functools
import json
import math
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from pytest_vlmrobust import metrics, perturbations
from pytest_vlmrobust.backends.generation import generation_for
from pytest_vlmrobust.backends.resolve import resolve
from pytest_vlmrobust.cli import main
from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.errors import UnknownName, UsageError
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.after import reproduction
from pytest_vlmrobust.evaluation.after.measured import measured
from pytest_vlmrobust.evaluation.after.published import (
    AGREES,
    COMPATIBLE,
    DECLARED,
    DIFFERS,
    Reproduced,
    Reproduction,
    paper,
    papers,
)
from pytest_vlmrobust.evaluation.after.reproduction import parse_names, reproduce
from pytest_vlmrobust.store import Answer, Evidence, StoredCell, write_manifest
from tests.command_lines import read

N = 100
Rows = list[dict[str, str]]
Wrong = Mapping[str, int]
"""Setting to how many of the first samples are wrong; ``clean`` and ``no_image`` are settings, too."""


def run(directory: Path, models: Mapping[str, Wrong], dataset: str = "MMBench_DEV_EN", views: int = 1) -> Path:
    """Writes the evidence of a run in which the first answers are wrong and all others right."""
    samples = [
        Sample(f"q{i}", (), f"{i}?", "AB"[i % 2], "choice", {"A": "a", "B": "b"}, category="first" if i < N // 2 else "last")
        for i in range(N)
    ]
    with Evidence.open(directory) as evidence:
        evidence.put_samples(dataset, "d", samples)
        for name, wrong in models.items():
            for setting, count in wrong.items():
                pictures = int(setting[-1]) ** 2 if setting.startswith("patches") else 1
                put(evidence, Cell(name, dataset, Setting.parse(setting)), [place < count for place in range(N)], pictures)
    return directory


def put(evidence: Evidence, cell: Cell, wrong: Sequence[bool], views: int) -> None:
    answers = []
    for place, is_wrong in enumerate(wrong):
        target, other = "AB"[place % 2], "BA"[place % 2]
        for letter in (other if is_wrong else target, *other * (views - 1)):
            score = Score(float(letter == target), "letter", letter, "scored")
            answers.append(Answer("k", Prediction(letter, "generate"), score))
    evidence.put_cells([StoredCell(cell, views, tuple(answers))])


MEASURED = functools.cache(measured)


@pytest.fixture
def measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measures what pixels show once for all tests that have it."""
    monkeypatch.setattr(reproduction, "measured", MEASURED)


QWEN: Wrong = {"clean": 10, "no_image": 60, "glass_blur:low": 15, "upsample:high": 40, "flip_v": 10, "fog:low": 9}


def reproduced(reproduction: Reproduction) -> dict[str, Reproduced]:
    """Returns the numbers that have ours, by metric and what they are about."""
    return {
        " ".join([value.metric, *value.about.values()]): value
        for table in reproduction.tables
        for value in table.values
        if value.ours or value.word
    }


@pytest.fixture
def qwen(tmp_path: Path) -> Path:
    return run(tmp_path / "run", {"qwen3-vl-4b": QWEN})


def test_a_row_of_table_3(qwen: Path) -> None:
    values = reproduced(reproduce("vlm-robustbench", "3", runs=[("", qwen)]))
    ours = {name: value.ours.value for name, value in values.items() if value.ours}
    assert ours == pytest.approx(
        {
            "clean_accuracy MMBench Qwen3-VL-4B": 90.0,
            "worst_case_drop MMBench Qwen3-VL-4B": 30.0,
            "severe_failure_rate MMBench Qwen3-VL-4B": 25.0,
            "worst_at_low MMBench Qwen3-VL-4B": 5.0,
            "benign_at_low MMBench Qwen3-VL-4B": 50.0,
            "visual_gain MMBench Qwen3-VL-4B": 50.0,
            "mean_relative_corruption_error MMBench Qwen3-VL-4B": 100 * (0.05 + 0.30 + 0.0 - 0.01) / 4 / 0.5,
        }
    )
    clean = values["clean_accuracy MMBench Qwen3-VL-4B"]
    assert (clean.published, clean.printed, clean.agreement) == (88.4, "88.4", COMPATIBLE)
    assert clean.difference is not None
    assert clean.difference.value == pytest.approx(1.6)
    assert clean.difference.low == pytest.approx(clean.ours.low - 88.4 if clean.ours else math.nan)
    gain = values["visual_gain MMBench Qwen3-VL-4B"]
    assert gain.ours is not None
    assert gain.ours.low < 48.2 < gain.ours.high
    severe = values["severe_failure_rate MMBench Qwen3-VL-4B"]
    assert severe.ours is not None
    assert "over 4 of 133 settings" in severe.ours.reason
    assert severe.agreement == ""  # with any interval it would seem to agree, or to differ
    assert math.isnan(severe.limit)


@pytest.mark.study
def test_every_number_without_ours_says_why(qwen: Path) -> None:
    for name in papers():
        for table in reproduce(name, runs=[("", qwen)]).tables:
            for value in table.values:
                assert bool(value.reason) != bool(value.ours or value.word), value
    (table,) = reproduce("vlm-robustbench", "3", runs=[("", qwen)]).tables
    reasons = {value.reason for value in table.values if value.reason}
    assert "no run of Qwen3-VL-8B" in reasons
    assert "no run of Qwen3-VL-4B on MMMU-Pro" in reasons


def test_a_setting_that_was_not_asked_is_missing_and_never_zero(qwen: Path) -> None:
    values = {
        value.about["setting"]: value
        for value in reproduce("vlm-robustbench", "13", runs=[("", qwen)]).tables[0].values
        if value.about["model"] == "Qwen3-VL-4B"
    }
    assert values["glass_blur:low"].ours
    assert values["glass_blur:low"].ours.value == pytest.approx(5.0)
    assert values["solarize:low"].ours is None
    assert values["solarize:low"].reason == f"{qwen} did not ask MMBench_DEV_EN under solarize:low"


def test_numbers_over_models_are_means_with_a_safe_interval(tmp_path: Path) -> None:
    other = {**QWEN, "flip_v": 30}
    both_models = run(tmp_path / "one", {"Qwen3-VL-4B": QWEN, "Qwen3-VL-8B-Instruct": other})
    values = reproduced(reproduce("vlm-robustbench", "4", runs=[("", both_models)]))
    drop = values["accuracy_drop flip_v MMBench"]
    assert drop.ours is not None
    assert drop.ours.value == pytest.approx((0.0 + 20.0) / 2)
    assert drop.ours.reason.startswith("over 2 of 9 models")
    with Evidence.open(both_models, read_only=True) as evidence:
        scores = {
            name: [np.array(evidence.get_scores(Cell(name, "MMBench_DEV_EN", Setting.parse(s)))) for s in ("clean", "flip_v")]
            for name in ("Qwen3-VL-4B", "Qwen3-VL-8B-Instruct")
        }
    each = [metrics.estimate("accuracy_drop", metrics.ScoreTable(a, {"flip_v": b}), "flip_v", 0.95) for a, b in scores.values()]
    assert drop.ours.low == pytest.approx(50 * sum(estimate.low for estimate in each))
    assert drop.ours.high == pytest.approx(50 * sum(estimate.high for estimate in each))
    tier = values["robustness_tier flip_v MMBench"]
    assert (tier.word, tier.printed, tier.agreement) == ("moderate", "catastrophic", COMPATIBLE)
    assert tier.ours is not None
    assert tier.ours.n == N


def scripted(directory: Path, questions: int, right: Mapping[str, float], settings: Sequence[str]) -> Path:
    """Writes the evidence of two models: right on a share of the questions, which a few settings lower, on different ones."""
    rng = np.random.default_rng(0)
    samples = [Sample(f"q{i}", (), f"{i}?", "AB"[i % 2], "choice", {"A": "a", "B": "b"}) for i in range(questions)]
    with Evidence.open(directory) as evidence:
        evidence.put_samples("MMBench_DEV_EN", "d", samples)
        for model, share in right.items():
            easy = rng.random(questions)
            for name in ("clean", "no_image", *settings):
                lost = {"clean": 0.0, "no_image": 0.48, "mid": 0.02, "high": 0.06}.get(name.rpartition(":")[2], 0.01)
                luck = rng.random(questions) < (0.0 if name == "clean" else 0.05)
                wrong = np.where(luck, rng.random(questions), easy) > share - lost
                put(evidence, Cell(model, "MMBench_DEV_EN", Setting.parse(name)), wrong.tolist(), 1)
    return directory


@pytest.mark.study
def test_a_few_invented_questions_agree_with_nothing(tmp_path: Path) -> None:
    """In their wide intervals nearly all numbers of the paper lie."""
    fakes = scripted(tmp_path / "fakes", 24, {"Qwen3-VL-8B": 0.9, "Qwen3-VL-4B": 0.8}, perturbations.names("robustbench"))
    said = Counter(
        value.agreement
        for number in ("3", "4", "13", "20", "21")
        for value in reproduced(reproduce("vlm-robustbench", number, runs=[("", fakes)])).values()
    )
    assert said[AGREES] == 0
    assert said[COMPATIBLE] > 50
    assert set(said) == {COMPATIBLE, DIFFERS}


def test_as_many_questions_as_the_paper_has_can_agree_or_differ(tmp_path: Path) -> None:
    real = scripted(tmp_path / "real", 853, {"Qwen3-VL-8B": 0.902, "Qwen3-VL-4B": 0.7}, ["flip_v"])
    values = reproduced(reproduce("vlm-robustbench", "3", runs=[("", real)]))
    said = {name: values[f"{name} MMBench Qwen3-VL-8B"].agreement for name in ("clean_accuracy", "visual_gain")}
    assert said == {"clean_accuracy": AGREES, "visual_gain": AGREES}
    assert values["clean_accuracy MMBench Qwen3-VL-4B"].agreement == DIFFERS
    clean = values["clean_accuracy MMBench Qwen3-VL-8B"]
    assert clean.limit == pytest.approx(2 * clean.half_width)


def test_without_the_papers_number_of_questions_the_printed_digits_are_the_precision(tmp_path: Path) -> None:
    measured = run(tmp_path / "one", {"Molmo-1B": {"clean": 40, "no_image": 70, "patches:2": 39}}, dataset="AMBER")
    value = reproduced(reproduce("rci", "2", runs=[("", measured)]))["rci AMBER Molmo-1B patches:2"]
    assert (value.printed, value.agreement) == ("-0.015", COMPATIBLE)
    assert value.limit == pytest.approx(0.001)


def test_tiers_count_cells_of_all_models(tmp_path: Path) -> None:
    measured = run(tmp_path / "one", {"Qwen3-VL-4B": QWEN, "Qwen3-VL-8B": {**QWEN, "fog:low": 30}})
    low = {
        value.about["tier"]: value
        for value in reproduced(reproduce("vlm-robustbench", "18", runs=[("", measured)])).values()
        if value.about["level"] == "low"
    }
    shares = {tier: value.ours.value for tier, value in low.items() if value.ours}
    assert shares == pytest.approx({"benign": 25.0, "mild": 0.0, "moderate": 50.0, "catastrophic": 25.0})
    assert low["benign"].published == pytest.approx(100 * 304 / 378)


@pytest.mark.study
def test_corruption_errors_need_the_reference_model(tmp_path: Path) -> None:
    wrong = {"clean": 10, "no_image": 60, "glass_blur:low": 20, "fog:low": 20}
    alone = run(tmp_path / "alone", {"Qwen3-VL-4B": wrong})
    values = [
        v for v in reproduce("vlm-robustbench", "6", runs=[("", alone)]).tables[0].values if v.about["model"] == "Qwen3-VL-4B"
    ]
    assert values[0].reason == "no run of Gemma-3-12B, the reference model"
    reference = run(tmp_path / "reference", {"gemma3-12b-it": {**wrong, "glass_blur:low": 40, "fog:low": 10}})
    both = reproduced(reproduce("vlm-robustbench", runs=[("", alone), ("", reference)]))
    assert both["mean_corruption_error Qwen3-VL-4B MMBench"].ours
    errors = {name: value.ours.value for name, value in both.items() if value.ours and value.metric == "mean_corruption_error"}
    assert errors["mean_corruption_error Qwen3-VL-4B MMBench"] == pytest.approx(100 * (0.5 + 2.0) / 2)
    assert errors["mean_corruption_error MMBench Qwen3-VL-4B blur"] == pytest.approx(50.0)
    assert errors["mean_corruption_error MMBench Qwen3-VL-4B weather"] == pytest.approx(200.0)
    assert errors["mean_corruption_error Gemma-3-12B MMBench"] == pytest.approx(100.0)


def test_how_samples_were_drawn_stands_beside_the_table(tmp_path: Path) -> None:
    paths = [run(tmp_path / name, {"Qwen3-VL-4B": {**QWEN, "clean": place}}) for place, name in enumerate(("q", "r", "a", "u"))]
    for path, spec in zip(paths, ("20%", "20%rows", ""), strict=False):
        write_manifest(path, {"run": path.name, "settings": {"vlm_sample": spec}})
    notes = [note for note in reproduce("vlm-robustbench", "3", runs=[("", path) for path in paths]).notes if "samples" in note]
    paper_has = "the paper has samples drawn by row (--vlm-sample=20%rows)"
    assert notes == [
        f"{paths[0]} has samples drawn by question with all its copies (--vlm-sample=20%); {paper_has}",
        f"{paths[1]} has samples drawn by row (--vlm-sample=20%rows), as the paper has",
        f"{paths[2]} has all samples; {paper_has}",
        f"{paths[3]} has samples that were drawn in a way that its manifest does not say; {paper_has}",
    ]
    assert not any("drawn" in note for note in reproduce("rci", "2", runs=[("", paths[0])]).notes)


@pytest.mark.study
def test_other_tables_of_vlm_robustbench(tmp_path: Path) -> None:
    measured = run(tmp_path / "one", {"Qwen3-VL-8B": {**QWEN, "rotate:high": 22, "fog:low": 7}, "Qwen3-VL-4B": QWEN})
    values = reproduced(reproduce("vlm-robustbench", runs=[("", measured)]))

    def ours(name: str) -> float:
        value = values[name].ours
        assert value is not None
        return value.value

    assert values["worst_case_setting Qwen3-VL-8B MMBench"].word == "upsample:high"
    assert ours("lost_share MMBench Qwen3-VL-8B glass_blur:low") == pytest.approx(100 * 5 / 90)
    assert ours("harmful_flip_rate MMBench Qwen3-VL-8B glass_blur:low") == pytest.approx(5.0)
    assert ours("flip_ratio Qwen3-VL-4B MMBench") == pytest.approx(35.0 / 1.0)
    assert ours("flip_ratio MMBench low") == pytest.approx((5 + 5) / (1 + 3))  # of the means over both models
    assert ours("tail_share MMBench") == 100.0
    assert "3 of 3 catastrophic cells" in (values["tail_share MMBench"].ours or pytest.fail("none")).reason
    slope = (drop := {4: 34 / 4, 8: 44 / 5})[8] - drop[4]
    assert ours("size_slope Qwen3-VL MMBench") == pytest.approx(slope / math.log10(2))
    assert ours("r_squared Qwen3-VL MMBench") == pytest.approx(1.0)
    interval = values["size_slope Qwen3-VL MMBench"].ours
    assert interval is not None
    assert math.isnan(interval.low)  # of mean drops over a few of the settings


def test_runs_of_one_model_are_averaged(tmp_path: Path) -> None:
    runs = [
        run(tmp_path / str(wrong), {"Molmo-1B": {"clean": 40, "no_image": 70, "patches:2": wrong}}, dataset="AMBER")
        for wrong in (10, 20, 30)
    ]
    value = reproduced(reproduce("rci", "2", runs=[("", measured) for measured in runs]))["rci AMBER Molmo-1B patches:2"]
    single = [reproduced(reproduce("rci", "2", runs=[("", measured)]))["rci AMBER Molmo-1B patches:2"].ours for measured in runs]
    assert value.ours is not None
    assert value.ours.value == pytest.approx(1 - 80 / 60)
    assert value.ours.reason.startswith("mean of 3 runs")
    assert value.published == -0.015
    assert [estimate.value for estimate in single if estimate] == pytest.approx([1 - 90 / 60, 1 - 80 / 60, 1 - 70 / 60])


def test_curves_of_res_bench_are_means_over_categories(tmp_path: Path) -> None:
    rungs = {f"resolution:{112 * step}": 60 - 5 * step for step in range(1, 13)}
    measured = run(tmp_path / "one", {"GPT-4o": {"clean": 0, "no_image": 90, **rungs}}, dataset="ResBench")
    values = reproduced(reproduce("res-bench", "2", runs=[("", measured)]))
    curve = {name: value.ours.value for name, value in values.items() if value.ours}
    accuracies = [1 - wrong / 100 for wrong in rungs.values()]
    assert curve["accuracy.macro Res-Bench GPT-4o resolution:112"] == pytest.approx(accuracies[0])
    assert curve["absolute_continuous_error.macro Res-Bench GPT-4o"] == pytest.approx(accuracies[-1] - accuracies[0])
    assert curve["resolution_accuracy.macro Res-Bench GPT-4o"] == pytest.approx(sum(accuracies) / 12)
    assert curve["resolution_correlation.macro Res-Bench GPT-4o"] == pytest.approx(1.0)


def test_a_cell_of_which_a_part_was_asked_does_not_count(tmp_path: Path) -> None:
    measured = run(tmp_path / "one", {"Qwen3-VL-4B": QWEN})
    with Evidence.open(measured) as evidence:
        cell = Cell("Qwen3-VL-4B", "MMBench_DEV_EN", Setting.parse("solarize:low"))
        answer = Answer("k", Prediction("A", "generate"), Score(0.0, "letter", "A", "scored"))
        evidence.put_cells([StoredCell(cell, 1, (answer,), places=(0,))])
    (table,) = reproduce("vlm-robustbench", "13", runs=[("", measured)]).tables
    (value,) = [v for v in table.values if v.about["model"] == "Qwen3-VL-4B" and v.about["setting"] == "solarize:low"]
    assert value.ours is None
    assert "solarize:low" in value.reason
    worst = reproduced(reproduce("vlm-robustbench", "3", runs=[("", measured)]))["worst_case_drop MMBench Qwen3-VL-4B"].ours
    assert worst is not None
    assert "1 cell not asked in full" in worst.reason


def test_names_of_ours_can_be_said(tmp_path: Path) -> None:
    measured = run(tmp_path / "one", {"mine": QWEN}, dataset="questions")
    nothing = reproduce("vlm-robustbench", "3", runs=[("", measured)])
    assert reproduced(nothing) == {}
    assert any("mine" in note and "--as" in note for note in nothing.notes)
    called = {"mine": "Qwen3-VL-4B", "questions": "MMBench"}
    assert len(reproduced(reproduce("vlm-robustbench", "3", runs=[("", measured)], called=called))) == 7
    for wrong in ({"mne": "Qwen3-VL-4B"}, {"mine": "Qwen3-VL-5B"}):
        with pytest.raises(UnknownName, match="--as: unknown model or dataset"):
            reproduce("vlm-robustbench", "3", runs=[("", measured)], called=wrong)
    with pytest.raises(UsageError, match="expected OURS=THEIRS"):
        parse_names(["mine"])


def test_what_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=re.escape("unknown paper 'res-bank'. Did you mean 'res-bench'")):
        reproduce("res-bank")
    with pytest.raises(UnknownName, match="vlm-robustbench: unknown table '33'"):
        reproduce("vlm-robustbench", "33")
    with pytest.raises(UsageError, match=re.escape("holds no predictions.sqlite")):
        reproduce("rci", runs=[("", tmp_path)])


# The data.


def test_every_table_of_the_five_papers_is_there() -> None:
    counts = {name: len(paper(name).tables) for name in papers()}
    assert counts == {"pcri": 8, "perceptual-observatory": 1, "rci": 7, "res-bench": 13, "vlm-robustbench": 29}
    for name in papers():
        assert [*paper(name).tables] == [str(number) for number in range(1, counts[name] + 1)]
        for table in paper(name).tables.values():
            assert table.caption.endswith(".")
            assert all(value.about and value.metric for value in table.values)


def test_every_metric_of_a_column_is_one() -> None:
    metrics_of_columns = {
        "tier_share",
        "tier_count",
        "flip_ratio",
        "lost_share",
        "size_slope",
        "r_squared",
        "robustness_tier",
        "worst_case_setting",
    }
    metrics_of_columns |= {"perturbation_parameter", "number_of_perturbations", "people"}
    named = {value.metric for name in papers() for table in paper(name).tables.values() for value in table.values}
    for metric in named - metrics_of_columns:
        assert metrics.get(metric.removesuffix(".macro")).name == metric.removesuffix(".macro")
    assert metrics_of_columns < named


@pytest.mark.study
def test_the_data_are_those_of_the_golden_tables(golden: Callable[[str], Rows]) -> None:
    main_rows = {row["model"]: row for row in golden("resbench_main")}
    for value in paper("res-bench").tables["2"].values:
        edge = value.about.get("setting", "").removeprefix("resolution:")
        short = {"resolution_accuracy": "avg", "resolution_correlation": "rho", "absolute_continuous_error": "ace"}
        column = f"acc_{edge}" if edge else short.get(value.metric.removesuffix(".macro"), "rce")
        assert float(value.printed) == float(main_rows[value.about["model"]][column])
    for row in golden("resbench_subtasks"):
        table = paper("res-bench").tables[row["table"]]
        printed = [value.printed for value in table.values if value.about["category"] == row["subtask"]]
        columns = [name for name in row if name.startswith("acc_")]
        assert printed == [row[name] for name in (*columns, "avg", "rho", "ace", "rce")]
        said = [note for note in table.notes if note.startswith(f"{row['subtask']}, from its accuracies: ")]
        assert len(said) == bool(row["disagrees"]), (row["table"], row["subtask"])
        for name in filter(None, row["disagrees"].split(";")):
            accuracies = [float(row[column]) for column in columns]
            ours = {
                "avg": metrics.accuracy(accuracies),
                "rho": metrics.resolution_correlation([int(column.removeprefix("acc_")) for column in columns], accuracies),
                "ace": metrics.absolute_continuous_error(accuracies),
                "rce": metrics.relative_continuous_error(accuracies),
            }
            assert f"{ours[name]:.3f}, printed {row[name]}" in said[0]
    table3 = {(row["dataset"], row["model"]): row for row in golden("robustbench_table3")}
    for value in paper("vlm-robustbench").tables["3"].values:
        assert value.printed in table3[value.about["dataset"], value.about["model"]].values()
    tiers = {(row["dataset"], row["severity"].lower()): row for row in golden("robustbench_tiers")}
    for value in paper("vlm-robustbench").tables["18"].values:
        assert value.printed == tiers[value.about["dataset"], value.about["level"]][value.about["tier"]]
    rci = {row["dataset"]: row for row in golden("rci_table2")}
    for value in paper("rci").tables["2"].values:
        assert value.printed in rci[value.about["dataset"]].values()


def test_what_follows_from_this_package_is_that_of_the_papers() -> None:
    (table,) = reproduce("vlm-robustbench", "1").tables
    assert [value.agreement for value in table.values] == [AGREES] * 10


def test_parameters_of_table_29_are_measured_in_pixels(measured_once: None) -> None:
    (table,) = reproduce("vlm-robustbench", "29").tables
    said = {(value.about["perturbation"], value.about["level"]): value for value in table.values}
    hidden = [
        "zoom_blur",
        "glass_blur",
        "fog",
        "frost",
        "snow",
        "rain",
        "spatter",
        "perspective_transform",
        "elastic_transform",
        "color_jitter",
        "downsample",
    ]
    for (name, level), value in said.items():
        expected = {DIFFERS} if name in ("text_overlay", "watermark") else {DECLARED} if name in hidden else {AGREES}
        if (name, level) == ("upsample", "high"):
            expected = {COMPATIBLE}  # whole pixels are cut off: 6.0 is not known to 0.1
        assert {value.agreement} == expected, (name, level, value.ours)
        if name not in hidden:
            assert value.ours is not None
            assert value.word or value.ours.low <= value.published <= value.ours.high
    assert re.fullmatch(r"2[34] at 640 x 480; 58 at 1344 x 1344", said["text_overlay", "low"].word)
    assert re.fullmatch(r"7[123] at 640 x 480; 174 at 1344 x 1344", said["watermark", "high"].word)


def test_a_parameter_that_pixels_do_not_have_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue says 0.02; the pixels are those of 0.06."""
    get = perturbations.get
    monkeypatch.setattr(perturbations, "get", lambda setting: get(setting.replace("noise:low", "noise:mid")))
    noise = [value for value in reproduce("vlm-robustbench", "29").tables[0].values if "noise" in value.about["perturbation"]]
    assert [(value.about["level"], value.agreement) for value in noise] == [
        *[("low", DIFFERS), ("mid", AGREES), ("high", AGREES)] * 3
    ]


def test_the_commands_are_ones_that_run(request: pytest.FixtureRequest) -> None:
    options = {name for option in request.config._parser._anonymous.options for name in option.names()}
    for group in request.config._parser._groups:
        options |= {name for option in group.options for name in option.names()}
    for name in papers():
        for table in paper(name).tables.values():
            assert (
                not table.commands or table.commands[-1] == f"vlmrobust reproduce {name} {table.number} --run=.vlmrobust/runs/RUN"
            )
            for command in table.commands:
                program, *words = shlex.split(command)
                if program == "vlmrobust":
                    read(words)
                    continue
                assert program == "pytest"
                assert {word.partition("=")[0] for word in words if word.startswith("--")} <= options, command
                assert all((Path(word)).is_file() for word in words if word.startswith("suites/"))
                policies = [word.partition("=")[2] for word in words if word.startswith("--vlm-thresholds=")]
                assert all(Path("thresholds", f"{policy}.yaml").is_file() for policy in policies)


def test_a_models_file_that_a_command_names_is_printed_and_has_its_models(tmp_path: Path) -> None:
    named = 0
    for name in papers():
        for table in paper(name).tables.values():
            options = [word.partition("=")[::2] for command in table.commands for word in shlex.split(command)]
            assert bool(table.models) == (("--vlm-models", "models.yaml") in options), (name, table.number)
            if table.models:
                (file := tmp_path / "models.yaml").write_text(table.models)
                refs = [resolve(model, models_file=file) for option, model in options if option == "--vlm"]
                named += len(refs)
                if name == "perceptual-observatory":
                    decoding = {(g.temperature, g.top_p, g.top_k) for g in map(generation_for, refs)}
                    assert decoding == {(0.2, 0.95, 32)}
    assert named == 2 + 2 * 3


# The command.


def test_the_command_lists_papers_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce"]) == 0
    said = capsys.readouterr().out
    assert "VLM-RobustBench\n" in said
    assert "res-bench  2  " in said
    assert main(["reproduce", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rci"]["2"].startswith("RCI of thirteen benchmarks")
    assert main(["reproduce", "--run=."]) == 4
    assert "name one before --run" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["pcri", "perceptual-observatory", "rci", "res-bench", "vlm-robustbench"])
def test_a_paper_is_printed_without_a_run(name: str, capsys: pytest.CaptureFixture[str], measured_once: None) -> None:
    assert main(["reproduce", name]) == 0
    said = capsys.readouterr().out
    assert "Not run here." in said
    assert "$ pytest suites/" in said
    for number in paper(name).tables:
        assert f", table {number}. " in said


def test_a_run_that_is_named_twice_is_refused(qwen: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "vlm-robustbench", "3", f"--run={qwen}", f"--run=b={qwen}/../{qwen.name}"]) == 4
    assert "by its answers. A run counts once: a mean over runs needs other ones" in capsys.readouterr().err


@pytest.mark.parametrize(("names", "told_by"), [(("r1", "r1"), "name"), (("r1", None), "answers"), (("r1", "r2"), "")])
def test_a_copy_of_a_run_is_the_same_run(
    qwen: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], names: Sequence[str | None], told_by: str
) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(qwen, copy)
    for directory, name in zip((qwen, copy), names, strict=True):
        if name:
            (directory / "manifest.json").write_text(json.dumps({"manifest_version": 1, "run": name}))
    assert main(["reproduce", "vlm-robustbench", "3", f"--run={qwen}", f"--run={copy}"]) == (4 if told_by else 0)
    assert (f"is the same run as {str(qwen)!r}, by its {told_by}." in capsys.readouterr().err) is bool(told_by)


def test_damaged_evidence_is_not_called_a_store(qwen: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (qwen / "predictions.sqlite").write_text("no database at all")
    assert main(["reproduce", "vlm-robustbench", "3", f"--run={qwen}"]) == 4
    error = capsys.readouterr().err
    assert "predictions.sqlite: cannot open the evidence of a run: file is not a database." in error
    assert "run the model again" in error


def test_a_table_whose_numbers_are_absent_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    (table,) = reproduce("perceptual-observatory", "1").tables
    assert {value.printed for value in table.values} == {""}
    assert main(["reproduce"]) == 0
    assert "augmentations and illusions. [180 numbers, none at hand]" in " ".join(capsys.readouterr().out.split())


def test_names_without_a_run_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "vlm-robustbench", "3", "--as=tiny=Qwen3-VL-4B"]) == 4
    assert "name the run with --run" in capsys.readouterr().err


def test_ours_stand_beside(qwen: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["reproduce", "vlm-robustbench", "3", f"--run={qwen}"]) == 0
    said = capsys.readouterr().out
    row = r"visual_gain +48\.2 +50\.0 +100 +\[\d\d\.\d, \d\d\.\d\] +\d\.\d of \d\.\d +\+1\.8 +compatible, not tested"
    assert re.search(row, said)
    assert "The limit is 2 times the precision of the published number" in said
    assert re.search(r"MMBench, Qwen3-VL-4B +benign_at_low +88\.1 +50\.0", said)
    assert "119 published numbers without ours: no run of Qwen3-VL-8B, " in said
    assert "a published number has none and is taken as exact" in said.replace("\n  ", " ")
    assert main(["reproduce", "vlm-robustbench", "3", f"--run={qwen}", "--json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    values = [value for value in table["values"] if value["ours"]]
    assert len(values) == 7
    assert values[0]["published"] == 88.4
    assert values[0]["ours"]["value"] == pytest.approx(90.0)
    assert (table["scale"], values[0]["agreement"], values[0]["about"]["model"]) == (100, COMPATIBLE, "Qwen3-VL-4B")
    assert values[0]["ours"]["n"] == N
    half_width = (values[0]["ours"]["high"] - values[0]["ours"]["low"]) / 2
    assert values[0]["limit"] == pytest.approx(2 * half_width * math.sqrt(100 / 853))
