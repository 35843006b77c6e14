"""Runs to browse, without a gate: two models on six questions, with whatever answers a test wants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.store import Answer, Evidence, Journal, StoredCell, write_manifest

WORDS = {"r": "right", "w": "wrong", "u": "unparsed", "e": "error"}
SETTINGS = {
    "m1": {"clean": "rrrrrw", "no_image": "wwwwww", "fog:low": "rrrrwr", "fog:high": "wwrruw", "invert": "rrrrrr"},
    "m2": {"clean": "rrrrrr", "no_image": "wwwwww", "fog:low": "rrrrrr", "fog:high": "wrrrre", "invert": "rrrrrw"},
}
"""Model to setting to the six answers: right, wrong, unparsed, error."""


class NoImage:
    """Stands for a picture, of which evidence keeps nothing."""

    def load(self) -> Any:
        raise NotImplementedError

    def identity(self) -> str:
        return "no image"


def samples(dataset: str, **changes: Any) -> list[Sample]:
    """Returns six questions in two categories."""
    facts: dict[str, Any] = {
        "question": "Which one, please?",
        "target": "A",
        "task": "choice",
        "options": {"A": "a cat", "B": "a dog"},
    }
    return [
        Sample(id=f"{dataset}{number}", images=(NoImage(),), category="odd" if number % 2 else "even", **{**facts, **changes})
        for number in range(6)
    ]


def answer(kind: str, *, text: str = "", sure: float = 0.9) -> Answer:
    """Returns an answer that is right, wrong, unparsed or an error."""
    if kind == "e":
        return Answer("k", Prediction("", "generate", "error", error="the server is down"), Score.unscored("the server is down"))
    if kind == "u":
        return Answer("k", Prediction(text or "cannot say", "generate"), Score.unparsed())
    letter = "A" if kind == "r" else "B"
    logprobs = {letter: math.log(sure), "AB".replace(letter, ""): math.log(1 - sure)}
    return Answer(
        "k", Prediction(text or letter, "letter_logits", logprobs=logprobs), Score(float(kind == "r"), "letter", letter)
    )


def put(evidence: Evidence, model: str, dataset: str, setting: str, answers: list[Answer], views: int = 1) -> None:
    """Stores the answers of a cell."""
    evidence.put_cells([StoredCell(Cell(model, dataset, Setting.parse(setting)), views, tuple(answers))])


def run(
    directory: Path,
    answers: Mapping[str, Mapping[str, str]] = SETTINGS,
    *,
    dataset: str = "d",
    decision: str = "GO",
    changes: Mapping[str, Any] | None = None,
    said: str = "",
) -> Path:
    """Writes a run with its evidence, its journal and its manifest, and returns its directory."""
    with Evidence.open(directory) as evidence:
        evidence.put_samples(dataset, "0" * 64, samples(dataset, **(changes or {})))
        for model, settings in answers.items():
            evidence.put_model(model, {"weights": model})
            for setting, kinds in settings.items():
                each = [answer(kind, text=said, sure=0.6 + number / 20) for number, kind in enumerate(kinds)]
                put(evidence, model, dataset, setting, each)
    with Journal(directory) as journal:
        for model, settings in answers.items():
            for setting in settings:
                outcome = Outcome.FAIL if setting == "fog:high" else Outcome.PASS
                journal.append(record(model, dataset, setting, outcome))
    content = {
        "date": "2026-01-02",
        "models": {model: {} for model in answers},
        "selected": 10,
        "planned": 10,
        "settings": {"vlm_seed": 1},
    }
    write_manifest(directory, {**content, **({"decision": decision} if decision else {})})
    return directory


def record(model: str, dataset: str, setting: str, outcome: Outcome = Outcome.PASS) -> Record:
    """Returns the record of a cell."""
    name = f"{model}-{dataset}-{setting}"
    about: dict[str, Any] = {"model": model, "dataset": dataset, "setting": setting}
    return Record(test="cell", id=name, outcome=outcome, reason=f"because of {name}", nodeid=f"suite::test_cell[{name}]", **about)
