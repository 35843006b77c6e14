"""Colours of portraits, RGB in [0, 255]."""

from __future__ import annotations

from .portrait_canvas import Colour, mix

SKIN: dict[str, Colour] = {
    "porcelain": (252, 224, 203),
    "peach": (246, 207, 176),
    "honey": (236, 189, 150),
    "almond": (222, 170, 130),
    "chestnut": (158, 104, 71),
    "bronze": (136, 85, 56),
    "umber": (115, 71, 48),
    "ebony": (97, 59, 43),
}
HAIR: dict[str, Colour] = {
    "black": (38, 33, 40),
    "brown": (84, 54, 40),
    "chestnut": (122, 72, 44),
    "auburn": (160, 74, 38),
    "blond": (226, 182, 104),
    "grey": (150, 150, 156),
    "white": (232, 230, 226),
    "teal": (40, 128, 134),
}
FABRIC: dict[str, Colour] = {
    "black": (52, 56, 74),
    "brown": (206, 132, 140),
    "chestnut": (172, 62, 58),
    "auburn": (216, 116, 64),
    "blond": (232, 188, 92),
    "grey": (132, 146, 162),
    "white": (240, 234, 222),
    "teal": (36, 122, 118),
}
"""What a headscarf, a beanie or a turban is made of, by the colour of the hair that it covers."""
IRIS: dict[str, Colour] = {
    "brown": (96, 58, 34),
    "hazel": (146, 102, 46),
    "green": (74, 130, 84),
    "blue": (66, 122, 182),
    "grey": (120, 136, 150),
}
CLOTH: dict[str, Colour] = {
    "navy": (44, 62, 104),
    "rust": (190, 88, 54),
    "forest": (52, 104, 80),
    "mustard": (222, 168, 58),
    "plum": (112, 62, 104),
    "cream": (240, 228, 206),
    "slate": (88, 104, 122),
    "coral": (238, 124, 106),
}
BACKDROP: dict[str, Colour] = {
    "sky": (176, 212, 236),
    "sand": (236, 218, 188),
    "mint": (182, 222, 202),
    "lilac": (208, 198, 232),
    "rose": (240, 198, 200),
    "butter": (248, 228, 160),
    "mist": (208, 216, 222),
    "teal": (128, 186, 188),
}
INK: Colour = (44, 32, 36)
WHITE: Colour = (252, 250, 248)
_SHADE: Colour = (96, 30, 44)
_GLOW: Colour = (255, 236, 208)


def shaded(colour: Colour, share: float) -> Colour:
    """Returns a colour in warm shade: darker by about ``share``."""
    return mix(mix(colour, (0.0, 0.0, 0.0), 0.55 * share), _SHADE, 0.45 * share)


def lit(colour: Colour, share: float) -> Colour:
    """Returns a colour in warm light."""
    return mix(colour, _GLOW, share)


def darker(colour: Colour, share: float) -> Colour:
    """Returns a colour nearer to a cool black."""
    return mix(colour, (18.0, 14.0, 32.0), share)


def lighter(colour: Colour, share: float) -> Colour:
    """Returns a colour nearer to white."""
    return mix(colour, (255.0, 255.0, 255.0), share)
