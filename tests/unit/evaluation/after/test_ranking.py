"""Several models side by side, from the evidence of their runs."""

from __future__ import annotations

import dataclasses
import json
import math
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.conversion import to_plain
from pytest_vlmrobust.core.errors import DatasetError, StoreError, UnknownName, UsageError
from pytest_vlmrobust.core.prediction import ModelRef, Prediction, Score
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.sample import PictureDigests, Sample
from pytest_vlmrobust.evaluation.after.paired import run_models
from pytest_vlmrobust.evaluation.after.ranking import UNREGISTERED, rank, rank_models, rank_run
from pytest_vlmrobust.evaluation.after.standings import BY, QUANTITIES, Board
from pytest_vlmrobust.evaluation.judge.baseline import Baseline
from pytest_vlmrobust.evaluation.run.manifest import model_origin
from pytest_vlmrobust.metrics import ScoreTable
from pytest_vlmrobust.reporting.ranking import write_ranking
from pytest_vlmrobust.store import Answer, Evidence, Journal, StoredCell, write_manifest

Scores = NDArray[np.float64]
SETTINGS = ("clean", "fog:low", "fog:high", "flip_v")
N = 60


def samples(order: Sequence[int] = range(N), **changes: Any) -> list[Sample]:
    options = {"A": "a", "B": "b"}
    return [Sample(f"q{i}", (), f"{i}?", "B", "choice", options, **{"group": f"g{i // 2}", **changes}) for i in order]


def scripted(share: float, seed: int = 0, **other: float) -> Callable[[str], Scores]:
    """Returns the scores of a model under a setting: as large a share right, or that of ``other`` settings."""

    def scores(setting: str) -> Scores:
        rng = np.random.default_rng([seed, *map(ord, setting)])
        return (rng.random(N) < other.get(setting.partition(":")[0], share)).astype(float)

    return scores


MODELS = {name: model_origin(ModelRef(name, "scripted", name)) for name in "abcd"}


def run(
    directory: Path,
    models: Mapping[str, Callable[[str], Scores]],
    settings: Sequence[str] = SETTINGS,
    datasets: Sequence[str] = ("data",),
    questions: Sequence[Sample] = (),
) -> Path:
    """Writes the evidence of a run."""
    with Evidence.open(directory) as evidence:
        for dataset in datasets:
            evidence.put_samples(dataset, "d", questions or samples())
            for model, scores in models.items():
                for setting in settings:
                    evidence.put_cells([stored(model, dataset, setting, scores(setting).tolist())])
    write_manifest(directory, {"models": MODELS})
    return directory


def stored(model: str, dataset: str, setting: str, scores: Sequence[float]) -> StoredCell:
    answers = [
        Answer("k", Prediction("", "generate"), Score(score, "", None, "error" if math.isnan(score) else "scored"))
        for score in scores
    ]
    return StoredCell(Cell(model, dataset, Setting.parse(setting)), 1, tuple(answers))


def board(directory: Path, **options: Any) -> Board:
    (only,) = rank([("", directory)], **options).boards
    return only


def test_a_better_model_stands_first_and_is_told_apart(tmp_path: Path) -> None:
    ranked = board(run(tmp_path, {"weak": scripted(0.3, 1), "best": scripted(1.0), "fair": scripted(0.4, 2)}))
    ranks = {
        standing.model: (standing.rank, standing.rank_best, standing.rank_worst, standing.not_apart)
        for standing in ranked.standings
    }
    assert next(iter(ranks)) == "best"
    assert ranks["best"] == (1, 1, 1, ())
    assert {ranks["weak"][1:], ranks["fair"][1:]} == {(2, 3, ("fair",)), (2, 3, ("weak",))}
    assert [(difference.first, difference.apart) for difference in ranked.differences] == [
        ("best", True),
        ("best", True),
        (list(ranks)[1], False),
    ]
    assert (ranked.samples, ranked.settings) == (N, 3)


