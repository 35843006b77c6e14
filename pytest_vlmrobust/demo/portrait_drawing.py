"""Pictures of portraits, and the exact boxes of their features.

Colours, measures and outlines are in ``assets/portraits.yaml``, which also explains its layers. The rest depends on the
person: the positions of points, and shapes computed from its measures (face, eyes, nose, mouth, glasses, curls).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import cv2
import numpy as np
import yaml
from numpy.typing import NDArray

from .painting import Canvas, Colour, Placing, Points, Shape, ellipse, mirror, mix, shift, smooth, stroke, symmetric
from .portraits import Portrait

if TYPE_CHECKING:
    from pytest_vlmrobust.core.boxes import Box

Layer: TypeAlias = Mapping[str, Any]

_ASSETS: Mapping[str, Any] = yaml.load(
    Path(__file__).with_name("assets").joinpath("portraits.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
)
_COLOURS: Mapping[str, Mapping[str, Colour]] = {
    palette: {name: tuple(rgb) for name, rgb in colours.items()} for palette, colours in _ASSETS["colours"].items()
}
_FIXED = _COLOURS["fixed"]
_MEASURES: Mapping[str, Mapping[str, tuple[float, ...]]] = _ASSETS["measures"]
_OUTLINES: Mapping[str, Any] = _ASSETS["outlines"]
_FINE = 512
"""Smaller pictures are drawn at twice their side, and averaged."""
_OVER_EARS = ("bob", "fringe", "long", "wavy", "headscarf")
_COVERINGS = ("headscarf", "beanie", "turban")
_MOUTH_HEIGHT = 0.63


def draw_portrait(portrait: Portrait, side: int) -> NDArray[np.uint8]:
    """Draws a portrait: uint8 RGB, shape (side, side, 3); the same bytes for the same portrait and side."""
    size = side if side >= _FINE else 2 * side
    canvas = Canvas(_backdrop(portrait, size))
    upright, head = _placings(portrait, size)
    canvas.paint([Shape((ellipse(0, -0.05, 1.52),), _lighter(_COLOURS["backdrop"][portrait.backdrop], 0.3))], upright)
    canvas.paint(_paint_layers(_hair_part(portrait), _ASSETS["hair_behind"].get(portrait.hair, ())), head)
    canvas.paint([*_neck(portrait), *_clothes(portrait)], upright)
    canvas.paint(_head(portrait), head)
    if size == side:
        return canvas.pixels
    return np.asarray(cv2.resize(canvas.pixels, (side, side), interpolation=cv2.INTER_AREA), np.uint8)


def portrait_boxes(portrait: Portrait, side: int) -> dict[str, Box]:
    """Returns the boxes of eyes, nose and mouth in a picture: the smallest boxes of whole pixels around their drawings.

    Left and right are the viewer's. A box does not depend on what is drawn over the feature, such as glasses.
    """
    head = _placings(portrait, side)[1]
    return {name: _extent(shapes, head) for name, shapes in feature_shapes(portrait).items()}


def feature_shapes(portrait: Portrait) -> dict[str, list[Shape]]:
    """Returns the shapes of the features with boxes, in units of the head."""
    return {
        "left_eye": _eye(portrait, -1),
        "right_eye": _eye(portrait, 1),
        "nose": _nose(portrait),
        "mouth": _mouth(portrait),
    }


def _head(portrait: Portrait) -> list[Shape]:
    return [
        *_ears(portrait),
        *_hair_at_temples(portrait),
        *_skin(portrait),
        *_lids(portrait),
        *_paint_layers(Part(portrait, {"base": _brow_colour(portrait)}), _ASSETS["beards"][portrait.beard]),
        *(shape for shapes in feature_shapes(portrait).values() for shape in shapes),
        *_brows(portrait),
        *_temples_of_glasses(portrait),
        *_earrings(portrait),
        *_paint_layers(_hair_part(portrait), _ASSETS["hair"][portrait.hair]),
        *_glasses(portrait),
    ]


def _placings(portrait: Portrait, side: int) -> tuple[Placing, Placing]:
    x, y, scale = portrait.x * side, portrait.y * side, portrait.scale * side
    return Placing(x, y, scale, 0.0), Placing(x, y, scale, portrait.roll)


def _backdrop(portrait: Portrait, side: int) -> NDArray[np.uint8]:
    colour = _COLOURS["backdrop"][portrait.backdrop]
    ends = np.array([_lighter(colour, 0.12), _darker(colour, 0.07)])
    share = np.linspace(0, 1, side)[:, None]
    rows = np.rint(ends[0] * (1 - share) + ends[1] * share).astype(np.uint8)
    return np.asarray(cv2.resize(rows[:, None], (side, side), interpolation=cv2.INTER_NEAREST), np.uint8)


def _extent(shapes: list[Shape], placing: Placing) -> Box:
    points = np.concatenate([placing(outline) for shape in shapes if shape.within is None for outline in shape.outlines])
    left, top = points.min(axis=0).tolist()
    right, bottom = points.max(axis=0).tolist()
    return float(math.floor(left)), float(math.floor(top)), float(math.ceil(right)), float(math.ceil(bottom))


# Colours


def _shade_colour(colour: Colour, share: float) -> Colour:
    """Returns a colour in warm shade: darker by about ``share``."""
    return mix(mix(colour, _FIXED["black"], 0.55 * share), _FIXED["shade"], 0.45 * share)


def _lit(colour: Colour, share: float) -> Colour:
    return mix(colour, _FIXED["glow"], share)


def _darker(colour: Colour, share: float) -> Colour:
    """Returns a colour nearer to a cool black."""
    return mix(colour, _FIXED["cool_black"], share)


def _lighter(colour: Colour, share: float) -> Colour:
    """Returns a colour nearer to white."""
    return mix(colour, _FIXED["pure_white"], share)


def _skin_colour(portrait: Portrait) -> Colour:
    return _COLOURS["skin"][portrait.tone]


def _brow_colour(portrait: Portrait) -> Colour:
    """Returns the colour of brows and beards: that of the hair, but darker if it is light, and distinct from the skin."""
    hair = _COLOURS["hair"][portrait.hair_colour]
    if sum(hair) > sum(_COLOURS["skin"]["chestnut"]):
        return _darker(hair, 0.3) if portrait.group == "light" else hair
    return hair if portrait.group == "light" else _darker(hair, 0.45)


def _shadow_side(portrait: Portrait) -> float:
    """Returns 1 if the light comes from the viewer's left, else -1."""
    return 1.0 if portrait.light < 0 else -1.0


