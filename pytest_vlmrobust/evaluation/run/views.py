"""Views: from a sample and a setting to the pixels that are sent, with a recipe that tells which pixels these are."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import BASELINES, CLEAN, NO_IMAGE, PROBES, Setting
from pytest_vlmrobust.core.errors import ImageError
from pytest_vlmrobust.core.fingerprint import canonical_json, derive_seed, fingerprint, fingerprints_after, pixels_digest
from pytest_vlmrobust.core.sample import ImageSource, PictureDigests, Sample
from pytest_vlmrobust.datasets.images import FileImage
from pytest_vlmrobust.evaluation.tasks.pictures import Collage, parts_of
from pytest_vlmrobust.perturbations.catalog import BUILT_IN
from pytest_vlmrobust.perturbations.pixels import Painted
from pytest_vlmrobust.perturbations.questions import perturbed, split
from pytest_vlmrobust.perturbations.registry import REGISTRY
from pytest_vlmrobust.store import Pictures, Store
from pytest_vlmrobust.store.run_directory import file_name

from .probes import shown_setting

T = TypeVar("T")
KnownDigests: TypeAlias = Callable[[Iterable[str]], Mapping[str, Sequence[str]]]
"""Maps recipes to the digests of the pixels that they gave before; new recipes are missing."""

_RUNG = "resolution"
"""The setting that shows images at a long edge in pixels."""
_LOOK_SECONDS = 1.0
"""How long an image file counts as unchanged: to check it for each setting costs more than the rest of a recipe."""
_MOST_QUESTIONS = 20_000
"""Changed questions that are kept, as a run asks for each several times; each takes about a kilobyte."""
_Look: TypeAlias = tuple[bool, str, tuple[str, ...]]
"""The start of a view: whether its images were made for its rung, their seeds, and the images."""
_SOURCE_BYTES = 24 * 2**20
"""Source images that are kept for further settings: about 27 of 640 x 480, and all that a task of the embedded ones shows."""


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """The pixels of one sample under one setting, and their digests.

    Of a setting that makes several views of an image (``patches:3``), view after view, in each all images of the sample.
    """

    images: tuple[NDArray[np.uint8], ...]
    digests: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What the setting could not do to these images."""
    bytes: int = 0
    """How much memory the images take, as they are shown or as they were, whichever is more."""


