"""Spaces: the coordinates in which one model is told boxes and answers with them."""

from __future__ import annotations

import dataclasses

from pytest_vlmrobust.backends.protocol import Backend
from pytest_vlmrobust.core.boxes import RESIZED_PIXELS, box_space
from pytest_vlmrobust.core.sample import Sample


def in_space_of(sample: Sample, convention: str, backend: Backend) -> Sample:
    """Returns a sample that asks for boxes with the space of a model's convention; any other one as it is.

    What its processor makes of a picture is asked of the backend only where the convention depends on it.
    """
    about = sample.localisation
    if about is None:
        return sample
    seen = _seen(backend, about.size) if convention.startswith(RESIZED_PIXELS) else None
    return dataclasses.replace(sample, localisation=dataclasses.replace(about, space=box_space(convention, about.size, seen)))


def _seen(backend: Backend, size: tuple[int, int]) -> tuple[int, int] | None:
    ask = getattr(backend, "seen_size", None)  # a backend without a processor of its own has none
    found: tuple[int, int] | None = ask(*size) if callable(ask) else None
    return found
