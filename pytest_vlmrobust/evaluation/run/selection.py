"""Selection: the gated tests of a run, those that are planned and those of them that are to run; it imports the nouns alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pytest_vlmrobust.core.cell import Planned, Setting
from pytest_vlmrobust.core.errors import VlmRobustError


@dataclass(frozen=True, slots=True)
class SelectedTest:
    """One gated test that is to run: what it is about, and the settings or sets of them that its summary metric names."""

    nodeid: str
    about: Planned
    names: tuple[str, ...] = ()

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The settings of a test that names no sets of them."""
        return tuple(map(Setting.parse, self.names))


@dataclass
class Selection:
    """The gated tests of a run: those that are planned, and those of them that were selected."""

    narrowed: str = ""
    """An option that may leave out an unknown number of tests, as whole files; empty if there is none."""
    plan: list[Planned] = field(default_factory=list)
    """What the tests are about, whatever is deselected: a verdict does not depend on which of them run."""
    planned: int = 0
    selected: int = 0
    tests: Sequence[SelectedTest] = ()
    """Those that were selected; a controller of xdist knows their number alone."""
    notes: Sequence[str] = ()
    """What the collections that selected tests ask about say of themselves, each note once."""
    idle: Sequence[Sequence[str]] = ()
    """Dataset and setting of the cells without a test, because the setting changes no question of the dataset."""
    refusal: VlmRobustError | None = None
    """An error that was detected during collection; then no test runs."""
    refused_at_worker: bool = False
    """Whether a worker of xdist detected it, so that it was not reported yet."""

    @property
    def datasets(self) -> list[str]:
        """The datasets that selected tests are about."""
        return list(dict.fromkeys(test.about.dataset for test in self.tests))

    def add(self, planned: Sequence[Planned]) -> None:
        """Adds the tests of one function to the plan."""
        self.plan += planned
        self.planned += len(planned)

    def narrow(self, reason: str) -> None:
        """Notes why the number of omitted tests is unknown; the first reason is kept."""
        self.narrowed = self.narrowed or reason

    def refuse(self, error: VlmRobustError, *, at_worker: bool = False) -> None:
        """Notes why no test is to run; the first reason stands."""
        if self.refusal is None:
            self.refusal, self.refused_at_worker = error, at_worker

    def select(self, tests: Sequence[SelectedTest], notes: Sequence[str], idle: Sequence[Sequence[str]]) -> None:
        """Notes which tests are to run, what a reader should know about their data, and cells without a test."""
        self.tests, self.selected, self.notes, self.idle = tests, len(tests), notes, idle

    def expect(self, selected: int) -> None:
        """Notes how many gated tests there seem to be, before the collecting process reports it."""
        self.selected = selected

    def learn(self, *, planned: int, selected: int, narrowed: str, notes: Iterable[str], idle: Sequence[Sequence[str]]) -> None:
        """Notes what a worker knows; each worker knows all."""
        self.planned, self.selected, self.idle = planned, selected, idle
        self.narrowed = narrowed or self.narrowed
        self.notes = list(dict.fromkeys([*self.notes, *notes]))