# Layers of the data file


@dataclass(frozen=True, slots=True)
class Part:
    """The drawing parameters of the layers of a part: its tones, and the reference of its points."""

    portrait: Portrait
    tones: Mapping[str, Colour]
    width: float = 1.0
    volume: float = 1.0

    @property
    def side(self) -> float:
        """1 if the right side of the picture is in the shade, else -1."""
        return _shadow_side(self.portrait)

    def fit(self, points: Sequence[Sequence[float]]) -> Points:
        """Returns points in units of the head; points above the head are raised by the volume."""
        array = np.asarray(points, float)
        lifted = np.where(array[:, 1] < -1, -1 + (array[:, 1] + 1) * self.volume, array[:, 1])
        return np.stack([array[:, 0] * self.width, lifted], axis=1)


def _paint_layers(part: Part, layers: Sequence[Layer], within: Points | None = None) -> list[Shape]:
    return [shape for layer in layers for shape in _layer_shapes(part, layer, within)]


def _layer_shapes(part: Part, layer: Layer, within: Points | None) -> list[Shape]:
    if "rule" in layer:
        return _RULES[layer["rule"]](part)
    kind = next(name for name in _OUTLINE_KINDS if name in layer)
    outlines = _OUTLINE_KINDS[kind](part, layer)
    if layer.get("mirrored") == "points":
        outlines = [*_OUTLINE_KINDS[kind](replace(part, width=-part.width), layer), *outlines]
    elif layer.get("mirrored") == "outline":
        outlines = [*map(mirror, outlines), *outlines]
    paint = part.tones[layer.get("paint", "light" if kind == "strands" else "base")]
    shapes: list[Shape] = []
    for outline in outlines:
        if "rim" in layer:
            shapes += _rim_shapes(part, outline, layer["rim"], paint, part.tones[layer.get("shade", "dark")])
        else:
            shapes.append(Shape((outline,), paint, within))
        shapes += _paint_layers(part, layer.get("inside", ()), outline)
    return shapes


