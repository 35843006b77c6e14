"""Draws contact sheets of the published perturbations for the docs: every setting on a photograph, on a page and on a drawing.

    python docs/contact_sheets.py

The photograph is the one of the tests (CC0), the page is white with text of four sizes, and the drawing is the first image of
the embedded `shapes`. For an image of your own there is `vlmrobust show`, whose sheets have parameters and measures too.
"""  # noqa: INP001 - a script, not a package

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import LEVELS, Setting
from pytest_vlmrobust.demo.shapes import Shapes

ROOT = Path(__file__).parents[1]
SEED = 1234
HEIGHTS = (36, 24, 18, 12)
ACROSS = 4
"""Perturbations side by side, each with its levels; those without levels fill the last rows."""
TILE = (116, 78)
CAPTION, GAP = 13, 3
QUALITY = 72


def photograph() -> Image.Image:
    """Returns a cup of coffee by Rachel Michetti (CC0), 240 x 160 pixels."""
    return Image.open(ROOT / "tests" / "golden" / "coffee.png").convert("RGB")


def page() -> Image.Image:
    """Returns a white page with a line of capitals of each height that is measured, 360 x 240 pixels."""
    canvas = Image.new("RGB", (360, 240), "white")
    pen, down = ImageDraw.Draw(canvas), 14
    for height in HEIGHTS:
        pen.text((14, down), f"TEXT {height} PX", fill="black", font=ImageFont.load_default(round(height / 0.72)))
        down += round(1.9 * height)
    pen.rectangle((14, 196, 346, 232), fill=(31, 119, 180))
    return canvas


def drawing() -> Image.Image:
    """Returns a scene of coloured shapes, 160 x 160 pixels."""
    return Image.fromarray(Shapes().samples()[0].images[0].load())


PICTURES = {"photograph": photograph, "page": page, "drawing": drawing}


def sheet(image: Image.Image, rows: Sequence[Sequence[str]], tile: tuple[int, int] = TILE) -> Image.Image:
    """Returns the sheet of one image: rows of settings, each reduced to a tile, with its name below."""
    width, height = tile
    columns = max(map(len, rows))
    canvas = Image.new("RGB", (columns * (width + GAP), len(rows) * (height + CAPTION + GAP)), "white")
    pen, font, pixels = ImageDraw.Draw(canvas), ImageFont.load_default(9), np.asarray(image)
    for row, settings in enumerate(rows):
        for column, setting in enumerate(settings):
            changed = Image.fromarray(pixels if setting == "clean" else perturbations.get(setting)(pixels, seed=SEED))
            changed.thumbnail(tile, Image.Resampling.LANCZOS)
            left, top = column * (width + GAP), row * (height + CAPTION + GAP)
            canvas.paste(changed, (left, top))
            small = ImageFont.load_default(
                9 * min(1.0, (width - GAP) / font.getlength(setting))
            )  # so that no name meets the next
            pen.text((left, top + height), setting, fill="black", font=small)
    return canvas


def all_rows() -> list[list[str]]:
    """Returns the published settings in rows: those with levels first, several perturbations side by side."""
    published = perturbations.names("robustbench")
    graded = [setting for setting in published if Setting.parse(setting).steps[0].level]
    binary = ["clean", *(setting for setting in published if setting not in graded)]
    long = ACROSS * len(LEVELS)
    return [row[start : start + long] for row in (graded, binary) for start in range(0, len(row), long)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Draws all sheets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images", help="where to (default: %(default)s)")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        file = options.out / f"contact-sheet-{name}.jpg"
        sheet(draw(), all_rows()).save(file, quality=QUALITY, optimize=True)
        print(f"wrote {file}: {file.stat().st_size:,} bytes")  # noqa: T201  # a program's answer


if __name__ == "__main__":
    main()
