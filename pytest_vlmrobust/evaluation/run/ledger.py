"""Ledger: the spending of a run over all its processes, and whether its budget allows more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pytest_vlmrobust.core.errors import BackendError, StoreError
from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.store.spending import BUDGET_SPENT, Spending

FILE_NAME = "spending.tsv"
"""In the directory of a run: a line for each batch of answers."""
_KEPT = "answers so far are in the store, and a later run asks for the others alone"


@dataclass(eq=False)
class Ledger:
    """Counts answers and tokens, and compares them with the limits of a run.

    Processes of a run share a file and append a line per batch: a line is far shorter than what a file system
    writes atomically, and the spending of a dead process is kept.
    """

    path: Path | None = None
    """The shared file; ``None`` counts only this process."""
    seconds: float = 0.0
    """Seconds after ``started`` when inference stops; 0 for no limit."""
    tokens: int = 0
    """Tokens after which inference stops; 0 for no limit."""
    started: float = field(default_factory=time.time)
    """When the run began, by ``clock``."""
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._local: dict[str, Spending] = {}
        self._shared = SharedSpending(self.path) if self.path is not None and self.tokens else None
        self._spent = ""

    def add(self, model: str, answers: Iterable[Prediction]) -> None:
        """Adds the tokens of new answers of a model; failed answers are counted separately, because their tokens are unknown."""
        answers = list(answers)
        given = [answer for answer in answers if answer.finish_reason != "error"]
        counts = [tokens for answer in given if (tokens := answer.tokens) is not None]
        filtered = sum(answer.tokens is None and answer.finish_reason == "content_filter" for answer in given)
        new = Spending(
            model,
            len(given),
            sum(prompt for prompt, _ in counts),
            sum(completion for _, completion in counts),
            len(given) - len(counts) - filtered,
            failed=len(answers) - len(given),
        )
        if not answers:
            return
        with self._lock:
            self._local[model] = self._local.get(model, Spending(model)).plus(new)
            if self.path is not None:
                _append(self.path, new)

    @property
    def spending(self) -> dict[str, Spending]:
        """The spending of this process, by model."""
        with self._lock:
            return dict(self._local)

    def why_spent(self) -> str:
        """Returns why nothing more may be asked, always in the same words once it is so; empty while more may be asked."""
        if not (self.seconds or self.tokens):
            return ""
        with self._lock:
            if not self._spent:
                self._spent = self._look()
            return self._spent

    def _look(self) -> str:
        elapsed = self.clock() - self.started
        if self.seconds and elapsed >= self.seconds:
            return f"{BUDGET_SPENT}{elapsed:,.0f} of {self.seconds:,.0f} seconds (--vlm-budget-seconds); {_KEPT}"
        if not self.tokens:
            return ""
        spent = list((self._local if self._shared is None else self._shared.read()).values())
        if uncounted := next((spending for spending in spent if spending.uncounted), None):
            raise BackendError(
                f"{uncounted.model} gave {uncounted.uncounted} answers without saying how many tokens they took, so that "
                "--vlm-budget-tokens cannot be kept. Leave it out, or have the server send 'usage' with each answer"
            )
        total = sum(spending.tokens for spending in spent)
        return f"{BUDGET_SPENT}{total:,} of {self.tokens:,} tokens (--vlm-budget-tokens); {_KEPT}" if total >= self.tokens else ""


def _append(path: Path, new: Spending) -> None:
    counts = (new.answers, new.prompt_tokens, new.completion_tokens, new.uncounted, new.failed)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            file.write("\t".join([new.model, *map(str, counts)]).encode() + b"\n")
    except OSError as error:
        raise StoreError(f"{path}: cannot write what the run spent: {error.strerror}. Make room, and run again") from error


@dataclass(eq=False)
class SharedSpending:
    """The spending of all processes of a run, read from the shared file, each line once."""

    path: Path
    _place: int = 0
    _totals: dict[str, Spending] = field(default_factory=dict)

    def read(self) -> dict[str, Spending]:
        """Returns the totals so far, by model; empty without answers."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._place)
                content = file.read()
        except FileNotFoundError:
            return dict(self._totals)
        except OSError as error:
            raise StoreError(f"{self.path}: cannot read what the run spent: {error.strerror}") from error
        complete = content[: content.rfind(b"\n") + 1]
        self._place += len(complete)
        for line in complete.decode(errors="replace").splitlines():
            model, *counts = line.split("\t")
            if len(counts) != 5 or not all(map(str.isdecimal, counts)):
                raise StoreError(f"{self.path}: the line {line!r:.100} is not what a run writes. Run again")
            answers, prompt, completion, uncounted, failed = map(int, counts)
            new = Spending(model, answers, prompt, completion, uncounted, failed=failed)
            self._totals[model] = self._totals.get(model, Spending(model)).plus(new)
        return dict(self._totals)