def _rim_shapes(part: Part, outline: Points, rim: float, paint: Colour, shade: Colour) -> list[Shape]:
    return [Shape((outline,), shade), Shape((outline - (part.side * rim, 0.04),), paint, outline)]


def _loop(part: Part, layer: Layer) -> list[Points]:
    return [smooth(part.fit(layer["loop"]))]


def _half(part: Part, layer: Layer) -> list[Points]:
    return [symmetric(part.fit(layer["half"]))]


def _cap(part: Part, layer: Layer) -> list[Points]:
    right = part.fit([*layer["cap"], *layer["hairline"]])
    return [smooth(np.concatenate([right, mirror(right[::-1])[1:-1]]))]


def _flap(part: Part, layer: Layer) -> list[Points]:
    return [np.concatenate([smooth(part.fit(layer["flap"]), closed=False), part.fit(layer["corners"])])]


def _strokes(part: Part, layer: Layer, key: str, taper: tuple[float, float]) -> list[Points]:
    first, last = layer.get("taper", taper)
    return [stroke(part.fit(line), layer["width"], taper=(first, last)) for line in layer[key]]


def _dots(part: Part, layer: Layer) -> list[Points]:
    return [ellipse(x, y, layer["radius"]) for x, y in part.fit(layer["dots"]).tolist()]


def _ellipse(part: Part, layer: Layer) -> list[Points]:
    ((x, y),) = part.fit([layer["ellipse"]]).tolist()
    width, height = layer["radii"]
    return [ellipse(x, y, width, height, math.copysign(layer.get("turn", 0.0), part.width))]


_OUTLINE_KINDS: Mapping[str, Callable[[Part, Layer], list[Points]]] = {
    "loop": _loop,
    "half": _half,
    "cap": _cap,
    "flap": _flap,
    "lines": partial(_strokes, key="lines", taper=(0.2, 0.2)),
    "strands": partial(_strokes, key="strands", taper=(0.0, 0.0)),
    "dots": _dots,
    "ellipse": _ellipse,
}


# The head and the details of its skin


def _face_outline(portrait: Portrait) -> Points:
    temple, cheek, jaw, chin, bottom = _MEASURES["face"][portrait.face]
    right = [
        *[(0, -1.0), (0.5 * temple, -0.93), (0.87 * temple, -0.64), (temple, -0.22), (cheek, 0.14)],
        *[(0.5 * (cheek + jaw) + 0.05, 0.42), (jaw, 0.67 * bottom), (chin, 0.93 * bottom), (0, bottom)],
    ]
    return symmetric([(x * portrait.face_width, y) for x, y in right])


def _head_width(portrait: Portrait) -> float:
    """Returns half the width of the head between temples and cheeks."""
    temple, cheek, *_ = _MEASURES["face"][portrait.face]
    return 0.5 * (temple + cheek) * portrait.face_width


def _skin(portrait: Portrait) -> list[Shape]:
    skin, outline, side = _skin_colour(portrait), _face_outline(portrait), _shadow_side(portrait)
    inner = shift(outline, -side * (0.12 + 0.06 * abs(portrait.light)), -0.05)
    glow = [
        Shape((ellipse(-side * 0.2, -0.36, 0.42 - 0.05 * i, 0.36 - 0.045 * i),), _lit(skin, 0.016 * (i + 1)), outline)
        for i in range(6)
    ]
    tones = {"freckle": _shade_colour(skin, 0.38), "spot": _shade_colour(skin, 0.75), "fold": _shade_colour(skin, 0.26)}
    details = _paint_layers(Part(portrait, tones), _ASSETS["details"][portrait.detail])
    return [Shape((outline,), _shade_colour(skin, 0.16)), Shape((inner,), skin, outline), *glow, *details]


def _blush(part: Part) -> list[Shape]:
    skin = _skin_colour(part.portrait)
    rose = mix(skin, _FIXED["blush"], 0.3 if part.portrait.group == "light" else 0.2)
    return [
        Shape((ellipse(s * 0.42, 0.36, 0.16 - 0.025 * i, 0.11 - 0.018 * i),), mix(skin, rose, 0.25 * (i + 1)))
        for s in (-1, 1)
        for i in range(4)
    ]


