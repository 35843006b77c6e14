"""Ranking: the models of a run side by side, for its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_vlmrobust.reporting import RunFacts

    from .gate import Gate


def with_ranking(gate: Gate, facts: RunFacts) -> RunFacts:
    """Returns the facts of a run with its models side by side; what cannot be ranked is a warning, and one model is nothing."""
    if len(gate.models) < 2:
        return facts
    from pytest_vlmrobust.evaluation.after.ranking import rank_run

    return facts.ranked(*rank_run(gate.evidence, gate.run_id, gate.reference or ""))