@pytest.mark.parametrize("first", ["whole", "part"])
def test_a_setting_that_changes_fewer_questions_in_one_of_the_runs_does_not_count(tmp_path: Path, first: str) -> None:
    for name, count in (("whole", N), ("part", N - 9)):
        run(tmp_path / name, {"abcd"[count == N]: scripted(0.7)})
        with Evidence.open(tmp_path / name) as evidence:
            cell = stored("abcd"[count == N], "data", "option_order:1", [1.0] * count)
            evidence.put_cells(
                [dataclasses.replace(cell, places=tuple(range(count)), questions=dict.fromkeys(range(count), "{}"))]
            )
    runs = [("", tmp_path / name) for name in sorted(("whole", "part"), key=lambda name: name != first)]
    assert "data: 1 setting does not count: option_order:1; they change a part of the questions" in rank(runs).left_out


@pytest.mark.parametrize("by", BY)
def test_models_that_answer_alike_share_rank_and_numbers(tmp_path: Path, by: str) -> None:
    models = {"one": scripted(0.7), "twin": scripted(0.7), "other": scripted(0.1, 3, clean=0.6)}
    ranked = board(run(tmp_path, models), by=by, reference="other")
    standing, twin = (next(each for each in ranked.standings if each.model == name) for name in ("one", "twin"))
    assert (standing.rank, standing.rank_best, standing.rank_worst) == (twin.rank, twin.rank_best, twin.rank_worst)
    assert "twin" in standing.not_apart
    assert {name: (each.value, each.low, each.high) for name, each in standing.values.items()} == {
        name: (each.value, each.low, each.high) for name, each in twin.values.items()
    }


def test_the_numbers_are_those_of_the_metrics(tmp_path: Path) -> None:
    models = {"m": scripted(0.8, 1), "ref": scripted(0.5, 2)}
    ranked = board(run(tmp_path, models), reference="ref")
    values = next(standing for standing in ranked.standings if standing.model == "m").values
    by_setting = {name: models["m"](name) for name in SETTINGS[1:]}
    table = ScoreTable(
        models["m"]("clean"),
        by_setting,
        reference_by_setting={name: models["ref"](name) for name in by_setting},
        groups=[f"g{i // 2}" for i in range(N)],
    )
    for name in set(QUANTITIES) - {"mean_accuracy"}:
        expected = metrics.estimate(name, table)
        assert (values[name].value, values[name].low, values[name].high) == pytest.approx(
            (expected.value, expected.low, expected.high)
        )
    assert values["mean_accuracy"].value == pytest.approx(np.mean(list(by_setting.values())))
    assert values["worst_case_drop"].reason.startswith("at ")
    reference = next(standing for standing in ranked.standings if standing.model == "ref").values["mean_corruption_error"]
    assert (reference.value, reference.low, reference.high, reference.reason) == (1.0, 1.0, 1.0, "the reference model")


def test_the_smallest_drop_and_the_best_accuracy_are_different_orders(tmp_path: Path) -> None:
    path = run(tmp_path, {"blind": scripted(0.4, 1), "sees": scripted(0.8, 2, clean=1.0)})
    assert [standing.model for standing in board(path).standings] == ["sees", "blind"]
    assert [standing.model for standing in board(path, by="mean_drop").standings] == ["blind", "sees"]
    assert [standing.model for standing in board(path, by="clean_accuracy").standings] == ["sees", "blind"]


def test_families_have_the_mean_drop_of_their_settings(tmp_path: Path) -> None:
    path = run(tmp_path, {"a": scripted(1.0, fog=0.5), "b": scripted(1.0, 1, fog=0.9, flip_v=0.1)})
    by_family = {family.family: family for family in board(path).families}
    assert list(by_family) == ["binary", "weather"]
    assert (by_family["weather"].settings, by_family["binary"].settings) == (2, 1)
    fog = 1.0 - np.mean([scripted(1.0, fog=0.5)(name) for name in ("fog:low", "fog:high")])
    drop = by_family["weather"].mean_drop["a"]
    assert drop.value == pytest.approx(fog)
    assert drop.low < drop.value < drop.high
    assert by_family["binary"].mean_drop["a"].value == 0.0


def test_failed_inferences_are_counted_and_never_zero(tmp_path: Path) -> None:
    def failing(setting: str) -> Scores:
        scores = np.ones(N)
        scores[:5] = math.nan if setting == "flip_v" else 1.0
        return scores

    ranked = board(run(tmp_path, {"fails": failing, "never": lambda _setting: np.ones(N)}))
    assert [
        (standing.model, standing.rank, standing.failed, standing.values["mean_accuracy"].value) for standing in ranked.standings
    ] == [
        ("fails", 1, 5, 1.0),
        ("never", 1, 0, 1.0),
    ]
    pairs = "5 of 240 pairs of a sample and a setting, clean included"
    said = f"5 of 240 inferences of fails failed: {pairs}, are left out for every model"
    assert said in ranked.notes


