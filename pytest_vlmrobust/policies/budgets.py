"""Budgets and Coverage: how many inferences may fail, how many answers may be unreadable, and how much a run must measure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType

from pytest_vlmrobust.core.decision import Outcome, Verdict
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.words import quantity

from .rules import Bound, decimals_needed, plain_decimal

BUILT_IN = "built-in default"


@dataclass(frozen=True, slots=True)
class Budgets:
    """Two shares in [0, 1]; ``sources`` says by name where each was set (``file:line``).

    Errors, unparsed answers and wrong answers are three different things: an inference that failed says nothing about
    the model, an unreadable answer counts as wrong and is counted apart, and a wrong answer is what the metrics are about.
    """

    max_error_rate: float = 0.0
    """Failed inferences per sample asked."""
    max_unparsed_rate: float = 0.05
    """Answers that no rule could read, per sample scored."""
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def judge(self, *, n_requested: int, n_scored: int, n_errors: int, n_unparsed: int) -> list[Verdict]:
        """Returns a verdict for each broken budget; an empty list when none is broken.

        Args:
            n_requested: Samples asked. A run that stops early passes those asked until then: a sample that was asked and is
                neither scored nor an error has gone missing, and counts as an error.
            n_scored: Samples with a score, the unparsed ones (score 0) included.
            n_errors: Samples whose inference failed.
            n_unparsed: Samples scored 0 because no answer could be read.

        Raises:
            ValueError: counts that contradict each other.
        """
        _check_counts(n_requested, n_scored, n_errors, n_unparsed)
        if n_requested == 0:
            return [Verdict(Outcome.INCONCLUSIVE, "no sample was asked: nothing was measured")]
        n_missing = n_requested - n_scored - n_errors
        if n_scored == 0:
            return [
                Verdict(Outcome.ERROR, f"no sample was scored: of {n_requested}, {n_errors} failed and {n_missing} went missing")
            ]
        return [*self._judge_errors(n_requested, n_errors, n_missing), *self._judge_unparsed(n_scored, n_unparsed)]

    def _judge_errors(self, n_requested: int, n_errors: int, n_missing: int) -> list[Verdict]:
        n_lost = n_errors + n_missing
        rate = n_lost / n_requested
        if Bound(high=self.max_error_rate).admits(rate):
            return []
        counted = f"{n_lost} of {n_requested} inferences without an answer ({n_errors} failed, {n_missing} missing)"
        return [self._broken(Outcome.ERROR, "error_rate", rate, self.max_error_rate, counted)]

    def _judge_unparsed(self, n_scored: int, n_unparsed: int) -> list[Verdict]:
        rate = n_unparsed / n_scored
        if Bound(high=self.max_unparsed_rate).admits(rate):
            return []
        counted = f"no answer could be read in {n_unparsed} of {n_scored} texts"
        return [self._broken(Outcome.FAIL, "unparsed_rate", rate, self.max_unparsed_rate, counted)]

    def _broken(self, outcome: Outcome, metric: str, rate: float, budget: float, counted: str) -> Verdict:
        rule = f"max_{metric}"
        source = self.sources.get(rule, BUILT_IN)
        digits = decimals_needed(rate, budget)
        reason = f"{metric} {rate:.{digits}f} > {budget:.{digits}f} (budget {rule}, {source}): {counted}"
        return Verdict(outcome, reason, metric, rule, source, str(Bound(high=budget)))


def _check_counts(n_requested: int, n_scored: int, n_errors: int, n_unparsed: int) -> None:
    if min(n_requested, n_scored, n_errors, n_unparsed) < 0 or n_scored + n_errors > n_requested or n_unparsed > n_scored:
        raise ValueError(
            f"counts contradict each other: {n_requested} requested, {n_scored} scored ({n_unparsed} of them unparsed), "
            f"{n_errors} errors. Expected scored + errors <= requested, and unparsed <= scored"
        )


# Coverage: how much a run must measure to be GO.


class Extent(StrEnum):
    """How much must be measured."""

    WHOLE = "whole"
    PARTIAL = "partial"


class BlindModels(StrEnum):
    """Whether a model may be released of which no blocking rule, and no measurement, says that it looks at the pictures."""

    REFUSE = "refuse"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a run has to measure for GO; with less it is INCONCLUSIVE, and a breach in it is NO-GO all the same.

    ``sources`` says by key where it was set (``file:line``).
    """

    tests: Extent = Extent.WHOLE
    """Of the gated tests that the collected files hold."""
    share: float = 1.0
    """Of the samples of each dataset, in [0, 1]."""
    samples: int = 0
    """Of each dataset, where it has as many."""
    suites: tuple[str, ...] = ()
    """Test files that have to be among those that ran, by name: ``corruptions`` is ``test_corruptions.py``."""
    rules: Extent = Extent.WHOLE
    """Of the blocking rules on metrics that the run measures: all of them have to meet a test."""
    blind_models: BlindModels = BlindModels.REFUSE
    """Whether a model may be GO that is not shown to answer better with the pictures than without, where that was measured."""
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def counts_samples(self) -> bool:
        """Whether a number or share of samples is required."""
        return self.share > 0.0 or self.samples > 0

    def shortfalls(
        self, *, planned: int, selected: int, narrowed: str, samples: Mapping[str, tuple[int, int]], suites: Collection[str]
    ) -> list[str]:
        """Returns, a sentence for each, what was not measured and should have been; each says what to do.

        Args:
            planned: Gated tests that the collected files hold.
            selected: Those of them that were to run.
            narrowed: An option that may leave out tests that are not counted, such as ``--lf``; empty without one.
            samples: Dataset to the number of samples that were asked, and that it has; a dataset asked in full may be missing.
            suites: The names of the test files that ran.
        """
        return [
            *self._of_tests(planned, selected, narrowed),
            *self._of_samples(samples),
            *(self._of_suite(name, suites) for name in self.suites if name not in suites),
        ]

    def _of_tests(self, planned: int, selected: int, narrowed: str) -> list[str]:
        if self.tests is Extent.PARTIAL or not (selected < planned or narrowed):
            return []
        left_out = f"{planned - selected} of {quantity(planned, 'test')} were not selected" if selected < planned else ""
        unknown = f"{narrowed} may leave out files" if narrowed else ""
        lacking = f"{' and '.join(filter(None, (left_out, unknown)))}, and GO requires all ({self.cite('tests', 'whole')})"
        advice = "run without -k, -m, --lf, --vlm-rerun and test ids, or allow it with coverage: {tests: partial}"
        return [f"{lacking}: {advice}"]

    def _of_samples(self, samples: Mapping[str, tuple[int, int]]) -> list[str]:
        needed = {name: self._samples_needed(total) for name, (_, total) in samples.items()}
        wanted = "whole" if self.share >= 1.0 else str(self.samples) if self.samples else f"{plain_decimal(100 * self.share)}%"
        return [
            f"{asked} of {quantity(total, 'sample')} of {name} were asked, and GO requires {needed[name]} "
            f"({self.cite('samples', wanted)}): run with a larger --vlm-sample or without it, or allow it with "
            f"coverage: {{samples: {asked}}}"
            for name, (asked, total) in samples.items()
            if asked < needed[name]
        ]

    def _samples_needed(self, total: int) -> int:
        # 20 % of 12 samples are 2: the sampler rounds down, and that is enough
        return max(min(self.samples, total), int(self.share * total + 1e-9))

    def _of_suite(self, name: str, suites: Collection[str]) -> str:
        ran = ", ".join(sorted(suites)) or "none"
        return (
            f"no gated test of test_{name}.py ran (ran: {ran}), and GO requires it ({self.cite('suites', name)}): "
            f"collect it too, or take {name!r} off coverage: {{suites: [...]}}"
        )

    def cite(self, key: str, value: str) -> str:
        """Returns a requirement and where it was set, as messages cite it."""
        return f"coverage {key}: {value}, {self.sources.get(key, BUILT_IN)}"


def suites_of(records: Iterable[Record]) -> set[str]:
    """Returns the names of the test files that records come from: ``corruptions`` for ``suites/test_corruptions.py``."""
    files = (PurePosixPath(record.nodeid.partition("::")[0]) for record in records if record.nodeid)
    return {file.stem.removeprefix("test_") for file in files}
