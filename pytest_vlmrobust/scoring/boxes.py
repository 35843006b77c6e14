"""Compares the boxes of a model with the true boxes: overlap, missing boxes, and swapped eyes."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pytest_vlmrobust.core.boxes import (
    CONVENTIONS,
    LEFT_EYE,
    PIXELS,
    RESIZED_PIXELS,
    RIGHT_EYE,
    Box,
    BoxSpace,
    Localisation,
    are_swapped,
    box_space,
    overlap,
)
from pytest_vlmrobust.core.errors import UnknownName, UsageError
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import Sample

from .box_answers import BoxExtraction, extract_boxes
from .grading import grade_unread

Boxes = Mapping[str, Box | None]

HIT = 0.5
"""Overlap from which a box counts as found."""


class BoxScores(NamedTuple):
    """How well the requested attributes were located: 0 without a readable answer, NaN for a failed inference."""

    overlaps: dict[str, float]
    """The intersection over union of each attribute's box with the true box, in [0, 1]; 0 without a box."""
    coverage: float
    """Share of the attributes with a box, in [0, 1]."""


def score_boxes(sample: Sample, prediction: Prediction) -> Score:
    """Mean overlap (IoU) with the true boxes of all requested attributes, 0 where no box was given; two eyes may be swapped.

    The answer of the score is JSON: attribute to its box in pixels of the image, to a tenth, or null.
    """
    truth = localisation(sample)
    extraction = extract_boxes(prediction.text, truth.boxes)
    boxes = in_pixels(extraction, truth, truth.spoken)
    if boxes is None:
        return grade_unread(extraction.rule, prediction)
    return Score(mean_overlap(boxes, truth), extraction.rule, _to_json(boxes))


def score_box_hit(sample: Sample, prediction: Prediction) -> Score:
    """1 when the overlap (IoU) with the true box is at least 0.5, as referring expressions are scored; the mean of several."""
    overlap_score = score_boxes(sample, prediction)
    if overlap_score.state != "scored":
        return overlap_score
    overlaps = box_scores(sample, prediction).overlaps.values()
    return dataclasses.replace(overlap_score, value=sum(overlap >= HIT for overlap in overlaps) / len(overlaps))


def read_boxes(sample: Sample, prediction: Prediction) -> dict[str, Box | None] | None:
    """Returns the boxes that a model gave, by attribute, in pixels of the image.

    Every requested attribute is present, with None for a missing box. Returns None if the answer is unreadable or
    the inference failed.
    """
    truth = localisation(sample)
    return None if _has_failed(prediction) else in_pixels(extract_boxes(prediction.text, truth.boxes), truth, truth.spoken)


def box_scores(sample: Sample, prediction: Prediction) -> BoxScores:
    """Returns the overlap of each box with the true box, and the share of attributes with a box."""
    truth = localisation(sample)
    boxes = read_boxes(sample, prediction)
    if boxes is None:
        nothing = math.nan if _has_failed(prediction) else 0.0
        return BoxScores(dict.fromkeys(truth.boxes, nothing), nothing)
    return BoxScores(_overlaps(boxes, truth), sum(box is not None for box in boxes.values()) / len(boxes))


def box_coverage(samples: Sequence[Sample], predictions: Sequence[Prediction]) -> list[float]:
    """Returns the share of attributes with a box for each sample; NaN for a failed inference."""
    return [box_scores(sample, prediction).coverage for sample, prediction in zip(samples, predictions, strict=True)]


def localisation(sample: Sample) -> Localisation:
    """Returns the true boxes of ``sample``."""
    truth = sample.localisation
    if truth is None or not truth.boxes:
        raise UsageError(f"sample {sample.id!r} has no true boxes; expected a localisation with at least one true box")
    for attribute, box in truth.boxes.items():
        if not (math.isfinite(sum(box)) and box[0] < box[2] and box[1] < box[3]):
            raise UsageError(
                f"sample {sample.id!r}: the true box of {attribute!r} is {box}; expected finite (x1, y1, x2, y2) with x1 < x2 "
                "and y1 < y2"
            )
    return truth


def in_pixels(extraction: BoxExtraction, truth: Localisation, space: BoxSpace) -> dict[str, Box | None] | None:
    """Converts the extracted boxes from ``space`` to pixels of the image; None for an unreadable answer."""
    if extraction.boxes is None:
        return None
    return {name: None if box is None else box.pixels(space, truth.size) for name, box in extraction.boxes.items()}


def mean_overlap(boxes: Boxes, truth: Localisation) -> float:
    """Returns the mean overlap over all requested attributes, in [0, 1]; an attribute without a box counts 0."""
    overlaps = _overlaps(boxes, truth)
    return math.fsum(overlaps.values()) / len(overlaps)


def _overlaps(boxes: Boxes, truth: Localisation) -> dict[str, float]:
    matched = _swap_eyes_if_better(boxes, truth)
    given = ((name, matched[name], true_box) for name, true_box in truth.boxes.items())
    return {name: 0.0 if box is None else overlap(box, true_box) for name, box, true_box in given}


def _swap_eyes_if_better(boxes: Boxes, truth: Localisation) -> Boxes:
    """Swaps the eyes if both are given and overlap more that way."""
    left, right = boxes.get(LEFT_EYE), boxes.get(RIGHT_EYE)
    if left is None or right is None or not are_swapped((left, right), (truth.boxes[LEFT_EYE], truth.boxes[RIGHT_EYE])):
        return boxes
    return {**boxes, LEFT_EYE: right, RIGHT_EYE: left}


def _has_failed(prediction: Prediction) -> bool:
    return prediction.finish_reason == "error"


