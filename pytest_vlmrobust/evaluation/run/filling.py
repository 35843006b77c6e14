"""Filling: stores the answers of a run, or of one of its parts, without judging."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, PROBES, Cell
from pytest_vlmrobust.core.errors import BudgetSpent, UsageError, VlmRobustError
from pytest_vlmrobust.core.fingerprint import derive_seed
from pytest_vlmrobust.core.words import quantity

from .evaluator import Evaluator
from .probes import probed_places
from .queue import CellRequest, Query
from .views import view_count

_SCHEDULERS = (
    ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN"),
    ("JOB_COMPLETION_INDEX", "JOB_COMPLETIONS", ""),
    ("CI_NODE_INDEX", "CI_NODE_TOTAL", "CI_NODE_MIN"),
    ("BUILDKITE_PARALLEL_JOB", "BUILDKITE_PARALLEL_JOB_COUNT", ""),
    ("CIRCLE_NODE_INDEX", "CIRCLE_NODE_TOTAL", ""),
)
"""Variables of SLURM, Kubernetes, GitLab, Buildkite and CircleCI: this part, how many there are, and the number of the first."""
_FIRST = {"CI_NODE_MIN": "1"}
"""GitLab counts from 1 and says so nowhere. Kubernetes does not say how many there are: set JOB_COMPLETIONS in the job."""
_COUNT = re.compile(r"[0-9]{1,6}")
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several parts that together cover all questions of a run.

    Questions with the same image and text are in the same part under all settings, so that equal requests are made once.
    """

    number: int
    """From 1."""
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Reads ``i/n``."""
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text.strip())
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise UsageError(f"--vlm-shard {text[:40]!r}: expected i/n with i from 1 to n, such as 1/4")
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def of_scheduler(cls, environment: Mapping[str, str] = os.environ) -> tuple[Shard, str]:
        """Returns the part that a scheduler gave this job, and its environment variable; the whole without a scheduler."""
        for index, total, least in _SCHEDULERS:
            if environment.get(index, "").isdecimal():
                given = {index: environment[index], total: environment.get(total, "")}
                given |= {least: first} if (first := environment.get(least)) else {}
                said = ", ".join(f"{name}={value[:20]}" for name, value in given.items() if value)
                if not given[total].isdecimal():
                    raise UsageError(f"{said}, and no {total} says of how many parts. Give --vlm-shard i/n")
                if any(_COUNT.fullmatch(value) is None for value in given.values()):
                    raise UsageError(f"{said}: expected whole numbers of at most six digits. Give --vlm-shard i/n")
                number = int(given[index]) - int(first or _FIRST.get(least, "0")) + 1
                count = int(given[total])
                if not 1 <= number <= count:
                    raise UsageError(f"{said}: no such part. Give --vlm-shard i/n")
                return cls(number, count), index
        return cls(1, 1), ""

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def holds(self, query: Query, cell: Cell) -> bool:
        """Whether a question belongs to this part, by its text and clean images."""
        pictures = [] if cell.setting == NO_IMAGE else [image.identity() for image in query.sample.images]
        return derive_seed(0, "shard", query.text, *pictures) % self.count == self.number - 1


@dataclass(eq=False)
class Filling:
    """The result of filling a store."""

    shard: Shard
    answered: int = 0
    """Answers of this part that the store now has."""
    inferred: int = 0
    """Newly inferred answers among them."""
    failures: dict[str, int] = field(default_factory=dict)
    """Why questions have no answer, and how many for that reason."""

    @property
    def lacking(self) -> int:
        """How many questions have no answer."""
        return sum(self.failures.values())

    def plan(self, evaluator: Evaluator, cells: Sequence[Cell], tasks: Collection[str] = ()) -> dict[Cell, list[int]]:
        """Returns which samples of each cell belong to this part, by their places in the dataset."""
        places: dict[Cell, list[int]] = {}
        for cell in cells:
            probes = PROBES if cell.setting == CLEAN and cell.dataset not in tasks else ()
            try:
                places[cell] = self._places(evaluator, cell)
                for probe in (replace(cell, setting=setting) for setting in probes):
                    probed = set(probed_places(probe.setting, evaluator.samples(probe.dataset)))
                    places[probe] = [place for place in self._places(evaluator, probe) if place in probed]
            except VlmRobustError as error:
                self._lack(f"{cell}, none of its questions: {error}", 1)
        return {cell: chosen for cell, chosen in places.items() if chosen}

    def fill(self, evaluator: Evaluator, places: Mapping[Cell, Sequence[int]]) -> Iterator[Cell]:
        """Infers the missing answers of these samples and yields each finished cell; a failure does not stop the others."""
        evaluator.expect(CellRequest(cell, chosen) for cell, chosen in places.items() if cell.setting not in PROBES)
        before = evaluator.inferred
        for cell, chosen in places.items():
            self._fill(evaluator, cell, chosen)
            self.inferred += evaluator.inferred - before
            before = evaluator.inferred
            yield cell

    def _fill(self, evaluator: Evaluator, cell: Cell, chosen: Sequence[int]) -> None:
        try:
            result = evaluator.result(cell, chosen)
        except BudgetSpent as error:
            answered = self._answered(evaluator, cell, chosen)
            self.answered += answered
            self._lack(str(error), len(chosen) * view_count(cell.setting) - answered)
            return
        except VlmRobustError as error:
            self._lack(str(error), len(chosen))
            return
        errors = [prediction.error for prediction in result.predictions if prediction.finish_reason == "error"]
        for reason in errors:
            self._lack(reason, 1)
        self.answered += result.n_requested - len(errors)

    def lines(self) -> list[str]:
        """Returns the lines of the final summary."""
        part = "" if self.shard.count == 1 else f"part {self.shard}: "
        lines = [f"{part}{quantity(self.answered, 'answer')}, {self.inferred} of them inferred, {self.lacking} are missing"]
        ranked = sorted(self.failures.items(), key=lambda item: -item[1])
        lines += [f"missing: {count} x {reason}" for reason, count in ranked[:_SHOWN]]
        lines += [f"missing: {quantity(len(ranked) - _SHOWN, 'more reason')}"] if len(ranked) > _SHOWN else []
        return lines

    def _answered(self, evaluator: Evaluator, cell: Cell, places: Sequence[int]) -> int:
        """Returns how many answers to these samples of a cell the store has."""
        queries, views = evaluator.queries(cell), view_count(cell.setting)
        keys = [queries[place * views + view].key for place in places for view in range(views)]
        known = evaluator.store.has({key for key in keys if key is not None})
        return sum(key in known for key in keys)

    def _places(self, evaluator: Evaluator, cell: Cell) -> list[int]:
        queries = evaluator.queries(cell)
        firsts = queries[:: queries[0].views] if queries else []
        changed = evaluator.changed(cell.dataset, cell.setting)
        places = range(len(firsts)) if changed is None else changed
        return [place for place in places if self.shard.holds(firsts[place], cell)]

    def _lack(self, reason: str, count: int) -> None:
        self.failures[reason] = self.failures.get(reason, 0) + count
