"""What a run was to test, and the decision that follows from its records. Pure.

What policies ask of a whole run beside its verdicts is in ``evaluation.judge.requirements`` and comes here as sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from .decision import ENDS_AS_FAILURE, Decision, Outcome, decide
from .record import Record


@dataclass(frozen=True, slots=True)
class RunScope:
    """What a run was to test and what it lacks: together with the records, all inputs of its decision."""

    planned: int = 0
    """Gated tests in the suites."""
    selected: int = 0
    """Gated tests selected to run."""
    models: Sequence[str] = ()
    """The gated models. A run with a model that no rule judged is not GO."""
    tests: Mapping[str, str] = field(default_factory=dict)
    """The model of each selected test, by node id; empty if unknown."""
    shortfalls: Sequence[str] = ()
    """Unmet requirements of the policy, a sentence each; with any, the run is not GO."""
    stopped: str = ""
    """Why pytest ended early, or its failure that no record reports; empty if neither."""

    def decision(self, records: Sequence[Record]) -> Decision:
        """Returns the decision of the run with these records."""
        outcomes = (record.deciding for record in records)
        shortfalls = len(self.all_shortfalls(records))
        return decide(outcomes, missing=self.missing(records), shortfalls=shortfalls, stopped=bool(self.stopped))

    def decisions(self, records: Sequence[Record]) -> dict[str, Decision]:
        """Returns the decision about each model of the run and each judged family of models."""
        return {name: scope.decision(counted) for name, (scope, counted) in self.by_model(records).items()}

    def by_model(self, records: Sequence[Record]) -> dict[str, tuple[Self, list[Record]]]:
        """Returns the inputs of the decision about each model and each judged family of models.

        Failures without a model (a failed test that is not gated, requirements for the whole run) count for each.
        """
        lost = Counter(self.tests[nodeid] for nodeid in self.lost(records))
        others = max(0, self.missing(records) - lost.total())
        owners = [self._owner(record) for record in records]
        parts = {}
        for name in sorted({*self.models, *filter(None, owners)}):
            counted = [record for record, owner in zip(records, owners, strict=True) if owner in {name, ""}]
            scope = replace(
                self,
                selected=sum(record.is_gated for record in counted) + lost[name] + others,
                models=[model for model in self.models if model == name],
                tests={nodeid: model for nodeid, model in self.tests.items() if model == name},
            )
            parts[name] = (scope, counted)
        return parts

    def obstacles(self, records: Sequence[Record]) -> list[str]:
        """Returns a sentence for each obstacle to GO other than verdicts and missing tests."""
        return [*filter(None, [self.stopped]), *self.all_shortfalls(records)]

    def all_shortfalls(self, records: Sequence[Record]) -> list[str]:
        """Returns a sentence for each unmet requirement of GO: the policy's, and a verdict about each model."""
        advice = "and GO requires a verdict about each model: add a rule that applies to it, or run without it"
        return [*self.shortfalls, *(f"no rule judged {name}, {advice}" for name in self.unjudged_models(records))]

    def unjudged_models(self, records: Sequence[Record]) -> list[str]:
        """Returns the models without any verdict."""
        judged = {self._owner(record) for record in records if record.deciding is not Outcome.MEASURED}
        return [name for name in self.models if name not in judged]

    def missing(self, records: Sequence[Record]) -> int:
        """Returns the number of selected tests without a record."""
        return max(0, self.selected - sum(record.is_gated for record in records))

    def lost(self, records: Sequence[Record]) -> list[str]:
        """Returns the node ids of selected tests without a record, if the run knows its tests."""
        ended = {record.key for record in records}
        return [nodeid for nodeid in self.tests if nodeid not in ended]

    def _owner(self, record: Record) -> str:
        """Returns the model of a record; for a test whose worker died, the planned model."""
        return record.model or self.tests.get(record.nodeid, "")


# With other tests: whose exit code counts.


def records_explain(records: Iterable[Record], failed: int) -> bool:
    """Whether the records explain all ``failed`` tests of pytest."""
    records = list(records)
    ended = sum(record.is_gated and record.outcome in ENDS_AS_FAILURE for record in records)
    return any_failed_outside(records) or failed <= ended


def any_failed_outside(records: Iterable[Record]) -> bool:
    """Whether a test outside the gate failed: then the exit code is pytest's."""
    return any(record.failed_outside for record in records)
