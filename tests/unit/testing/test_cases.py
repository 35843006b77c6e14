from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given

from pytest_vlmrobust.metrics import Needs, get
from pytest_vlmrobust.metrics.table import WITHOUT_SCORES
from pytest_vlmrobust.testing.cases import MOST_SAMPLES, Case, Table, cases, plain, tables

EVERYTHING = tuple(Needs)
CLEAN, PERTURBED = EVERYTHING.index(Needs.CLEAN), EVERYTHING.index(Needs.PERTURBED)


def numbers(value: Any) -> list[float]:
    """Returns all numbers of an argument."""
    if isinstance(value, dict):
        return [number for scores in value.values() for number in numbers(scores)]
    return [float(number) for number in np.ravel(value)]


@given(cases(EVERYTHING))
def test_arguments_belong_to_the_same_samples(case: Case) -> None:
    samples = len(case.arguments[CLEAN])
    assert 1 <= samples <= MOST_SAMPLES
    for need, value in zip(case.needs, case.arguments, strict=True):
        if need not in {Needs.RESOLUTIONS, Needs.ACCURACIES}:
            assert all(len(scores) == samples for scores in (value.values() if isinstance(value, dict) else [value]))


@given(cases(EVERYTHING))
def test_one_better_score_is_one_better_score(case: Case) -> None:
    for position, need in enumerate(EVERYTHING):
        if need in WITHOUT_SCORES:
            continue
        raised = case.raise_score(need)
        before = numbers(case.arguments[position])
        if raised is None:
            continue
        after = numbers(raised[position])
        assert sum(new > old for new, old in zip(after, before, strict=True)) == 1
        assert sum(new != old for new, old in zip(after, before, strict=True)) == 1
        assert max(after) <= 1.0
        others = [plain(value) for index, value in enumerate(raised) if index != position]
        assert others == [plain(value) for index, value in enumerate(case.arguments) if index != position]


@given(cases(EVERYTHING))
def test_one_missing_score_is_missing_in_one_argument(case: Case) -> None:
    for position, need in enumerate(EVERYTHING):
        if need not in WITHOUT_SCORES:
            assert any(map(math.isnan, numbers(case.with_gap(need)[position])))
            assert not any(map(math.isnan, numbers(case.arguments[position])))


@given(cases((Needs.CLEAN, Needs.PERTURBED, Needs.POSITIONS)))
def test_reordered_samples_keep_together(case: Case) -> None:
    def rows(arguments: Any) -> list[tuple[Any, ...]]:
        return sorted(zip(*map(plain, arguments), strict=True))

    assert all(rows(case.reorder_samples(order)) == rows(case.arguments) for order in case.orders)


@given(cases(EVERYTHING))
def test_nothing_changes_when_nothing_changes(case: Case) -> None:
    unchanged = case.unchanged_arguments()
    clean = case.arguments[CLEAN].tolist()
    assert unchanged[PERTURBED].tolist() == clean
    assert all(column == clean for column in unchanged[EVERYTHING.index(Needs.PATCHES)].T.tolist())
    assert set(unchanged[EVERYTHING.index(Needs.ACCURACIES)]) == {float(np.mean(clean))}
    assert plain(unchanged[EVERYTHING.index(Needs.NO_IMAGE)]) == plain(case.arguments[EVERYTHING.index(Needs.NO_IMAGE)])


@given(tables(get("pcri_matched")))
def test_repeated_tables_have_more_samples_of_other_images(table: Table) -> None:
    more = table.repeat_samples(3)
    assert more.samples == 3 * table.scores.samples
    assert more.clusters.count == 3 * table.scores.clusters.count
    assert math.isclose(more.clean.mean(), table.scores.clean.mean())
    assert table.without_samples().samples == 0
