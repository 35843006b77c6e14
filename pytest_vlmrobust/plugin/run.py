"""The run of one pytest process: what it was asked for, what was opened for it, and what came of it.

Everything is opened when it is first used: models and data when tests are planned, the store when one is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from .evaluation import Evaluation
from .inputs import Inputs
from .results import Results


@dataclass
class Run:
    """One run in one process."""

    inputs: Inputs
    evaluation: Evaluation
    results: Results
    hold_signals: Callable[[], None] = lambda: None
    """Makes signals wait that would end this process while it concludes."""
    release_signals: Callable[[], None] = lambda: None
    """Lets them end this process again."""
    end_with: Callable[[int | None], None] = lambda status: None  # noqa: ARG005
    """Called with the exit code of pytest when it is about to end: afterwards no other exit can return 0 unless it is 0."""
    _closed: bool = False

    def close(self) -> None:
        """Frees models and closes what is open; closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        evaluation = self.evaluation
        if evaluation.display is not None:
            evaluation.display.close()
            evaluation.display = None
        opened = {**vars(self.results), **vars(evaluation), **vars(self.inputs)}
        for name in ("journal", "evidence", "baseline"):
            if opened.get(name) is not None:
                opened[name].close()
        if evaluation.is_open:
            evaluation.evaluator.close()
            evaluation.evaluator.store.close()


RUN: pytest.StashKey[Run] = pytest.StashKey()
"""The stash key of the run in pytest's configuration."""
