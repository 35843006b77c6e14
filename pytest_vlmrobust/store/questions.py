"""Questions: a sample as evidence keeps it, in JSON and without its pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_vlmrobust.core.boxes import BoxSpace, Localisation
from pytest_vlmrobust.core.errors import ImageError, StoreError
from pytest_vlmrobust.core.sample import Sample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_TEXTS = ("id", "question", "task", "category", "group", "hint", "scorer", "instruction", "seeded_by")
"""What of a sample is text."""


@dataclass(frozen=True, slots=True)
class _AbsentImage:
    """Stands where a sample had a picture: evidence holds none."""

    sample: str

    def load(self) -> NDArray[np.uint8]:
        raise ImageError(f"sample {self.sample!r}: the evidence of a run holds no pictures. Read them from the data set")

    def identity(self) -> str:
        raise ImageError(
            f"sample {self.sample!r}: the evidence of a run holds no pictures, so that none can be told from another"
        )


def sample_to_json(sample: Sample) -> str:
    """Returns a sample as JSON: of its pictures how many there are, and no coordinates in which a model speaks of boxes."""
    about = sample.localisation and replace(sample.localisation, space=None)
    bare = asdict(replace(sample, images=(), sizes={}, localisation=about))
    return json.dumps({**bare, "images": len(sample.images), "changed_by": sorted(sample.changed_by)})


def sample_from_json(content: str) -> Sample:
    """Reads what :func:`sample_to_json` wrote; the pictures of the sample cannot be loaded.

    Raises:
        StoreError: it is no sample of this release.
    """
    try:
        return _sample(json.loads(content))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        said = f"{type(error).__name__}: {error}"
        raise StoreError(f"not a sample of this release ({said}). Read it with the release that wrote it") from error


def _sample(data: dict[str, Any]) -> Sample:
    data["images"] = tuple(_AbsentImage(data["id"]) for _ in range(data["images"]))
    data["changed_by"] = frozenset(data["changed_by"])
    data["target"] = data["target"] if isinstance(data["target"], str) else tuple(data["target"])
    data["perturbed"] = None if data["perturbed"] is None else tuple(data["perturbed"])
    data["localisation"] = None if data["localisation"] is None else _localisation(data["localisation"])
    for name in _TEXTS:
        if not isinstance(data.get(name, ""), str):
            raise TypeError(f"{name} is {data[name]!r:.100}, expected text")
    for name in ("options", "keys"):
        if not all(isinstance(value, str) for value in dict(data.get(name, {})).values()):
            raise TypeError(f"{name} is {data[name]!r:.100}, expected texts")
    return Sample(**data)


def _localisation(data: Mapping[str, Any]) -> Localisation:
    boxes, given = ({name: tuple(box) for name, box in data[key].items()} for key in ("boxes", "given"))
    return Localisation(tuple(data["size"]), boxes, given, given_in=data["given_in"])


def in_spaces(samples: Sequence[Sample], spaces: Sequence[Mapping[str, Any] | None]) -> tuple[Sample, ...]:
    """Returns the samples with boxes asked for in the coordinates of a model, one entry a sample, ``None`` for those without."""
    return tuple(
        sample
        if space is None or sample.localisation is None
        else replace(sample, localisation=replace(sample.localisation, space=BoxSpace(**space)))
        for sample, space in zip(samples, spaces, strict=True)
    )
