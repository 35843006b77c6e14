"""What every setting does to the answer: to colours, to what is in view and where, and to letters; and what follows from it.

    python studies/declarations/declarations.py                              # every setting, in some minutes
    python studies/declarations/declarations.py --names fog solarize         # some perturbations, at all levels
    python studies/declarations/declarations.py --write                      # also writes the table of README.md

The pictures are a white page and a black one, with disks or with capitals. Each setting is applied to a page with and without a
disk, with the same draw; what differs is that disk, wherever it went:

- ``hidden``: share of the black disks of a white page, and of the white disks of a black one, that nothing shows of: fewer spots
  differ from the same page without disks, by more than 3 levels, than there are disks;
- ``renamed``: share of disks in the colours of a chart whose colour is nearest, in CIELAB, to another of the eleven basic colours
  than before, or equals the paper's, though no disk is hidden there;
- ``moved``: share of these disks whose centre is in another quadrant of the picture;
- ``across`` and ``down``: share of pairs of disks whose order from left to right, and from top to bottom, is another;
- ``read_12`` to ``read_36``: share of capitals so many pixels high that are recognised: the most alike of 26 clean ones, by
  normalised correlation of either sign, within a quarter of their height of their place, after a blur by an eighth of it. Not
  measured of perturbations that move all letters (:data:`ELSEWHERE`), where ``1 - hidden`` takes its place. What cannot be
  read at a height is taken to be lost at smaller ones too.

Declared are the tags of :func:`declared`, and those of :data:`BY_NATURE`, which no picture shows. The program ends with 1 where
the records declare something else. ``tests/contract/test_declarations.py`` holds the table against the records, and measures some
settings again.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import string
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import PIL.Image
import PIL.ImageDraw
import PIL.ImageFont
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.sample import TEXT_HEIGHTS
from pytest_vlmrobust.perturbations.registry import aspects, unreadable_text

Image = NDArray[np.uint8]

PAGE = Path(__file__).with_name("README.md")
START, END = "<!-- declarations: written by studies/declarations/declarations.py --write -->", "<!-- end -->"

BASIC_COLOURS = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "grey": (128, 128, 128),
    "red": (215, 25, 30),
    "orange": (250, 135, 10),
    "yellow": (250, 225, 20),
    "green": (35, 155, 55),
    "blue": (35, 100, 195),
    "purple": (130, 55, 170),
    "pink": (250, 150, 190),
    "brown": (120, 70, 35),
}
"""The eleven of Berlin & Kay 1969, each at a typical value."""

IN_A_CHART = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "grey": (127, 127, 127),
    "red": (214, 39, 40),
    "orange": (255, 127, 14),
    "yellow": (240, 215, 40),
    "green": (44, 160, 44),
    "blue": (31, 119, 180),
    "purple": (148, 103, 189),
    "pink": (227, 119, 194),
    "brown": (140, 86, 75),
}
"""The colours of the disks: those of a usual palette for charts, less vivid than the basic ones."""

HEIGHT, WIDTH = 240, 320
RADIUS = 12
SMALL_RADIUS = 6
VISIBLE = 3
"""Levels by which one value at least of a disk that is in view differs from the same picture without it."""
SOFTENED = 1 / 8
"""Standard deviation, in heights of a letter, of the blur before letters are compared: readers do not look at single pixels."""
FAINTEST = 0.2
"""Correlation up to which nothing is recognised."""
SEEDS = (1, 2, 3)

COLOUR_FROM = 0.3
HIDDEN_FROM = 0.03
MOVED_FROM = 1 / 3
ORDER_FROM = 1 / 3
READ_UP_TO = 2 / 3

BY_NATURE: dict[str, frozenset[str]] = {
    "text_overlay": unreadable_text(TEXT_HEIGHTS[-1]),
    "watermark": unreadable_text(TEXT_HEIGHTS[-1]),
    "upsample": frozenset({"position"}),
}
"""What follows from what a perturbation is for: the first two add words, and a crop has other coordinates."""
ELSEWHERE = frozenset(
    ("rotate", "shear", "affine", "perspective_transform", "flip_h", "flip_v", "upsample", "add_border", "inner_border")
)
"""Perturbations after which letters stand too far from their places to be looked for there."""
OF_SEVERAL_VIEWS_OR_SIZES = frozenset({"patches", "attempts", "ladder", "preprocessing"})
"""Families that are not measured: the first two give several pictures, the others change nothing but the size."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a setting does, as shares; see the top of the file."""

    renamed: float
    hidden: float
    moved: float
    across: float
    down: float
    read_12: float | None
    read_18: float | None
    read_24: float | None
    read_36: float | None

    def read(self, height: int) -> float | None:
        """Returns the share of letters of a height that are read, or ``None`` where that is not measured."""
        share: float | None = getattr(self, f"read_{height}")
        return share

    @property
    def legible_from(self) -> str:
        """The height in pixels from which on letters stay legible, or an empty string where that is not measured."""
        if self.read_12 is None:
            return ""
        lost = [height for height in TEXT_HEIGHTS if (self.read(height) or 0.0) <= READ_UP_TO]
        return next((str(height) for height in TEXT_HEIGHTS if height > max(lost, default=0)), "none")


