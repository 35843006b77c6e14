"""Sample: one question about one or more images."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from .boxes import Localisation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@runtime_checkable
class ImageSource(Protocol):
    """The source of a sample's pixels, decoded on demand."""

    def load(self) -> NDArray[np.uint8]:
        """Returns RGB pixels, uint8, shape (H, W, 3)."""
        ...

    def identity(self) -> str:
        """Returns a string that changes whenever the pixels can have changed, cheaper to have than the pixels."""
        ...


@dataclass(frozen=True, slots=True)
class PictureDigests:
    """The identity of a sample's images: SHA-256 digests over all of them in order."""

    sources: str
    """Of their identities: of an image in a file, of its bytes and the decoder's version."""
    pixels: str
    """Digest of the clean pixels."""

    def same_as(self, other: PictureDigests) -> bool:
        """Whether both are of the same images.

        One equal digest is enough: an image that was moved or repacked keeps its pixels, and an image that another release of a
        decoder reads slightly differently keeps its source.
        """
        return self.sources == other.sources or self.pixels == other.pixels


IMAGE_MARK = "\ufffc"
"""Unicode's object replacement character marks the position of the next image in a prompt; without marks, images come first."""


UNDECLARED = "undeclared"
"""The scorer of an open question without task or scorer in its data. A run is refused, since any scorer gives some number."""


TEXT_HEIGHTS = (12, 18, 24, 36)
"""Letter heights in pixels (capitals, else "x") for which it is known which settings keep them legible."""
USUAL_TEXT_HEIGHT = 24
"""The assumed height of text without a given height."""


def text_of_height(height: float) -> str:
    """Returns the kind of change for a question about words of this letter height: ``text_18`` from 18 pixels on.

    Letters below all ``TEXT_HEIGHTS`` count as the smallest.
    """
    return f"text_{max((each for each in TEXT_HEIGHTS if each <= height), default=TEXT_HEIGHTS[0])}"


META = "meta."
"""Prefix of metadata columns in files and policies: ``meta.camera``."""
MISSING = "(missing)"
"""The value of a metadata column in rows without it."""


def slice_name(column: str, value: str) -> str:
    """Returns the stratum of samples with this value in a metadata column: ``meta.camera=night``."""
    return f"{META}{column}={value}"


def is_slice(stratum: str) -> bool:
    """Whether a stratum is a slice by metadata, and not a category."""
    return stratum.startswith(META) and "=" in stratum


def kind_of_stratum(stratum: str) -> str:
    """Returns the column of a slice, such as ``meta.camera``; empty for a category."""
    return stratum.partition("=")[0] if is_slice(stratum) else ""


def strata_by_kind(samples: Iterable[Sample]) -> dict[str, list[str]]:
    """Returns the categories under ``""`` and the slices of each metadata column under its name, sorted."""
    strata: defaultdict[str, set[str]] = defaultdict(set)
    for sample in samples:
        for stratum in sample.strata:
            strata[kind_of_stratum(stratum)].add(stratum)
    return {kind: sorted(strata[kind]) for kind in sorted(strata)}


@dataclass(frozen=True, slots=True)
class Sample:
    """One question with its image(s), options and target.

    ``task`` is the kind of the expected answer: ``"choice"`` (letters of ``options``), ``"yes_no"``, ``"open"`` or ``"boxes"``.
    ``target`` is the correct letter, ``"yes"``/``"no"``, or one of several accepted answers; boxes are in ``localisation``.
    ``question`` and ``options`` may contain ``IMAGE_MARK`` where an image belongs.
    """

    __pydantic_config__: ClassVar = {"arbitrary_types_allowed": True}  # sources of images, which no file holds

    id: str
    """Unique in its dataset."""
    images: tuple[ImageSource, ...]
    question: str
    target: str | tuple[str, ...]
    task: str
    options: Mapping[str, str] = field(default_factory=dict)
    """Letter to text, in the order shown."""
    category: str = ""
    """Stratum for sampling and for per-category reports."""
    group: str = ""
    """Its source image: samples of a group are resampled together."""
    hint: str = ""
    changed_by: frozenset[str] = frozenset()
    """What changes the right answer or removes its basis: kinds of change (``left_right``, ``up_down``, ``colour``,
    ``count``, ``text_18`` ...), or perturbations or settings by name (``flip_h``, ``hue_shift:high``)."""
    scorer: str = ""
    """The scorer that compares the answer with the target; empty for the scorer of the task, or ``UNDECLARED``."""
    instruction: str = ""
    """How to answer, said after the question; empty for the prompt's own words."""
    layout: str = ""
    """The layout of the prompt, with ``{question}``, ``{options}`` and ``{instruction}``; empty for the default layout."""
    option_format: str = ""
    """How each option is written, with ``{letter}`` and ``{text}``; empty for ``A. text``."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys that corpus metrics group by: ``{"figure": "VD_3_1", "question": "VD_3_0"}``."""
    meta: Mapping[str, str] = field(default_factory=dict)
    """Metadata by column, such as ``{"camera": "night"}``: each value is a slice for rules and reports."""
    target_of_attack: str = ""
    """The wrong answer that an attack or a prior suggests, written like ``target``; empty if none."""
    original_letters: Mapping[str, str] = field(default_factory=dict)
    """Each letter's original letter, if a setting moved the options; empty otherwise."""

    perturbed: tuple[int, ...] | None = None
    """Which of the images a setting changes, by index; ``None`` for all. A support image, for example, is never changed.

    Each image has its own draw. The first image listed here has the same draw in all samples with this ``seeded_by``.
    """
    seeded_by: str = ""
    """The seed key of its perturbations, so that samples about the same image see the same variant; the id
    by default."""
    sizes: Mapping[int, tuple[ImageSource, ...]] = field(default_factory=dict)
    """Its images at other sizes from the data, by long edge in pixels: ``resolution:448`` shows those of 448."""
    localisation: Localisation | None = None
    """The boxes of a localisation sample."""

    @property
    def source_image(self) -> str:
        """Its source image: samples of the same image are not independent."""
        return self.group or self.id

    @property
    def strata(self) -> tuple[str, ...]:
        """Its category, if any, and its slices by metadata."""
        slices = (slice_name(column, value) for column, value in self.meta.items())
        return (*([self.category] if self.category else []), *slices)

    @property
    def targets(self) -> tuple[str, ...]:
        """The accepted answers: one, or several."""
        return (self.target,) if isinstance(self.target, str) else self.target

    @property
    def question_key(self) -> tuple[Any, ...]:
        """The identity of the question, independent of the names of images: JSON-safe."""
        boxes = None if self.localisation is None else sorted(self.localisation.boxes.items())
        return self.question, tuple(self.options.items()), self.target, len(self.images), boxes

    @property
    def chance(self) -> float:
        """Expected score of a uniform guess, in [0, 1]; 0 for open questions."""
        if self.task == "choice":
            return len(self.targets) / len(self.options)
        return 0.5 if self.task == "yes_no" else 0.0