# Eyes and brows


def _eye(portrait: Portrait, side: int) -> list[Shape]:
    """Returns one eye: its white, iris, pupil and upper lid; ``side`` is -1 for the viewer's left, 1 for the right."""
    place = np.array([side * portrait.eye_spacing, portrait.eye_height])
    upper, lower = (smooth(knots, closed=False) for knots in _lid_knots(portrait))
    outline = np.concatenate([upper, lower]) * (side, 1) + place
    lid = _lid_line(portrait) * (side, 1) + place
    white = mix(_FIXED["white"], _skin_colour(portrait), 0.06)
    iris, size = _COLOURS["iris"][portrait.iris], portrait.eye_size
    x, y = float(place[0]), float(place[1]) - 0.012
    shadow = np.concatenate([upper, shift(upper[::-1], 0, 0.032)]) * (side, 1) + place
    return [
        Shape((outline,), white),
        Shape((shadow,), _darker(white, 0.2), outline),
        Shape((ellipse(x, y, 0.082 * size),), _darker(iris, 0.35), outline),
        Shape((ellipse(x, y + 0.006, 0.066 * size),), _lighter(iris, 0.12), outline),
        Shape((ellipse(x, y, 0.038 * size),), _FIXED["ink"], outline),
        Shape((ellipse(x - 0.026 * size, y - 0.026 * size, 0.02 * size),), _FIXED["white"], outline),
        Shape((lid,), mix(_FIXED["ink"], _COLOURS["hair"][portrait.hair_colour], 0.12)),
    ]


def _lid_knots(portrait: Portrait) -> tuple[Points, Points]:
    """Returns the knots of the upper lid, from the inner corner, and of the lower lid, from the outer corner."""
    up, down, outer, inner = _MEASURES["eyes"][portrait.eyes]
    size = portrait.eye_size
    a, up, down = 0.165 * size, up * size, down * size
    upper = [(-a, inner), (-0.55 * a, -0.72 * up), (0.05 * a, -up), (0.62 * a, 0.4 * outer - 0.7 * up), (a, outer)]
    lower = [(a, outer), (0.6 * a, 0.7 * down + 0.3 * outer), (0.05 * a, down), (-0.55 * a, 0.72 * down), (-a, inner)]
    return np.array(upper), np.array(lower)


def _lid_line(portrait: Portrait) -> Points:
    size, (upper, _) = portrait.eye_size, _lid_knots(portrait)
    wing = (0.05, -0.045) if portrait.eyes == "upturned" else (0.018, 0.004)
    line = np.concatenate([upper, upper[-1:] + np.array(wing) * size])
    return stroke(line, (0.05 if portrait.eyes == "hooded" else 0.04) * size, taper=(0.35, 0.3))


def _lids(portrait: Portrait) -> list[Shape]:
    """Returns the sockets and creases around the eyes, which are not part of any box."""
    skin, shapes, size = _skin_colour(portrait), [], portrait.eye_size
    upper, _ = _lid_knots(portrait)
    drop = 0.035 if portrait.eyes == "hooded" else 0.055
    for side in (-1, 1):
        place = np.array([side * portrait.eye_spacing, portrait.eye_height])
        crease = stroke(upper * (0.96 * side, 1) + place - (0, drop), 0.02)
        x, y = float(place[0]), float(place[1]) - 0.03
        sockets = [ellipse(x, y, (0.215 - 0.02 * i) * size, (0.14 - 0.016 * i) * size) for i in range(3)]
        shapes += [Shape((socket,), _shade_colour(skin, 0.03 * (i + 1))) for i, socket in enumerate(sockets)]
        shapes.append(Shape((crease,), _shade_colour(skin, 0.34)))
    return shapes


def _brows(portrait: Portrait) -> list[Shape]:
    width = (0.1 if portrait.brows == "bushy" else 0.064) * portrait.brow_thickness
    line = np.array(_OUTLINES["brow"][portrait.brows])
    line[:, 1] += portrait.brow_angle * line[:, 0] / 0.2
    brow = shift(stroke(line, width, taper=(0.75, 0.2)), portrait.eye_spacing, portrait.eye_height - 0.255)
    colour = _brow_colour(portrait)
    return [Shape((mirror(brow),), colour), Shape((brow,), colour)]