def test_where_every_inference_failed_nothing_is_ranked(tmp_path: Path) -> None:
    nothing = lambda setting: np.full(N, math.nan if setting != "clean" else 1.0)  # noqa: E731
    ranked = board(run(tmp_path, {"down": nothing, "up": scripted(0.9)}))
    assert [standing.rank for standing in ranked.standings] == [None, None]
    assert all(math.isnan(standing.values["mean_accuracy"].value) for standing in ranked.standings)
    assert any(note == "accuracy under settings is not given: no sample counts under any setting" for note in ranked.notes)
    assert (ranked.differences, ranked.families, ranked.settings) == ((), (), 0)


def test_a_cell_that_one_model_was_not_asked_counts_for_none(tmp_path: Path) -> None:
    path = run(tmp_path, {"a": scripted(0.9), "b": scripted(0.5, 1)})
    run(tmp_path, {"a": scripted(0.0)}, ("invert", "patches:2"))
    ranking = rank([("", path)])
    assert ranking.left_out == (
        "data: 1 of 6 settings do not count: invert (not asked of b)",
        "data: 1 of 6 settings do not count: patches:2; sizes and patches are experiments of their own",
    )
    same = rank([("", run(tmp_path / "same", {"a": scripted(0.9), "b": scripted(0.5, 1)}))])
    assert to_plain(ranking.boards) == to_plain(same.boards)


def test_a_data_set_that_one_model_was_not_asked_about_is_left_out(tmp_path: Path) -> None:
    path = run(tmp_path, {"a": scripted(0.9), "b": scripted(0.5, 1)})
    run(tmp_path, {"a": scripted(0.0)}, datasets=("more",))
    ranking = rank([("", path)])
    assert [ranked.dataset for ranked in ranking.boards] == ["data"]
    assert ranking.left_out == ("more: left out: not all models were asked about clean images and about a perturbation (b)",)


def test_over_data_sets_each_counts_once(tmp_path: Path) -> None:
    path = run(tmp_path, {"a": scripted(0.9), "b": scripted(0.5, 1)})
    few = samples(range(10))
    for model, share in (("a", 0.0), ("b", 1.0)):
        run(tmp_path, {model: lambda _setting, share=share: np.full(10, share)}, datasets=("few",), questions=few)  # type: ignore[misc]
    every, data, other = rank([("", path)]).boards
    assert [(ranked.dataset, ranked.samples, ranked.settings) for ranked in (every, data, other)] == [
        ("", 70, 6),
        ("data", N, 3),
        ("few", 10, 3),
    ]
    for model in ("a", "b"):
        values = [
            next(standing for standing in board.standings if standing.model == model).values["mean_accuracy"].value
            for board in (every, data, other)
        ]
        assert values[0] == pytest.approx((values[1] + values[2]) / 2.0)
    assert every.notes[0] == "the plain mean over 2 datasets: each counts once, however many samples it has"
    assert "on data" in every.standings[0].values["worst_case_drop"].reason + every.standings[1].values["worst_case_drop"].reason


def test_models_of_several_runs_are_paired_by_sample(tmp_path: Path) -> None:
    """The second run has the samples in another order."""
    turned = list(reversed(range(N)))
    first = run(tmp_path / "a", {"a": scripted(0.9)})
    other = run(tmp_path / "b", {"b": lambda name: scripted(0.5, 1)(name)[turned]}, questions=samples(turned))
    ranking = rank([("", first), ("", other)])
    both = rank([("", run(tmp_path / "both", {"a": scripted(0.9), "b": scripted(0.5, 1)}))])
    assert to_plain(ranking.boards) == to_plain(both.boards)
    assert ranking.models == ("a", "b")


