"""A world without files or weights: pictures and questions in memory, a scripted model that keeps what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.core.cell import Cell, Setting, SweepMetric
from pytest_vlmrobust.core.errors import ImageError
from pytest_vlmrobust.core.fingerprint import pixels_digest
from pytest_vlmrobust.core.prediction import ModelRef, Prediction, Request
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.judge.reads import reads_of, sweep_table
from pytest_vlmrobust.evaluation.run.data import StoredTasks
from pytest_vlmrobust.evaluation.run.evaluator import EvaluationOptions, Evaluator
from pytest_vlmrobust.evaluation.run.evidence import EvidenceWriter
from pytest_vlmrobust.evaluation.run.ledger import Ledger
from pytest_vlmrobust.metrics.table import ScoreTable
from pytest_vlmrobust.store import Evidence, Store

TODAY = date(2026, 6, 1)
T = TypeVar("T")


def present(value: T | None) -> T:
    """Returns what is there, and lets the test fail where it is not."""
    assert value is not None
    return value


class MemoryImage:
    """Pixels in memory; ``broken`` ones cannot be decoded."""

    def __init__(self, pixels: NDArray[np.uint8], *, broken: bool = False, where: str = "memory") -> None:
        self.pixels, self.broken, self.where = pixels, broken, where
        self.loaded = 0

    def load(self) -> NDArray[np.uint8]:
        self.loaded += 1
        if self.broken:
            raise ImageError(f"{self.where}: this image cannot be decoded")
        return self.pixels.copy()

    def identity(self) -> str:
        return f"{pixels_digest(self.pixels)} {self.broken}"


class MemoryDataset:
    """Samples in memory."""

    name = "data"
    digest = "0" * 64
    native_long_edge = None

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = samples

    def samples(self) -> Sequence[Sample]:
        return self._samples


class Model:
    """What a backend answers with, and what it was asked; answers B unless ``answer`` says otherwise."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answer: Callable[[Request], str | Prediction] = lambda _request: "B"
        self.version = "1"

    def __call__(self, request: Request) -> str | Prediction:
        self.requests.append(request)
        return self.answer(request)

    @property
    def asked_about(self) -> list[str]:
        return [request.sample_id for request in self.requests]


def picture(seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (12, 16, 3), np.uint8)


def sample(number: int, **changes: Any) -> Sample:
    facts: dict[str, Any] = {
        "id": f"q{number}",
        "images": (MemoryImage(picture(number)),),
        "question": f"Number {number}?",
        "target": "B",
        "task": "choice",
        "options": {"A": "cat", "B": "dog"},
        "category": "even" if number % 2 == 0 else "odd",
    }
    return Sample(**{**facts, **changes})


def cell(setting: str, model: str = "model") -> Cell:
    return Cell(model, "data", Setting.parse(setting))


def sweep_of(metric: str) -> SweepMetric:
    return SweepMetric("model", "data", metric)


def measure(record: Record, metric: str, category: str = "") -> Measure:
    """Returns the only measure of a metric, or of a category by it."""
    (measured,) = [candidate for candidate in record.measures if (candidate.metric, candidate.category) == (metric, category)]
    return measured


def table_of(evaluator: Evaluator, settings: Sequence[Setting], reference: str | None = None) -> ScoreTable:
    """Returns the scores of ``model`` on ``data`` under these settings, clean and blind, with those of a reference model."""
    reads = reads_of(sweep_of("mean_corruption_error"), settings, evaluator.models, StoredTasks(), reference)
    return sweep_table(reads, evaluator, is_task=False, everything=evaluator.samples("data"))


class World:
    """Evaluators that share one store, one model and one dataset."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.model = Model()
        self.samples: list[Sample] = [sample(i) for i in range(6)]
        self.refs = {"model": ModelRef("model", "scripted", "")}
        self.opened: list[Evaluator] = []
        self.kept: list[Evidence] = []

    def witnessed(self, run: str) -> Evaluator:
        """Returns an evaluator with a store of its own, which leaves evidence in the directory ``run``."""
        directory = self.directory
        self.directory = directory / run / "store"
        evaluator = self.evaluator()
        self.directory = directory
        self.kept.append(Evidence.open(directory / run))
        evaluator.witness = EvidenceWriter(self.kept[-1], evaluator)
        return evaluator

    def measured(self, run: str, settings: Sequence[str]) -> Path:
        """Evaluates the cells of all models under these settings, and returns the directory with their evidence."""
        evaluator = self.witnessed(run)
        for name in settings:
            for model in self.refs:
                evaluator.result(cell(name, model))
        return self.directory / run

    def evaluator(self, *, owner: str = "main", ledger: Ledger | None = None, **options: Any) -> Evaluator:
        chosen = EvaluationOptions(**{"batch_size": 2, **options})
        evaluator = Evaluator(
            models=self.refs,
            datasets={"data": lambda: MemoryDataset(self.samples)},
            open_backend=lambda ref: ScriptedBackend(self.model, version=self.model.version, name=ref.name),
            store=Store.open(self.directory, read_only=chosen.offline),
            options=chosen,
            owner=owner,
            ledger=ledger or Ledger(),
        )
        self.opened.append(evaluator)
        return evaluator

    def close(self) -> None:
        for evaluator in self.opened:
            evaluator.close()
            evaluator.store.close()
        for evidence in self.kept:
            evidence.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()
