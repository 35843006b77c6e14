"""The catalogue: registers every built-in perturbation, and defines the named sets."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME, Setting
from pytest_vlmrobust.core.errors import SettingError, UnknownName
from pytest_vlmrobust.core.registry import RegistryState

from . import (
    adapters,
    blur,
    extras,
    geometric,
    noise,
    observatory,
    options,
    overlay,
    preprocessing,
    resolution,
    standins,
    tone,
    typographic,
    weather,
    wording,
)
from .pixels import Image
from .registry import REGISTRY, Corruption, corruption

__all__ = ["OBSERVATORY_ID", "ROBUSTBENCH", "SETS", "SPECIAL", "STANDINS", "corruption", "names", "records", "without_image"]

FAMILIES = (
    *(blur, noise, weather, geometric, tone, resolution, overlay),
    *(preprocessing, observatory, standins, extras),
    *(options, typographic, wording, adapters),
)
"""The modules that register the built-in perturbations on import."""
BUILT_IN = frozenset(REGISTRY.loaded_things())
"""The names of the built-in perturbations: nothing else is registered before them."""
OFFERED_GRIDS = preprocessing.GRIDS
"""Grids of patches. Importing them from here keeps the order of registration fixed."""

ROBUSTBENCH = (
    *("gaussian_blur", "motion_blur", "defocus_blur", "zoom_blur", "glass_blur"),
    *("gaussian_noise", "shot_noise", "speckle_noise", "salt_pepper"),
    *("fog", "frost", "snow", "rain", "spatter"),
    *("jpeg_compression", "pixelate"),
    *("rotate", "shear", "affine", "perspective_transform", "elastic_transform"),
    *("brightness", "brightness_up", "contrast", "contrast_up", "saturation", "saturation_up"),
    *("gamma", "gamma_up", "hue_shift", "color_jitter"),
    *("random_occlusion", "grid_mask", "center_occlusion"),
    *("downsample", "upsample", "sharpen", "posterize", "solarize"),
    *("text_overlay", "watermark", "add_border"),
    *("flip_h", "flip_v", "grayscale", "invert", "channel_swap", "equalize", "autocontrast"),
)
"""The 49 augmentations of VLM-RobustBench in the order of its Table 29, then the binary ones."""

OBSERVATORY_ID = (
    *("observatory_gaussian_blur", "observatory_median_filter", "observatory_zoom_blur", "observatory_chromatic_aberration"),
    *("observatory_iso_noise", "observatory_rgb_shift", "observatory_salt_pepper", "observatory_gamma"),
    *("observatory_jpeg_compression", "observatory_multiplicative_noise", "observatory_sharpen", "observatory_glass_blur"),
    *("observatory_posterize", "observatory_motion_blur", "observatory_gaussian_noise"),
)
"""The 15 in-distribution augmentations of The Perceptual Observatory in the order of its supplement 9.3."""

STANDINS = (
    *("standin_halftone", "standin_cross_hatching", "standin_mosaic", "standin_oil_paint", "standin_embroidery"),
    *("standin_quilted_texture", "standin_low_key", "standin_stained_glass", "standin_origami", "standin_isometric"),
    *("standin_starry_sky", "standin_night_forest", "standin_clouds", "standin_sand_dunes", "standin_candles"),
)
"""The 15 procedural stand-ins for the illusions of The Perceptual Observatory."""

SETS: dict[str, Callable[[], list[str]]] = {
    "robustbench": lambda: _settings(ROBUSTBENCH),
    "patches": lambda: _settings(("patches",)),
    "resolution": lambda: _settings(("resolution",)),
    "options": lambda: _settings(("option_order",)),
    "typographic": lambda: _settings(typographic.NAMES),
    "wording": lambda: _settings(wording.NAMES),
    "directional": lambda: _settings(wording.DIRECTIONAL),
    "observatory_id": lambda: _settings(OBSERVATORY_ID),
    "observatory_ood": lambda: _settings(_illusions()),
    "all": lambda: _settings(tuple(dict.fromkeys((*ROBUSTBENCH, *REGISTRY.names())))),
}
"""Set name to its settings; further sets are further entries."""


def names(which: str = "robustbench") -> list[str]:
    """Returns the settings of a named set, in an order that never depends on the run.

    ``robustbench`` has 133: the families in the paper's order, in each the perturbations in the order of its Table 29, each at
    low, mid and high. ``all`` adds everything else that is registered, a user's own included, in the order of registration.

    >>> len(names("robustbench"))
    133
    """
    if which not in SETS:
        raise UnknownName("set of perturbations", which, SETS)
    return SETS[which]()


def records(setting: Setting) -> list[tuple[Corruption, str | None]]:
    """Returns the record and the level of each step of a setting."""
    steps = [(SPECIAL.get(step.name) or REGISTRY.get(step.name), step.level) for step in setting.steps]
    for record, level in steps:
        record.parameters(level)
    for (record, _), step in zip(steps[:-1], setting.steps, strict=False):
        if record.views:
            raise SettingError(f"setting {str(setting)!r}: {str(step)!r} makes several images of one. Put it last")
    kinds = [record.on for record, _ in steps]
    if kinds != sorted(kinds, reverse=True):  # questions before images
        late = str(setting.steps[len(kinds) - 1 - kinds[::-1].index("question")])
        raise SettingError(f"setting {str(setting)!r}: {late!r} changes the question. Put it before what changes pixels")
    return steps


def without_image(_image: object = None) -> NoReturn:
    """Refuses to perturb for the setting ``no_image``, which has no pixels."""
    raise SettingError(
        f"setting {NO_IMAGE_NAME!r} is not a perturbation of pixels: the evaluation drops the image and sends the question "
        "alone. Ask the evaluation for it, or use 'clean' to keep the image as it is"
    )


def _keep_pixels(image: Image) -> Image:
    """Keeps every pixel."""
    return image


def _settings(perturbations: tuple[str, ...]) -> list[str]:
    return [setting for name in perturbations for setting in REGISTRY.get(name).settings()]


def _illusions() -> tuple[str, ...]:
    """Returns the registered illusions, such as those of a folder, or else their stand-ins.

    Illusions of installed packages count once they are loaded, so that a broken package does not break this set.
    """
    return tuple(name for name in REGISTRY.loaded_things() if REGISTRY.get(name).family == "illusion") or STANDINS


def _special(name: str, function: Callable[..., Image]) -> Corruption:
    return Corruption(
        name=name,
        family=name,
        category=name,
        function=function,
        levels={None: {}},
        changes={None: frozenset()},
        stochastic=False,
        version=1,
        source="VLM-RobustBench",
        keeps_size=True,
    )


SPECIAL = {CLEAN_NAME: _special(CLEAN_NAME, _keep_pixels), NO_IMAGE_NAME: _special(NO_IMAGE_NAME, without_image)}
"""The two settings of every evaluation without perturbation."""


# Facts about a setting.


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """The facts about a setting.

    For a composed setting, ``name``, ``family`` and ``category`` join those of its steps by ``+`` (each once), ``level`` and
    ``version`` are ``None`` (see :func:`fingerprint` for each step's), and a flag is set if any step sets it.
    """

    setting: str
    name: str
    family: str
    category: str
    level: str | None
    version: int | None
    stochastic: bool
    label_changing: frozenset[str]
    """Members of ``record.CHANGES``: questions about these have another right answer under the setting."""
    keeps_size: bool
    views: int
    """Images per image: n * n for ``patches:n``, else 1."""
    on: str
    """``question`` if a step changes more than pixels, else ``image``."""
    doc: str


def info(setting: str | Setting) -> SettingInfo:
    """Returns the facts about a setting; ``clean`` and ``no_image`` are separate families.

    >>> info("flip_h").label_changing == {"left_right", "position"}
    True
    """
    return _info(_parse(setting), REGISTRY.state)


@lru_cache(maxsize=4096)
def _info(parsed: Setting, _state: RegistryState) -> SettingInfo:
    steps = records(parsed)
    alone = len(steps) == 1
    return SettingInfo(
        setting=str(parsed),
        name=parsed.name,
        family=_join([record.family for record, _ in steps]),
        category=_join([record.category for record, _ in steps]),
        level=parsed.level,
        version=steps[0][0].version if alone else None,
        stochastic=any(record.stochastic for record, _ in steps),
        label_changing=frozenset().union(*(record.changes_at(level) for record, level in steps)),
        keeps_size=all(record.keeps_size for record, _ in steps),
        views=math.prod(record.views_at(level) for record, level in steps),
        on=max(record.on for record, _ in steps),
        doc="\n\n".join(record.doc for record, _ in steps),
    )


def fingerprint(setting: str | Setting) -> list[dict[str, Any]]:
    """Returns the inputs of a setting's pixels, JSON-safe: name, level, parameters and version of each step.

    Steps that read files, such as stored illusions, include their digests.

    >>> fingerprint("rotate:mid")
    [{'name': 'rotate', 'level': 'mid', 'params': {'degrees': 15}, 'version': 1}]
    """
    return [
        {"name": record.name, "level": level, "params": dict(record.facts_at(level)), "version": record.version}
        for record, level in records(_parse(setting))
    ]


def _parse(setting: str | Setting) -> Setting:
    return Setting.parse(setting) if isinstance(setting, str) else setting


def _join(words: list[str]) -> str:
    return "+".join(dict.fromkeys(words))
