"""Preprocessed: small pictures that are padded or enlarged before a model sees them, the settings of Res-Bench's Table 3."""

from __future__ import annotations

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Setting
from pytest_vlmrobust.perturbations.registry import REGISTRY

PREPROCESSING = "preprocessing"
"""The family of such steps, and what stands for the settings of Table 3 in a mark."""
PADDED = {2: (3, 4, 6, 7, 8, 9, 11, 12), 4: (6, 7, 8, 9, 11, 12)}
"""Twelfths of the size that a picture has before and after padding: 224 and 448 of 1344 pixels, as published."""
ENLARGED = {2: (4, 8), 4: (8,)}
"""The same of enlarging, published for super-resolution."""
TWELFTHS = 12
_PUBLISHED_EDGE = 1344
_PADDING = ("pad_white", "pad_zero")
_PLAIN_ENLARGING = ("upscale_lanczos", "upscale_bicubic")


def preprocessing(native_long_edge: int | None = None) -> list[str]:
    """Returns the settings of Table 3, such as ``resolution:224+pad_white:448``: padding first, then enlarging.

    Enlarging is plain interpolation, and super-resolution where a network of the user's own is registered for it.

    Args:
        native_long_edge: the long edge in pixels of all pictures of a data set; the published 1344 where nothing is said.

    >>> preprocessing(160)[:2]
    ['resolution:27+pad_white:40', 'resolution:27+pad_white:53']
    """
    edge = native_long_edge or _PUBLISHED_EDGE
    found = [
        f"resolution:{twelfths(edge, before)}+{name}:{twelfths(edge, after)}"
        for names, sizes in ((_PADDING, PADDED), ((*_PLAIN_ENLARGING, *_networks()), ENLARGED))
        for name in names
        for before, larger in sizes.items()
        for after in larger
        if twelfths(edge, after) > twelfths(edge, before)
    ]
    return list(dict.fromkeys(found))


def twelfths(edge: int, count: int) -> int:
    """Returns so many twelfths of a long edge in whole pixels, at least one."""
    return max(1, round(edge * count / TWELFTHS))


def is_preprocessed(setting: Setting) -> bool:
    """Whether a setting is a rung of the resolution ladder with one step of preprocessing after it."""
    if setting in (CLEAN, NO_IMAGE) or len(setting.steps) != 2:
        return False
    return perturbations.info(str(setting)).family == f"ladder+{PREPROCESSING}"


def _networks() -> list[str]:
    """Returns perturbations of the family that are not built in: super-resolution networks of the user's own."""
    built_in = (*_PADDING, *_PLAIN_ENLARGING)
    return [name for name, record in REGISTRY.loaded().items() if record.family == PREPROCESSING and name not in built_in]
