"""Illusions generated beforehand and read from a folder; needs no neural network.

    FOLDER/original/NAME.png    the images as a model would see them
    FOLDER/VARIANT/NAME.png     the same images as illusions, one subfolder for each variant

Images may also be .bmp, .jpeg, .jpg, .tif, .tiff or .webp; images with the same NAME belong together.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import NoReturn

from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.errors import ImageError, SettingError, UsageError, did_you_mean, typed_path
from pytest_vlmrobust.core.fingerprint import file_digest, fingerprint, pixels_digest
from pytest_vlmrobust.files.pictures import open_picture

from .catalog import corruption
from .pixels import Image
from .registry import REGISTRY, Parameters
from .rendering import as_rgb

ORIGINAL = "original"
SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
LAYOUT = "Expected FOLDER/original/NAME.png and FOLDER/VARIANT/NAME.png, as recipes/illusions.py writes them"


def illusions(folder: str | Path, *, name: str = "illusion", replace: bool = False) -> list[str]:
    """Registers the illusions of a folder as a perturbation whose levels are the variants: ``illusion:origami``.

    Call it in ``conftest.py``. An image is found by its decoded pixels, so the file names and formats of the dataset do not
    matter, but earlier steps of a composed setting do. Only file names are read until a setting is used. Then
    ``FOLDER/original`` is read once, and each illusion on demand. The fingerprint of a setting has the digest
    of the originals and of the variant's files, taken at its first use.

    ``name`` distinguishes several folders. ``replace`` replaces a perturbation with that name. Returns the new
    settings, sorted. A setting raises ImageError if an image is not among the originals, its variant is missing, or a file is
    not an image.
    """
    stored = IllusionFolder(typed_path(folder).absolute(), name)

    def illusion(image: Image, *, variant: str) -> Image:
        """Returns the illusion that was generated for this image and stored: another appearance, the same layout.

        The images are the user's own. The Perceptual Observatory publishes neither its illusions nor its prompts.
        """
        return stored.picture(image, variant)

    def digest(*, variant: str) -> Parameters:
        return {"files": stored.digest(variant)}

    illusion.__module__, illusion.__qualname__ = "perturbations", f"illusions({str(folder)!r})"  # for "is registered already by"
    corruption(
        name=name,
        family="illusion",
        levels={variant: {"variant": variant} for variant in stored.variants},
        changes=["colour"],
        keeps_size=False,
        depends_on=digest,
        source="Perceptual Observatory 9.3, images of the user's own",
        replace=replace,
    )(illusion)
    return REGISTRY.get(name).settings()


class IllusionFolder:
    """A folder of originals and their variants; safe to use from several threads."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._name = name
        self._originals, self.variants = _contents(folder)
        self._lock = Lock()
        self._names: dict[str, str] | None = None
        self._digests: dict[str, str] = {}
        self._first: dict[Path, str] = {}
        """The SHA-256 of each file at its first reading, which is part of the answer keys."""

    def picture(self, image: Image, variant: str) -> Image:
        """Returns the stored variant of ``image``, uint8 RGB, shape (h, w, 3); the first by name for equal originals."""
        name = self._name_of(pixels_digest(image))
        if name is None:
            self._refuse(image, variant)
        if name not in self.variants[variant]:
            raise ImageError(
                f"{self._name}:{variant}: {self.folder / variant} has no file for the original {self._originals[name].name!r}. "
                f"Expected {name}.png there; recipes/illusions.py makes what is missing"
            )
        return self._decoded(self.variants[variant][name], f"{self._name}:{variant}")

    def digest(self, variant: str) -> str:
        """Returns the SHA-256 over the names and bytes of the originals and of a variant's files, hashed once."""
        with self._lock:
            parts = [self._part(ORIGINAL, self._originals.values()), self._part(variant, self.variants[variant].values())]
        return fingerprint(parts)

    def _part(self, part: str, files: Iterable[Path]) -> str:
        if part not in self._digests:
            self._digests[part] = fingerprint({file.name: self._hash(file, f"{self._name}:{part}") for file in files})
        return self._digests[part]

    def _decoded(self, file: Path, where: str) -> Image:
        image = decode_picture(file, where)
        self._hash(file, where)  # the decoded bytes are the hashed bytes
        return image

    def _hash(self, file: Path, where: str) -> str:
        try:
            sha256 = file_digest(file)
        except OSError as error:
            raise ImageError(f"{where}: {file} cannot be read: {error.strerror or error}") from error
        if self._first.setdefault(file, sha256) != sha256:
            raise ImageError(f"{where}: {file} was changed while the run was reading it. Start the run again")
        return sha256

    def _name_of(self, digest: str) -> str | None:
        with self._lock:
            if self._names is None:
                files = reversed(self._originals.items())
                self._names = {pixels_digest(self._decoded(file, self._name)): name for name, file in files}
            return self._names.get(digest)

    def _refuse(self, image: Image, variant: str) -> NoReturn:
        raise ImageError(
            f"{self._name}:{variant}: this image of {image.shape[1]} x {image.shape[0]} pixels is none of the "
            f"{len(self._originals)} in {self.folder / ORIGINAL}. Pixels are compared as decoded: store what the dataset gives, "
            f"without loss, and name '{self._name}:{variant}' first in a composed setting"
        )