def declared(name: str, effect: Effect) -> frozenset[str]:
    """Returns what a setting of that perturbation changes, members of ``perturbations.CHANGES``, by the one rule for all."""
    tags = set(BY_NATURE.get(name, ()))
    if effect.renamed >= COLOUR_FROM:
        tags.add("colour")
    if effect.hidden >= HIDDEN_FROM:
        tags |= {"presence", "count"}
    if effect.moved >= MOVED_FROM:
        tags.add("position")
    if effect.across >= ORDER_FROM:
        tags.add("left_right")
    if effect.down >= ORDER_FROM:
        tags.add("up_down")
    seen = {height: 1.0 - effect.hidden if (share := effect.read(height)) is None else share for height in TEXT_HEIGHTS}
    return frozenset(tags) | unreadable_text(max((height for height, share in seen.items() if share <= READ_UP_TO), default=0))


def measured_settings() -> list[str]:
    """Returns the built-in settings that can be measured on a page."""
    return [
        name
        for name in perturbations.names("all")
        if perturbations.info(name).on == "image" and perturbations.info(name).family not in OF_SEVERAL_VIEWS_OR_SIZES
    ]


def measure(setting: str) -> Effect:
    """Returns the effect of a setting, the mean over both pages and, where it draws, over three draws."""
    seeds = SEEDS if perturbations.info(setting).stochastic else SEEDS[:1]
    pages = [_page_effect(setting, paper, seed) for paper in ("white", "black") for seed in seeds]
    renamed, gone, moved, across, down = (float(np.mean(column)) for column in zip(*pages, strict=True))
    hidden = float(np.mean([_hidden_share(setting, *inks, seed) for inks in (INKS, INKS[::-1]) for seed in seeds]))
    renamed += max(0.0, gone - hidden)
    if ELSEWHERE & {step.name for step in Setting.parse(setting).steps}:
        read: list[float | None] = [None] * len(TEXT_HEIGHTS)
    else:
        read = [round(float(np.mean([_read_share(setting, height, seed) for seed in seeds])), 3) for height in TEXT_HEIGHTS]
    renamed, hidden, moved, across, down = (round(share, 3) for share in (renamed, hidden, moved, across, down))
    return Effect(renamed, hidden, moved, across, down, *read)


@dataclass(frozen=True, slots=True)
class _Disk:
    colour: str
    x: float
    y: float


def _page_effect(setting: str, paper: str, seed: int) -> tuple[float, ...]:
    """Returns the shares of disks renamed, gone, moved, and in another order across and down."""
    disks = _disks(paper)
    whole = _render(setting, _drawn(paper, disks), seed)
    seen: list[tuple[_Disk, str, float, float]] = []
    for disk in disks:
        without = _render(setting, _drawn(paper, [other for other in disks if other is not disk]), seed)
        difference = np.abs(whole.astype(np.int16) - without).max(axis=2)
        if difference.max() > VISIBLE:
            spot = cv2.GaussianBlur(difference.astype(np.float32), (0, 0), 3.0)
            inside = spot >= 0.75 * spot.max()
            y, x = (np.median(places) + 0.5 for places in np.nonzero(inside))
            name = _name(whole[inside].mean(axis=0))
            seen.append((disk, name, x, y))
    if not seen:
        return 0.0, 1.0, 0.0, 0.0, 0.0
    middle = np.array([WIDTH / 2, HEIGHT / 2])
    before = np.array([(disk.x, disk.y) for disk, *_ in seen])
    after = np.array([(x, y) for *_, x, y in seen])
    quadrants = ((before > middle) != (after > middle)).any(axis=1)
    orders = [_turned(before[:, axis], after[:, axis]) for axis in (0, 1)]
    renamed = sum(name != disk.colour for disk, name, *_ in seen) / len(disks)
    return renamed, 1 - len(seen) / len(disks), float(quadrants.mean()), *orders


INKS = ((255, 255, 255), (0, 0, 0))


