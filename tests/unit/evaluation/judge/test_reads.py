"""Attempts at the whole picture: who asks for them, what they cost, and what is computed from them."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np
import pytest

from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.prediction import Request
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.judge.measurements import metric_keys
from pytest_vlmrobust.evaluation.judge.reads import attempts_of
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.policies import Policy, load_policy
from tests.unit.evaluation.conftest import World, cell, sample

PATCHES = cell("patches:2")


def policy(folder: Path, *rules: str) -> Policy:
    file = folder / "policy.yaml"
    file.write_text("version: 1\nrules:\n" + "".join(f"  - {rule}\n" for rule in rules), encoding="utf-8")
    return load_policy([file], known_metrics=known_metrics(), root=folder)


def judge(world: World, policy: Policy | None = None, *, attempts: bool = False, stop: bool = False) -> Judge:
    world.samples = [sample(number, target="AB"[number % 2]) for number in range(6)]
    return Judge(world.evaluator(patch_stop=stop), {"model": policy or Policy()}, date(2026, 6, 1), attempts=attempts)


def right(request: Request) -> str:
    return "AB"[int(request.sample_id[1:]) % 2]


def lucky(request: Request) -> str:
    """Answers by a coin that the pixels throw."""
    heads = request.images and int(request.images[0].astype(int).sum()) % 3 == 0
    return "AB"[(int(request.sample_id[1:]) + (not heads)) % 2]


def value(record: Record, name: str) -> float:
    return next(measure.value for measure in record.measures if measure.metric == name)


@pytest.mark.cases(
    ("setting", "expected"),
    [
        ("patches:2", "attempts:2"),
        ("fog:mid+patches:3", "fog:mid+attempts:3"),
        ("clean", None),
        ("attempts:2", None),
        ("fog:mid", None),
    ],
)
def test_a_cell_of_patches_has_one_of_attempts(setting: str, expected: str | None) -> None:
    attempts = attempts_of(cell(setting), Policy(), always=True)
    assert attempts == (Cell("model", "data", Setting.parse(expected)) if expected else None)
    assert attempts_of(cell(setting), Policy(), always=False) is None


@pytest.mark.parametrize(
    ("rule", "needed"),
    [
        ("{id: helps, metric: pcri_matched, min: -0.1}", True),
        ("{id: helps, metric: pcri_matched, min: -0.1, tier: warn}", True),
        ("{id: helps, metric: pcri_matched, min: -0.1, where: {setting: 'patches:2'}}", True),
        ("{id: helps, metric: pcri_matched, min: -0.1, where: {category: odd}}", True),
        ("{id: helps, metric: pcri_matched, min: -0.1, where: {setting: 'patches:3'}}", False),
        ("{id: helps, metric: pcri_matched, min: -0.1, where: {dataset: other}}", False),
        ("{id: helps, metric: pcri_excess, min: -0.1}", False),
    ],
)
def test_a_rule_that_bounds_what_they_are_needed_for_asks_for_them(tmp_path: Path, rule: str, needed: bool) -> None:
    assert (attempts_of(PATCHES, policy(tmp_path, rule), always=False) is not None) is needed


def test_they_are_compared_with_and_cost_one_inference_less_than_patches(world: World) -> None:
    world.model.answer = right
    record = judge(world, attempts=True).run(PATCHES)
    assert value(record, "pcri_matched") == 0.0
    settings = [request.setting for request in world.model.requests]
    assert {name: settings.count(name) for name in sorted(set(settings))} == {
        "attempts:2": 6 * 4,  # the first of which is the clean picture, so that it is not asked about again
        "no_image": 6,
        "patches:2": 6 * 4,
    }
    assert (record.n_requested, record.n_inferred) == (24, len(settings))


def test_without_being_asked_for_they_are_not_made(world: World) -> None:
    record = judge(world).run(PATCHES)
    assert "pcri_matched" not in {measure.metric for measure in record.measures}
    assert "attempts:2" not in {request.setting for request in world.model.requests}


@pytest.mark.parametrize("attempts", [False, True])
def test_what_is_planned_is_what_is_measured(world: World, *, attempts: bool) -> None:
    world.model.answer = right
    record = judge(world, attempts=attempts).run(PATCHES)
    planned = [test.metric for test in metric_keys(PATCHES, attempts=attempts)]
    assert ("pcri_matched" in planned) is attempts
    measured = [measure.metric for measure in record.measures]
    assert [name for name in planned if name.startswith(("pcri", "rci"))] == [
        name for name in measured if name.startswith(("pcri", "rci"))
    ]


def test_stopping_changes_their_number_and_not_the_index(world: World) -> None:
    world.model.answer = lucky
    full = judge(world, attempts=True).run(PATCHES)
    stopped = judge(world, attempts=True, stop=True).run(PATCHES)
    assert value(full, "pcri_matched") == value(stopped, "pcri_matched") or np.isnan(value(full, "pcri_matched"))
    assert any("attempts after a right one were not asked for" in note for note in stopped.notes)


def test_a_note_says_whether_attempts_vary_as_answers_to_patches_do(world: World) -> None:
    world.model.answer = right
    steady = judge(world, attempts=True).run(PATCHES)
    assert (
        "attempts:2: the score of 0 of 6 samples differs between attempts at the whole image: pcri_matched equals pcri here, "
        "and may be below 0 only because answers to patches differ by luck" in steady.notes
    )


def test_failures_among_them_count_in_the_budget(world: World) -> None:
    from pytest_vlmrobust.backends import failed_prediction
    from pytest_vlmrobust.core.decision import Outcome

    world.model.answer = lambda request: failed_prediction("down") if request.setting == "attempts:2" else right(request)
    record = judge(world, attempts=True).run(PATCHES)
    assert record.outcome is Outcome.ERROR
    assert np.isnan(value(record, "pcri_matched"))
    assert value(record, "pcri") == 0.0