def _to_json(boxes: Boxes) -> str:
    rounded = {name: None if box is None else [_shortest(number) for number in box] for name, box in boxes.items()}
    return json.dumps(rounded, separators=(",", ":"))


def _shortest(number: float) -> int | float:
    tenths = round(number, 1)
    return int(tenths) if tenths.is_integer() else tenths


# Does a model write its boxes in the coordinates that were declared for it? Its answers about unperturbed images show it.
#
# Each answer is read in every convention of ``core.boxes``. A model that locates boxes at all overlaps the truth in one of them
# and hardly in the others; noise overlaps little in any.


LEAST_GAIN = 0.1
"""Another convention is reported only if its mean overlap is higher by this much."""
LEAST_FIT = 0.5
"""Mean overlap that another convention must reach: boxes that fit badly in every convention follow none."""
ERROR_RATE = 0.01
"""Greatest probability of a false report, over all other conventions together."""

_SIZE = re.compile(r"(\d{1,6})x(\d{1,6})")


@dataclasses.dataclass(frozen=True, slots=True)
class ConventionFit:
    """How well boxes fit when read in a convention."""

    overlaps: tuple[float, ...]
    """Mean overlap of the boxes of each sample, in [0, 1]; samples without a box are left out."""

    @property
    def mean(self) -> float:
        """Mean of the overlaps; NaN without overlaps."""
        return math.fsum(self.overlaps) / len(self.overlaps) if self.overlaps else math.nan


def convention_fits(samples: Sequence[Sample], predictions: Sequence[Prediction]) -> dict[str, ConventionFit]:
    """Returns how well the same answers fit the true boxes in each convention.

    Attributes without a box are left out. A convention in pixels after the processor is left
    out too, unless the question was asked in it or the backend reported the size for every answer (the last entry of
    ``image_sizes`` in its details).
    """
    by_sample = [fits for sample, prediction in zip(samples, predictions, strict=True) if (fits := _fits(sample, prediction))]
    known = [name for name in CONVENTIONS if by_sample and all(name in fits for fits in by_sample)]
    return {name: ConventionFit(tuple(fits[name] for fits in by_sample)) for name in known}


def better_convention(model: str, declared: str, samples: Sequence[Sample], predictions: Sequence[Prediction]) -> str | None:
    """Returns a sentence if a model's boxes fit another convention clearly better than the declared one; else None.

    Clearly better means: a mean overlap of at least ``LEAST_FIT`` that is higher by at least ``LEAST_GAIN``, a higher overlap for
    more than half of the samples, and so often higher rather than lower that chance would do it with a probability of at most
    ``ERROR_RATE`` (one-sided exact sign test over samples, Bonferroni over the other conventions). This takes at least ten
    samples. The best of several conventions is named. The declared one is empty for none, which is ``pixels``. Give questions
    about unperturbed images, of one task, so that they do not depend on one another, and the answers in the same order.
    """
    spoken = declared or PIXELS
    if spoken not in CONVENTIONS:
        raise UnknownName("box convention", declared, CONVENTIONS)
    fits = convention_fits(samples, predictions)
    declared_fit = fits.get(spoken)
    others = {
        name: fit
        for name, fit in fits.items()
        if declared_fit and name != spoken and _clearly_better(fit, declared_fit, len(fits) - 1)
    }
    if not declared_fit or not others:
        return None
    best = max(others, key=lambda name: others[name].mean)
    used = f"the declared {spoken!r}" if declared else f"{spoken!r}, which is taken where none is declared"
    return (
        f"boxes of {model} fit {best!r} better (mean IoU {others[best].mean:.2f}) than {used} ({declared_fit.mean:.2f}) on "
        f"{len(declared_fit.overlaps)} unperturbed samples: set box_convention in the models file"
    )


def _fits(sample: Sample, prediction: Prediction) -> Mapping[str, float]:
    """Returns the mean overlap of the given boxes by convention; empty without a box."""
    truth = localisation(sample)
    extraction = extract_boxes(prediction.text, truth.boxes)
    given = sum(box is not None for box in (extraction.boxes or {}).values())
    if prediction.finish_reason == "error" or not given:
        return {}
    readings = {name: in_pixels(extraction, truth, space) for name, space in _spaces(truth, prediction)}
    return {name: mean_overlap(boxes, truth) * len(boxes) / given for name, boxes in readings.items() if boxes}


def _spaces(truth: Localisation, prediction: Prediction) -> Iterator[tuple[str, BoxSpace]]:
    """Yields the possible conventions; for the question's own convention, the space in the question."""
    space, seen = truth.spoken, _size_after_processor(prediction)
    for name in CONVENTIONS:
        if name == space.name:
            yield name, space
        elif seen or not name.startswith(RESIZED_PIXELS):
            yield name, box_space(name, truth.size, seen)


def _size_after_processor(prediction: Prediction) -> tuple[int, int] | None:
    """Returns width and height after the processor of the last image, which the question is about."""
    last = _SIZE.fullmatch(str(prediction.details.get("image_sizes", "")).rpartition(",")[2])
    return (int(last[1]), int(last[2])) if last else None


def _clearly_better(fit: ConventionFit, declared_fit: ConventionFit, comparisons: int) -> bool:
    gains = [other - mine for other, mine in zip(fit.overlaps, declared_fit.overlaps, strict=True)]
    wins, losses = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    often = 2 * wins > len(gains) and _sign_test(wins, losses) * comparisons <= ERROR_RATE
    return often and fit.mean >= LEAST_FIT and fit.mean - declared_fit.mean >= LEAST_GAIN


def _sign_test(wins: int, losses: int) -> float:
    """Returns the probability of as many wins or more when both are equally likely."""
    trials = wins + losses
    return float(sum(math.comb(trials, count) for count in range(wins, trials + 1)) / 2**trials)