# Nose and mouth


def _nose(portrait: Portrait) -> list[Shape]:
    skin, side = _skin_colour(portrait), _shadow_side(portrait)
    half, base, top, tip, bump = _MEASURES["nose"][portrait.nose]
    half, base = half * portrait.nose_width, base * portrait.nose_length
    middle = 0.5 * (top + base)
    ridge = [
        (0.035, top),
        (0.05 + bump, middle - 0.06),
        (0.055, base - 0.12),
        (half, base - 0.035),
        (0.5 * half, base),
    ]
    back = [(0.0, base - 0.03), (0.012 + bump, middle - 0.02), (0.015, top + 0.02)]
    shade = smooth([(side * x, y) for x, y in (*ridge, *back)])
    bridge = [(0, base - 0.035), (0.45 * half, base - 0.03), (0.8 * half, base - 0.075), (half, base - 0.06)]
    wings = [(0.92 * half, base - 0.005), (0.45 * half, base), (0.2 * half, base + tip), (0, base + 1.08 * tip)]
    nostrils = [ellipse(s * 0.5 * half, base + 0.004, 0.25 * half, 0.017, -12 * s) for s in (-1, 1)]
    ball = 0.075 if portrait.nose == "button" else 0.055
    lights = [(ellipse(-0.2 * side * half, base - 0.08, ball * r, 0.8 * ball * r), 0.22 - 0.14 * r) for r in (1, 0.75, 0.5)]
    return [
        Shape((shade,), _shade_colour(skin, 0.2)),
        Shape((symmetric([*bridge, *wings]),), _shade_colour(skin, 0.27)),
        *(Shape((nostril,), _shade_colour(skin, 0.62)) for nostril in nostrils),
        *(Shape((spot,), _lit(skin, share)) for spot, share in lights),
    ]


def _mouth(portrait: Portrait) -> list[Shape]:
    wide, full, lift, opening = _MEASURES["mouth"][portrait.mouth]
    lip = mix(_skin_colour(portrait), _FIXED["lip"], 0.46)
    half, full = 0.25 * wide * portrait.mouth_width, full * portrait.lip_fullness
    lift, opening = lift * portrait.mouth_curve, opening * portrait.mouth_curve
    left, right = (-0.4 * lift, -1.6 * lift) if portrait.mouth == "smirk" else (-lift, -lift)
    rim = Shape((_lips(half, left, right, -0.058 * full, opening + 0.082 * full),), lip)
    return [rim, *(_open_mouth(half, left, opening) if opening else _closed_mouth(half, left, right, full, lip))]


def _closed_mouth(half: float, left: float, right: float, full: float, lip: Colour) -> list[Shape]:
    line = [(-half, left), (-0.5 * half, 0.1 * left), (0, 0.012), (0.5 * half, 0.1 * right), (half, right)]
    parting = stroke([(x, y + _MOUTH_HEIGHT) for x, y in line], 0.03, taper=(0.5, 0.5))
    upper = _lips(half, left, right, -0.058 * full, 0.012)
    glint = ellipse(0, _MOUTH_HEIGHT + 0.05 * full, 0.32 * half, 0.012 * full)
    return [
        Shape((upper,), _shade_colour(lip, 0.2)),
        Shape((glint,), _lit(lip, 0.3)),
        Shape((parting,), _shade_colour(lip, 0.72)),
    ]


def _open_mouth(half: float, corner: float, opening: float) -> list[Shape]:
    inside = _lips(0.9 * half, 0.92 * corner, 0.92 * corner, -0.002, opening)
    teeth = _lips(0.86 * half, corner, corner, -0.03, 0.38 * opening)
    tongue = ellipse(0, _MOUTH_HEIGHT + 1.02 * opening, 0.5 * half, 0.4 * opening)
    return [
        Shape((inside,), _FIXED["mouth"]),
        Shape((tongue,), _FIXED["tongue"], inside),
        Shape((teeth,), _FIXED["white"], inside),
    ]


