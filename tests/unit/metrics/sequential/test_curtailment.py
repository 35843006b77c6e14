from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_vlmrobust.metrics.sequential import Audit, Limit, Order, curtail, right_first_order

answers = st.sampled_from([0.0, 1.0, math.nan])


def _completions(seen: list[float], size: int) -> list[list[float]]:
    """Returns every list of answers that agrees with what was seen."""
    places = [[0.0, 1.0] if math.isnan(one) else [one] for one in [*seen, *[math.nan] * (size - len(seen))]]
    return [list(one) for one in product(*places)]


@settings(max_examples=150)
@given(data=st.data())
def test_certain_is_what_holds_for_every_completion(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 7))
    clean = np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=size, max_size=size)))
    most = data.draw(st.integers(-size - 1, size + 1))
    seen = data.draw(st.lists(answers, max_size=size))
    audit = Audit([Limit(clean, np.ones(size, dtype=np.bool_), most, 1.0)], [Order(np.arange(size), "fixed")], target="exact")
    audit.advance([0] * len(seen), range(len(seen)), seen)
    verdicts = audit.verdicts()
    passes = [float((clean - np.array(one)).sum()) <= most for one in _completions(seen, size)]
    assert bool(verdicts.certain_pass[0]) == all(passes)
    assert bool(verdicts.certain_fail[0]) == (not any(passes))


@given(data=st.data())
def test_graded_answers_are_bounded_by_their_extremes(data: st.DataObject) -> None:
    """A sum is linear, so over [0, 1] it is extreme where every answer still to come is."""
    size = data.draw(st.integers(1, 5))
    grades = st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0])
    clean = np.array(data.draw(st.lists(grades, min_size=size, max_size=size)))
    seen = data.draw(st.lists(grades, max_size=size))
    most = data.draw(st.sampled_from([-1.0, -0.2, 0.0, 0.4, 1.2])) + 1e-9
    audit = Audit([Limit(clean, np.ones(size, dtype=np.bool_), most, 0.0)], [Order(np.arange(size), "fixed")], target="exact")
    audit.advance([0] * len(seen), range(len(seen)), seen)
    passes = [float((clean - np.array(one)).sum()) <= most for one in _completions(seen, size)]
    assert audit.verdicts().passed[0] == all(passes)
    assert audit.verdicts().failed[0] == (not any(passes))


def test_a_weak_model_passes_after_a_third() -> None:
    """Clean-right samples first: 36 of 100 answers can be lost, and once most are not, the rest cannot matter."""
    clean = np.array([1.0] * 36 + [0.0] * 64)
    audit = Audit([Limit(clean, np.ones(100, dtype=np.bool_), 5.0, 1.0)], [right_first_order(clean)], target="exact")
    used = 0
    while not audit.verdicts().passed[0]:
        audit.advance(*audit.upcoming([0], 1), [1.0])
        used += 1
    assert used == 31


def test_missing_answers_that_matter_leave_the_verdict_open() -> None:
    """Both missing ones right: one lost of two allowed. Both wrong: three."""
    clean = np.ones(4)
    audit = Audit([Limit(clean, np.ones(4, dtype=np.bool_), 2.0, 1.0)], [Order(np.arange(4), "fixed")], target="exact")
    audit.advance([0] * 4, range(4), [math.nan, 0.0, 1.0, math.nan])
    verdicts = audit.verdicts()
    assert verdicts.undecided[0]
    assert verdicts.exhausted[0]
    assert not verdicts.unfinished[0]


@pytest.mark.parametrize("left", [0.0, 3.0])
def test_never_both(left: float) -> None:
    sums = np.arange(-5.0, 6.0)
    passes, fails = curtail(sums, sums, left, left, 1.0)
    assert not (passes & fails).any()
    assert (passes | fails).all() == (left == 0.0)
