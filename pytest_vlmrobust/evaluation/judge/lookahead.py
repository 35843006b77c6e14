"""Looking ahead: keeps a model busy with certain requests of coming tests while the current test waits for its answers.

A test whose answers are available continues before its turn, with the same requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.cell import BASELINES, Cell, Planned
from pytest_vlmrobust.evaluation.run.answers import Answers
from pytest_vlmrobust.evaluation.run.queue import CellRequest

from .stopping import Stopping

if TYPE_CHECKING:
    from pytest_vlmrobust.evaluation.run.evaluator import Evaluator

COMING = 512
"""How many coming cells are considered for asking ahead."""


@dataclass(eq=False)
class Lookahead:
    """The coming tests of a run that may need more answers before their turn."""

    answers: Answers
    asker: Evaluator | None
    """The evaluator for asking ahead; ``None`` without asking ahead."""
    models: Iterable[str]
    stopping: Callable[[Cell], Stopping | None]
    """Starts the early stopping of a cell; ``None`` if it uses all samples."""
    is_task: Callable[[str], bool]
    """Whether a dataset belongs to a task, which a model may be unable to do."""
    why_task_not_shown: Callable[[str, str], str]
    between: tuple[int, int] = (0, 0)
    """Answers that were inferred and recalled between tests, which no record counts yet."""
    _coming: dict[Cell, None] = field(default_factory=dict)
    _tested: set[Cell] = field(default_factory=set)
    """Cells among them with a test."""
    _begun: dict[Cell, Stopping] = field(default_factory=dict)
    """Tests that were advanced before their turn."""
    _expected: dict[Cell, int] = field(default_factory=dict)
    """How many of the first samples of a cell are on their way."""

    def plan(self, cells: Iterable[Cell], tested: Collection[Cell]) -> None:
        """Sets the cells of a run."""
        if self.asker is not None:
            self._coming.update(dict.fromkeys(cells))
            self._tested.update(tested)

    def begin(self, about: Planned) -> Stopping | None:
        """Returns the started stopping of the current test, or ``None``."""
        begun = None
        if isinstance(about, Cell):
            self._coming.pop(about, None)
            begun = self._begun.pop(about, None)
        self._ask_ahead(about.model)
        return begun

    def scores(self, requests: Sequence[CellRequest]) -> list[NDArray[np.float64]]:
        """Evaluates parts of cells of a model together, and returns the scores of each."""
        self._ask_ahead(requests[0].cell.model)
        if len(requests) > 1:
            self.expect(requests)
        return [self.answers.result(request.cell, request.places).values for request in requests]

    def expect(self, requests: Sequence[CellRequest]) -> None:
        """Queues these requests together, so that none waits for another."""
        if self.asker is not None and requests:
            self.asker.expect(requests)
            self._ask_ahead(requests[0].cell.model)

    def between_tests(self) -> None:
        """Has the models that are asked go on with what coming tests need; the next record counts it."""
        if self.asker is None:
            return
        inferred, recalled = self.asker.inferred, self.asker.recalled
        for model in self.models:
            self.asker.work_ahead(model)
            self._ask_ahead(model)
        more = self.asker.inferred - inferred, self.asker.recalled - recalled
        self.between = (self.between[0] + more[0], self.between[1] + more[1])

    def _ask_ahead(self, model: str) -> None:
        """Queues requests of coming tests for a model while there is room."""
        if self.asker is None or self.asker.room(model) <= 0:  # a model whose answers are all stored gets no requests
            return
        unanswered: set[Cell] = set()
        for cell in list(islice((cell for cell in self._coming if cell.model == model), COMING)):
            if self.asker.room(model) <= 0:
                return
            try:
                is_over = self._advance(cell, self.asker, unanswered)
            except Exception:  # noqa: BLE001 - it is about another test, which begins anew and meets the same error
                self._begun.pop(cell, None)
                is_over = True
            if is_over:
                del self._coming[cell]

    def _advance(self, cell: Cell, asker: Evaluator, unanswered: set[Cell]) -> bool:
        """Advances a coming cell with available answers; returns whether no further request is known."""
        stopping = self._begun.get(cell) or self.stopping(cell)
        if stopping and cell not in self._tested:
            return True
        may_be_refused = cell.setting not in BASELINES and self.is_task(cell.dataset)
        if may_be_refused or stopping:
            baselines = {Cell(cell.model, cell.dataset, setting) for setting in BASELINES}
            if not unanswered & baselines:
                everything = range(len(asker.samples(cell.dataset)))
                answered = {
                    each for each in baselines if asker.is_evaluated(each) or asker.scores_ahead(each, everything) is not None
                }
                unanswered |= baselines - answered
            if unanswered & baselines:
                return False
            if self.why_task_not_shown(cell.model, cell.dataset):
                return True
        if not stopping:
            asker.expect([CellRequest(cell)])
            return True
        self._begun[cell] = stopping
        return self._advance_test(cell, stopping, asker)

    def _advance_test(self, cell: Cell, stopping: Stopping, asker: Evaluator) -> bool:
        while (requests := stopping.next()) and not stopping.at_look:
            scores = asker.scores_ahead(cell, requests[0].places or ())
            if scores is None:
                self._expect_first(cell, stopping, asker)
                return False
            if np.isnan(scores).any():
                return True
            stopping.take([scores])
        if stopping.at_look:
            self._expect_first(cell, stopping, asker)
        return True

    def _expect_first(self, cell: Cell, stopping: Stopping, asker: Evaluator) -> None:
        """Queues the first samples of a cell that are not pending yet."""
        request = stopping.request(cell, self._expected.get(cell, 0), stopping.n_asked)
        if request.places:
            asker.expect([request])
            self._expected[cell] = stopping.n_asked