def _lips(half: float, left: float, right: float, top: float, bottom: float) -> Points:
    """Returns the outline of lips: corners at ``left`` and ``right``, a bow at ``top``, a curve through ``bottom``."""
    bow = [(-half, left), (-0.5 * half, 0.3 * left + 0.75 * top), (-0.16 * half, 1.1 * top), (0, 0.82 * top)]
    bow += [(0.16 * half, 1.1 * top), (0.5 * half, 0.3 * right + 0.75 * top), (half, right)]
    curve = [(half, right), (0.55 * half, 0.3 * right + 0.78 * bottom), (0, bottom), (-0.55 * half, 0.3 * left + 0.78 * bottom)]
    upper = smooth(bow, closed=False)
    lower = smooth([*curve, (-half, left)], closed=False)
    return shift(np.concatenate([upper, lower]), 0, _MOUTH_HEIGHT)


# Ears, earrings and glasses


def _ears(portrait: Portrait) -> list[Shape]:
    """Returns the ears, behind the head; none if hair covers them."""
    if portrait.hair in _OVER_EARS:
        return []
    skin, size, x = _skin_colour(portrait), 1.25 if portrait.ears == "large" else 1.0, 1.01 * portrait.face_width
    ear, inner = smooth(_OUTLINES["ear"]), stroke(_OUTLINES["inner_ear"], 0.03)
    shapes: list[Shape] = []
    for side in (-1, 1):
        place = np.array([side * x, 0.1])
        for outline, shade in ((ear, 0.06), (inner, 0.34)):
            shapes.append(Shape((outline * (side * size, size) + place,), _shade_colour(skin, shade)))
    return shapes


def _earrings(portrait: Portrait) -> list[Shape]:
    if portrait.hair in _OVER_EARS:
        return []
    x = portrait.face_width + 0.045
    if portrait.ears == "studs":
        return [Shape((ellipse(s * x, 0.28, 0.032),), _FIXED["gold"]) for s in (-1, 1)]
    if portrait.ears == "hoops":
        rings = [(ellipse(s * x, 0.4, 0.095, 0.12), ellipse(s * x, 0.395, 0.07, 0.095)) for s in (-1, 1)]
        return [Shape(ring, _FIXED["gold"]) for ring in rings]
    return []


def _glasses(portrait: Portrait) -> list[Shape]:
    if portrait.glasses == "none":
        return []
    colour = _COLOURS["frame"][portrait.glasses]
    right, x, y = smooth(_OUTLINES["lens"][portrait.glasses]), portrait.eye_spacing + 0.005, portrait.eye_height + 0.015
    thin = portrait.glasses == "half_rim"
    shapes: list[Shape] = []
    for side in (-1, 1):
        lens = shift(right * (side, 1), side * x, y)
        inner = shift(right * (0.88 * side, 0.86), side * x, y + (0.012 if thin else 0.0))
        glint = shift(np.array(_OUTLINES["glint"]), side * x, y)
        rim = Shape((lens, inner), colour, _upper_half(side * x, y) if thin else None)
        shapes += [Shape((inner,), _FIXED["glass"], None, 0.07), Shape((glint,), _FIXED["pure_white"], inner, 0.3), rim]
    gap = x + float(right[:, 0].min())
    bridge = stroke([(-gap - 0.015, y - 0.03), (0, y - 0.065), (gap + 0.015, y - 0.03)], 0.036, taper=(0.9, 0.9))
    return [*shapes, Shape((bridge,), colour)]


def _upper_half(x: float, y: float) -> Points:
    return np.array([(x - 0.3, y - 0.3), (x + 0.3, y - 0.3), (x + 0.3, y - 0.01), (x - 0.3, y - 0.01)])


def _temples_of_glasses(portrait: Portrait) -> list[Shape]:
    if portrait.glasses == "none":
        return []
    start = portrait.eye_spacing + max(x for x, _ in _OUTLINES["lens"][portrait.glasses]) - 0.03
    end, y = portrait.face_width + 0.03, portrait.eye_height - 0.06
    lines = [stroke([(s * start, y), (s * end, y + 0.03)], 0.036, taper=(1, 1)) for s in (-1, 1)]
    return [Shape((line,), _COLOURS["frame"][portrait.glasses]) for line in lines]


# Neck, clothes and beards


