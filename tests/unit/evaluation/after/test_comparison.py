"""Two runs side by side, from their evidence alone."""

from __future__ import annotations

import json
import math
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_vlmrobust.cli import main
from pytest_vlmrobust.core.errors import DatasetError, StoreError, UnknownName, UsageError
from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.evaluation.after.comparison import StoppedEarly, compare
from pytest_vlmrobust.metrics.statistics.paired import TangoTest
from pytest_vlmrobust.reporting.comparison import write_comparison
from pytest_vlmrobust.store import Journal
from tests.unit.evaluation.conftest import World, present
from tests.unit.evaluation.judge.test_baseline import measured, wrong


def test_a_run_compared_with_itself_changed_nothing(world: World) -> None:
    run = measured(world, "one")
    comparison = compare(run, run)
    assert [(change.setting, change.baseline_drop.value, change.broken, change.fixed) for change in comparison.cells] == [
        (name, 0.0, (), ()) for name in ("clean", "flip_h", "flip_v", "no_image")
    ]
    (sweep,) = comparison.sweeps
    assert (sweep.settings, sweep.mean_baseline_drop.value, comparison.only_before, comparison.only_after) == (2, 0.0, (), ())


def test_the_worst_comes_first_with_its_interval_and_samples(world: World) -> None:
    world.model.answer = wrong("flip_h", 5)
    before = measured(world, "before")
    world.model.answer, world.model.version = wrong("flip_v", 1, 3), "2"
    after = measured(world, "after")
    comparison = compare(before, after)
    first, *_, last = comparison.cells
    assert (first.name, first.then, first.n) == ("model-data-flip_v", 1.0, 6)
    assert first.now == pytest.approx(2 / 3)
    assert (first.broken, first.fixed) == (("q1", "q3"), ())
    test = TangoTest(np.array([2.0]), np.array([0.0]), np.array([6.0]), math.inf)
    assert (first.baseline_drop.low, first.baseline_drop.high) == (test.lower(0.05)[0], test.upper(0.05)[0])
    assert present(first.drop_increase).value == pytest.approx(1 / 3)
    assert (last.name, last.fixed) == ("model-data-flip_h", ("q5",))
    assert last.baseline_drop.value == pytest.approx(-1 / 6)
    assert comparison.sweeps[0].mean_baseline_drop.value == pytest.approx(1 / 12)


def test_clean_cells_have_no_drop_that_could_grow(world: World) -> None:
    run = measured(world, "one")
    assert {change.setting: change.drop_increase is None for change in compare(run, run).cells}["clean"]


def test_without_a_clean_cell_the_loss_is_still_known(world: World) -> None:
    run = measured(world, "one", ("flip_v",))
    (only,) = compare(run, run).cells
    assert (only.baseline_drop.value, only.drop_increase) == (0.0, None)


def test_cells_of_one_run_are_named(world: World) -> None:
    before, after = measured(world, "before", ("clean", "flip_h")), measured(world, "after", ("clean", "flip_v"))
    comparison = compare(before, after)
    assert [change.setting for change in comparison.cells] == ["clean"]
    assert (comparison.only_before, comparison.only_after, comparison.sweeps) == (
        ("model-data-flip_h",),
        ("model-data-flip_v",),
        (),
    )


def stop_early(run: Path, cell: str, *, n_asked: int, is_recorded: bool = True) -> Path:
    """Leaves the answers to the first samples of a cell, and where ``told``, a record that says so."""
    with sqlite3.connect(run / "predictions.sqlite") as connection:
        setting = cell.rpartition("-")[2]
        (number,) = connection.execute("select id from cells where setting = ?", (setting,)).fetchone()
        connection.execute("delete from answers where cell = ? and place >= ?", (number, n_asked))
    connection.close()
    with Journal(run) as journal:
        journal.append(Record("cell", cell, "model", "data", setting, n_samples=6 if is_recorded else 0))
    return run


def test_what_stopped_early_is_counted_and_has_no_interval(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    before = stop_early(measured(world, "before"), "model-data-flip_v", n_asked=3)
    same = stop_early(measured(world, "same"), "model-data-flip_v", n_asked=3)
    world.model.answer, world.model.version = wrong("flip_v", 1), "2"
    other = stop_early(measured(world, "other"), "model-data-flip_v", n_asked=4)
    comparison = compare(before, same)
    assert comparison.stopped_early == StoppedEarly(("model-data-flip_v",), answers=3)
    assert "model-data-flip_v" not in [change.name for change in comparison.cells]
    assert comparison.unchanged
    comparison = compare(before, other)
    assert comparison.stopped_early == StoppedEarly(("model-data-flip_v",), 3, 1, 1), "q1 is wrong, q3 is in one run only"
    assert not comparison.unchanged
    assert main(["compare", str(before), str(other)]) == 0
    said = "1 cell stopped early (adaptive mode): 1 of 3 answers that both runs have changed, 1 more is in one run only"
    assert said in capsys.readouterr().out


def test_answers_that_were_removed_are_not_taken_for_a_test_that_stopped(world: World) -> None:
    run = stop_early(measured(world, "run"), "model-data-flip_v", n_asked=3, is_recorded=False)
    with pytest.raises(StoreError, match="model-data-flip_v has 3 answers, expected 6"):
        compare(run, run)


def test_it_is_json(world: World, tmp_path: Path) -> None:
    run = measured(world, "one", ("clean",))
    write_comparison(tmp_path / "out", compare(run, run))
    data = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert data["comparison_version"] == 1
    assert data["models"] == {"model": "model"}
    assert set(data["cells"][0]) == {
        *("model", "dataset", "setting", "n", "then", "now", "baseline_drop", "drop_increase", "broken", "fixed")
    }


def test_what_cannot_be_compared_is_refused(world: World) -> None:
    clean = measured(world, "one", ("clean",))
    with pytest.raises(UsageError, match="have no cell in common"):
        compare(clean, measured(world, "two", ("flip_v",)))
    with pytest.raises(UnknownName, match=r"--model: unknown model 'modle'\. Did you mean 'model'\?"):
        compare(clean, clean, model="modle")
    world.samples.pop()
    with pytest.raises(DatasetError, match="cannot be compared on data"):
        compare(clean, measured(world, "three", ("clean",)))


def test_runs_about_other_pictures_are_refused(world: World) -> None:
    before = measured(world, "before")
    world.samples[2] = replace(world.samples[2], images=world.samples[0].images)
    with pytest.raises(DatasetError, match=r"1 show other images there \(q2\)"):
        compare(before, measured(world, "after"))


def test_that_pictures_could_not_be_compared_is_said(world: World) -> None:
    before, after = measured(world, "before", ("flip_v",)), measured(world, "after", ("clean", "flip_v"))
    assert compare(after, after).notes == ()
    words = "does not say which images of data it showed (only a clean cell records them): whether they are the same"
    for pair, lacking in (((before, after), [before]), ((after, before), [before]), ((before, before), [before])):
        comparison = compare(*pair)
        assert [note.startswith(f"{run} {words}") for note, run in zip(comparison.notes, lacking, strict=True)] == [True]


def test_letters_and_text_are_not_compared(world: World) -> None:
    before = world.measured("before", ["clean", "flip_v"])
    world.model.answer = lambda _request: Prediction("B", "letter_logits")
    after = world.measured("after", ["clean", "flip_v"])
    with pytest.raises(DatasetError, match="choices were answered there by text, and here by letters") as caught:
        compare(before, after)
    assert "Run both with the same --vlm-answer" in str(caught.value)
    assert main(["compare", str(before), str(after)]) == 4
    assert compare(after, after).cells
