"""Turns the name of a setting into a function from pixels to pixels, and checks its input and output."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.cell import NO_IMAGE_NAME, Setting, Step
from pytest_vlmrobust.core.errors import ImageError, SettingError, UsageError
from pytest_vlmrobust.core.fingerprint import rng_for

from .catalog import records, without_image
from .pixels import Image
from .registry import Corruption

LONGEST_SIDE = 32_000
"""OpenCV's resamplers hold coordinates in 16 bits, and some of them point a little outside."""


@dataclass(frozen=True, slots=True, eq=False)
class Rendering:
    """An image under a setting, with notes on what could not be done."""

    image: Image
    """uint8 RGB, shape (H, W, 3), or (V, H, W, 3) of a setting that cuts it into V views."""
    notes: tuple[str, ...] = ()
    """Sentences such as "resolution:448: the long edge of 300 pixels is shorter: left as it is"."""


@dataclass(frozen=True, slots=True, eq=False)
class Renderer:
    """A setting, ready to be applied to images; safe to share between threads and to send to other processes."""

    setting: Setting
    steps: tuple[tuple[Corruption, str | None], ...]

    def __call__(self, image: Image, *, seed: SupportsIndex) -> Image:
        """Returns a new image: ``image`` under the setting, uint8 RGB, contiguous, without shared memory.

        It has the shape of ``image``, unless :func:`info` says that the setting changes the size, and shape (V, H, W, 3)
        for V views (``patches:3``).

        Each step has its own generator, derived from ``seed`` and the name of the perturbation (for a repeated
        perturbation, also from its occurrence). So ``a+b`` is ``b`` applied to ``a``, and the levels of a perturbation share
        their
        draws: ``high`` is a stronger ``low``, not another draw. The bytes depend only on the
        image, the setting, the seed, the library versions and the kind of processor, not on process, thread, order or
        batch. Another instruction set may round a sum differently by one level. The image is uint8 RGB, shape (H, W, 3), with
        sides from 1 to 32000 (:func:`as_rgb` converts images), and is not changed. Derive the seed from the sample, so that
        samples differ.
        """
        return self.render(image, seed=seed).image

    def render(self, image: Image, *, seed: SupportsIndex) -> Rendering:
        """Returns the same image as a call, with notes."""
        _check(image, self.setting)
        if not hasattr(seed, "__index__"):
            raise TypeError(f"seed is {seed!r}: expected a whole number")
        number, result = operator.index(seed), np.ascontiguousarray(image)
        names: list[str] = []
        notes: tuple[str, ...] = ()
        for (record, level), step in zip(self.steps, self.setting.steps, strict=True):
            if note := record.note_at(level, *result.shape[:2]):
                notes += (f"{step}: {note}",)
            names.append(record.draws_as or record.name)
            occurrence = names.count(names[-1])
            parts = (names[-1],) if occurrence == 1 else (names[-1], str(occurrence))
            changed = record.apply(_read_only(result), partial(rng_for, number, *parts), level)
            result = _own_copy(changed, result, step, record, level)
        return Rendering(result, notes)

    def __reduce__(self) -> tuple[Callable[[str], Renderer], tuple[str]]:
        return get, (str(self.setting),)

    def __repr__(self) -> str:
        return f"perturbations.get({str(self.setting)!r})"


def get(setting: str | Setting) -> Renderer:
    """Returns the function that applies ``setting`` to an image; see :class:`Renderer`.

    Several perturbations are joined by ``+`` and applied in order; ``clean`` copies. A setting that is not only about pixels is
    a SettingError: ``no_image``, and perturbations of a whole question.

    >>> get("flip_h+flip_h")(np.arange(6, dtype=np.uint8).reshape(1, 2, 3), seed=1234).tolist()
    [[[0, 1, 2], [3, 4, 5]]]
    """
    parsed = Setting.parse(setting) if isinstance(setting, str) else setting
    steps = tuple(records(parsed))
    if any(record.name == NO_IMAGE_NAME for record, _ in steps):
        without_image()
    if any(record.on != "image" for record, _ in steps):
        raise SettingError(
            f"setting {str(parsed)!r} changes a question and not only pixels. Ask the evaluation for it, or call "
            "perturbations.perturbed(sample, setting, seed=...)"
        )
    for record, level in steps:
        record.require(level)
    return Renderer(parsed, steps)


def _read_only(image: Image) -> Image:
    view = image[:]
    view.setflags(write=False)
    return view


def _check(image: Any, setting: Setting) -> None:
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
        given = (
            f"an array of {image.dtype}"
            if isinstance(image, np.ndarray)
            else f"{type(image).__module__}.{type(image).__qualname__}"
        )
        raise TypeError(
            f"{setting}: got {given}. Expected a uint8 array of shape (H, W, 3), RGB; perturbations.as_rgb(image) makes one"
        )
    if image.ndim != 3 or image.shape[2] != 3:
        raise ImageError(
            f"{setting}: got an image of shape {image.shape}. Expected (H, W, 3), RGB; perturbations.as_rgb(image) converts"
        )
    if not 1 <= min(image.shape[:2]) <= max(image.shape[:2]) <= LONGEST_SIDE:
        raise ImageError(
            f"{setting}: got an image of {image.shape[1]} x {image.shape[0]} pixels. Expected sides from 1 to {LONGEST_SIDE}"
        )


