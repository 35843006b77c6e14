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
    """Where the pixels of a sample come from; decoded only when asked for."""

    def load(self) -> NDArray[np.uint8]:
        """Returns RGB pixels, uint8, shape (H, W, 3)."""
        ...

    def identity(self) -> str:
        """Returns a string that changes whenever the pixels can have changed, cheaper to have than the pixels."""
        ...


@dataclass(frozen=True, slots=True)
class PictureDigests:
    """What tells the images of a sample from others; SHA-256, in hex, over all of them in their order."""

    sources: str
    """Of their identities: of an image in a file, of its bytes and the decoder's version."""
    pixels: str
    """Of the pixels that were shown without any setting."""

    def same_as(self, other: PictureDigests) -> bool:
        """Whether both are about the same images.

        One digest is enough: an image that was moved or packed otherwise keeps its pixels, and one that another release of a
        decoder reads a shade differently keeps its source.
        """
        return self.sources == other.sources or self.pixels == other.pixels


IMAGE_MARK = "\ufffc"
"""Unicode's object replacement character: where it stands in a prompt, the next image is shown; without any, they come first."""


UNDECLARED = "undeclared"
"""The scorer of an open question whose data say neither task nor scorer: a run is refused, since any scorer gives some number."""


TEXT_HEIGHTS = (12, 18, 24, 36)
"""Heights of letters in pixels, of capitals or else of the "x", for which it is known which settings leave them legible."""
USUAL_TEXT_HEIGHT = 24
"""The one that is assumed of text where nobody says its height."""


def text_of_height(height: float) -> str:
    """Returns what a question about words in letters so many pixels high is ``changed_by``: ``text_18`` from 18 pixels on.

    Letters that are smaller than all of ``TEXT_HEIGHTS`` are taken for the smallest.
    """
    return f"text_{max((each for each in TEXT_HEIGHTS if each <= height), default=TEXT_HEIGHTS[0])}"


META = "meta."
"""What names of metadata columns begin with in files and in policies: ``meta.camera``."""
MISSING = "(missing)"
"""The value of a metadata column in rows that do not give it."""


def slice_name(column: str, value: str) -> str:
    """Returns the stratum of samples with this value in a metadata column: ``meta.camera=night``."""
    return f"{META}{column}={value}"


def is_slice(stratum: str) -> bool:
    """Whether a stratum is a slice by metadata, and not a category."""
    return stratum.startswith(META) and "=" in stratum


def kind_of_stratum(stratum: str) -> str:
    """Returns which column a slice is of, such as ``meta.camera``; an empty string for a category."""
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

    ``task`` is the kind of answer expected: ``"choice"`` (letters of ``options``), ``"yes_no"``, ``"open"`` or ``"boxes"``.
    ``target`` is the correct letter, ``"yes"``/``"no"``, or one of several accepted answers; boxes stand in ``localisation``.
    ``question`` and ``options`` may say by ``IMAGE_MARK`` where an image belongs.
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
    """Its source image: samples of one group are resampled together."""
    hint: str = ""
    changed_by: frozenset[str] = frozenset()
    """What makes another answer right, or takes away what it rests on: kinds of change (``left_right``, ``up_down``, ``colour``,
    ``count``, ``text_18`` ...), or perturbations or settings by name (``flip_h``, ``hue_shift:high``)."""
    scorer: str = ""
    """The scorer that compares the answer with the target; empty for the scorer of the task, or ``UNDECLARED``."""
    instruction: str = ""
    """How to answer, said after the question; empty for the prompt's own words."""
    layout: str = ""
    """How the prompt is put together, with ``{question}``, ``{options}`` and ``{instruction}``; empty for the usual layout."""
    option_format: str = ""
    """How each option is written, with ``{letter}`` and ``{text}``; empty for ``A. text``."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """What metrics of a whole dataset group by: ``{"figure": "VD_3_1", "question": "VD_3_0"}``."""
    meta: Mapping[str, str] = field(default_factory=dict)
    """Metadata by column, such as ``{"camera": "night"}``: each value is a slice that rules and reports can be about."""
    target_of_attack: str = ""
    """The wrong answer that an attack or a prior wants, written like ``target``; empty where there is none."""
    original_letters: Mapping[str, str] = field(default_factory=dict)
    """Letter to the one that its option has in the data, where a setting moved the options; empty where none moved."""

    perturbed: tuple[int, ...] | None = None
    """Which of the images a setting changes, by index; ``None`` for all. A support image, for example, is never changed.

    Each image has a draw of its own. The image that stands first here has the same draw in all samples with this ``seeded_by``.
    """
    seeded_by: str = ""
    """What the randomness of its perturbations derives from, so that samples about one image see one variant of it; the id
    where nothing is said."""
    sizes: Mapping[int, tuple[ImageSource, ...]] = field(default_factory=dict)
    """Its images as somebody made them at other sizes, by long edge in pixels: ``resolution:448`` shows those of 448."""
    localisation: Localisation | None = None
    """Of a sample that asks for boxes: where things are."""

    @property
    def source_image(self) -> str:
        """Its source image: the samples of one are not independent."""
        return self.group or self.id

    @property
    def strata(self) -> tuple[str, ...]:
        """Its category, where it has one, and its slices by metadata."""
        slices = (slice_name(column, value) for column, value in self.meta.items())
        return (*([self.category] if self.category else []), *slices)

    @property
    def asked(self) -> tuple[Any, ...]:
        """What makes two samples the same question, whatever their images are called: JSON-safe."""
        boxes = None if self.localisation is None else sorted(self.localisation.boxes.items())
        return self.question, tuple(self.options.items()), self.target, len(self.images), boxes

    @property
    def chance(self) -> float:
        """Expected score of a uniform guess, in [0, 1]; 0 for open questions."""
        if self.task == "choice":
            return (1 if isinstance(self.target, str) else len(self.target)) / len(self.options)
        return 0.5 if self.task == "yes_no" else 0.0
