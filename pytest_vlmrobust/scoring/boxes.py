"""Boxes that a model gave against the true ones: overlap, what was not given, and which eye is which."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pytest_vlmrobust.core.boxes import LEFT_EYE, RIGHT_EYE, Box, BoxSpace, Localisation, overlap, swapped
from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.score import Score

from .box_answers import BoxExtraction, extract_boxes
from .grading import unread

Boxes = Mapping[str, Box | None]


class BoxScores(NamedTuple):
    """How well the attributes that were asked for were found: 0 without a readable answer, NaN where the inference failed."""

    overlaps: dict[str, float]
    """Attribute to the intersection over union of its box with the true one, in [0, 1]; 0 where none was given."""
    coverage: float
    """Share of the attributes for which a box was given, in [0, 1]."""


def score_boxes(sample: Sample, prediction: Prediction) -> Score:
    """Mean overlap (IoU) with the true boxes of all that was asked for, 0 where no box was given; two eyes may be swapped.

    The answer of the score is JSON: attribute to its box in pixels of the picture, to a tenth, or null.

    Raises:
        UsageError: the sample does not say where things are.
    """
    about = localisation(sample)
    found = extract_boxes(prediction.text, about.boxes)
    boxes = in_pixels(found, about, about.spoken)
    if boxes is None:
        return unread(found.rule, prediction)
    return Score(mean_overlap(boxes, about), found.rule, _written(boxes))


def read_boxes(sample: Sample, prediction: Prediction) -> dict[str, Box | None] | None:
    """Returns the boxes that a model gave, in pixels of the picture, by the names that it gave them.

    Every attribute that was asked for is there, with None where the model gave no box. None where the answer cannot be read or
    the inference failed.

    Raises:
        UsageError: the sample does not say where things are.
    """
    about = localisation(sample)
    return None if _failed(prediction) else in_pixels(extract_boxes(prediction.text, about.boxes), about, about.spoken)


def box_scores(sample: Sample, prediction: Prediction) -> BoxScores:
    """Returns the overlap of each box with the true one, and the share of boxes that were given.

    Raises:
        UsageError: the sample does not say where things are.
    """
    about = localisation(sample)
    boxes = read_boxes(sample, prediction)
    if boxes is None:
        nothing = math.nan if _failed(prediction) else 0.0
        return BoxScores(dict.fromkeys(about.boxes, nothing), nothing)
    return BoxScores(_overlaps(boxes, about), sum(box is not None for box in boxes.values()) / len(boxes))


def box_coverage(samples: Sequence[Sample], predictions: Sequence[Prediction]) -> list[float]:
    """Returns for each sample the share of attributes for which a box was given; NaN where the inference failed.

    Raises:
        UsageError: a sample does not say where things are.
        ValueError: the two differ in length.
    """
    return [box_scores(sample, prediction).coverage for sample, prediction in zip(samples, predictions, strict=True)]


def localisation(sample: Sample) -> Localisation:
    """Returns where things are in the picture of ``sample``.

    Raises:
        UsageError: the sample does not say it, asks for nothing, or asks for a box without an area.
    """
    about = sample.localisation
    if about is None or not about.boxes:
        raise UsageError(f"sample {sample.id!r} has no boxes to be found; expected a localisation with at least one true box")
    for attribute, box in about.boxes.items():
        if not (math.isfinite(sum(box)) and box[0] < box[2] and box[1] < box[3]):
            raise UsageError(
                f"sample {sample.id!r}: the true box of {attribute!r} is {box}; expected finite (x1, y1, x2, y2) with x1 < x2 "
                "and y1 < y2"
            )
    return about


def in_pixels(found: BoxExtraction, about: Localisation, space: BoxSpace) -> dict[str, Box | None] | None:
    """Returns what was read, said in ``space``, in pixels of the picture; None where nothing could be read."""
    if found.boxes is None:
        return None
    return {name: None if box is None else box.pixels(space, about.size) for name, box in found.boxes.items()}


def mean_overlap(boxes: Boxes, about: Localisation) -> float:
    """Returns the mean overlap over everything that was asked for, 0 where no box was given, in [0, 1]."""
    overlaps = _overlaps(boxes, about)
    return math.fsum(overlaps.values()) / len(overlaps)


def _overlaps(boxes: Boxes, about: Localisation) -> dict[str, float]:
    matched = _matched(boxes, about)
    given = ((name, matched[name], true) for name, true in about.boxes.items())
    return {name: 0.0 if box is None else overlap(box, true) for name, box, true in given}


def _matched(boxes: Boxes, about: Localisation) -> Boxes:
    """Returns the boxes with the eyes swapped, if both were asked for and given and overlap more so."""
    left, right = boxes.get(LEFT_EYE), boxes.get(RIGHT_EYE)
    if left is None or right is None or not swapped((left, right), (about.boxes[LEFT_EYE], about.boxes[RIGHT_EYE])):
        return boxes
    return {**boxes, LEFT_EYE: right, RIGHT_EYE: left}


def _failed(prediction: Prediction) -> bool:
    return prediction.finish_reason == "error"


def _written(boxes: Boxes) -> str:
    rounded = {name: None if box is None else [_shortest(number) for number in box] for name, box in boxes.items()}
    return json.dumps(rounded, separators=(",", ":"))


def _shortest(number: float) -> int | float:
    tenths = round(number, 1)
    return int(tenths) if tenths.is_integer() else tenths
