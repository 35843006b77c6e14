"""Probes: a few questions that are asked once more in another way, because no score tells what their answers do.

``exchanged`` shows a question with the images of another one, at the sizes of its own: a model that looks has other answers
then, and one that is told no more than how large its images are has not. ``again`` asks a
question with nothing beside it in its batch: an answer that depends on its neighbours is another one then. Answers to probes are
kept in the store and in the evidence as all others are; no test is about them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.cell import CLEAN, EXCHANGED, PROBES, Setting
from pytest_vlmrobust.core.sample import ImageSource, Sample

T = TypeVar("T")

FEWEST = 10
"""Answers below which nothing is said of a model: a few equal ones are chance."""
PROBED = 12
"""Questions of a dataset that are asked once more: some may fail."""
_TRIED = 4 * PROBED


def shown_setting(setting: Setting) -> Setting:
    """Returns what is done to the images: nothing where the question is a probe."""
    return CLEAN if setting in PROBES else setting


def probed_places(setting: Setting, samples: Sequence[Sample]) -> list[int]:
    """Returns the places of the samples that a probe asks about, spread over the dataset; none where they are too few.

    They follow from the questions and their right answers, so that a verification finds the same ones.
    """
    if setting == EXCHANGED:
        whose = exchanges(samples)
        found = [place for place, sample in enumerate(samples) if sample.id in whose]
    else:
        found = _spread([place for place, sample in enumerate(samples) if sample.images], PROBED)
    return found if len(found) >= FEWEST else []


def exchanges(samples: Sequence[Sample]) -> dict[str, Sample]:
    """Returns, by id, the samples whose images are exchanged, each with the one whose images it is shown.

    That is the next one with as many images, from another source, and with another right answer: two questions with one answer
    may have it whichever image is shown.
    """
    pictured = [place for place, sample in enumerate(samples) if sample.images and sample.localisation is None]
    if len({str(samples[place].target) for place in pictured}) < 2 or len(pictured) < FEWEST:
        return {}
    found: dict[str, Sample] = {}
    for place in _spread(pictured, _TRIED):
        sample = samples[place]
        others = (samples[other] for other in chain(range(place + 1, len(samples)), range(place)))
        other = next((other for other in others if _is_another(sample, other)), None)
        if other is not None:
            found[sample.id] = other
    kept = _spread([*found], PROBED)
    return {name: found[name] for name in kept}


@dataclass(frozen=True, slots=True)
class Resized:
    """An image at the size of another one."""

    picture: ImageSource
    like: ImageSource

    def load(self) -> NDArray[np.uint8]:
        """Returns its pixels, unchanged where both have one size."""
        from PIL import Image

        pixels, (height, width, _) = self.picture.load(), self.like.load().shape
        if pixels.shape[:2] == (height, width):
            return pixels
        return np.array(Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC))

    def identity(self) -> str:
        """Returns what changes whenever one of the two can have changed."""
        return f"{self.picture.identity()} at the size of {self.like.identity()}"


def with_pictures_of(sample: Sample, other: Sample) -> Sample:
    """Returns a sample with the images of another one that has as many, each at the size of its own."""
    return replace(sample, images=tuple(map(Resized, other.images, sample.images)))


def _is_another(sample: Sample, other: Sample) -> bool:
    apart = sample.source_image != other.source_image
    return apart and len(sample.images) == len(other.images) and sample.target != other.target


def _spread(things: Iterable[T], most: int) -> list[T]:
    """Returns at most so many of these, evenly spaced."""
    every = list(things)
    return [every[number * len(every) // most] for number in range(most)] if len(every) > most else every