def _neck(portrait: Portrait) -> list[Shape]:
    skin = _skin_colour(portrait)
    neck = smooth(np.array(_OUTLINES["neck"]) * (_neck_width(portrait), 1))
    shadow = shift(_face_outline(portrait), 0.05 * float(np.sign(-portrait.light)), 0.2)
    return [Shape((neck,), _shade_colour(skin, 0.1)), Shape((shadow,), _shade_colour(skin, 0.32), neck)]


def _neck_width(portrait: Portrait) -> float:
    return 0.52 * portrait.face_width


def _clothes(portrait: Portrait) -> list[Shape]:
    colour, half = _COLOURS["cloth"][portrait.cloth], _neck_width(portrait)
    depth, pull = _MEASURES["neckline"][portrait.clothes]
    (collar, height), *shoulder = _OUTLINES["shoulder"]
    joint = (collar * half, height)
    right = np.concatenate([smooth([(pull * half, depth), joint], closed=False), smooth([joint, *shoulder], closed=False)])
    body = np.concatenate([right, mirror(right[::-1])])
    arms = [stroke(np.array(_OUTLINES["arm"]) * (side, 1), 0.03) for side in (-1, 1)]
    tones = {"base": colour, "dark": _darker(colour, 0.2), "light": _lighter(colour, 0.14), "pale": _lighter(colour, 0.55)}
    collars = _paint_layers(Part(portrait, tones, width=half), _ASSETS["collars"][portrait.clothes])
    return [Shape((body,), colour), *(Shape((arm,), tones["dark"]) for arm in arms), *collars]


def _placket(part: Part) -> list[Shape]:
    return [Shape((np.array(_OUTLINES["placket"]),), part.tones["dark"])]


def _stubble(part: Part) -> list[Shape]:
    outline = _face_outline(part.portrait)
    jaw, cheeks = _jaw_and_cheeks(part.portrait)
    area = np.concatenate([jaw, cheeks])
    tint = mix(_darker(_skin_colour(part.portrait), 0.6), part.tones["base"], 0.35)
    return [Shape((shift(area, 0, 0.035 * i),), tint, outline, 0.1 + 0.04 * i) for i in range(3)]


def _full_beard(part: Part) -> list[Shape]:
    jaw, cheeks = _jaw_and_cheeks(part.portrait)
    grown = jaw + np.array([0, 0.09]) * np.clip(jaw[:, 1:], 0, 1) ** 2
    beard, colour = np.concatenate([grown, cheeks]), part.tones["base"]
    return [Shape((beard,), colour), Shape((ellipse(0, 0.66, 0.3, 0.1),), _darker(colour, 0.25))]


def _jaw_and_cheeks(portrait: Portrait) -> tuple[Points, Points]:
    outline = _face_outline(portrait)
    jaw = outline[outline[:, 1] > 0.12]
    jaw = jaw[np.argsort(-np.arctan2(jaw[:, 0], jaw[:, 1]), kind="stable")]
    return jaw, smooth(np.array(_OUTLINES["cheeks"]) * (portrait.face_width, 1), closed=False)


# Hair


def _hair_at_temples(portrait: Portrait) -> list[Shape]:
    """Returns the hair at the temples, behind the face, so that no backdrop shows between a narrow face and its hair."""
    part = _hair_part(portrait)
    colour = part.tones["hair" if portrait.hair == "beanie" else "dark"]
    return [] if portrait.hair == "bald" else [Shape((ellipse(0, -0.36, 0.99 * part.width, 0.6),), colour)]


def _hair_part(portrait: Portrait) -> Part:
    skin, hair = _skin_colour(portrait), _COLOURS["hair"][portrait.hair_colour]
    base = _COLOURS["fabric"][portrait.hair_colour] if portrait.hair in _COVERINGS else hair
    stubble = mix(base, skin, 0.2)
    tones = {
        "base": base,
        "dark": _darker(base, 0.22),
        "light": _lighter(base, 0.13),
        "hair": hair,
        "stubble": stubble,
        "dark_stubble": _darker(stubble, 0.16),
        "shaved": mix(base, skin, 0.42),
        "tie": _FIXED["hair_tie"],
    }
    return Part(portrait, tones, width=_head_width(portrait), volume=portrait.hair_volume)


