"""Selection: the planned gated tests of a run, and which of them run; it imports only the nouns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pytest_vlmrobust.core.cell import Planned, Setting
from pytest_vlmrobust.core.errors import VlmRobustError


@dataclass(frozen=True, slots=True)
class SelectedTest:
    """A selected gated test: its subject, and the settings or sets of settings that its summary metric names."""

    nodeid: str
    about: Planned
    names: tuple[str, ...] = ()

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The settings of a test that names no sets of them."""
        return tuple(map(Setting.parse, self.names))


@dataclass
class Selection:
    """The gated tests of a run: the planned ones, and which of them were selected."""

    narrowed: str = ""
    """An option that may leave out an unknown number of tests, as whole files; empty if there is none."""
    plan: list[Planned] = field(default_factory=list)
    """The subjects of all tests, deselected ones too: a verdict does not depend on which tests run."""
    planned: int = 0
    selected: int = 0
    tests: Sequence[SelectedTest] = ()
    """The selected tests; a controller of xdist only knows their number."""
    notes: Sequence[str] = ()
    """The notes of the collections that selected tests ask about, each once."""
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

    def mark_incomplete(self, reason: str) -> None:
        """Notes why the number of omitted tests is unknown; the first reason is kept."""
        self.narrowed = self.narrowed or reason

    def refuse(self, error: VlmRobustError, *, at_worker: bool = False) -> None:
        """Notes why no test is to run; the first reason stands."""
        if self.refusal is None:
            self.refusal, self.refused_at_worker = error, at_worker

    def select(self, tests: Sequence[SelectedTest], notes: Sequence[str], idle: Sequence[Sequence[str]]) -> None:
        """Notes which tests are to run, what a reader should know about their data, and cells without a test."""
        self.tests, self.selected, self.notes, self.idle = tests, len(tests), notes, idle

    def set_expected(self, selected: int) -> None:
        """Notes how many gated tests there seem to be, before the collecting process reports it."""
        self.selected = selected

    def update_from_worker(
        self, *, planned: int, selected: int, narrowed: str, notes: Iterable[str], idle: Sequence[Sequence[str]]
    ) -> None:
        """Notes what a worker knows; each worker knows all."""
        self.planned, self.selected, self.idle = planned, selected, idle
        self.narrowed = narrowed or self.narrowed
        self.notes = list(dict.fromkeys([*self.notes, *notes]))
