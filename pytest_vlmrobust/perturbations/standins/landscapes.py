"""Landscapes: land, sky and cities that look like the image, by day and in the dark."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.perturbations.pixels import Color, Image, Plane, blend, opencv, smooth_noise, stretch

from .canvas import (
    Labels,
    Points,
    Table,
    blur_plane,
    drift,
    dust,
    ellipse,
    fraction,
    gradient,
    grain,
    pick,
    print_tones,
    ramp,
    relief,
    scatter_points,
    slanted_coordinate,
    stamp_sprites,
    standin,
    stick,
    teardrop,
    tone,
)

# Land: woods and deserts that look like the image.


WOODS: tuple[tuple[Color, ...], ...] = (
    ((2, 6, 10), (8, 26, 30), (22, 62, 54), (92, 134, 88), (226, 236, 176)),
    ((3, 4, 14), (14, 20, 52), (34, 58, 104), (104, 146, 176), (224, 238, 246)),
    ((6, 6, 4), (30, 28, 12), (76, 66, 22), (160, 136, 54), (250, 232, 160)),
)
"""The depth of the woods, leaves in shadow, leaves in the moonlight."""

DUNES: tuple[tuple[Color, ...], ...] = (
    ((70, 34, 20), (150, 84, 40), (214, 146, 80), (240, 196, 130), (255, 236, 196)),
    ((56, 30, 40), (142, 70, 60), (214, 124, 84), (244, 184, 132), (255, 230, 200)),
    ((60, 48, 36), (134, 108, 74), (196, 168, 120), (230, 210, 168), (252, 244, 222)),
)
"""Sand from the shadow to the crest."""


@standin(changes=["colour", "text"])
def standin_night_forest(image: Image, rng: np.random.Generator) -> Image:
    """Shows the image as moonlit leaves behind dark trunks; a procedural stand-in for a diffusion illusion.

    Leaves overlap in four directions, each as bright as the image at its position.
    """
    height, width = image.shape[:2]
    leaf = grain(height, width, 6.5, least=4.0)
    light = tone(image, soften=leaf / 5)
    forest = (0.1 + 0.24 * light) * drift(rng, height, width, cell=10 * leaf, octaves=3) + 0.06 * light
    for turn in rng.uniform(0.0, np.pi) + 0.8 * np.arange(4):
        places = scatter_points(rng, height, width, 0.62 * leaf)
        there = rng.random(len(places[0])) < 0.55
        bright = there * light[places] ** 1.2 * rng.uniform(0.35, 1.0, len(there)).astype(np.float32)
        np.maximum(forest, stamp_sprites(places, bright, (height, width), ellipse(leaf, 0.42 * leaf, turn)), out=forest)
    forest *= 0.45 + 0.55 * light
    forest *= 1.0 - 0.6 * _trunks(rng, height, width, leaf)
    return print_tones(forest, pick(rng, WOODS))


@standin(changes=["colour"])
def standin_sand_dunes(image: Image, rng: np.random.Generator) -> Image:
    """Shows the image as rippled sand in low light; a procedural stand-in for a diffusion illusion.

    Light areas are high: ripples climb and crowd along the slopes. One side of a slope faces the light.
    """
    height, width = image.shape[:2]
    unit = grain(height, width, 1.0, least=0.6)
    light = tone(image, soften=unit)
    swell = drift(rng, height, width, cell=90 * unit, octaves=3)
    wander = drift(rng, height, width, cell=24 * unit, octaves=2)
    place = slanted_coordinate(height, width, rng.uniform(1.2, 1.9), 5.0 * unit)
    place += 5.0 * swell + 2.2 * wander + 1.6 * blur_plane(light, 2.5 * unit)
    phase = fraction(place)
    ripple = np.minimum(phase * np.float32(1 / 0.7), (1.0 - phase) * np.float32(1 / 0.3)) - np.float32(0.5)
    ripple *= 0.17 + 0.17 * wander
    slope = relief(blur_plane(light, 1.5 * unit), np.deg2rad(45)) * np.float32(0.8 * unit)
    sand = 0.02 + 0.58 * light + 0.16 * swell + ripple + np.clip(slope, -0.24, 0.24, out=slope)
    sand += 0.08 * dust(rng, height, width)
    return print_tones(sand, pick(rng, DUNES))


def _trunks(rng: np.random.Generator, height: int, width: int, leaf: float) -> Plane:
    """Returns the silhouettes of trunks, about five per image, 1 on a trunk and 0 elsewhere."""
    places = slanted_coordinate(height, width, 0.0, 11 * leaf)
    places += 0.18 * drift(rng, height, width, cell=14 * leaf, octaves=2) + rng.random(dtype=np.float32)
    plot = np.floor(places).astype(np.int32)
    count = int(plot.max()) + 1
    centre = rng.uniform(0.15, 0.85, count).astype(np.float32)
    breadth = rng.uniform(0.15, 0.33, count).astype(np.float32) ** 2
    off = np.abs(places - plot - centre.take(plot))
    silhouette: Plane = np.clip((breadth.take(plot) - off) * np.float32(11 * leaf) + 0.5, 0.0, 1.0)
    return silhouette


# Sky: stars and clouds that look like the image.


NIGHTS: tuple[tuple[Color, ...], ...] = (
    ((4, 6, 20), (16, 22, 66), (52, 48, 130), (150, 110, 190), (250, 236, 250)),
    ((3, 8, 20), (8, 34, 70), (24, 88, 124), (110, 180, 190), (244, 252, 250)),
    ((8, 4, 20), (44, 14, 62), (126, 38, 104), (226, 120, 130), (255, 242, 230)),
)
"""Sky between the stars, the Milky Way, the stars."""

STARS = ((2.6, 0.5, 0.45), (4.5, 0.5, 0.75), (14.0, 0.4, 1.3))
"""Faint, middling and bright stars: their distance in units, the share of positions taken in light areas, their radius."""

SKIES: tuple[tuple[tuple[Color, ...], tuple[Color, ...]], ...] = (
    (((30, 84, 168), (50, 116, 196), (92, 152, 214)), ((104, 124, 156), (206, 214, 226), (255, 255, 255))),
    (((54, 46, 112), (148, 66, 108), (214, 112, 84)), ((126, 84, 122), (244, 190, 170), (255, 244, 222))),
    (((20, 50, 82), (40, 88, 112), (104, 128, 124)), ((96, 108, 120), (208, 206, 198), (252, 250, 240))),
)
"""The sky from top to bottom, and its clouds from their shadows to their lit side."""


@standin(changes=["colour", "text_12"])
def standin_starry_sky(image: Image, rng: np.random.Generator) -> Image:
    """Shows the image as stars and gas in a night sky; a procedural stand-in for a diffusion illusion.

    The lighter the image, the denser and brighter the stars and the gas between them; the brightest have rays.
    """
    height, width = image.shape[:2]
    unit = grain(height, width, 1.0, least=0.5)
    light = tone(image, soften=unit)
    gas = drift(rng, height, width, cell=60 * unit, octaves=5, decay=0.6)
    sky = 0.06 + 0.12 * gas * gas + (0.22 + 0.32 * gas) * blur_plane(light, 2.5 * unit)
    stars = [_stars(rng, light, max(distance * unit, 2.0), share) for distance, share, _ in STARS]
    for points, (_, _, radius) in zip(stars, STARS, strict=True):
        spread = max(radius * unit, 0.5)
        sky += blur_plane(points, spread) * np.float32(2 * np.pi * spread * spread)
    sky += _rays(stars[-1], 4.5 * unit, max(0.5 * unit, 0.4))
    return print_tones(sky, pick(rng, NIGHTS))


@standin(changes=["colour", "text"])
def standin_clouds(image: Image, rng: np.random.Generator) -> Image:
    """Shows the image as clouds in a wide sky; a procedural stand-in for a diffusion illusion.

    Clouds gather where the image is light, billow at their borders, are lit from above and shaded below.
    """
    height, width = image.shape[:2]
    unit = grain(height, width, 1.0, least=0.5)
    light = tone(image, soften=2 * unit)
    bank = drift(rng, height, width, cell=80 * unit, octaves=3)
    billows = _billows(rng, height, width, 34 * unit)
    body = light + 0.4 * bank + 0.6 * billows
    slope = relief(blur_plane(billows + 0.8 * light, 1.2 * unit), np.deg2rad(75)) * np.float32(2.5 * unit)
    shade = 0.15 + 0.15 * light + 0.75 * ramp(billows + 0.3 * bank, 0.3, 1.0) + np.clip(slope, -0.3, 0.2, out=slope)
    sky, cloud = (gradient(colours) for colours in SKIES[rng.integers(len(SKIES))])
    down = np.repeat(np.linspace(0.0, 1.0, height, dtype=np.float32)[:, None], width, axis=1)
    cover = ramp(body, 0.65, 1.25)
    return blend(print_tones(down, sky), print_tones(shade, cloud), cover * cover * (3.0 - 2.0 * cover))


def _stars(rng: np.random.Generator, light: Plane, distance: float, share: float) -> Plane:
    """Returns the brightness of stars at single pixels, 0 elsewhere; they gather where it is light."""
    y, x = scatter_points(rng, light.shape[0], light.shape[1], distance)
    shown = rng.random(len(y)) < share * light[y, x] ** 1.5 + 0.02
    places: Points = y[shown], x[shown]
    points = np.zeros(light.shape, np.float32)
    points[places] = rng.uniform(0.3, 1.0, len(places[0])) ** 2 * (0.35 + 0.65 * light[places])
    return points


def _rays(points: Plane, length: float, breadth: float) -> Plane:
    cv2 = opencv()
    across = cv2.GaussianBlur(points, (0, 0), sigmaX=length, sigmaY=breadth)
    down = cv2.GaussianBlur(points, (0, 0), sigmaX=breadth, sigmaY=length)
    cross: Plane = (across + down) * np.float32(2.5 * length * breadth)
    return cross


def _billows(rng: np.random.Generator, height: int, width: int, size: float) -> Plane:
    """Returns round heads that meet in sharp creases, smaller ones on larger ones, in [0, 1]."""
    total = np.zeros((height, width), np.float32)
    for octave in range(4):
        heads = smooth_noise(rng, height, width, cell=size / 2**octave)
        heads -= np.float32(0.5)
        total += np.float32(0.55**octave) * np.abs(heads, out=heads)
    return stretch(total)


# Light: dark images with little light.


ROOMS: tuple[tuple[Color, ...], ...] = (
    ((3, 4, 9), (22, 30, 54), (120, 74, 46), (232, 162, 84), (255, 236, 196)),
    ((4, 3, 7), (40, 20, 48), (120, 40, 70), (224, 120, 90), (255, 226, 190)),
    ((2, 5, 7), (10, 38, 46), (30, 92, 96), (150, 180, 140), (244, 246, 214)),
    ((4, 4, 4), (34, 34, 36), (96, 94, 92), (176, 172, 166), (246, 242, 234)),
)
"""A room at night, from its shadows to its lights."""

FLAMES: tuple[tuple[Color, ...], ...] = (
    ((8, 4, 6), (58, 18, 8), (146, 54, 10), (236, 140, 30), (255, 214, 110), (255, 250, 224)),
    ((6, 4, 14), (52, 16, 40), (140, 40, 50), (240, 120, 60), (255, 206, 130), (255, 248, 230)),
    ((4, 8, 6), (40, 34, 8), (120, 92, 14), (226, 176, 40), (255, 228, 120), (255, 252, 228)),
)
"""The dark between candles, their glow, the flame."""


@standin(changes=["colour", "text_24"])
def standin_low_key(image: Image, rng: np.random.Generator) -> Image:
    """Relights the image as a dark room with light through blinds; a procedural stand-in for a diffusion illusion.

    One lamp beside the image, with lightness as height, lights what faces it and fades with distance; the rest sinks into
    tinted shadow. Slanted bars of the blinds and the grain of fast film cover it.
    """
    height, width = image.shape[:2]
    unit = grain(height, width, 1.0, least=0.5)
    light = tone(image)
    towards = rng.uniform(0.0, 2.0 * np.pi)
    facing = relief(blur_plane(light, 1.2 * unit), towards) * np.float32(1.1 * unit)
    shown = 1.1 * np.sqrt(light) * light + np.clip(facing, 0.0, 0.3, out=facing)
    shown *= _lamp(height, width, towards)
    bars = np.abs(fraction(slanted_coordinate(height, width, np.pi / 2 + rng.uniform(-0.35, 0.35), 30 * unit)) - np.float32(0.5))
    shown *= 0.58 + 0.42 * ramp(bars, 0.15, 0.25)
    shown += 0.07 * (dust(rng, height, width) - 0.5)
    return print_tones(shown, pick(rng, ROOMS))


@standin(changes=["colour", "text_18"])
def standin_candles(image: Image, rng: np.random.Generator) -> Image:
    """Shows the image as rows of candles burning in the dark; a procedural stand-in for a diffusion illusion.

    The lighter the image, the higher and brighter a flame burns, on a stick of wax that it lights, with a glow around it.
    """
    height, width = image.shape[:2]
    size = grain(height, width, 10.0, least=6.0)
    light = tone(image, soften=size / 10)
    wicks = scatter_points(rng, height, width, size, jitter=0.5)
    burning = 0.08 + 0.92 * blur_plane(light, size / 4)[wicks]
    high = burning > 0.35
    flames = stamp_sprites(wicks, burning, (height, width), teardrop(0.4 * size, 0.22 * size), hold=1.0)
    tall = stamp_sprites(
        (wicks[0][high], wicks[1][high]), burning[high], (height, width), teardrop(0.6 * size, 0.34 * size), hold=1.0
    )
    flames = blur_plane(np.maximum(flames, tall), size / 25)
    wax = blur_plane(stamp_sprites(wicks, burning, (height, width), stick(0.55 * size, 0.26 * size), hold=0.0), size / 30)
    glow = blur_plane(flames, 0.45 * size)
    shown = 0.16 + 0.34 * wax + 0.6 * flames + 1.1 * glow
    shown *= 0.2 + 0.8 * light
    return print_tones(shown, pick(rng, FLAMES))


def _lamp(height: int, width: int, angle: float) -> Plane:
    """Returns the light of a lamp off the centre in the direction ``angle``, from 1 beneath it down to 0.3 far away."""
    x = ((np.arange(width) + 0.5) / width - 0.5 - 0.35 * np.cos(angle)).astype(np.float32)
    y = ((np.arange(height) + 0.5) / height - 0.5 - 0.35 * np.sin(angle)).astype(np.float32)
    near_x, near_y = np.exp(-2.2 * x * x), np.exp(-2.2 * y * y)
    lamp: Plane = 0.3 + near_x * (0.7 * near_y)[:, None]
    return lamp


# Isometric view: images built from columns, seen from above at an angle.
#
# Columns stand on squares, which this view shows as rhombi, 1.73 edges wide and one edge high. Two coordinates count squares, one
# towards the lower right and one towards the lower left; a point ``h`` edges above the ground appears ``h`` edges higher in the
# image, which is ``h`` further along both.


PASTELS: tuple[tuple[Color, ...], ...] = (
    ((66, 62, 128), (112, 120, 196), (140, 200, 214), (252, 204, 190), (255, 242, 220)),
    ((44, 84, 112), (84, 156, 160), (160, 212, 176), (250, 224, 150), (255, 248, 226)),
    ((104, 56, 98), (196, 96, 128), (244, 160, 152), (252, 214, 166), (255, 246, 224)),
)
"""Card from dark to light."""

STEPS = 5
"""Steps from the lowest to the highest column."""
RISE = 0.6
"""The height of the highest column in edges of its base; higher ones would hide narrow dark things behind them."""
FACES = np.array([1.0, 0.8, 0.62])
"""The light on the top, left side and right side of a column."""
ROOT_3 = float(np.sqrt(3.0))

Real = NDArray[np.float64]
Whole = NDArray[np.intp]


@standin(changes=["colour", "text_12"])
def standin_isometric(image: Image, rng: np.random.Generator) -> Image:
    """Builds the image from pastel columns in isometric view; a procedural stand-in for a diffusion illusion.

    A column is as high and as light as the image at its top, in six steps; its top catches the light, its two
    sides less of it.
    """
    height, width = image.shape[:2]
    edge = grain(height, width, 5.4, least=4.0)
    start = rng.random(2)
    right, left = _squares(height, width, edge, start)
    i, j = np.floor(right).astype(np.int32), np.floor(left).astype(np.int32)
    ids, columns, per_row = _number_squares(i, j)
    shade: Table = np.rint(STEPS * tone(image, soften=edge / 4, local=0.0)[_tops(columns, height, width, edge, start)])
    shade *= np.float32(1 / STEPS)
    seen = _cast(ids, per_row, right - i, left - j, np.float32(RISE) * shade)
    colours = pick(rng, PASTELS)[np.rint(255 * shade).astype(np.intp)] * rng.normal(1.0, 0.02, (len(shade), 1))
    painted = np.clip(np.rint(colours[:, None] * FACES[:, None]), 0, 255).astype(np.uint8)
    built: Image = painted.reshape(-1, 3).take(seen, axis=0)
    return built


def _squares(height: int, width: int, edge: float, start: Real) -> tuple[Plane, Plane]:
    """Returns the two coordinates of the ground at each pixel, shape (H, W) each."""
    across = (np.arange(width) / (ROOT_3 * edge) + start[0]).astype(np.float32)
    down = (np.arange(height) / edge + start[1]).astype(np.float32)[:, None]
    return down + across, down - across


def _number_squares(i: Labels, j: Labels) -> tuple[Labels, Whole, int]:
    """Returns the number of the square of each pixel, the two coordinates of each number, shape (2, N), and the numbers per row.

    Squares are numbered row by row in the image, where ``i + j`` is the row and ``i - j`` the position in it, with
    room for squares in front of the lowest, so numbers stay dense in an image of any shape. The next square to the right is
    ``per_row + 1`` further, the next to the left ``per_row - 1``.
    """
    row, place = i + j, i - j
    first_row, first_place = int(row.min()), int(place.min()) - 1
    rows, per_row = int(row.max()) - first_row + 3, int(place.max()) - first_place + 2
    all_rows, all_places = np.indices((rows, per_row)).reshape(2, -1) + np.array([[first_row], [first_place]])
    ids = (row - np.int32(first_row)) * np.int32(per_row) + (place - np.int32(first_place))
    return ids, np.stack([all_rows + all_places, all_rows - all_places]) // 2, per_row


def _tops(columns: Whole, height: int, width: int, edge: float, start: Real) -> tuple[Whole, Whole]:
    """Returns the row and column of the centre pixel of a top of middling height, or of the nearest pixel in the image."""
    right, left = columns + 0.5
    x = (0.5 * (right - left) - start[0]) * ROOT_3 * edge
    y = (0.5 * (right + left) - start[1] - 0.5 * RISE) * edge
    return np.clip(np.rint(y), 0, height - 1).astype(np.intp), np.clip(np.rint(x), 0, width - 1).astype(np.intp)


def _cast(ids: Labels, per_row: int, right: Plane, left: Plane, heights: Table) -> Labels:
    """Returns the first face that each line of sight meets, as three times the number of the column plus the face.

    From the ground up, a line rises from a column, passes over one beside it, and over the one diagonally in front. It meets
    the side of a column that is as high as the line is where it leaves it, and the top of a lower column.

    ``ids`` is the number of the column under the foot of each line, and ``per_row`` how many numbers a row has (see
    ``_number_squares``). ``right`` and ``left`` locate the foot along the base of its column, in [0, 1); ``heights`` are
    the heights of the columns in edges, below 1.
    """
    over_right = right > left
    near, far = 1.0 - np.maximum(right, left), 1.0 - np.minimum(right, left)
    beside = ids + np.where(over_right, np.int32(per_row + 1), np.int32(per_row - 1))
    side = np.where(over_right, np.int32(2), np.int32(1))
    front = ids + np.int32(2 * per_row)
    seen = 3 * ids + side * (heights.take(ids) >= near)
    reach = heights.take(beside)
    seen = np.where(reach >= near, 3 * beside + (3 - side) * (reach >= far), seen)
    return np.where(heights.take(front) >= far, 3 * front, seen)
