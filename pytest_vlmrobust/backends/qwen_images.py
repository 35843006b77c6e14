"""Preprocessing of the Qwen2-VL family by table: identical bits to the library's Pillow path, in a fraction of its time.

The library turns an image back and forth between Pillow and numpy, rescales it in float64, normalises it in float32, and cuts it
into patches last, when it is four times as large. Here Pillow resizes the image in the same way. All further steps depend
only on one of 256 values and its channel, so they are looked up in a table filled by the library's own functions. Patches are
cut, and wait for their batch, as bytes; numbers are looked up when the batch is built. They are the
same to the last bit, so runs with either way share their answers.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .contract import FAST, LIBRARY

if TYPE_CHECKING:
    import torch

_SHARED_BY_THE_FAMILY = "Qwen2VLImageProcessorPil"
"""The image processor of Qwen2-VL, Qwen2.5-VL, Qwen3-VL and others; classes that resize differently have another name."""
_PROBES = ((31, 45), (112, 140))
"""Heights and widths of the images on which both ways are compared before the table is used."""


def accelerated(images: Any) -> Any:
    """Returns a faster image processor with the same output as ``images``, or ``images`` itself if there is none.

    Both process two test images first. If they differ in a bit, which could happen with another version of the library, or
    if one refuses an image, ``images`` is returned. The result is thread-safe. It passes to the
    library everything that is not an RGB Pillow image, and calls with other settings.
    """
    kind: Any = type(images)
    if kind.__name__ != _SHARED_BY_THE_FAMILY or getattr(images, "backend", "") != "pil":
        return images
    faster = copy.copy(images)
    faster.__class__ = _faster_kind(kind)
    return faster if _agree(images, faster) else images


def preprocessing_of(images: Any) -> str:
    """Returns which way an image processor uses: ``fast`` or ``library``."""
    return FAST if getattr(images, "by_table", False) else LIBRARY


@functools.cache
def _faster_kind(kind: Any) -> Any:
    def preprocess(self: Any, images: Any, *places: Any, **settings: Any) -> Any:
        from transformers import BatchFeature

        pictures = _flat(images)
        if (
            places
            or settings.keys() - {"return_tensors"}
            or not cuts_by_table(self)
            or any(getattr(picture, "mode", "") != "RGB" for picture in pictures)
        ):
            return kind.preprocess(self, images, *places, **settings)
        patches, grids = patches_and_grids(self, [np.asarray(picture) for picture in pictures])
        numbers = np.empty((len(patches), patches.width), np.float32)
        patches.write(numbers)
        made = {"pixel_values": numbers, "image_grid_thw": grids}
        return BatchFeature(data=made, tensor_type=settings.get("return_tensors"))

    return type(kind.__name__, (kind,), {"preprocess": preprocess, "by_table": True})


def _flat(images: Any) -> list[Any]:
    """Flattens an image, a list, or a list of lists, as the library accepts them."""
    if not isinstance(images, list | tuple):
        return [images]
    return [picture for part in images for picture in _flat(part)]


def cuts_by_table(images: Any) -> bool:
    """Whether :func:`patches_and_grids` equals this image processor with its current settings."""
    return preprocessing_of(images) == FAST and bool(images.do_resize) and isinstance(images.resample, int)


class Patches:
    """The patches of a request's images as bytes; their numbers are looked up last.

    As numbers, with each image doubled as a video frame pair, they would take eight times the memory.
    """

    __slots__ = ("planes", "table", "times")

    def __init__(self, planes: NDArray[np.uint8], table: NDArray[np.float32], times: int) -> None:
        """Keeps the byte values of patches, shape (3, patches, side * side), and the table of numbers, shape (3, 256).

        Each image is repeated ``times`` times as video frames.
        """
        self.planes, self.table, self.times = planes, table, times

    @classmethod
    def joined(cls, parts: Sequence[Patches]) -> Patches:
        """Returns the patches of several requests as one object."""
        first = parts[0]
        return cls(np.concatenate([part.planes for part in parts], axis=1), first.table, first.times)

    def __len__(self) -> int:
        return int(self.planes.shape[1])

    @property
    def width(self) -> int:
        """Numbers per patch."""
        return int(self.planes.shape[0] * self.times * self.planes.shape[2])

    @property
    def nbytes(self) -> int:
        """Memory of the numbers in a batch."""
        return len(self) * self.width * int(self.table.itemsize)

    def on(self, device: str, dtype: torch.dtype) -> torch.Tensor:
        """Returns the numbers on a device, shape (patches, width), rounded to ``dtype``; only bytes are transferred."""
        import torch

        table = torch.from_numpy(self.table).to(device).to(dtype)
        planes = torch.from_numpy(self.planes).to(device)
        stacked = torch.stack([table[channel][values.int()] for channel, values in enumerate(planes)], dim=1)
        return stacked[:, :, None].expand(-1, -1, self.times, -1).reshape(len(self), self.width)

    def write(self, numbers: NDArray[np.float32]) -> None:
        """Fills an array of shape (patches, width), mostly without the interpreter lock."""
        import cv2

        channels, count, pixels = self.planes.shape
        places = numbers.reshape(count, channels, self.times, pixels)
        for channel, values in enumerate(self.planes):
            levels = cv2.LUT(values, self.table[channel : channel + 1])
            for time in range(self.times):
                places[:, channel, time] = levels


def patches_and_grids(processor: Any, images: Sequence[NDArray[np.uint8]]) -> tuple[Patches, NDArray[np.int64]]:
    """Returns patches and grids of images, uint8 of shape (H, W, 3) each, as the processor's own class makes them."""
    from PIL import Image
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    side, merged, size = processor.patch_size, processor.merge_size, processor.size
    limits = {"factor": side * merged, "min_pixels": size.shortest_edge, "max_pixels": size.longest_edge}
    sizes = [smart_resize(image.shape[0], image.shape[1], **limits) for image in images]
    counts = [height // side * (width // side) for height, width in sizes]
    planes, start = np.empty((3, sum(counts), side * side), np.uint8), 0
    for image, (height, width), count in zip(images, sizes, counts, strict=True):
        fits = image.shape[:2] == (height, width)  # Pillow would copy the image
        resized = image if fits else np.asarray(Image.fromarray(image).resize((width, height), processor.resample))
        _cut(planes[:, start : start + count], resized, side, merged)
        start += count
    grids = np.array([(1, height // side, width // side) for height, width in sizes], np.int64)
    return Patches(planes, _table(processor), processor.temporal_patch_size), grids


def _cut(planes: NDArray[np.uint8], image: NDArray[np.uint8], side: int, merged: int) -> None:
    """Cuts an image into patches, mostly without the interpreter lock.

    Args:
        planes: of one image, shape (3, patches, side * side), to be filled.
        image: shape (H, W, 3), both lengths multiples of ``side * merged``.
        side: pixels on the side of a patch.
        merged: patches on the side of what becomes one visual token; those of one token follow each other.
    """
    import cv2

    height, width, _ = image.shape
    down, across = height // side // merged, width // side // merged
    for channel, plane in enumerate(cv2.split(image)):
        tokens = plane.reshape(down, merged, side, across, merged, side)
        planes[channel].reshape(down, across, merged, merged, side, side)[:] = tokens.transpose(0, 3, 1, 4, 2, 5)


def _table(processor: Any) -> NDArray[np.float32]:
    """Returns the rescaled and normalised number of each value of each channel, shape (3, 256), by the library's functions."""
    factor = processor.rescale_factor if processor.do_rescale else None
    normal = (tuple(processor.image_mean), tuple(processor.image_std)) if processor.do_normalize else None
    return _table_as_set(processor, factor, normal)


@functools.lru_cache(maxsize=8)
def _table_as_set(processor: Any, factor: float | None, normal: tuple[tuple[float, ...], ...] | None) -> NDArray[np.float32]:
    """Returns the cached table for these settings: building it takes a third of the time of cutting an image."""
    values: Any = np.tile(np.arange(256, dtype=np.uint8), (3, 1, 1))
    if factor is not None:
        values = processor.rescale(values, factor)
    if normal is not None:
        values = processor.normalize(values, *normal)
    return np.ascontiguousarray(values.reshape(3, 256), np.float32)


def _agree(images: Any, faster: Any) -> bool:
    """Whether two image processors give identical bits for images with all values; False if one refuses an image."""
    from PIL import Image

    for height, width in _PROBES:
        values = np.arange(height * width * 3, dtype=np.uint32) * 97 // 3 % 256
        picture = Image.fromarray(values.astype(np.uint8).reshape(height, width, 3))
        try:
            expected, actual = (process(picture, return_tensors="np") for process in (images, faster))
        except ValueError:  # such as a processor that does not resize
            return False
        bits = [{name: (part.shape, part.dtype, part.tobytes()) for name, part in made.items()} for made in (expected, actual)]
        if bits[0] != bits[1]:
            return False
    return True