def _own_copy(result: Any, before: Image, step: Step, record: Corruption, level: str | None) -> Image:
    """Returns ``result`` as an array that the caller may keep and change."""
    dimensions = 3 if record.views is None else 4
    if not isinstance(result, np.ndarray) or result.dtype != np.uint8 or not _is_picture(result.shape, dimensions):
        given = f"{result.dtype} of shape {result.shape}" if isinstance(result, np.ndarray) else type(result).__qualname__
        shape = "(V, H, W, 3)" if dimensions == 4 else "(H, W, 3)"
        raise UsageError(
            f"perturbation '{step}' returned {given}. Expected uint8 of shape {shape}; round, clip and convert in the function"
        )
    kept: Image = result
    if kept.shape != before.shape or record.views:
        _check_declared(kept, before, step, record, level)
    flags = kept.flags
    mine = flags.writeable and flags.c_contiguous and not np.may_share_memory(kept, before)
    return kept if mine else kept.copy(order="C")


def _is_picture(shape: tuple[int, ...], dimensions: int) -> bool:
    return len(shape) == dimensions and shape[-1] == 3 and 0 not in shape


def _check_declared(result: Image, before: Image, step: Step, record: Corruption, level: str | None) -> None:
    """Refuses a result whose size or number differs from the record; boxes in pixels and requests rely on them."""
    if record.keeps_size and result.shape[-3:] != before.shape:
        raise UsageError(
            f"perturbation '{step}' returned an image of {result.shape[-2]} x {result.shape[-3]} pixels for one of "
            f"{before.shape[1]} x {before.shape[0]}, and is registered as one that keeps the size. Register it with "
            "keeps_size=False, or return the size that came in"
        )
    if record.views and len(result) != record.views_at(level):
        raise UsageError(
            f"perturbation '{step}' returned {len(result)} images, and its views= announces {record.views_at(level)}. "
            "Make the two agree"
        )


# Converts images of any common kind to uint8 RGB.


HIGH_BIT_MODES = ("I", "I;16", "I;16L", "I;16B", "I;16N")


def as_rgb(image: Any) -> Image:
    """Returns an image as a new uint8 RGB array of shape (H, W, 3).

    Takes a Pillow image of any mode but floating point, or an array of uint8, uint16 or bool with shape (H, W) or
    (H, W, 1) grey, (H, W, 2) grey with alpha, (H, W, 3) RGB or (H, W, 4) RGBA. Transparent pixels get a white background; 16 bits
    are scaled so that 65535 becomes 255, rounded. The orientation noted in EXIF data is not applied. Floats are a TypeError,
    because their range is not evident, and 32-bit values above 65535 an ImageError.
    """
    if isinstance(image, np.ndarray):
        return _from_array(image)
    import PIL.Image

    if not isinstance(image, PIL.Image.Image):
        raise TypeError(
            f"as_rgb got {type(image).__module__}.{type(image).__qualname__}. Expected a Pillow image or a NumPy array"
        )
    if image.mode == "F":
        raise TypeError(
            "as_rgb got a Pillow image of mode F (floats), whose range is not evident. Scale it to 0..255 and convert('L') first"
        )
    if image.mode in HIGH_BIT_MODES:
        return _from_array(_sixteen_bits(np.asarray(image)))
    return _from_array(np.asarray(image.convert("RGBA" if image.has_transparency_data else "RGB")))


def _from_array(array: NDArray[Any]) -> Image:
    levels = _eight_bits(array)
    if levels.ndim == 2:
        levels = levels[:, :, None]
    if levels.ndim != 3 or not 1 <= levels.shape[2] <= 4 or levels.size == 0:
        raise ImageError(
            f"as_rgb got an array of shape {array.shape}. Expected (H, W), or (H, W, C) with 1 to 4 channels, not empty"
        )
    channels = levels.shape[2]
    colours = levels[:, :, : channels - 1] if channels in {2, 4} else levels
    opaque = _over_white(colours, levels[:, :, -1:]) if channels in {2, 4} else colours
    return np.repeat(opaque, 3, axis=2) if opaque.shape[2] == 1 else np.array(opaque, order="C")


def _eight_bits(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype == np.uint16:
        return ((array.astype(np.uint32) + 128) // 257).astype(np.uint8)
    raise TypeError(
        f"as_rgb got an array of {array.dtype}, whose range is not evident. Expected uint8 (0..255), uint16 (0..65535) or bool"
    )


def _sixteen_bits(values: NDArray[Any]) -> NDArray[np.uint16]:
    if values.size and not 0 <= int(values.min()) <= int(values.max()) <= 0xFFFF:
        raise ImageError(f"as_rgb got grey values from {values.min()} to {values.max()}. Expected 16 bits, 0 to 65535")
    return values.astype(np.uint16)


def _over_white(colours: NDArray[np.uint8], alpha: NDArray[np.uint8]) -> NDArray[np.uint8]:
    weight = alpha.astype(np.uint32)
    return ((colours * weight + 255 * (255 - weight) + 127) // 255).astype(np.uint8)