def test_runs_with_a_model_of_one_name_need_names_of_their_own(tmp_path: Path) -> None:
    before, after = run(tmp_path / "a", {"m": scripted(0.9)}), run(tmp_path / "b", {"m": scripted(0.5, 1)})
    with pytest.raises(
        UsageError, match=r"the model 'm' is in '.*a' and in '.*b'\. Give the runs names .* rank before=RUN after=RUN"
    ):
        rank([("", before), ("", after)])
    assert rank([("old", before), ("new", after)]).models == ("old/m", "new/m")


def test_other_samples_are_refused(tmp_path: Path) -> None:
    first = run(tmp_path / "a", {"a": scripted(0.9)})
    fewer = run(tmp_path / "b", {"b": lambda name: scripted(0.5)(name)[:50]}, questions=samples(range(50)))
    with pytest.raises(
        DatasetError, match=r"b cannot be compared on data: of 60 samples in .*a, 10 are not in .*b \(q50, q51, q52 and 7 more\)"
    ):
        rank([("", first), ("", fewer)])
    other = run(tmp_path / "c", {"c": scripted(0.5)}, questions=samples(hint="x"))
    assert rank([("", first), ("", other)]).models == ("a", "c")
    changed = [Sample(f"q{i}", (), "Another?", "B", "choice", {"A": "a", "B": "b"}) for i in range(N)]
    with pytest.raises(DatasetError, match=r"60 ask something else there \(q0, q1, q10 and 57 more\)\. Expected the same"):
        rank([("", first), ("", run(tmp_path / "d", {"d": scripted(0.5)}, questions=changed))])


def test_other_pictures_are_refused_and_unknown_ones_are_said(tmp_path: Path) -> None:
    runs = [run(tmp_path / name, {name: scripted(0.5)}) for name in ("a", "b")]
    assert rank([("", path) for path in runs]).left_out == tuple(
        f"{path} does not say which images of data it showed (only a clean cell records them): whether they are the same was not "
        "compared"
        for path in runs
    )
    for path in runs:
        with Evidence.open(path) as evidence:
            evidence.put_pictures("data", {"q1": PictureDigests(path.name, path.name)})
    with pytest.raises(DatasetError, match=r"1 show other images there \(q1\)"):
        rank([("", path) for path in runs])


def test_runs_with_other_seeds_are_said(tmp_path: Path) -> None:
    runs = [run(tmp_path / name, {name: scripted(0.5)}) for name in ("a", "b")]
    for seed, path in enumerate(runs):
        write_manifest(path, {"settings": {"vlm_seed": seed}, "version": "1", "models": MODELS})
    said = rank([("", path) for path in runs]).left_out
    assert said[-1] == (
        f"the runs have different seeds of perturbations (0 in {runs[0]}, 1 in {runs[1]}): perturbed images may differ"
    )


def test_what_cannot_be_ranked_is_refused(tmp_path: Path) -> None:
    path = run(tmp_path / "a", {"a": scripted(0.9), "b": scripted(0.5)})
    with pytest.raises(UsageError, match="a ranking needs two models or more, found c"):
        rank([("", run(tmp_path / "c", {"c": scripted(0.9)}))])
    with pytest.raises(UnknownName, match=r"--by: unknown quantity 'mean_dorp'\. Did you mean 'mean_drop'\?"):
        rank([("", path)], by="mean_dorp")
    with pytest.raises(UnknownName, match="--reference: unknown reference model 'x'"):
        rank([("", path)], reference="x")
    with pytest.raises(
        UsageError, match="--by mean_corruption_error needs a model whose errors are its unit: --reference with one of a, b"
    ):
        rank([("", path)], by="mean_corruption_error")
    with pytest.raises(UsageError, match=r"holds no predictions\.sqlite"):
        rank([("", tmp_path / "nowhere")])
    apart = run(tmp_path / "d", {"d": scripted(0.9)}, ("clean", "invert"))
    with pytest.raises(UsageError, match=r"no cell was measured for all of a, b, d\. data: left out"):
        rank([("", path), ("", apart)])


def test_without_a_reference_the_board_says_which_one_the_paper_takes(tmp_path: Path) -> None:
    ranked = board(run(tmp_path, {"good": scripted(1.0), "weak": scripted(0.4)}))
    (note,) = ranked.notes
    assert note == (
        "mCE is not given: no reference model was named: --reference MODEL. VLM-RobustBench takes the one with the lowest clean "
        "accuracy, here weak"
    )
    assert math.isnan(ranked.standings[0].values["mean_corruption_error"].value)


