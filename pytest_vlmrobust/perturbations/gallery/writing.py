"""From an image file to a gallery file."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.fingerprint import AUGMENTATION_SEED
from pytest_vlmrobust.perturbations.catalog import names
from pytest_vlmrobust.perturbations.rendering import get

from .page import page
from .sheet import Gallery, Progress, gallery, read_image

DEFAULT_SETS = ("robustbench", "patches", "resolution", "observatory_id", "observatory_ood")
TILE = 200
TILES = range(64, 401)
"""Allowed widths of a tile in pixels: captions limit the lower end, memory and file size the upper."""


def show(
    image: Path,
    out: Path,
    *,
    sets: Sequence[str] = (),
    settings: Sequence[str] = (),
    seed: int = AUGMENTATION_SEED,
    tile: int = TILE,
    progress: Progress = lambda _made, _of: None,
) -> Gallery:
    """Writes a gallery of an image file as an HTML page, in one step, and returns it.

    Without ``sets`` and ``settings`` it shows :data:`DEFAULT_SETS`. ``tile`` is the width of an image in pixels, 64 to 400.
    """
    if out.suffix.lower() != ".html":
        raise UsageError(f"{out}: no format is called {out.suffix!r}. Expected a name that ends in .html (a browser prints it)")
    if out.is_dir():
        raise UsageError(f"{out}: is a directory. Expected the name of a file to write")
    if tile not in TILES:
        raise UsageError(f"tile: got {tile}. Expected a width of {TILES.start} to {TILES.stop - 1} pixels")
    chosen = _choose_settings(sets or (() if settings else DEFAULT_SETS), settings)
    source = read_image(image)
    try:
        # opened first, so that a path that cannot be written fails before the work is done
        with tempfile.TemporaryDirectory(prefix=".", dir=out.parent) as directory:
            temporary = Path(directory, out.name)
            result = gallery(source, chosen, seed=seed, tile=tile, progress=progress)
            temporary.write_bytes(page(result))
            temporary.replace(out)
    except OSError as error:
        raise UsageError(
            f"{out}: cannot be written: {error.strerror or error}. Expected a file in a directory that exists and is yours"
        ) from error
    return result


def _choose_settings(sets: Sequence[str], settings: Sequence[str]) -> list[str]:
    chosen = [setting for name in sets for setting in names(name)]
    for setting in settings:
        get(setting)  # refuses misspelt names before anything is read
        chosen.append(setting)
    if not chosen:
        raise UsageError(f"nothing to show: {', '.join(map(repr, sets))} has no settings yet")
    return chosen
