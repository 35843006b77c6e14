"""Stopping at the first right patch changes how many inferences are made, and nothing that the best patch decides."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_vlmrobust import metrics, perturbations
from pytest_vlmrobust.core.cell import CLEAN, Cell
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import OfflineError
from pytest_vlmrobust.core.prediction import Request
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.run.evaluator import Evaluator
from pytest_vlmrobust.evaluation.run.evidence import examples
from pytest_vlmrobust.evaluation.run.results import CellResult, best_is_enough, turns, undefined
from pytest_vlmrobust.metrics.registry import REGISTRY
from pytest_vlmrobust.metrics.scores import Scores
from pytest_vlmrobust.metrics.table import ScoreTable
from pytest_vlmrobust.policies import Policy, Rule
from pytest_vlmrobust.policies.rules import Bound, JudgedBy, Treatment
from tests.unit.evaluation.conftest import MemoryImage, World, cell, picture, sample

PATCHES = cell("patches:2")
ENOUGH = ["pcri", "pcri_excess", "pcri_matched", "rci"]


def lucky(request: Request) -> str:
    """Answers by a coin that the pixels throw, so that every patch has its own."""
    return "B" if int(request.images[0].astype(int).sum()) % 3 == 0 else "A"


def graded(request: Request) -> str:
    """Says one, two or three words of three: scores of one, two and three thirds."""
    return " ".join(["green", "red", "blue"][: 1 + int(request.images[0].astype(int).sum()) % 3])


GRADED: dict[str, Any] = {"task": "open", "scorer": "ocr_recall", "options": {}, "target": "green red blue"}


def furnish(world: World, **facts: Any) -> None:
    world.samples = [sample(number, images=(MemoryImage(picture(number)),), **facts) for number in range(40)]


def both(world: World) -> tuple[CellResult, CellResult]:
    return world.evaluator().result(PATCHES), world.evaluator(patch_stop=True).result(PATCHES)


def table(evaluator: Evaluator, result: CellResult) -> ScoreTable:
    return ScoreTable(
        clean=evaluator.result(cell("clean")).values,
        by_setting={"patches:2": result.values},
        patches_by_setting={"patches:2": result.attempts},
        chances=np.full(len(result.samples), 0.1),
        whole_attempts=evaluator.result(cell("attempts:2")).attempts,
    )


@pytest.mark.parametrize(("answer", "facts"), [(lucky, {}), (graded, GRADED)], ids=["right or wrong", "graded"])
def test_the_best_patch_is_the_same_to_the_last_bit(
    world: World, answer: Callable[[Request], str], facts: dict[str, Any]
) -> None:
    furnish(world, **facts)
    world.model.answer = answer
    full, stopped = both(world)
    assert stopped.n_requested < full.n_requested
    assert stopped.n_unasked == full.n_requested - stopped.n_requested > 20
    assert np.array_equal(full.values, stopped.values)
    assert np.array_equal(full.by_view.argmax(axis=1), stopped.attempts.argmax(axis=1))
    evaluator = world.evaluator()
    for name in ENOUGH:
        one, other = (metrics.estimate(name, table(evaluator, result), setting="patches:2") for result in (full, stopped))
        assert math.isfinite(one.value)
        assert dataclasses.replace(one, at=None) == dataclasses.replace(other, at=None)


def test_only_a_full_score_stops(world: World) -> None:
    furnish(world, **GRADED)
    world.model.answer = lambda _request: "green red"
    full, stopped = both(world)
    assert stopped.n_unasked == 0
    assert full.values == pytest.approx(2 / 3)
    assert np.array_equal(full.by_view, stopped.by_view)


def test_it_asks_by_position_and_drops_who_is_right(world: World) -> None:
    right = {perturbations.get("patches:2")(picture(n), seed=1)[p].tobytes() for n, p in ((0, 0), (1, 2), (3, 3))}
    world.samples = [sample(number) for number in range(4)]
    world.model.answer = lambda request: "B" if request.images[0].tobytes() in right else "A"
    result = world.evaluator(patch_stop=True).result(PATCHES)
    assert world.model.asked_about == ["q0", "q1", "q2", "q3", *["q1", "q2", "q3"] * 2, "q2", "q3"]
    assert np.array_equal(np.isnan(result.by_view).sum(axis=1), [3, 1, 0, 0])
    assert [one.state for one in result.scores[:4]] == ["scored", "unasked", "unasked", "unasked"]


def test_the_store_is_shared_with_full_runs(world: World) -> None:
    furnish(world)
    world.model.answer = lucky
    stopped = world.evaluator(patch_stop=True).result(PATCHES)
    full = world.evaluator().result(PATCHES)
    assert full.n_inferred == stopped.n_unasked
    again = world.evaluator(patch_stop=True, offline=True).result(PATCHES)
    assert again.n_inferred == 0
    assert np.array_equal(again.by_view, stopped.by_view, equal_nan=True), "what the store knows changes nothing"


def test_a_stopped_run_is_not_enough_for_a_full_one_offline(world: World) -> None:
    furnish(world)
    world.model.answer = lucky
    world.evaluator(patch_stop=True).result(PATCHES)
    with pytest.raises(OfflineError, match=r"of 160 answers are not in the store"):
        world.evaluator(offline=True).result(PATCHES)


def test_settings_of_one_view_are_asked_about_as_ever(world: World) -> None:
    assert world.evaluator(patch_stop=True).result(cell("flip_v")).n_requested == 6
    assert turns(3, 1, stop=False) == [range(3)]


def test_metrics_say_whether_the_best_patch_is_enough() -> None:
    """The others, a user's own among them, are refused rather than computed from a part."""
    by_patch = [name for name in metrics.names() if metrics.Needs.PATCHES in metrics.get(name).needs]
    assert sorted(name for name in by_patch if best_is_enough(name)) == ENOUGH
    assert best_is_enough("accuracy_drop")
    estimate = undefined(7)
    assert (estimate.valid, estimate.n, estimate.reason) == (False, 7, "needs every patch: run without --vlm-patch-stop")


