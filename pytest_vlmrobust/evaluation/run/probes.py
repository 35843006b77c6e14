"""Probes: a few questions asked again in another way, because scores do not show what they reveal.

``exchanged`` shows a question with the images of another question, at its own sizes: a model that looks then gives other
answers, and a model that only sees image sizes does not. ``again`` sends a
question alone in its batch: an answer that depends on its neighbours then differs. Answers to probes are
in the store and the evidence like all others, but have no test.
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
"""The fewest answers for a conclusion: a few equal answers may be chance."""
PROBED = 12
"""Questions of a dataset that are repeated: some may fail."""
_TRIED = 4 * PROBED


def shown_setting(setting: Setting) -> Setting:
    """Returns the setting for images: clean for a probe."""
    return CLEAN if setting in PROBES else setting


def probed_places(setting: Setting, samples: Sequence[Sample]) -> list[int]:
    """Returns the positions of a probe's samples, spread over the dataset; empty if there are too few.

    They depend only on the questions and targets, so that a verification selects the same samples.
    """
    if setting == EXCHANGED:
        whose = exchanges(samples)
        places = [place for place, sample in enumerate(samples) if sample.id in whose]
    else:
        places = _spread([place for place, sample in enumerate(samples) if sample.images], PROBED)
    return places if len(places) >= FEWEST else []


def exchanges(samples: Sequence[Sample]) -> dict[str, Sample]:
    """Returns, by id, the samples with exchanged images, each with the sample whose images it gets.

    That is the next sample with as many images, another source and another target: questions with the same target
    may have the same answer for both images.
    """
    pictured = [place for place, sample in enumerate(samples) if sample.images and sample.localisation is None]
    if len({str(samples[place].target) for place in pictured}) < 2 or len(pictured) < FEWEST:
        return {}
    partners: dict[str, Sample] = {}
    for place in _spread(pictured, _TRIED):
        sample = samples[place]
        others = (samples[other] for other in chain(range(place + 1, len(samples)), range(place)))
        other = next((other for other in others if _is_another(sample, other)), None)
        if other is not None:
            partners[sample.id] = other
    return {name: partners[name] for name in _spread([*partners], PROBED)}


@dataclass(frozen=True, slots=True)
class Resized:
    """An image at the size of another image."""

    picture: ImageSource
    like: ImageSource

    def load(self) -> NDArray[np.uint8]:
        """Returns its pixels, unchanged if both have the same size."""
        from PIL import Image

        pixels, (height, width, _) = self.picture.load(), self.like.load().shape
        if pixels.shape[:2] == (height, width):
            return pixels
        return np.array(Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC))

    def identity(self) -> str:
        """Returns an identity that changes when either image may have changed."""
        return f"{self.picture.identity()} at the size of {self.like.identity()}"


def with_pictures_of(sample: Sample, other: Sample) -> Sample:
    """Returns a sample with the images of another sample, at its own sizes."""
    return replace(sample, images=tuple(map(Resized, other.images, sample.images)))


def _is_another(sample: Sample, other: Sample) -> bool:
    apart = sample.source_image != other.source_image
    return apart and len(sample.images) == len(other.images) and sample.target != other.target


def _spread(things: Iterable[T], most: int) -> list[T]:
    """Returns at most ``most`` of these, evenly spaced."""
    every = list(things)
    return [every[number * len(every) // most] for number in range(most)] if len(every) > most else every