def test_a_reference_without_errors_is_said(tmp_path: Path) -> None:
    ranked = board(run(tmp_path, {"a": scripted(0.5), "perfect": scripted(1.0)}), reference="perfect")
    assert ranked.notes == ("mCE is not given: the reference model perfect makes no error under flip_v and 1 more",)


def test_clean_pictures_alone_can_be_ranked_by_what_they_say(tmp_path: Path) -> None:
    path = run(tmp_path, {"a": scripted(0.9), "b": scripted(0.2, 1)}, ("clean", "no_image"))
    with pytest.raises(UsageError, match="no cell was measured for all of a, b"):
        rank([("", path)])
    ranked = board(path, by="clean_accuracy")
    assert [(standing.model, standing.rank) for standing in ranked.standings] == [("a", 1), ("b", 2)]
    assert ranked.settings == 0


def test_perturbations_of_the_run_alone_are_a_family_of_their_own(tmp_path: Path) -> None:
    path = run(tmp_path, {"a": scripted(0.9), "b": scripted(0.2, 1)}, ("clean", "my_own:low"))
    assert [family.family for family in board(path).families] == [UNREGISTERED]


def test_evidence_that_is_open_stays_open(tmp_path: Path) -> None:
    path = run(tmp_path, {"a": scripted(0.9), "b": scripted(0.2, 1)})
    with Evidence.open(path, read_only=True) as evidence:
        ranking = rank_models(run_models(Baseline(evidence, called="the run")))
        assert evidence.cells()
    assert ranking.runs == ("the run",)


def test_it_is_json_and_the_same_each_time(tmp_path: Path) -> None:
    path = run(tmp_path, {"a": scripted(0.9), "b": scripted(0.2, 1)})
    ranking = rank([("", path)])
    write_ranking(tmp_path, ranking)
    text = (tmp_path / "models.json").read_text()
    write_ranking(tmp_path, rank([("", path)]))
    assert text == (tmp_path / "models.json").read_text()
    data = json.loads(text)
    assert (data["ranking_version"], data["by"], data["better"], data["reference"]) == (1, "mean_accuracy", "higher", "")
    assert set(data["boards"][0]) == {
        "dataset",
        "samples",
        "settings",
        "standings",
        "differences",
        "families",
        "notes",
        "analyses",
    }
    assert data["boards"][0]["standings"][0]["values"]["mean_corruption_error"]["value"] is None


def test_models_whose_tests_stopped_early_are_not_ranked(tmp_path: Path) -> None:
    directory = run(tmp_path, {"full": scripted(0.9), "early": scripted(0.8)})
    with sqlite3.connect(directory / "predictions.sqlite") as connection:
        connection.execute("delete from answers where place >= 12 and cell = (select max(id) from cells)")
    connection.close()
    with Evidence.open(directory, read_only=True) as evidence, pytest.raises(StoreError, match="damaged"):
        rank_run(evidence, "run")  # nothing says that a test stopped
    with Journal(directory) as journal:
        journal.append(Record("cell", "early-data-fog", "early", "data", "fog", n_requested=12, n_samples=N))
    with Evidence.open(directory, read_only=True) as evidence:
        ranking, why = rank_run(evidence, "run")
    assert ranking is None
    assert why.startswith("the models of the run are not ranked: ")
    assert "A run in adaptive mode stops early: make one with --vlm-mode=full" in why


def test_letters_and_text_are_not_ranked_together(tmp_path: Path) -> None:
    directory = run(tmp_path, {"letters": scripted(0.9), "text": scripted(0.8)})
    with Evidence.open(directory) as evidence:
        for setting in SETTINGS:
            cell = stored("letters", "data", setting, scripted(0.9)(setting).tolist())
            by_letter = [dataclasses.replace(answer, prediction=Prediction("", "letter_logits")) for answer in cell.answers]
            evidence.put_cells([dataclasses.replace(cell, answers=tuple(by_letter))])
    with pytest.raises(
        DatasetError, match=r"data: the choices were not answered in one way \(by letters: letters; by text: text\)"
    ):
        rank([("", directory)])
    with Evidence.open(directory, read_only=True) as evidence:
        ranking, why = rank_run(evidence, "run")
    assert ranking is None
    assert "--vlm-answer=text" in why
