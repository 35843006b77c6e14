"""What the record of every built-in metric says is complete, and no exemption in it is more than it has to be."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from pytest_vlmrobust.evaluation.judge.measurements import quantities, quantity
from pytest_vlmrobust.metrics import Metric, Needs, get, names
from pytest_vlmrobust.metrics.estimation import describe, plain
from pytest_vlmrobust.metrics.table import WITHOUT_SCORES
from pytest_vlmrobust.testing import checks_of, unclaimed
from pytest_vlmrobust.testing.cases import MOST_SAMPLES, Case, Maker, _argument
from pytest_vlmrobust.testing.oracles import ORACLES

every_metric = pytest.mark.cases("name", names())
every_quantity = pytest.mark.cases("name", sorted(quantities()))
UNKNOWN_WHEN_UNCHANGED = {"circular_accuracy", "pcri_excess", "resolution_accuracy"}
"""Where nothing changes a score, their value still depends on how good scores are: an accuracy, or what is left without luck."""


def cases(record: Metric, count: int) -> Iterator[Case]:
    """Yields arguments of a metric, without Hypothesis: plain random ones."""
    rng = np.random.default_rng(4)
    for _ in range(count):
        samples = int(rng.integers(2, MOST_SAMPLES + 1))
        rate = rng.uniform(0.2, 0.8)

        def scores(rows: int, columns: int = 0, rate: float = rate) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
            return (rng.random((rows, columns) if columns else rows) < rate).astype(float)

        maker: Maker = scores
        labels = rng.choice(["a", "b"], samples).tolist()
        arguments = tuple(_argument(need, samples, maker, labels) for need in record.needs)
        yield Case(record.needs, arguments, range(samples), int(rng.integers(1000)), 1.0)


def test_every_metric_has_an_oracle() -> None:
    assert set(ORACLES) == set(names())


@every_metric
def test_it_has_a_formula_in_words(name: str) -> None:
    formula = describe(get(name)).formula
    assert formula
    assert "`" not in formula


@every_quantity
def test_it_says_when_not_to_use_it_and_what_to_use_instead(name: str) -> None:
    said = plain(quantity(name).facts.unsuited)
    assert re.fullmatch(r"[A-Z`].*\.", said)
    assert len(re.findall(r"\.(?= |$)", said)) <= 2, "one sentence or two"
    instead = set(re.findall("`([^`]+)`", said))
    assert instead
    assert instead <= set(quantities()) - {name}


def test_no_two_metrics_say_the_same_of_when_not_to_use_them() -> None:
    said = Counter(plain(quantity.facts.unsuited) for quantity in quantities().values())
    assert said.most_common(1)[0][1] == 1


@every_metric
def test_it_says_how_it_moves_with_each_of_its_scores(name: str) -> None:
    record = get(name)
    assert {*record.monotone, *record.not_monotone} == set(record.needs) - WITHOUT_SCORES


@every_metric
def test_what_it_is_exempted_from_does_not_hold(name: str) -> None:
    """A score that rises really moves it up in one case and down in another."""
    record = get(name)
    for need in record.not_monotone:
        moves = set()
        for case in cases(record, 400):
            arguments = case.raise_score(need)
            before, after = (
                record.function(*case.copy_arguments()),
                math.nan if arguments is None else record.function(*arguments),
            )
            moves |= {1} if after > before + 1e-9 else {-1} if after < before - 1e-9 else set()
            if len(moves) == 2:
                break
        assert moves == {1, -1}, need


@every_metric
def test_directions_are_as_strong_as_they_can_be(name: str) -> None:
    """What it says to rise or fall with does move it."""
    record = get(name)
    for need, direction in record.directions.items():
        if direction == 0:
            continue
        pairs = ((record.function(*case.copy_arguments()), case.raise_score(need)) for case in cases(record, 100))
        assert any(raised and (record.function(*raised) - before) * direction > 1e-9 for before, raised in pairs), need


@every_metric
def test_it_claims_its_values(name: str) -> None:
    record = get(name)
    silent = {check for check in ("perfect", "unchanged", "blind") if check in checks_of(name) and unclaimed(name, check)}
    assert silent == ({"unchanged"} if name in UNKNOWN_WHEN_UNCHANGED else set())
    if record.gate and Needs.NO_IMAGE in record.needs:
        assert record.blind is not None
        assert math.isnan(record.blind)
