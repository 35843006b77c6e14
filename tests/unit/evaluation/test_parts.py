"""Which measure of a test its record speaks of."""

from __future__ import annotations

import itertools

import pytest

from pytest_vlmrobust.core.record import Measure
from pytest_vlmrobust.core.verdict import Outcome
from pytest_vlmrobust.evaluation.parts import decisive

UNRULED = Measure("accuracy", 0.7, reason="no rule applies to accuracy here")
KEPT = Measure("accuracy_drop", 0.0, reason="accuracy_drop 0.000 <= 0.050 (rule drop, p.yaml:3)", rule="drop")
WARNED = Measure("accuracy_drop", 0.3, reason="warning: accuracy_drop 0.300 > 0.050 (rule drop, p.yaml:3)", rule="drop")
PASSED = Measure("accuracy", 0.7, outcome=Outcome.PASS, reason="accuracy 0.700 >= 0.010 (rule acc, p.yaml:4)", rule="acc")
IN_ORDER = [PASSED, WARNED, KEPT, UNRULED]


@pytest.mark.parametrize("measures", list(itertools.permutations(IN_ORDER)))
def test_what_a_rule_warns_of_comes_before_what_no_rule_is_about(measures: tuple[Measure, ...]) -> None:
    for worst, lesser in itertools.pairwise(IN_ORDER):
        assert decisive([one for one in measures if one in (worst, lesser)]) is worst


def test_of_equals_the_first_decides() -> None:
    first, second = (Measure(name, 0.1, outcome=Outcome.FAIL, rule=name) for name in "ab")
    assert decisive([first, second]) is first
