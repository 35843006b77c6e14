"""Ranking: the models of a run side by side, for its report."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.errors import UsageError

if TYPE_CHECKING:
    from pytest_vlmrobust.reporting import RunFacts

    from .gate import Gate


def with_ranking(gate: Gate, facts: RunFacts) -> RunFacts:
    """Returns the facts of a run with its models side by side; what cannot be ranked is a warning, and one model is nothing."""
    if len(gate.models) < 2:
        return facts
    from pytest_vlmrobust.evaluation.entries import Entry
    from pytest_vlmrobust.evaluation.ranking import rank_entries

    try:
        ranking = rank_entries([Entry.of(gate.evidence, gate.run_id)], reference=gate.reference or "")
    except UsageError as error:
        return replace(facts, warnings=[*facts.warnings, f"the models of the run are not ranked: {error}"])
    return replace(facts, ranking=ranking)
