"""Boxes that a model gave against the true ones: overlap, what was not given, and which eye is which."""

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
        return grade_unread(found.rule, prediction)
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
    if left is None or right is None or not are_swapped((left, right), (about.boxes[LEFT_EYE], about.boxes[RIGHT_EYE])):
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


# Does a model write its boxes in the coordinates that were declared for it? What it says about unperturbed pictures tells.
#
# Each answer is read in every convention of ``core.boxes``. A model that finds boxes at all overlaps the truth in one of them and
# hardly in the others; noise overlaps little in any.


LEAST_GAIN = 0.1
"""Mean overlap by which another convention has to be better before anybody is told."""
LEAST_FIT = 0.5
"""Mean overlap that another convention has to reach: boxes that fit badly in every convention were written in none of them."""
ERROR_RATE = 0.01
"""Greatest probability of being told for no reason, over all other conventions together."""

_SIZE = re.compile(r"(\d{1,6})x(\d{1,6})")


@dataclasses.dataclass(frozen=True, slots=True)
class ConventionFit:
    """How well boxes fit when they are read in one convention."""

    overlaps: tuple[float, ...]
    """Mean overlap of the boxes given for each sample, in [0, 1]; samples for which none was given are not among them."""

    @property
    def mean(self) -> float:
        """Mean of the overlaps; NaN of none."""
        return math.fsum(self.overlaps) / len(self.overlaps) if self.overlaps else math.nan


def convention_fits(samples: Sequence[Sample], predictions: Sequence[Prediction]) -> dict[str, ConventionFit]:
    """Returns how well the same answers fit the true boxes in each convention.

    What no box was given for says nothing about conventions and is left out. So is a convention in pixels after the processor,
    where the backend did not say these for every answer (``image_sizes`` of its details, of which the last is taken) and the
    sample was not asked in it.

    Raises:
        UsageError: a sample does not say where things are.
        ValueError: samples and predictions differ in length.
    """
    by_sample = [fits for sample, said in zip(samples, predictions, strict=True) if (fits := _fits(sample, said))]
    known = [name for name in CONVENTIONS if by_sample and all(name in fits for fits in by_sample)]
    return {name: ConventionFit(tuple(fits[name] for fits in by_sample)) for name in known}


def better_convention(model: str, declared: str, samples: Sequence[Sample], predictions: Sequence[Prediction]) -> str | None:
    """Says that the boxes of a model fit another convention clearly better than the declared one; None where none does.

    Clearly better is: a mean overlap of at least ``LEAST_FIT`` that is higher by at least ``LEAST_GAIN``, a higher overlap for
    more than half of the samples, and so often higher rather than lower that chance would do it with a probability of at most
    ``ERROR_RATE`` (one-sided exact sign test over samples, Bonferroni over the other conventions). That takes at least ten
    samples. Of several, the best is named.

    Args:
        model: the model's name, for the sentence.
        declared: the convention that is declared for it; empty for none, which is ``pixels``.
        samples: questions about unperturbed pictures, of one task, so that they do not depend on one another.
        predictions: the answers, in the same order.

    Raises:
        UnknownName: the declared convention is none.
        UsageError: a sample does not say where things are.
        ValueError: samples and predictions differ in length.
    """
    spoken = declared or PIXELS
    if spoken not in CONVENTIONS:
        raise UnknownName("box convention", declared, CONVENTIONS)
    fits = convention_fits(samples, predictions)
    own = fits.get(spoken)
    others = {name: fit for name, fit in fits.items() if own and name != spoken and _clearly_better(fit, own, len(fits) - 1)}
    if not own or not others:
        return None
    best = max(others, key=lambda name: others[name].mean)
    used = f"the declared {spoken!r}" if declared else f"{spoken!r}, which is taken where none is declared"
    return (
        f"boxes of {model} fit {best!r} better (mean IoU {others[best].mean:.2f}) than {used} ({own.mean:.2f}) on "
        f"{len(own.overlaps)} unperturbed samples: set box_convention in the models file"
    )


def _fits(sample: Sample, prediction: Prediction) -> Mapping[str, float]:
    """Returns the mean overlap of the boxes that were given, by convention; nothing without a box."""
    about = localisation(sample)
    found = extract_boxes(prediction.text, about.boxes)
    given = sum(box is not None for box in (found.boxes or {}).values())
    if prediction.finish_reason == "error" or not given:
        return {}
    readings = {name: in_pixels(found, about, space) for name, space in _spaces(about, prediction)}
    return {name: mean_overlap(boxes, about) * len(boxes) / given for name, boxes in readings.items() if boxes}


def _spaces(about: Localisation, prediction: Prediction) -> Iterator[tuple[str, BoxSpace]]:
    """Yields the conventions that can be tried; of the one that the sample was asked in, its own space."""
    asked, seen = about.spoken, _seen(prediction)
    for name in CONVENTIONS:
        if name == asked.name:
            yield name, asked
        elif seen or not name.startswith(RESIZED_PIXELS):
            yield name, box_space(name, about.size, seen)


def _seen(prediction: Prediction) -> tuple[int, int] | None:
    """Returns width and height after the processor of the last picture: the one that is asked about."""
    last = _SIZE.fullmatch(str(prediction.details.get("image_sizes", "")).rpartition(",")[2])
    return (int(last[1]), int(last[2])) if last else None


def _clearly_better(fit: ConventionFit, own: ConventionFit, comparisons: int) -> bool:
    gains = [other - mine for other, mine in zip(fit.overlaps, own.overlaps, strict=True)]
    wins, losses = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    often = 2 * wins > len(gains) and _sign_test(wins, losses) * comparisons <= ERROR_RATE
    return often and fit.mean >= LEAST_FIT and fit.mean - own.mean >= LEAST_GAIN


def _sign_test(wins: int, losses: int) -> float:
    """Returns the probability of as many wins or more when both are equally likely."""
    trials = wins + losses
    return float(sum(math.comb(trials, count) for count in range(wins, trials + 1)) / 2**trials)