def _hidden_share(setting: str, paper: tuple[int, int, int], ink: tuple[int, int, int], seed: int) -> float:
    """Returns the share of small disks in a grid that nothing shows of."""
    blank = np.full((HEIGHT, WIDTH, 3), paper, np.uint8)
    places = [(x, y) for y in range(20, HEIGHT, 40) for x in range(20, WIDTH, 40)]
    dotted = blank.copy()
    for place in places:
        cv2.circle(dotted, place, SMALL_RADIUS, ink, cv2.FILLED, cv2.LINE_AA)
    difference = _render(setting, dotted, seed).astype(np.float32) - _render(setting, blank, seed)
    difference -= np.median(difference, axis=(0, 1))  # what changes everywhere, as a mean brightness does, is no disk
    strength = cv2.GaussianBlur(np.abs(difference).max(axis=2), (0, 0), 3.0)  # parts of a disk that was scattered are one
    around = cv2.dilate(strength, np.ones((31, 31), np.uint8))
    shown = ((strength > VISIBLE) & (strength >= 0.5 * around)).view(np.uint8)
    shown = cv2.dilate(shown, np.ones((5, 5), np.uint8))
    spots = cv2.connectedComponents(shown)[0] - 1
    return max(0.0, 1.0 - float(spots) / len(places))


def _render(setting: str, page: Image, seed: int) -> Image:
    """Returns a page under a setting, at the size of the page."""
    result = perturbations.get(setting)(page, seed=seed)
    return result if result.shape == page.shape else np.asarray(cv2.resize(result, (WIDTH, HEIGHT)))


