"""Coverage: how much has to have been measured before a run may be GO."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType

from pytest_vlmrobust.core.counting import quantity
from pytest_vlmrobust.core.record import Record

from .bound import plain_decimal
from .budgets import BUILT_IN


class Extent(StrEnum):
    """How much of what there is."""

    WHOLE = "whole"
    PARTIAL = "partial"


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a run has to measure for GO; with less it is INCONCLUSIVE, and a breach in it is NO-GO all the same.

    ``sources`` says by key where it was set (``file:line``).
    """

    tests: Extent = Extent.WHOLE
    """Of the gated tests that the collected files hold."""
    share: float = 1.0
    """Of the samples of each data set, in [0, 1]."""
    samples: int = 0
    """Of each data set, where it has as many."""
    suites: tuple[str, ...] = ()
    """Test files that have to be among those that ran, by name: ``corruptions`` is ``test_corruptions.py``."""
    rules: Extent = Extent.WHOLE
    """Of the blocking rules on metrics that the run measures: all of them have to meet a test."""
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def counts_samples(self) -> bool:
        """Whether it matters how many samples of a data set were asked."""
        return self.share > 0.0 or self.samples > 0

    def shortfalls(
        self, *, planned: int, selected: int, narrowed: str, samples: Mapping[str, tuple[int, int]], suites: Collection[str]
    ) -> list[str]:
        """Returns, a sentence for each, what was not measured and should have been; each says what to do.

        Args:
            planned: Gated tests that the collected files hold.
            selected: Those of them that were to run.
            narrowed: An option by which tests may be left out that nobody counts, such as ``--lf``; empty without one.
            samples: Data set to the number of samples that were asked, and that it has; a data set asked in full may be missing.
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
        lacking = f"{' and '.join(filter(None, (left_out, unknown)))}, and GO asks for all ({self.cite('tests', 'whole')})"
        advice = "run without -k, -m, --lf, --vlm-rerun and test ids, or allow it with coverage: {tests: partial}"
        return [f"{lacking}: {advice}"]

    def _of_samples(self, samples: Mapping[str, tuple[int, int]]) -> list[str]:
        needed = {name: self._needed(total) for name, (_, total) in samples.items()}
        wanted = "whole" if self.share >= 1.0 else str(self.samples) if self.samples else f"{plain_decimal(100 * self.share)}%"
        return [
            f"{asked} of {quantity(total, 'sample')} of {name} were asked, and GO asks for {needed[name]} "
            f"({self.cite('samples', wanted)}): run with a larger --vlm-sample or without it, or allow it with "
            f"coverage: {{samples: {asked}}}"
            for name, (asked, total) in samples.items()
            if asked < needed[name]
        ]

    def _needed(self, total: int) -> int:
        # a sample of 20 % may be rounded down, and is one of 20 % all the same
        return max(min(self.samples, total), int(self.share * total + 1e-9))

    def _of_suite(self, name: str, suites: Collection[str]) -> str:
        ran = ", ".join(sorted(suites)) or "none"
        return (
            f"no gated test of test_{name}.py ran (ran: {ran}), and GO asks for it ({self.cite('suites', name)}): "
            f"collect it too, or take {name!r} off coverage: {{suites: [...]}}"
        )

    def cite(self, key: str, value: str) -> str:
        """Returns what is asked for and where that was set, as messages say it."""
        return f"coverage {key}: {value}, {self.sources.get(key, BUILT_IN)}"


def suites_of(records: Iterable[Record]) -> set[str]:
    """Returns the names of the test files that records come from: ``corruptions`` for ``suites/test_corruptions.py``."""
    files = (PurePosixPath(record.nodeid.partition("::")[0]) for record in records if record.nodeid)
    return {file.stem.removeprefix("test_") for file in files}
