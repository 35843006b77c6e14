"""How evidence keeps samples and answers: samples as JSON without images, answers as rows that are checked when read."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_vlmrobust.core.boxes import BoxSpace
from pytest_vlmrobust.core.cell import Cell
from pytest_vlmrobust.core.conversion import from_plain, to_plain
from pytest_vlmrobust.core.errors import ImageError, StoreError
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import Sample

from .predictions import decode_prediction, encode_prediction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_MOST_IMAGES = 10_000
"""The most images of a sample: a damaged file may claim any number."""


@dataclass(frozen=True, slots=True)
class _AbsentImage:
    """Placeholder for an image of a sample, because evidence holds no images."""

    sample: str

    def load(self) -> NDArray[np.uint8]:
        raise ImageError(f"sample {self.sample!r}: the evidence of a run holds no images. Read them from the dataset")

    def identity(self) -> str:
        raise ImageError(
            f"sample {self.sample!r}: the evidence of a run holds no images, so that their pixels cannot be compared"
        )


def sample_to_json(sample: Sample) -> str:
    """Returns a sample as JSON: of its images how many there are, and no coordinates in which a model speaks of boxes."""
    localisation = sample.localisation and replace(sample.localisation, space=None)
    bare = to_plain(replace(sample, images=(), sizes={}, localisation=localisation))
    return json.dumps({**bare, "images": len(sample.images)})


def changes_to_json(before: Sample, after: Sample) -> str:
    """Returns the changes of a setting to a question, as JSON: the fields of ``sample_to_json`` that differ."""
    old, new = (json.loads(sample_to_json(sample)) for sample in (before, after))
    return json.dumps({name: value for name, value in new.items() if value != old[name]})


def sample_from_json(content: str, changes: str = "{}") -> Sample:
    """Reads the output of :func:`sample_to_json`; the images of the sample cannot be loaded.

    ``changes`` is the output of :func:`changes_to_json` for its setting.
    """
    try:
        data = {**json.loads(content), **json.loads(changes)}
        sample = from_plain({**data, "images": [], "sizes": {}}, Sample)
    except (ValueError, TypeError, RecursionError) as error:
        raise StoreError(f"not a sample of this release: {error}. Read it with the release that wrote it") from error
    images = data.get("images")
    if not isinstance(images, int) or not 0 <= images <= _MOST_IMAGES:
        raise StoreError(f"not a sample of this release: images is {images!r:.100}, expected a number from 0 to {_MOST_IMAGES}")
    return replace(sample, images=tuple(_AbsentImage(sample.id) for _ in range(images)))


def in_spaces(samples: Sequence[Sample], spaces: Sequence[object]) -> tuple[Sample, ...]:
    """Returns the samples with boxes in a model's spaces; ``None`` is the space of a sample without boxes."""
    return tuple(
        sample
        if space is None or sample.localisation is None
        else replace(sample, localisation=replace(sample.localisation, space=from_plain(space, BoxSpace)))
        for sample, space in zip(samples, spaces, strict=True)
    )


# Rows: values read from the evidence of a run. The file may have been changed or damaged, so each value is checked.


T = TypeVar("T")
RUN_AGAIN = (
    "The file was changed or damaged: run the model again to have another one; what the store still holds is not asked again"
)
"""The advice for a damaged file."""
_STATES = ("scored", "unparsed", "error", "unasked")
_KINDS: dict[type, str] = {str: "text", list: "a list", dict: "an object"}
_HIGHEST = 1.0 + 1e-9
"""The highest score, with rounding."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as evidence: its key in the store, the prediction, and its score."""

    key: str
    prediction: Prediction
    score: Score


def row_of(answer: Answer, encoded: str | None = None) -> tuple[str, str, float | None, str, str, str | None]:
    """Returns an answer as a row: key, prediction, value, state, rule, and the answer read.

    ``encoded`` is its prediction as JSON, if already available.
    """
    score = answer.score
    value = None if math.isnan(score.value) else score.value
    return answer.key, encoded or encode_prediction(answer.prediction), value, score.state, score.rule, score.answer


def answer_of(path: Path, cell: Cell, row: Sequence[Any]) -> Answer:
    """Reads a row of :func:`row_of`, preceded by its index in the cell."""
    place, key, prediction, value, state, rule, answer = row
    what = f"answer {place} of {cell}"
    if state not in _STATES:
        raise StoreError(f"{path}: {what} has the state {state!r:.100}, expected one of {', '.join(_STATES)}. {RUN_AGAIN}")
    read = None if answer is None else text_of(path, answer, what)
    score = Score(value_of(path, cell, place, value), text_of(path, rule, what), read, state)
    text = text_of(path, prediction, what)
    return Answer(text_of(path, key, what), decode_prediction(text, lambda: f"{path}: {what}: the prediction {key!r}"), score)


def value_of(path: Path, cell: Cell, place: int, value: object) -> float:
    """Returns the value of a score, in [0, 1]; NaN for a null value."""
    if value is None:
        return math.nan
    if not isinstance(value, float) or not 0 <= value <= _HIGHEST:
        problem = f"answer {place} of {cell} has the score {value!r:.100}, expected a number from 0 to 1, or null"
        raise StoreError(f"{path}: {problem}. {RUN_AGAIN}")
    return value


def parse_json(path: Path, content: Any, kind: type[T], what: str) -> T:
    """Parses a list or object of a JSON text. ``what`` names it in messages."""
    try:
        return check_type(path, json.loads(content), kind, what)
    except (ValueError, TypeError, RecursionError) as error:
        raise StoreError(f"{path}: {what} cannot be read: {error}. {RUN_AGAIN}") from error


def text_of(path: Path, value: object, what: str) -> str:
    """Returns a text, see :func:`check_type`."""
    return check_type(path, value, str, what)


def check_type(path: Path, value: object, kind: type[T], what: str) -> T:
    """Returns a value of the expected type. ``what`` names it in messages."""
    if not isinstance(value, kind):
        raise StoreError(f"{path}: {what} holds {value!r:.100}, expected {_KINDS[kind]}. {RUN_AGAIN}")
    return value
