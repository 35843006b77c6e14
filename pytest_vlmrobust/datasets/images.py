"""Images of a dataset: the location of their bytes, and how these are decoded.

The rules of ``decode``, each chosen to surprise a model that expects 8-bit RGB the least:

- EXIF orientation is not applied, because VLMEvalKit ignores it and published scores were measured that way.
- Transparent pixels are composited over white, as in a viewer. (VLMEvalKit drops alpha and shows the hidden colour.)
- Palette, grey, bilevel and CMYK images are converted to RGB by Pillow; colour profiles are ignored.
- 16-bit grey is scaled to 8 bits over its full range (65535 is white); 32-bit images have no fixed range and are refused.
- Only the first frame of an animation is used.

Nothing is resized or encoded again.
"""

from __future__ import annotations

import base64
import binascii
import io
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.errors import ImageError
from pytest_vlmrobust.core.fingerprint import file_digest
from pytest_vlmrobust.files.pictures import FORMATS, open_picture

if TYPE_CHECKING:
    from PIL import Image

DECODER = "decoder 1"
"""Changes whenever ``decode`` returns other pixels for the same bytes."""
WHITE = (255, 255, 255, 255)
MOST_PIXELS = 89_478_485
"""Larger images are refused before they are decoded: a small file can hold gigabytes of pixels. Pillow's own limit."""


@dataclass(frozen=True, slots=True)
class FileImage:
    """An image in a separate file; ``where`` names the row that refers to it."""

    path: Path
    where: str

    def load(self) -> NDArray[np.uint8]:
        """Returns the pixels."""
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise ImageError(f"{self.where}: {self.path} cannot be read: {error.strerror or error}") from error
        return decode(data, f"{self.where}: {self.path}")

    def identity(self) -> str:
        """Returns a string that depends on the bytes of the file, not on its name."""
        try:
            return image_identity(_digest_of(self.path, file_stamp(self.path)))
        except OSError as error:
            raise ImageError(f"{self.where}: {self.path} cannot be read: {error.strerror or error}") from error


@dataclass(frozen=True, slots=True)
class RowImage:
    """An image inside a row of a file or table, which is read again when the image is shown."""

    read: Callable[[str], bytes] = field(compare=False)
    """Returns the encoded image; takes ``where``, for messages."""
    named: str
    """Its identity, which depends only on the encoded image."""
    where: str

    def load(self) -> NDArray[np.uint8]:
        """Returns the pixels."""
        return decode(self.read(self.where), self.where)

    def identity(self) -> str:
        """Returns a string that depends only on the encoded image; nothing is read for it."""
        return self.named


@dataclass(frozen=True, slots=True)
class Span:
    """The location of a record in a file, so that its images need not stay in memory.

    ``stamp`` is the file's size and modification time when the offsets were taken.
    """

    path: Path
    offset: int
    length: int
    stamp: tuple[int, int]

    def read(self, where: str) -> bytes:
        """Returns the bytes of the record."""
        try:
            with self.path.open("rb") as stream:
                now = file_stamp(self.path)
                stream.seek(self.offset)
                data = stream.read(self.length)
        except OSError as error:
            raise ImageError(f"{where}: {self.path} cannot be read any more: {error.strerror or error}") from error
        if now != self.stamp:
            raise ImageError(f"{where}: {self.path} was changed while the run was reading it. Start the run again")
        return data


def file_stamp(path: Path) -> tuple[int, int]:
    """Returns size in bytes and modification time in nanoseconds."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


FOLDERS_VARIABLE = "VLMROBUST_IMAGES"
"""The environment variable with folders, besides that of a dataset's file, that its images may be in."""


def why_outside(path: Path, folder: Path) -> str:
    """Returns where an image may be, if it is elsewhere after following links; empty if its place is allowed.

    A stranger's file of questions must not show a model, or its server, other images of the machine.
    """
    resolved = os.path.realpath(path)
    allowed = [str(folder), *filter(None, os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep))]
    if any(Path(resolved).is_relative_to(os.path.realpath(root)) for root in allowed):
        return ""
    return f"an image file below {folder}, links followed: {resolved} is not. Name its folder in {FOLDERS_VARIABLE} to allow it"


def image_identity(content_digest: str, position: int = 0) -> str:
    """Returns the identity of the image at ``position`` in content with this digest, as decoded here."""
    return f"{DECODER}: {content_digest}: {position}"


@lru_cache(maxsize=65536)
def _digest_of(path: Path, stamp: tuple[int, int]) -> str:
    del stamp  # only distinguishes states of the file
    return file_digest(path)


def from_base64(text: str, where: str) -> bytes:
    """Returns the bytes of base64 text or of a ``data:`` URL; white space is ignored."""
    encoded = text.partition(",")[2] if text.startswith("data:") else text
    try:
        return base64.b64decode("".join(encoded.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ImageError(
            f"{where}: {len(text)} characters starting {text[:24]!r} are not base64 ({error}). "
            "Expected the base64 text of a complete image file"
        ) from error


def decode(data: bytes, where: str) -> NDArray[np.uint8]:
    """Returns RGB pixels, uint8, shape (H, W, 3), of a complete image file in memory; see the module for the rules."""
    try:
        with open_picture(io.BytesIO(data)) as image:
            return np.array(_rgb(_of_bearable_size(image)), dtype=np.uint8)
    except Exception as error:
        raise ImageError(
            f"{where}: {len(data)} bytes starting {data[:8].hex()} cannot be decoded ({type(error).__name__}: {error}). "
            f"Expected a complete image file: {', '.join(FORMATS)}"
        ) from error


def is_turned(picture: Path | bytes) -> bool:
    """Whether viewers show an image turned or mirrored because of its EXIF orientation, which ``decode`` ignores.

    Takes a file or its first bytes. An image that cannot be opened is not turned: ``decode`` reports the problem.
    """
    from PIL import ExifTags

    if isinstance(picture, bytes) and b"Exif" not in picture and b"eXIf" not in picture:
        return False
    try:
        with open_picture(io.BytesIO(picture) if isinstance(picture, bytes) else picture) as image:
            return image.getexif().get(ExifTags.Base.Orientation, 1) not in (0, 1)
    except Exception:  # noqa: BLE001 - Pillow raises various errors about a broken file
        return False


def start_of_base64(text: str) -> bytes:
    """Returns the first bytes of a base64 image, which hold the EXIF data of a JPEG; empty if it is not base64."""
    encoded = text[text.find(",") + 1 :] if text.startswith("data:") else text
    try:
        return base64.b64decode(encoded[:_START].translate(_NO_BLANKS)[: _START // 8 * 4])
    except ValueError:
        return b""


_START = 1 << 17
_NO_BLANKS = str.maketrans("", "", " \t\r\n")


def _of_bearable_size(image: Image.Image) -> Image.Image:
    if image.width * image.height > MOST_PIXELS:
        raise ValueError(f"{image.width} x {image.height} pixels are more than {MOST_PIXELS}: make the image smaller")
    return image


def _rgb(image: Image.Image) -> Image.Image:
    from PIL import Image

    if image.mode.startswith("I;16"):
        return _from_16_bits(image).convert("RGB")
    if image.mode in {"I", "F"}:
        raise ValueError("32-bit pixels have no fixed range: save the image with 8 or 16 bits")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, WHITE), layer).convert("RGB")
    return image.convert("RGB")


def _from_16_bits(image: Image.Image) -> Image.Image:
    from PIL import Image

    levels = np.asarray(image).astype(np.uint32)
    return Image.fromarray(((levels + 128) // 257).astype(np.uint8))
