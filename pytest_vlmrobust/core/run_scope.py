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
    """What a run was to test, and what it lacks: all that its decision depends on beside its records."""

    planned: int = 0
    """Gated tests that the suites hold."""
    selected: int = 0
    """Those of them that were to run."""
    models: Sequence[str] = ()
    """What the run gates: with a model that no rule judged, it is not GO."""
    tests: Mapping[str, str] = field(default_factory=dict)
    """The model of each test that was to run, by its node id; empty if unknown."""
    shortfalls: Sequence[str] = ()
    """What the policy asks of a run and this one lacks, a sentence each: with any, it is not GO."""
    stopped: str = ""
    """What ended pytest before its end, or in a failure that no record tells of; empty where nothing did."""

    def decision(self, records: Sequence[Record]) -> Decision:
        """Returns the decision of the run that these are the records of."""
        outcomes = (record.deciding for record in records)
        shortfalls = len(self.all_shortfalls(records))
        return decide(outcomes, missing=self.missing(records), shortfalls=shortfalls, stopped=bool(self.stopped))

    def decisions(self, records: Sequence[Record]) -> dict[str, Decision]:
        """Returns the decision about each model of the run, and about each family of models that was judged."""
        return {name: scope.decision(own) for name, (scope, own) in self.by_model(records).items()}

    def by_model(self, records: Sequence[Record]) -> dict[str, tuple[Self, list[Record]]]:
        """Returns what the decision about each model, and about each judged family of models, rests on.

        What belongs to none of them (a failed test that is not gated, what the policy asks of the whole run) counts for each.
        """
        lost = Counter(self.tests[nodeid] for nodeid in self.lost(records))
        others = max(0, self.missing(records) - lost.total())
        owners = [self._owner(record) for record in records]
        parts = {}
        for name in sorted({*self.models, *filter(None, owners)}):
            own = [record for record, owner in zip(records, owners, strict=True) if owner in {name, ""}]
            scope = replace(
                self,
                selected=sum(record.is_gated for record in own) + lost[name] + others,
                models=[model for model in self.models if model == name],
                tests={nodeid: model for nodeid, model in self.tests.items() if model == name},
            )
            parts[name] = (scope, own)
        return parts

    def obstacles(self, records: Sequence[Record]) -> list[str]:
        """Returns, a sentence for each, what keeps the run from GO beside its verdicts and the tests that left none."""
        return [*filter(None, [self.stopped]), *self.all_shortfalls(records)]

    def all_shortfalls(self, records: Sequence[Record]) -> list[str]:
        """Returns, a sentence for each, what GO requires and the run lacks: of the policy's, and a verdict about each model."""
        advice = "and GO requires a verdict about each model: add a rule that applies to it, or run without it"
        return [*self.shortfalls, *(f"no rule judged {name}, {advice}" for name in self.unjudged_models(records))]

    def unjudged_models(self, records: Sequence[Record]) -> list[str]:
        """Returns the models of the run about which there is no verdict of any kind."""
        judged = {self._owner(record) for record in records if record.deciding is not Outcome.MEASURED}
        return [name for name in self.models if name not in judged]

    def missing(self, records: Sequence[Record]) -> int:
        """Returns how many tests were to run and left no record."""
        return max(0, self.selected - sum(record.is_gated for record in records))

    def lost(self, records: Sequence[Record]) -> list[str]:
        """Returns the node ids of tests that were to run and left no record, of a run that knows its tests."""
        ended = {record.key for record in records}
        return [nodeid for nodeid in self.tests if nodeid not in ended]

    def _owner(self, record: Record) -> str:
        """Returns the model that a record is about; of a test whose worker died, as it was planned."""
        return record.model or self.tests.get(record.nodeid, "")


# Beside pytest: whose exit code stands.


def records_explain(records: Iterable[Record], failed: int) -> bool:
    """Whether the records tell of every one of the ``failed`` tests that pytest counted."""
    records = list(records)
    ended = sum(record.is_gated and record.outcome in ENDS_AS_FAILURE for record in records)
    return any_failed_outside(records) or failed <= ended


def any_failed_outside(records: Iterable[Record]) -> bool:
    """Whether a test that is not gated failed: then the exit code is pytest's own, whatever the gate decides."""
    return any(record.failed_outside for record in records)