@pytest.mark.parametrize("name", ENOUGH)
def test_what_claims_to_need_the_best_patch_alone_does(name: str) -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        patches = rng.choice([0.0, 0.5, 1.0], (30, 4))
        seen = np.maximum.accumulate(patches, axis=1)
        cut = np.where(np.pad(seen, ((0, 0), (1, 0)))[:, :-1] == 1.0, 0.0, patches)
        clean, chances = rng.integers(0, 2, 30).astype(float), np.full(30, 0.25)
        found = [
            metrics.estimate(
                name,
                ScoreTable(
                    clean,
                    {"patches:2": of.max(axis=1)},
                    patches_by_setting={"patches:2": of},
                    chances=chances,
                    whole_attempts=of[::-1],
                ),
                setting="patches:2",
            )
            for of in (patches, cut)
        ]
        assert not np.array_equal(patches, cut)
        assert repr(found[0]) == repr(found[1])


def test_examples_show_what_was_asked_about(world: World, tmp_path: Path) -> None:
    world.samples = [sample(0)]
    second = perturbations.get("patches:2")(picture(0), seed=1)[1].tobytes()
    world.model.answer = lambda request: "B" if request.images[0].tobytes() == second else "A"
    evaluator = world.evaluator(patch_stop=True, pictures=tmp_path)
    (found,) = examples(evaluator.result(Cell("model", "data", CLEAN)), evaluator.result(PATCHES), evaluator.album)
    assert [reply.about for reply in found.replies] == ["clean", "patch 1,1", "patch 1,2"]
    assert [one.frame for one in found.pictures] == ["wrong", "wrong", "right"]


@pytest.fixture
def mean_patch() -> Iterator[str]:
    """A metric of a user's own that reads every patch."""

    def mean_patch_of_the_test(patches: Scores) -> float:
        """Mean score over all patches."""
        return float(patches.mean())

    metrics.metric(suite="patches")(mean_patch_of_the_test)
    yield "mean_patch_of_the_test"
    del REGISTRY._things["mean_patch_of_the_test"]


@pytest.mark.parametrize("stop", [False, True])
def test_what_needs_every_patch_is_refused_rather_than_computed(world: World, mean_patch: str, *, stop: bool) -> None:
    furnish(world)
    world.model.answer = lucky
    rule = Rule("mine", mean_patch, Bound(low=0.01), "p.yaml:1", treatment=Treatment(judge=JudgedBy.POINT))
    judge = Judge(world.evaluator(patch_stop=stop), {"model": Policy((rule,))}, date(2026, 6, 1))
    record = judge.cell(PATCHES)
    (found,) = [one for one in record.measures if one.metric == mean_patch]
    assert math.isnan(found.value) is stop
    assert found.outcome is (Outcome.NOT_APPLICABLE if stop else Outcome.PASS)
    assert ("needs every patch: run without --vlm-patch-stop" in found.reason) is stop
    assert len(record.positions) == (0 if stop else 4)
    assert any("saved" in note for note in record.notes) is stop


def muttering(request: Request) -> str:
    """As ``lucky``, but many patches are answered in words that nobody can read."""
    return ("B", "A", "hm", "hm")[int(request.images[0].astype(int).sum()) % 4]


def test_what_cannot_be_read_breaks_the_same_budget(world: World) -> None:
    """An answer about a patch after the right one does not count, whether it was asked for or not."""
    furnish(world)
    world.model.answer = muttering
    whole, stopped = both(world)
    assert stopped.n_unasked > 0
    assert whole.texts == stopped.texts
    assert whole.n_unparsed > stopped.n_unparsed == stopped.texts[1] > 0