def decode_picture(file: Path, where: str) -> Image:
    """Returns the pixels of a file, uint8 RGB, shape (H, W, 3); ``where`` begins the message."""
    try:
        with open_picture(file) as image:
            return as_rgb(image)
    except Exception as error:  # Pillow may raise any error for a damaged file
        raise ImageError(f"{where}: {file} cannot be decoded ({type(error).__name__}: {error}). Generate it again") from error


def _contents(folder: Path) -> tuple[dict[str, Path], dict[str, dict[str, Path]]]:
    if not folder.is_dir():
        raise UsageError(f"illusions: there is no folder {str(folder)!r}. {LAYOUT}")
    parts = {part.name: part for part in sorted(folder.iterdir()) if part.is_dir() and not part.name.startswith(".")}
    if ORIGINAL not in parts:
        raise UsageError(f"illusions: {folder} has no folder {ORIGINAL!r}.{did_you_mean(ORIGINAL, parts)} {LAYOUT}")
    originals = _pictures(parts.pop(ORIGINAL))
    if not parts:
        raise UsageError(f"illusions: {folder} has no variants. {LAYOUT}")
    return originals, {variant: _variant(part, originals) for variant, part in parts.items()}


def _variant(part: Path, originals: dict[str, Path]) -> dict[str, Path]:
    try:
        spelled = Setting.parse(f"illusion:{part.name}").level
    except SettingError:
        spelled = None
    if spelled != part.name:
        raise UsageError(
            f"illusions: the folder {str(part)!r} cannot be the name of a variant. Rename it with a-z, digits, '_' and '.', "
            "such as 'starry_sky'"
        )
    pictures = _pictures(part)
    if strays := sorted({*pictures} - {*originals}):
        raise UsageError(
            f"illusions: {pictures[strays[0]]} is a variant of no image: {part.with_name(ORIGINAL)} has no {strays[0]!r}."
            f"{did_you_mean(strays[0], originals)} Rename the file, or add the original"
        )
    return pictures


def _pictures(part: Path) -> dict[str, Path]:
    pictures: dict[str, Path] = {}
    for file in sorted(part.iterdir()):
        if file.suffix.lower() not in SUFFIXES or file.name.startswith("."):
            continue
        if file.stem in pictures:
            raise UsageError(f"illusions: {pictures[file.stem]} and {file.name} are both {file.stem!r}. Keep one of them")
        pictures[file.stem] = file
    if not pictures:
        raise UsageError(f"illusions: there are no images in {part}. {LAYOUT}")
    return pictures
