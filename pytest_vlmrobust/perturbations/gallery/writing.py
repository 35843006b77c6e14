"""From a picture file to a gallery file."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.fingerprint import AUGMENTATION_SEED
from pytest_vlmrobust.perturbations.catalog import names
from pytest_vlmrobust.perturbations.rendering import get

from . import html, png
from .sheet import Gallery, Progress, gallery, read_picture

DEFAULT_SETS = ("robustbench", "patches", "resolution", "observatory_id", "observatory_ood")
FORMATS: dict[str, Callable[[Gallery], bytes]] = {".html": html.page, ".png": png.page}
TILE = 200
TILES = range(64, 401)
"""Allowed widths of a tile in pixels: captions limit the lower end, memory and file size the upper."""


def show(
    picture: Path,
    out: Path,
    *,
    sets: Sequence[str] = (),
    settings: Sequence[str] = (),
    seed: int = AUGMENTATION_SEED,
    tile: int = TILE,
    progress: Progress = lambda _made, _of: None,
) -> Gallery:
    """Writes a gallery of a picture in the format that the ending of ``out`` names, in one step, and returns it.

    Args:
        picture: a picture file.
        out: the file to write, ``.html`` or ``.png``; an existing file is replaced.
        sets: names of sets of settings; without sets and settings, :data:`DEFAULT_SETS`.
        settings: further settings, also composed ones.
        seed: of every random perturbation.
        tile: width of a tile in pixels, 64 to 400.
        progress: is told after each tile how many are made, and of how many.

    Raises:
        UsageError: the format or the width is not offered, there is nothing to show, or ``out`` cannot be written.
        UnknownName, SettingError: a set or a setting does not exist.
        ImageError: the picture cannot be read, or has sides that no setting can work on.
    """
    write = _format(out)
    if tile not in TILES:
        raise UsageError(f"tile: got {tile}. Expected a width of {TILES.start} to {TILES.stop - 1} pixels")
    chosen = _choose_settings(sets or (() if settings else DEFAULT_SETS), settings)
    source = read_picture(picture)
    if out.exists() and out.samefile(picture):
        raise UsageError(f"{out}: is the picture to be shown, and would be overwritten. Choose another file")
    temporary = _reserve_file(out)
    try:
        result = gallery(source, chosen, seed=seed, tile=tile, progress=progress)
        _write(temporary, out, write(result))
    finally:
        temporary.unlink(missing_ok=True)
    return result


def _format(out: Path) -> Callable[[Gallery], bytes]:
    if out.suffix.lower() not in FORMATS:
        raise UsageError(f"{out}: no format is called {out.suffix!r}. Expected a name that ends in {' or '.join(FORMATS)}")
    return FORMATS[out.suffix.lower()]


def _choose_settings(sets: Sequence[str], settings: Sequence[str]) -> list[str]:
    chosen = [setting for name in sets for setting in names(name)]
    for setting in settings:
        get(setting)  # refuses misspelt names before anything is read
        chosen.append(setting)
    if not chosen:
        raise UsageError(f"nothing to show: {', '.join(map(repr, sets))} has no settings yet")
    return chosen


def _reserve_file(out: Path) -> Path:
    """Returns an empty file beside ``out``, so that an unwritable path fails before the work is done."""
    if out.is_dir():
        raise UsageError(f"{out}: is a directory. Expected the name of a file to write")
    temporary = out.with_name(f".{uuid.uuid4().hex}{out.suffix}")
    try:
        temporary.touch(exist_ok=False)
    except OSError as error:
        raise _unwritable(out, error) from error
    return temporary


def _write(temporary: Path, out: Path, content: bytes) -> None:
    try:
        temporary.write_bytes(content)
        temporary.replace(out)
    except OSError as error:
        raise _unwritable(out, error) from error


def _unwritable(out: Path, error: OSError) -> UsageError:
    return UsageError(
        f"{out}: cannot be written: {error.strerror or error}. Expected a file in a directory that exists and is yours"
    )
