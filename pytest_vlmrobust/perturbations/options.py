"""Option order: the same options under other letters."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from itertools import accumulate, pairwise

from pytest_vlmrobust.core.sample import IMAGE_MARK, ImageSource, Sample

from .registry import Numbered, corruption

OF_OTHER_OPTIONS = re.compile(
    r"\b(?:all|any|none|both|either|neither|some|one|two|three) of (?:the|these|those|them)\b|\bthe above\b"
    r"|\b(?:above|previous|preceding|other) (?:options?|answers?|choices?)\b|(?-i:\b[A-Z]\b,? *(?:and|or|nor|&) *\b[A-Z]\b)",
    re.IGNORECASE,
)
"""Options that speak of other options: "All of the above", "Both A and B"."""


@corruption(
    family="options",
    on="question",
    levels={str(shift): {"shift": shift} for shift in (1, 2, 3)},
    numbered=Numbered("shift", 1, 25, "places"),
    source="VLMEvalKit CircularEval (MMBench, Liu et al. 2024)",
    version=2,
)
def option_order(sample: Sample, *, shift: int) -> Sample:
    """Moves each option of a choice up by ``shift`` places under the same letters; the first ones go to the end.

    Images that stand in options move with them. A question with n options has n - 1 such orders beside its own.
    At ``n`` and more, without options, where an option speaks of others ("both A and B"), and where a wrong option is equal to
    a right one, it stays as it is.
    """
    letters, texts = list(sample.options), list(sample.options.values())
    if sample.task != "choice" or shift >= len(letters) or any(map(OF_OTHER_OPTIONS.search, texts)):
        return sample
    looks = shown(sample)
    right = [look for letter, look in zip(letters, looks, strict=True) if letter in sample.targets]
    if sum(look in right for look in looks) > len({*sample.targets}):
        return sample
    moved = {old: letters[(place - shift) % len(letters)] for place, old in enumerate(letters)}
    order = [*range(shift, len(letters)), *range(shift)]
    return dataclasses.replace(
        _with_images(sample, order),
        options=dict(zip(letters, [texts[place] for place in order], strict=True)),
        target=moved[sample.target] if isinstance(sample.target, str) else tuple(moved[letter] for letter in sample.target),
        target_of_attack=moved.get(sample.target_of_attack, ""),
    )


def _with_images(sample: Sample, order: Sequence[int]) -> Sample:
    """Returns a sample whose images follow their options: where marks in the text say, each stands in one."""
    counts = [text.count(IMAGE_MARK) for text in (sample.question, *sample.options.values())]
    if sum(counts) != len(sample.images) or not sum(counts[1:]):
        return sample
    ends = [*accumulate(counts)]
    moved = [*range(ends[0]), *(place for option in order for place in range(ends[option], ends[option + 1]))]
    return dataclasses.replace(
        sample,
        images=tuple(sample.images[place] for place in moved),
        sizes={edge: tuple(images[place] for place in moved) for edge, images in sample.sizes.items()},
        perturbed=None if sample.perturbed is None else tuple(moved.index(place) for place in sample.perturbed),
    )


def shown(sample: Sample) -> list[tuple[str, tuple[ImageSource, ...]]]:
    """Returns the text of each option with its images."""
    counts = [text.count(IMAGE_MARK) for text in (sample.question, *sample.options.values())]
    ends = [*accumulate(counts)] if sum(counts) == len(sample.images) else [0] * len(counts)
    return [(text, sample.images[start:end]) for text, (start, end) in zip(sample.options.values(), pairwise(ends), strict=True)]