@cache
def code_digest() -> str:
    """Returns the SHA-256 of the code and libraries that turn a source image into a view.

    A recipe remembers which pixels it gave; it may do so only as long as nothing that makes pixels has changed.
    """
    digest = hashlib.sha256()
    for path in sorted(Path(perturbations.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    for package in ("numpy", "opencv-python", "opencv-python-headless", "pillow"):
        digest.update(f"{package} {_installed(package)}\n".encode())
    return digest.hexdigest()


def _installed(package: str) -> str:
    try:
        return version(package)
    except ModuleNotFoundError:
        return ""


class ViewMaker:
    """Makes views; safe to use from several threads."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._sources: OrderedDict[str, NDArray[np.uint8]] = OrderedDict()
        self._held = 0
        self._lock = Lock()
        self._looks: dict[tuple[int | None, ...], tuple[float, tuple[Sample, ...], list[_Look]]] = {}
        """The starts of views a moment ago: the time, the samples and the starts."""
        self._first: dict[Path, str] = {}
        """The identity of each image file when the run first looked at it."""
        self._questions: dict[tuple[int, Setting], tuple[Sample, Sample]] = {}
        """Samples whose question a setting changes, before and after."""

    def question(self, sample: Sample, setting: Setting) -> Sample:
        """Returns what is asked about a sample of the dataset: the steps of a setting that change a question are done.

        The other methods take what this returns, and do the steps that change pixels.
        """
        key = id(sample), setting  # an id stays the sample's as long as it is kept beside it
        if (kept := self._questions.get(key)) is None:
            if not split(setting)[0]:
                return sample
            if len(self._questions) >= _MOST_QUESTIONS:
                self._questions.clear()
            kept = sample, perturbed(sample, setting, seed=derive_seed(self._seed, sample.seeded_by or sample.id))
            self._questions[key] = kept
        return kept[1]

    def recipe(self, sample: Sample, setting: Setting) -> str:
        """Returns the fingerprint of everything the view is a function of; cheaper than the view."""
        return self.recipes([sample], setting)[0]

    def recipes(self, samples: Sequence[Sample], setting: Setting) -> list[str]:
        """Returns the recipe of the view of each sample: what all have in common is looked up and spelled once."""
        if setting == NO_IMAGE:
            return ["no image"] * len(samples)
        code, shown = canonical_json(code_digest()), _of_pixels(setting)
        recipe = [fingerprints_after(code, canonical_json(perturbations.fingerprint(left))) for left in _left(shown)]
        is_drawn = [depends_on_seed(left) for left in _left(shown)]
        return [recipe[made](seed if is_drawn[made] else "0", *sources) for made, seed, sources in self._look(samples, shown)]

    def _look(self, samples: Sequence[Sample], setting: Setting) -> list[_Look]:
        """Returns what the views of samples begin with; asked for the same samples again and again, it looks once a second."""
        if len(samples) == 1:
            return self._looked(samples, setting)
        key, now = (_rung(setting), *map(id, samples)), time.monotonic()  # an id stays theirs as long as they are kept beside it
        if key not in self._looks or now - self._looks[key][0] > _LOOK_SECONDS:
            fresh = {key: look for key, look in self._looks.items() if now - look[0] <= _LOOK_SECONDS}
            self._looks = fresh | {key: (now, tuple(samples), self._looked(samples, setting))}
        return self._looks[key][2]

    def _looked(self, samples: Sequence[Sample], setting: Setting) -> list[_Look]:
        looks = []
        for sample in samples:
            made = _made(sample, setting)
            shown = sample.images if made is None else made
            seed = ",".join(map(str, self._seeds(sample, len(shown)).values()))
            sources = canonical_json([self._identity(source) for source in shown])
            chosen = () if sample.perturbed is None else (canonical_json(list(sample.perturbed)),)
            looks.append((made is not None, seed, (sources, *chosen)))
        return looks

    def _seeds(self, sample: Sample, count: int) -> dict[int, int]:
        """Returns the seed of each image that a setting changes, of ``count``: the first has that of the sample."""
        chosen = range(count) if sample.perturbed is None else sample.perturbed
        key = sample.seeded_by or sample.id
        return {index: derive_seed(self._seed, key, *([str(place)] if place else [])) for place, index in enumerate(chosen)}

    def view(self, sample: Sample, setting: Setting) -> View:
        """Returns the pixels of ``sample`` under ``setting``; no pixels at all under ``no_image``."""
        if setting == NO_IMAGE:
            return View((), ())
        setting = _of_pixels(setting)
        made = _made(sample, setting)
        shown, setting = sample.images if made is None else made, _left(setting)[made is not None]
        sources = tuple(self._source(source) for source in shown)
        size = sum(image.nbytes for image in sources)
        if setting == CLEAN:
            return View(sources, tuple(pixels_digest(image) for image in sources), bytes=size)
        perturb = perturbations.get(str(setting))
        rendered = {}
        for index, seed in self._seeds(sample, len(sources)).items():
            try:
                rendered[index] = perturb.render(sources[index], seed=seed)
            except ImageError as error:
                where = getattr(shown[index], "where", "")  # file and row, of an image that comes from a file
                raise ImageError(f"{f'{where}: ' if where else ''}sample {sample.id!r}: {error}") from error
        count = view_count(setting)
        images = tuple(
            source if index not in rendered else rendered[index].image if count == 1 else rendered[index].image[view]
            for view in range(count)
            for index, source in enumerate(sources)
        )
        return View(
            images=images,
            digests=tuple(pixels_digest(image) for image in images),
            notes=tuple(dict.fromkeys(note for view in rendered.values() for note in view.notes)),
            bytes=max(size, sum(image.nbytes for image in images)),
        )

    def picture_digests(self, samples: Sequence[Sample], known: KnownDigests) -> dict[str, PictureDigests]:
        """Returns what tells the images of samples from others, by sample id; no image is read for it."""
        recipes = self.recipes(samples, CLEAN)
        pixels = known(set(recipes))
        return {
            sample.id: PictureDigests(fingerprint([image.identity() for image in sample.images]), fingerprint(list(shown)))
            for sample, recipe in zip(samples, recipes, strict=True)
            if (shown := pixels.get(recipe))
        }

    def forget(self) -> None:
        """Frees the source images; the next caller that needs an image reads it again."""
        with self._lock:
            self._sources.clear()
            self._held = 0

    def _identity(self, source: ImageSource) -> str:
        """Returns what tells an image from others."""
        for part in (source.image,) if isinstance(source, Painted) else parts_of(source):
            self._identity(part)
        name = source.identity()
        if isinstance(source, FileImage) and self._first.setdefault(source.path, name) != name:
            raise ImageError(f"{source.where}: {source.path} was changed while the run was reading it. Start the run again")
        return name

    def _source(self, source: ImageSource) -> NDArray[np.uint8]:
        """Returns the source image, kept for the other settings as long as memory allows; of a collage, what stands in it."""
        if isinstance(source, Collage):
            whole = source.joined([self._source(cell) for cell in source.cells])
            whole.flags.writeable = False
            return whole
        if isinstance(source, Painted):
            return source.painted(self._source(source.image))
        name = self._identity(source)
        with self._lock:
            if name in self._sources:
                self._sources.move_to_end(name)
                return self._sources[name]
        image = source.load()
        self._identity(source)  # what was loaded is what was looked at
        image.flags.writeable = False
        with self._lock:
            if name not in self._sources:
                self._sources[name] = image
                self._held += image.nbytes
            while self._held > _SOURCE_BYTES and len(self._sources) > 1:
                self._held -= self._sources.popitem(last=False)[1].nbytes
        return image


# Rungs: where somebody made the images of a rung beforehand, its step is done; whatever else a setting does begins with these.


def _of_pixels(setting: Setting) -> Setting:
    """Returns the steps of a setting that change pixels; its other steps are in the sample already."""
    return split(shown_setting(setting))[1]


def _rung(setting: Setting) -> int | None:
    """Returns the long edge in pixels at which a setting begins; ``None`` where it begins with the image as it is."""
    first = setting.steps[0]
    return int(first.level) if first.name == _RUNG and first.level and first.level.isdecimal() else None


def _made(sample: Sample, setting: Setting) -> tuple[ImageSource, ...] | None:
    """Returns the images of the rung that a setting begins with, where somebody made them."""
    rung = _rung(setting)
    return None if rung is None else sample.sizes.get(rung)


def _left(setting: Setting) -> tuple[Setting, Setting]:
    """Returns the remaining setting: for images as they are, and for images made for its rung."""
    rest = setting if _rung(setting) is None else Setting(setting.steps[1:]) if setting.steps[1:] else CLEAN
    return setting, rest


def view_count(setting: Setting) -> int:
    """Returns how many times a sample is asked about under a setting: n * n under ``patches:n``, else once."""
    return 1 if setting in (CLEAN, NO_IMAGE, *PROBES) else perturbations.info(setting).views


def of_view(things: tuple[T, ...], view: int, count: int) -> tuple[T, ...]:
    """Returns the part that belongs to one of ``count`` views: images, or their digests."""
    size = len(things) // count
    return things[view * size : (view + 1) * size]


def declared_perturbations() -> dict[str, str]:
    """Returns, for each loaded perturbation that is not built in, what tells its levels and version from others."""
    return {
        name: fingerprint({"version": thing.version, "levels": {str(level): dict(of) for level, of in thing.levels.items()}})
        for name, thing in REGISTRY.loaded_things().items()
        if name not in BUILT_IN
    }


def depends_on_seed(setting: Setting) -> bool:
    """Whether the images of a setting are drawn by chance, so that another seed makes others."""
    return setting not in BASELINES and bool(perturbations.info(str(setting)).stochastic)


# Album: thumbnails of the views of single samples, made again only where there is none yet.


@dataclass(frozen=True, slots=True, eq=False)
class Album:
    """Finds and makes thumbnails; without ``pictures`` there are none, and with ``read_only`` no new ones."""

    views: ViewMaker
    store: Store
    pictures: Pictures | None = None
    read_only: bool = False

    def files(self, sample: Sample, setting: Setting) -> tuple[str, ...]:
        """Returns the file of each image of a view, view after view as in ``View``; empty names where there is no thumbnail.

        Nothing at all where the view has no images, or what they were is not known and may not be found out.
        """
        if self.pictures is None:
            return ()
        recipe = self.views.recipe(sample, setting)
        digests = self.store.get_digests([recipe]).get(recipe, ())
        missing = not digests or not all(map(self.pictures.has, digests))
        if missing and not self.read_only:
            digests = self._made(self.pictures, sample, setting)
        return tuple(file_name(digest) if self.pictures.has(digest) else "" for digest in digests)

    def _made(self, pictures: Pictures, sample: Sample, setting: Setting) -> tuple[str, ...]:
        view = self.views.view(sample, setting)
        for digest, image in zip(view.digests, view.images, strict=True):
            pictures.add(digest, image)
        return view.digests
