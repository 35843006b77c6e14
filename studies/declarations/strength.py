"""How much fog, frost, rain and pixels change a picture, beside what imagecorruptions and albumentations make of those names.

    pip install imagecorruptions albumentations==2.0.8     # in an environment of their own; see benchmarks/perturbations.py
    python studies/declarations/strength.py

Prints the mean absolute difference from the clean picture, in levels of 255, over eight draws: on the photograph of the tests, at
480 x 320 pixels, and on a white page with text of that size.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageDraw
import PIL.ImageFont
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import LEVELS

Image = NDArray[np.uint8]

PHOTOGRAPH = Path(__file__).parents[2] / "tests" / "golden" / "coffee.png"
WIDTH, HEIGHT = 480, 320
DRAWS = 8


def photograph() -> Image:
    """Returns a cup of coffee by Rachel Michetti (CC0)."""
    with PIL.Image.open(PHOTOGRAPH) as picture:
        return np.asarray(picture.convert("RGB").resize((WIDTH, HEIGHT), PIL.Image.Resampling.BICUBIC))


def page() -> Image:
    """Returns a white page with lines of text."""
    canvas = PIL.Image.new("RGB", (WIDTH, HEIGHT), "white")
    pen = PIL.ImageDraw.Draw(canvas)
    for down in range(10, HEIGHT - 30, 30):
        pen.text((12, down), "Which words can be read here?", fill="black", font=PIL.ImageFont.load_default(22))
    return np.asarray(canvas)


def ours(setting: str) -> Callable[[Image, int], Image]:
    """Returns a setting as a function of picture and draw."""
    return lambda image, draw: perturbations.get(setting)(image, seed=draw)


def of_imagecorruptions(name: str, severity: int) -> Callable[[Image, int], Image]:
    """Returns a corruption of imagecorruptions, which draws from the global generator."""
    import imagecorruptions

    vars(np).setdefault("float_", np.float64)  # its fog asks for a name that NumPy 2 has removed

    def change(image: Image, draw: int) -> Image:
        np.random.seed(draw)  # noqa: NPY002  # it reads no other
        changed: Image = imagecorruptions.corrupt(image.copy(), corruption_name=name, severity=severity)
        return changed

    return change


def of_albumentations(name: str, **arguments: Any) -> Callable[[Image, int], Image]:
    """Returns a transform of albumentations."""
    import albumentations

    def change(image: Image, draw: int) -> Image:
        composed = albumentations.Compose([getattr(albumentations, name)(p=1.0, **arguments)], seed=draw)
        changed: Image = composed(image=image)["image"]
        return changed

    return change


def of_pillow(scale: float) -> Callable[[Image, int], Image]:
    """Returns a picture shrunk by Pillow's box filter, as imagecorruptions does it, and enlarged by repeating pixels."""

    def change(image: Image, _draw: int) -> Image:
        small = PIL.Image.fromarray(image).resize((int(WIDTH * scale), int(HEIGHT * scale)), PIL.Image.Resampling.BOX)
        return np.asarray(small.resize((WIDTH, HEIGHT), PIL.Image.Resampling.NEAREST))

    return change


def compared() -> Iterator[tuple[str, Callable[[Image, int], Image]]]:
    """Yields what is measured, each with its name."""
    for name in ("fog", "frost", "rain", "pixelate"):
        yield from ((setting, ours(setting)) for setting in (f"{name}:{level}" for level in LEVELS))
        yield from PEERS[name]()


def _fog() -> Iterator[tuple[str, Callable[[Image, int], Image]]]:
    for coefficient in (0.2, 0.6, 1.0):
        title = f"albumentations RandomFog, {coefficient}"
        yield title, of_albumentations("RandomFog", fog_coef_range=(coefficient, coefficient))
    yield from ((f"imagecorruptions fog, severity {each}", of_imagecorruptions("fog", each)) for each in range(1, 6))


def _frost() -> Iterator[tuple[str, Callable[[Image, int], Image]]]:
    yield from ((f"imagecorruptions frost, severity {each}", of_imagecorruptions("frost", each)) for each in range(1, 6))


def _rain() -> Iterator[tuple[str, Callable[[Image, int], Image]]]:
    for kind in ("drizzle", "heavy", "torrential"):
        yield f"albumentations RandomRain, {kind}", of_albumentations("RandomRain", rain_type=kind)


def _pixelate() -> Iterator[tuple[str, Callable[[Image, int], Image]]]:
    yield from ((f"Pillow's box, {scale}", of_pillow(scale)) for scale in (0.9, 0.5, 0.2))


PEERS = {"fog": _fog, "frost": _frost, "rain": _rain, "pixelate": _pixelate}


def main() -> int:
    """Prints the table."""
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # it would ask a server for its newest version
    warnings.simplefilter("ignore")  # imagecorruptions imports deprecated modules
    pictures = {"photograph": photograph(), "page": page()}
    sys.stdout.write("| | photograph | page |\n|---|--:|--:|\n")
    for title, change in compared():
        distances = [f"{_distance(picture, change):.1f}" for picture in pictures.values()]
        sys.stdout.write(f"| {title} | {' | '.join(distances)} |\n")
    return 0


def _distance(picture: Image, change: Callable[[Image, int], Image]) -> float:
    changed = (np.asarray(change(picture, draw), np.int16) for draw in range(DRAWS))
    return float(np.mean([np.abs(each - picture).mean() for each in changed]))


if __name__ == "__main__":
    sys.exit(main())