def _bald(part: Part) -> list[Shape]:
    shine = [ellipse(-part.side * 0.26, -0.74, 0.17 - 0.045 * i, 0.085 - 0.022 * i, 18 * part.side) for i in range(3)]
    return [Shape((spot,), _lighter(_skin_colour(part.portrait), 0.1 * (i + 1))) for i, spot in enumerate(shine)]


def _curls(part: Part) -> list[Shape]:
    return [Shape((curl,), part.tones["base"]) for curl in _curl_outlines(part, 1.0)]


def _glints_of_curls(part: Part) -> list[Shape]:
    lit = slice(37, 53) if part.side > 0 else slice(55, 71)
    glints = [stroke(curl[lit], 0.03, taper=(0, 0)) for curl in _curl_outlines(part, 0.58)]
    return [Shape((glint,), part.tones["light"]) for glint in glints]


def _curl_outlines(part: Part, size: float) -> list[Points]:
    arc = [(math.sin(a), -math.cos(a)) for a in np.linspace(-1.62, 1.62, 11)]
    around = [(1.02 * x, -0.2 + 0.86 * y, 0.2) for x, y in arc]
    front = [(x, -0.76 + 0.2 * abs(x), 0.17) for x in (-0.66, -0.33, 0.0, 0.33, 0.66)]
    return [ellipse(x * part.width, y, size * radius * part.volume) for x, y, radius in (*around, *front)]


def _afro(part: Part) -> list[Shape]:
    bumps = np.linspace(0, 2 * math.pi, 26, endpoint=False)
    radius = 1.0 + 0.028 * np.cos(13 * bumps)
    cloud = np.stack([1.08 * radius * np.sin(bumps), -0.55 - 0.98 * radius * np.cos(bumps)], axis=1)
    centre = np.array([0.0, -0.5])
    return _shaded_hair(part, smooth((cloud - centre) * (0.86 + 0.14 * part.volume) + centre), 0.12)


def _shaded_hair(part: Part, outline: Points, rim: float) -> list[Shape]:
    return _rim_shapes(part, outline, rim, part.tones["base"], part.tones["dark"])


def _bun(part: Part) -> list[Shape]:
    volume = part.volume
    return _shaded_hair(part, ellipse(0, -1.22 * (0.85 + 0.15 * volume), 0.31 * volume, 0.26 * volume), 0.09)


def _spikes(part: Part) -> list[Shape]:
    angles = np.linspace(-1.55, 1.55, 17)
    reach = np.where(np.arange(17) % 2, 1.34, 1.02)
    tips = [(float(r * math.sin(a)) * 0.98, float(-0.1 - 0.95 * r * math.cos(a))) for a, r in zip(angles, reach, strict=True)]
    return _shaded_hair(part, part.fit([(-1.0, 0.04), *tips, (1.0, 0.04), *_OUTLINES["spiky_hairline"]]), 0.06)


def _headscarf(part: Part) -> list[Shape]:
    """Returns the scarf around its opening, the edge of the opening, and the shade on the far side."""
    opening = part.fit(_OUTLINES["headscarf_opening"])
    outer, inner = symmetric(part.fit(_OUTLINES["headscarf"])), symmetric(opening)
    far = outer - (part.side * 0.09, 0.04)
    return [
        Shape((outer, inner), part.tones["base"]),
        Shape((symmetric(opening * (1.045, 1.035)), inner), part.tones["light"]),
        Shape((outer, far), part.tones["dark"], outer, 0.6),
    ]


def _pompon(part: Part) -> list[Shape]:
    return [Shape((ellipse(0, -1.32 * (0.9 + 0.1 * part.volume), 0.15),), part.tones["light"])]


def _knot(part: Part) -> list[Shape]:
    return [Shape((smooth(_OUTLINES["knot"]),), part.tones["light"])]


_RULES: Mapping[str, Callable[[Part], list[Shape]]] = {
    "afro": _afro,
    "bald": _bald,
    "blush": _blush,
    "bun": _bun,
    "curls": _curls,
    "full_beard": _full_beard,
    "glints_of_curls": _glints_of_curls,
    "headscarf": _headscarf,
    "knot": _knot,
    "placket": _placket,
    "pompon": _pompon,
    "spikes": _spikes,
    "stubble": _stubble,
}
"""Computed layers, by their name in the data file."""
