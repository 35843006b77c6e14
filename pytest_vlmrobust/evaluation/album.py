"""Album: thumbnails of the views of single samples, made again only where there is none yet."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.store import Pictures, Store
from pytest_vlmrobust.store.run_directory import file_name

from .views import ViewMaker


@dataclass(frozen=True, slots=True, eq=False)
class Album:
    """Finds and makes thumbnails; without ``pictures`` there are none, and with ``read_only`` no new ones."""

    views: ViewMaker
    store: Store
    pictures: Pictures | None = None
    read_only: bool = False

    def files(self, sample: Sample, setting: Setting) -> tuple[str, ...]:
        """Returns the file of each picture of a view, view after view as in ``View``; empty names where there is no thumbnail.

        Nothing at all where the view has no pictures, or what they were is not known and may not be found out.

        Raises:
            ImageError: a source picture cannot be read.
            StoreError: a thumbnail cannot be written.
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
