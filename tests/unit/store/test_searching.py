"""The parts of a search that need no run; what is found among answers of runs is in ``test_browsing``."""

from __future__ import annotations

from pytest_vlmrobust.store.searching import probabilities


def test_probabilities_are_shares_of_what_was_offered() -> None:
    assert probabilities([-1000.0, -1000.0]) == [0.5, 0.5]
    assert probabilities([]) == probabilities([float("nan"), 0.0]) == probabilities([-float("inf")]) == []
