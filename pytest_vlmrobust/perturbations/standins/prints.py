"""Prints: images made of ink, of folded and cut paper, or of brush strokes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.perturbations.pixels import Color, Image, Plane, opencv, smooth_noise

from .canvas import (
    Table,
    blur_plane,
    coordinates,
    drift,
    fraction,
    gradient,
    grain,
    levels,
    light_image,
    number_cells,
    pick,
    print_levels,
    print_tones,
    ramp,
    relief,
    slanted_coordinate,
    standin,
    tone,
)

# Print: images made of ink on paper.


INKS: tuple[tuple[Color, Color, Color], ...] = (
    ((250, 244, 226), (255, 106, 90), (20, 54, 110)),
    ((252, 246, 232), (255, 196, 40), (24, 92, 88)),
    ((244, 240, 232), (250, 96, 160), (30, 60, 140)),
    ((248, 243, 224), (60, 190, 200), (130, 30, 60)),
    ((246, 240, 222), (120, 200, 120), (70, 40, 110)),
)
"""Paper, light ink and dark ink of each print."""

PENS: tuple[tuple[Color, ...], ...] = (
    ((22, 26, 46), (250, 245, 230)),
    ((66, 36, 20), (247, 236, 212)),
    ((20, 52, 40), (244, 243, 226)),
    ((90, 20, 34), (250, 240, 230)),
)
"""Ink and paper of each drawing."""


@standin(changes=["colour"])
def standin_halftone(image: Image, rng: np.random.Generator) -> Image:
    """Prints the image as a halftone of two inks on paper; a procedural stand-in for a diffusion illusion.

    Each ink is a screen of round dots whose size follows the tone: the light ink everywhere but in the lights, the dark ink in
    the shadows. Screens are at 45 and 75 degrees to avoid moire, with a random phase.
    """
    height, width = image.shape[:2]
    period = grain(height, width, 5.0, least=4.0)
    paper, light, dark = (np.array(colour, np.float64) for colour in INKS[rng.integers(len(INKS))])
    shade = 1.0 - tone(image)
    first = _dots(rng, 0.09 + 1.2 * shade**1.2, period, np.deg2rad(75.0))
    second = _dots(rng, 1.7 * shade - 0.65, period, np.deg2rad(45.0))
    overprint = (np.rint(15 * first) * 16 + np.rint(15 * second)).astype(np.uint8)
    share = np.arange(16)[:, None] / 15.0
    under = paper * (1.0 - share) + light * share
    mixed = under[:, None] * (1.0 - share) + dark * share
    return print_levels(overprint, mixed.reshape(256, 3))


@standin(changes=["colour"])
def standin_cross_hatching(image: Image, rng: np.random.Generator) -> Image:
    """Draws the image in pen and ink by layers of crossing lines; a procedural stand-in for a diffusion illusion.

    Four layers in four directions begin one after another as the tone darkens; lines waver, swell with the shadow and lift
    off the paper. Contours are inked where the tone changes quickly.
    """
    height, width = image.shape[:2]
    spacing = grain(height, width, 4.2, least=3.6)
    light = tone(image, soften=0.25 * spacing)
    grip = light + 0.16 * drift(rng, height, width, cell=5 * spacing, octaves=2)
    ink = _contours(light, spacing)
    start = rng.uniform(0, np.pi)
    for angle, lightest in ((0.0, 1.14), (1.0, 0.68), (2.1, 0.46), (0.5, 0.28)):
        lines = _hatch(rng, grip, spacing, start + angle, lightest)
        np.maximum(ink, lines, out=ink)
    fibres = smooth_noise(rng, height, width, cell=1.2 * spacing, octaves=2)
    return print_tones((1.0 - 0.08 * fibres) * (1.0 - ink), gradient(PENS[rng.integers(len(PENS))]))


def _dots(rng: np.random.Generator, coverage: Plane, period: float, angle: float) -> Plane:
    """Returns how much ink each pixel gets from a screen of dots that cover a share ``coverage``, in [0, 1]."""
    height, width = coverage.shape
    along, across = _wave(rng, height, width, period, angle), _wave(rng, height, width, period, angle + np.pi / 2)
    peaks = 0.25 * (along + across) + 0.5
    edge = np.interp(1.0 - np.arange(256) / 255.0, np.linspace(0, 1, 4097), _screen_quantiles()).astype(np.float32)
    ink: Plane = np.clip((peaks - edge.take(levels(coverage))) * np.float32(0.55 * period) + 0.5, 0.0, 1.0)
    return ink


def _screen_quantiles() -> Table:
    """Returns the sorted values of a screen of dots, so that a share becomes the threshold that leaves this share above."""
    phase = np.cos(np.linspace(0, 2 * np.pi, 64, endpoint=False))
    values: Table = np.sort((0.25 * (phase[:, None] + phase) + 0.5).ravel()).astype(np.float32)
    return np.concatenate([values, [np.float32(1.1)]])


def _wave(rng: np.random.Generator, height: int, width: int, period: float, angle: float) -> Plane:
    """Returns a plane cosine wave at ``angle``; by the addition theorem, from the waves of single rows and columns."""
    pace, phase = 2 * np.pi / period, rng.uniform(0, 2 * np.pi)
    x = (pace * np.cos(angle) * np.arange(width)).astype(np.float32)
    y = (pace * np.sin(angle) * np.arange(height) + phase).astype(np.float32)[:, None]
    wave: Plane = np.cos(y) * np.cos(x) - np.sin(y) * np.sin(x)
    return wave


def _hatch(rng: np.random.Generator, light: Plane, spacing: float, angle: float, lightest: float) -> Plane:
    """Returns the ink of one layer of wavering lines, drawn where ``light`` is below ``lightest``."""
    height, width = light.shape
    place = slanted_coordinate(height, width, angle, spacing)
    place += 0.9 * drift(rng, height, width, cell=16 * spacing, octaves=2)
    from_line = np.abs(fraction(place) - np.float32(0.5))
    swell = ramp(light, lightest, lightest - 0.45)
    ink: Plane = np.minimum(swell * np.float32(1.25 * spacing), 1.0)
    swell *= np.float32(0.32 * spacing)
    swell -= from_line * np.float32(spacing)
    swell += np.float32(0.5)
    ink *= np.clip(swell, 0.0, 1.0, out=swell)
    return ink


def _contours(light: Plane, spacing: float) -> Plane:
    """Returns ink on the dark side of each edge, as thick as a line."""
    return ramp(blur_plane(light, 0.5 * spacing) - blur_plane(light, 0.2 * spacing), 0.03, 0.1)


# Paper: images folded and cut from coloured sheets.


SHEETS: tuple[tuple[Color, ...], ...] = (
    ((40, 54, 92), (74, 112, 152), (150, 186, 196), (242, 204, 168), (252, 244, 232)),
    ((96, 32, 48), (190, 78, 76), (236, 146, 110), (248, 206, 158), (255, 246, 230)),
    ((26, 70, 66), (62, 128, 108), (140, 188, 144), (222, 222, 160), (252, 250, 230)),
    ((62, 42, 92), (128, 88, 150), (206, 136, 172), (246, 190, 186), (255, 240, 234)),
)
"""Five sheets from the lowest, and darkest, to the uppermost."""


@standin(changes=["colour", "text_12"])
def standin_origami(image: Image, rng: np.random.Generator) -> Image:
    """Folds the image from sheets of coloured paper; a procedural stand-in for a diffusion illusion.

    Five tones become stacked sheets that cast shadows; triangular facets with sharp creases tilt to the light.
    """
    height, width = image.shape[:2]
    size = grain(height, width, 24.0, least=8.0)
    sheet = np.minimum(np.floor(5.0 * tone(image, soften=size / 11, local=0.0)), 4.0)
    shade = _facets(rng, height, width, size)
    shade *= 0.95 + 0.1 * smooth_noise(rng, height, width, cell=1.5 + size / 10)
    above = _shift(blur_plane(sheet, size / 12), size / 7) - sheet
    shade *= 1.0 - 0.5 * np.clip(above, 0.0, 1.0, out=above)
    return light_image(print_tones(blur_plane(sheet, 0.5) * np.float32(0.25), pick(rng, SHEETS)), shade)


def _facets(rng: np.random.Generator, height: int, width: int, size: float) -> Plane:
    """Returns the light on irregular triangular facets of about ``size`` pixels, with bright and dark creases, around 0.9."""
    across = slanted_coordinate(height, width, np.pi / 6, 0.87 * size) + 1.1 * _crumple(rng, height, width, 1.5 * size)
    down = slanted_coordinate(height, width, np.pi / 2, 0.86 * size) + 1.1 * _crumple(rng, height, width, 1.5 * size)
    u, v = fraction(across), fraction(down)
    fold = u + v - np.float32(1.0)
    facets = number_cells(np.floor(across).astype(np.int32), np.floor(down).astype(np.int32), (fold > 0).astype(np.int32))
    light: Plane = rng.uniform(0.72, 1.1, int(facets.max()) + 1).astype(np.float32).take(facets)
    edge = np.minimum(np.minimum(np.minimum(u, 1.0 - u), np.minimum(v, 1.0 - v)), np.abs(fold))
    crease = np.clip(1.0 - edge * np.float32(size / 1.5), 0.0, 1.0)
    light += np.where(fold > 0, np.float32(0.12), np.float32(-0.12)) * crease
    return light


def _crumple(rng: np.random.Generator, height: int, width: int, size: float) -> Plane:
    """Returns a field in [-0.5, 0.5) that is straight between random values on a grid of ``size`` pixels, so that folds are."""
    grid = rng.random((max(1, round(height / size)), max(1, round(width / size))), dtype=np.float32) - np.float32(0.5)
    field: Plane = opencv().resize(grid, (width, height), interpolation=opencv().INTER_LINEAR)
    return field


def _shift(plane: Plane, pixels: float) -> Plane:
    """Returns ``plane`` moved down and right by ``pixels``."""
    step = max(1, round(pixels))
    return np.pad(plane, ((step, 0), (step, 0)), mode="edge")[:-step, :-step]


# Paint: images made of brush strokes.


OILS: tuple[tuple[Color, ...], ...] = (
    ((14, 22, 60), (30, 62, 140), (72, 128, 176), (226, 190, 88), (252, 240, 186)),
    ((40, 24, 20), (110, 58, 34), (190, 120, 54), (226, 190, 120), (250, 238, 210)),
    ((20, 40, 34), (44, 96, 66), (140, 160, 70), (236, 200, 110), (252, 240, 214)),
    ((44, 20, 52), (126, 50, 96), (216, 106, 92), (250, 180, 110), (255, 238, 196)),
)
"""Oil colours from dark to light."""

FINEST = 5.0
"""A brush is at most this many pixels wide while strokes are drawn: they are smooth enough to be enlarged afterwards."""


@standin(changes=["colour", "text_12"])
def standin_oil_paint(image: Image, rng: np.random.Generator) -> Image:
    """Paints the image in oil with thick strokes along its contours; a procedural stand-in for a diffusion illusion.

    Dabs of uneven colour are smeared along the direction of least tone change, or along eddies where it does not
    change, and light from above rakes over their ridges.
    """
    cv2 = opencv()
    height, width = image.shape[:2]
    brush = grain(height, width, 3.0, least=2.0)
    shrink = min(1.0, FINEST / brush)
    small = max(1, round(shrink * width)), max(1, round(shrink * height))
    light = cv2.resize(tone(image), small, interpolation=cv2.INTER_AREA)
    strokes = _strokes(rng, blur_plane(light, 0.5 * shrink * brush), shrink * brush)
    shade, ridges = cv2.split(cv2.resize(strokes, (width, height), interpolation=cv2.INTER_CUBIC))
    paint = print_tones(shade + 0.07 * ridges, pick(rng, OILS))
    return light_image(paint, 1.0 + np.clip(relief(ridges, np.deg2rad(-110)) * np.float32(0.25 * brush), -0.25, 0.25))


def _strokes(rng: np.random.Generator, light: Plane, brush: float) -> NDArray[np.float32]:
    """Returns the tone and the height of the paint, the latter with a deviation of 1, shape (H, W, 2).

    Both are averaged along the flow over about six brush widths, in two steps; the second is three times as long.
    """
    cv2 = opencv()
    height, width = light.shape
    along_x, along_y = _flow(rng, light, brush)
    x, y = coordinates(height, width)
    layers = np.dstack([light, smooth_noise(rng, height, width, cell=brush)])
    for step in (0.45 * brush, 1.35 * brush):
        by_x, by_y = along_x * np.float32(step), along_y * np.float32(step)
        ahead = cv2.remap(layers, x + by_x, y + by_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
        back = cv2.remap(layers, x - by_x, y - by_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
        layers = (layers + ahead + back) * np.float32(1 / 3)
    ridges = layers[..., 1] - layers[..., 1].mean()
    layers[..., 1] = ridges / max(float(ridges.std()), 1e-6)
    return layers


def _flow(rng: np.random.Generator, light: Plane, brush: float) -> tuple[Plane, Plane]:
    """Returns the direction of the strokes as the x and the y of a unit vector, shape (H, W) each.

    Angles are doubled while they are averaged, so that opposite directions, which are the same to a brush, do not cancel.
    """
    cv2 = opencv()
    height, width = light.shape
    across, down = (cv2.Sobel(light, cv2.CV_32F, dx, 1 - dx, scale=0.125) for dx in (1, 0))
    eddy = smooth_noise(rng, height, width, cell=30 * brush, octaves=2) * np.float32(4 * np.pi)
    faint = np.float32((0.012 / brush) ** 2)
    cosine = blur_plane(down * down - across * across, 2.5 * brush) + faint * np.cos(eddy)
    sine = blur_plane(-2.0 * across * down, 2.5 * brush) + faint * np.sin(eddy)
    angle = 0.5 * cv2.phase(cosine, sine)
    return np.cos(angle), np.sin(angle)