def _turned(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    """Returns the share of pairs, apart by more than one and a half disks before, that are in another order after."""
    pairs = [(i, j) for i, j in itertools.combinations(range(len(before)), 2) if abs(before[i] - before[j]) > 3 * RADIUS]
    turned = [(before[i] < before[j]) != (after[i] < after[j]) for i, j in pairs]
    return float(np.mean(turned)) if turned else 0.0


@functools.cache
def _disks(paper: str) -> tuple[_Disk, ...]:
    """Returns a disk of each colour but the paper's, at places of a grid, the same on every machine."""
    colours = [name for name in BASIC_COLOURS if name != paper]
    rng = np.random.Generator(np.random.PCG64(7))
    places = [(x, y) for y in np.linspace(24, HEIGHT - 24, 4) for x in np.linspace(24, WIDTH - 24, 6)]
    order = rng.permutation(len(places))[: len(colours)]
    return tuple(_Disk(colour, *places[place]) for colour, place in zip(colours, order, strict=True))


def _drawn(paper: str, disks: Sequence[_Disk]) -> Image:
    page = np.full((HEIGHT, WIDTH, 3), BASIC_COLOURS[paper], np.uint8)
    for disk in disks:
        cv2.circle(page, (round(disk.x), round(disk.y)), RADIUS, IN_A_CHART[disk.colour], cv2.FILLED)
    return page


def _name(colour: NDArray[np.float64]) -> str:
    """Returns the basic colour nearest to an RGB colour in 0..255."""
    distance = np.linalg.norm(_lab(np.array([*BASIC_COLOURS.values()])) - _lab(colour[None]), axis=1)
    return [*BASIC_COLOURS][int(distance.argmin())]


def _lab(colours: NDArray[Any]) -> NDArray[np.float32]:
    converted: NDArray[np.float32] = cv2.cvtColor((colours / 255.0).astype(np.float32)[None], cv2.COLOR_RGB2LAB)[0]
    return converted


# Letters.


SCALED_TO = 12
"""Pixels that letters of every height are reduced to before they are compared: what is finer does not tell letters apart."""
CELL = 16
"""Side of the cell of a letter that is 12 pixels high; it grows with the letter."""
SEARCHED = 3
"""Pixels, at that scale, by which a letter may stand beside its place."""
MARGIN = (40, 32)
"""Where the first cell begins, row and column: a frame around the picture may cover the margin."""
MOST_LETTERS = 60


@dataclass(frozen=True, slots=True)
class _Letters:
    """A white page with black capitals, and for each letter the top left corner of its cell, x and y, in pixels."""

    page: Image
    placed: tuple[tuple[str, int, int], ...]
    height: int


def _read_share(setting: str, height: int, seed: int) -> float:
    """Returns the share of capitals of a height in pixels that are still most like themselves, all of the alphabet asked."""
    pages = _letters_pages(height)
    patterns = _patterns(height)
    right, total = 0, 0
    for page in pages:
        seen = _reduced(_render(setting, page.page, seed), height)
        for letter, x, y in page.placed:
            left, top = (round(place * SCALED_TO / height) for place in (x, y))
            around = seen[top - SEARCHED : top + CELL + SEARCHED, left - SEARCHED : left + CELL + SEARCHED]
            likeness = [
                float(np.abs(cv2.matchTemplate(around, pattern, cv2.TM_CCOEFF_NORMED)).max()) for pattern in patterns.values()
            ]
            right += max(likeness) > FAINTEST and [*patterns][int(np.argmax(likeness))] == letter
            total += 1
    return right / total


@functools.cache
def _letters_pages(height: int) -> tuple[_Letters, ...]:
    """Returns pages with each capital at least once."""
    cell = CELL * height // SCALED_TO
    places = [
        (x, y)
        for y in range(MARGIN[0], HEIGHT - MARGIN[0] - cell + 1, cell)
        for x in range(MARGIN[1], WIDTH - MARGIN[1] - cell + 1, cell)
    ][:MOST_LETTERS]
    font = PIL.ImageFont.load_default(round(height / 0.72))  # capitals are 0.72 of the size of this typeface
    letters, pages = itertools.cycle(string.ascii_uppercase), []
    for _ in range(-(-len(string.ascii_uppercase) // len(places))):
        placed = tuple((next(letters), *place) for place in places)
        canvas = PIL.Image.new("RGB", (WIDTH, HEIGHT), "white")
        pen = PIL.ImageDraw.Draw(canvas)
        for letter, x, y in placed:
            pen.text((x + cell / 2, y + cell / 2), letter, fill="black", font=font, anchor="mm")
        pages.append(_Letters(np.asarray(canvas), placed, height))
    return tuple(pages)


@functools.cache
def _patterns(height: int) -> dict[str, NDArray[np.float32]]:
    """Returns each capital as a reader knows it, shape (16, 16)."""
    patterns: dict[str, NDArray[np.float32]] = {}
    for page in _letters_pages(height):
        seen = _reduced(page.page, height)
        for letter, x, y in page.placed:
            left, top = (round(place * SCALED_TO / height) for place in (x, y))
            patterns.setdefault(letter, seen[top : top + CELL, left : left + CELL])
    return patterns


def _reduced(page: Image, height: int) -> NDArray[np.float32]:
    """Returns the luma of a page at the scale at which its letters are 12 pixels high, a little blurred."""
    grey = cv2.GaussianBlur(cv2.cvtColor(page, cv2.COLOR_RGB2GRAY).astype(np.float32), (0, 0), SOFTENED * height)
    size = (WIDTH * SCALED_TO // height, HEIGHT * SCALED_TO // height)
    reduced: NDArray[np.float32] = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)
    return reduced


# The table.


def rows(settings: Sequence[str]) -> Iterator[tuple[str, Effect]]:
    """Yields each setting with its effect."""
    for setting in settings:
        yield setting, measure(setting)


def line(setting: str, effect: Effect) -> str:
    """Returns the row of the table for a setting."""
    shares = ["" if share is None else f"{share:.3f}" for share in (getattr(effect, column.name) for column in fields(Effect))]
    tags = ", ".join(aspects(perturbations.info(setting).label_changing))
    return f"| `{setting}` | {' | '.join(shares)} | {effect.legible_from} | {tags} |"


def read_table(page: Path = PAGE) -> dict[str, Effect]:
    """Returns the effects that the page states, by setting."""
    effects = {}
    for row in page.read_text(encoding="utf-8").partition(START)[2].partition(END)[0].splitlines():
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if cells[0].startswith("`"):
            shares = [float(cell) if cell else None for cell in cells[1:-2]]
            effects[cells[0].strip("`")] = Effect(*shares)  # type: ignore[arg-type]  # only those of letters may be absent
    return effects


def _write(lines: Sequence[str]) -> None:
    names = [column.name.replace("_", " ") for column in fields(Effect)]
    head = f"| setting | {' | '.join(names)} | legible from | declared |\n| --- |{' --- |' * (len(names) + 2)}\n"
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    table = "\n".join(lines)
    PAGE.write_text(f"{before}{START}\n\n{head}{table}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints and compares; returns 1 when a record declares something else than the rule."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--names", nargs="+", default=[], metavar="NAME", help="some perturbations instead of all")
    parser.add_argument("--write", action="store_true", help="write the table of studies/declarations/README.md")
    options = parser.parse_args(arguments)
    if options.write and options.names:
        parser.error("--write takes all perturbations: leave out --names")
    settings = [setting for setting in measured_settings() if not options.names or Setting.parse(setting).name in options.names]
    lines, wrong = [], []
    for setting, effect in rows(settings):
        lines.append(line(setting, effect))
        expected = declared(Setting.parse(setting).name, effect)
        differs = expected != perturbations.info(setting).label_changing
        wrong += [f"{setting}: the rule says {', '.join(sorted(expected)) or 'nothing'}"] if differs else []
        sys.stdout.write(f"{lines[-1]}{'  <-- ' + wrong[-1] if differs else ''}\n")
        sys.stdout.flush()
    if options.write:
        _write(lines)
    sys.stdout.write("".join(f"{sentence}\n" for sentence in wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
