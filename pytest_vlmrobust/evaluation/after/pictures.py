"""Images of a run: stored ones, or ones made again from their recipe and checked against what the model saw."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from threading import RLock
from typing import Any

from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Setting
from pytest_vlmrobust.core.errors import DatasetError, StoreError, VlmRobustError, did_you_mean, typed_path
from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.datasets.resolve import HUB
from pytest_vlmrobust.evaluation.run.data import SMALL, RunData
from pytest_vlmrobust.evaluation.run.evidence import image_names
from pytest_vlmrobust.evaluation.run.views import View, ViewMaker, view_count
from pytest_vlmrobust.store import Evidence, Pictures, Store, read_manifest
from pytest_vlmrobust.store.database import FILE_NAME
from pytest_vlmrobust.store.run_directory import FOLDER, encode_thumbnail, file_name, store_of

_HELD = 64 * 2**20
"""Bytes of pixels that are cached."""
SAME = "verified: exactly what the model saw"
OTHER = "not what the model saw: the data or the code that makes images changed since"
UNKNOWN = "made again; the run kept nothing that tells whether the model saw the same pixels"


@dataclass(frozen=True, slots=True)
class Shown:
    """The images of a sample under a setting."""

    digests: tuple[str, ...]
    """The SHA-256 of the pixels of each; view after view, in each all images of the sample."""
    views: int
    names: tuple[str, ...]
    """The names of the images of one view; a single empty name if there is only one image."""
    changed: tuple[int, ...]
    """Which images of a view the setting changes, by index."""
    check: str
    """``SAME``, ``OTHER`` or ``UNKNOWN``."""


class RunPictures:
    """The images of one run; safe to use from several threads, with one image made at a time."""

    def __init__(self, run: Path, data: Path | None = None) -> None:
        """Stores the locations; reads nothing until the first request."""
        self.run = run
        self._data_dir = data
        self._lock = RLock()
        self._samples: dict[str, dict[str, Sample] | str] = {}
        self._views: OrderedDict[tuple[str, str, str], View] = OrderedDict()

    def problem(self, dataset: str) -> str:
        """Returns why no image of a dataset can be made again, and what to do; empty if it can."""
        loaded = self._dataset(dataset)
        return loaded if isinstance(loaded, str) else ""

    def shown(self, dataset: str, sample: str, setting: str) -> Shown:
        """Makes the images and returns what they are."""
        with self._lock:
            question, named, view = self._view(dataset, sample, setting)
            names = image_names(question) if len(question.images) > 1 else [""] * len(question.images)
            changed = range(len(names)) if question.perturbed is None or named == CLEAN else question.perturbed
            check = self._check(dataset, question, named, view)
            return Shown(view.digests, view_count(named), tuple(names) if view.digests else (), tuple(changed), check)

    def picture(self, dataset: str, sample: str, setting: str, number: int, *, small: bool = False) -> tuple[bytes, str]:
        """Returns one image as a file, and its media type: PNG in full size, or WebP as a thumbnail."""
        with self._lock:
            if small and (stored := self._stored(dataset, sample, setting, number)):
                return stored, "image/webp"
            _, _, view = self._view(dataset, sample, setting)
            if not 0 <= number < len(view.images):
                raise DatasetError(f"sample {sample!r} of {dataset!r} has no image {number} under {setting}")
            image = view.images[number]
        return (encode_thumbnail(image), "image/webp") if small else (_png(image), "image/png")

    # The sources of the images.

    @cached_property
    def _manifest(self) -> Mapping[str, Any]:
        return read_manifest(self.run)

    @cached_property
    def _maker(self) -> ViewMaker:
        seed = self._settings.get("vlm_seed")
        if not isinstance(seed, int):
            raise StoreError(f"{self.run}: its manifest does not say the seed of its images")
        return ViewMaker(seed)

    @property
    def _settings(self) -> Mapping[str, Any]:
        settings: Mapping[str, Any] = self._manifest.get("settings", {})
        return settings

    @cached_property
    def _pictures(self) -> Pictures:
        return Pictures(self._store / FOLDER)

    @property
    def _store(self) -> Path:
        return store_of(self.run, self._manifest)

    def _view(self, dataset: str, sample: str, setting: str) -> tuple[Sample, Setting, View]:
        samples = self._dataset(dataset)
        if isinstance(samples, str):
            raise DatasetError(samples)
        if sample not in samples:
            raise DatasetError(f"{dataset!r} has no sample {sample!r}.{did_you_mean(sample, samples)}")
        named, key = Setting.parse(setting), (dataset, sample, setting)
        if key not in self._views:
            self._views[key] = self._maker.view(self._maker.question(samples[sample], named), named)
            while len(self._views) > 1 and sum(image.nbytes for view in self._views.values() for image in view.images) > _HELD:
                self._views.popitem(last=False)
        self._views.move_to_end(key)
        return samples[sample], named, self._views[key]

    def _dataset(self, name: str) -> dict[str, Sample] | str:
        """Returns the samples of a dataset by id, or why they are unavailable."""
        with self._lock:
            if name not in self._samples:
                try:
                    self._samples[name] = self._opened(name)
                except VlmRobustError as error:
                    self._samples[name] = str(error)
            return self._samples[name]

    def _opened(self, name: str) -> dict[str, Sample]:
        settings = self._settings
        named = [str(typed) for typed in settings.get("vlm_dataset", ())]
        if any(typed.startswith(HUB) for typed in named):
            os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")  # viewing a run downloads nothing
        given = str(settings.get("vlm_data") or "")
        folder = self._data_dir or (typed_path(given) if given else None)
        data = RunData(named, folder, small=name.partition(".")[0].endswith(SMALL))
        if name not in data.factories:
            raise DatasetError(f"the run does not say where the dataset {name!r} is.{did_you_mean(name, data.factories)}")
        dataset = data.open(name)
        with Evidence.open(self.run, read_only=True) as evidence:
            digest = evidence.datasets().get(name)
        if dataset.digest != digest:
            raise DatasetError(f"the data of {name!r} are not the ones that the run asked about: their digests differ")
        return {sample.id: sample for sample in dataset.samples()}

    # What the model saw.

    def _check(self, dataset: str, sample: Sample, setting: Setting, view: View) -> str:
        if setting == NO_IMAGE:
            return ""
        if digests := self._known(sample, setting):
            return SAME if digests == view.digests else OTHER
        if setting == CLEAN:
            with Evidence.open(self.run, read_only=True) as evidence:
                seen = evidence.pictures(dataset).get(sample.id)
            if seen is not None:
                return SAME if seen.pixels == fingerprint(list(view.digests)) else OTHER
        return UNKNOWN

    def _known(self, sample: Sample, setting: Setting) -> tuple[str, ...]:
        """Returns the image digests in the store; none if its recipes are from another release."""
        if not (self._store / FILE_NAME).is_file():
            return ()
        recipe = self._maker.recipe(self._maker.question(sample, setting), setting)
        with Store.open(self._store, read_only=True) as store:
            return store.get_digests([recipe]).get(recipe, ())

    def _stored(self, dataset: str, sample: str, setting: str, number: int) -> bytes:
        """Returns a thumbnail from the store; nothing if it has none."""
        samples = self._dataset(dataset)
        if isinstance(samples, str) or sample not in samples:
            return b""
        digests = self._known(samples[sample], Setting.parse(setting))
        if number >= len(digests) or not self._pictures.has(digests[number]):
            return b""
        return (self._pictures.directory / file_name(digests[number])).read_bytes()


def _png(image: Any) -> bytes:
    from PIL import Image

    stream = BytesIO()
    Image.fromarray(image).save(stream, "PNG", compress_level=1)
    return stream.getvalue()
