"""Perturbations: pixels in, pixels out; the 49 augmentations of VLM-RobustBench in 133 settings, and yours.

    from pytest_vlmrobust import perturbations

    perturbations.names("robustbench")                      # 133 settings
    perturbations.get("glass_blur:low")(image, seed=1234)   # uint8 (H, W, 3) RGB -> uint8, same seed, same bytes

Importing this package loads neither NumPy nor OpenCV: the catalogue is loaded when a name is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .registry import CHANGES, Corruption

if TYPE_CHECKING:
    from .catalog import SettingInfo, corruption, fingerprint, info, names
    from .illusion_folder import illusions
    from .neural import super_resolution
    from .pixels import Painted
    from .questions import perturbed
    from .rendering import Renderer, as_rgb, get

__all__ = [
    "CHANGES",
    "Corruption",
    "Painted",
    "Renderer",
    "SettingInfo",
    "as_rgb",
    "corruption",
    "fingerprint",
    "get",
    "illusions",
    "info",
    "names",
    "perturbed",
    "super_resolution",
]

_HOMES = {
    "Painted": "pixels",
    "Renderer": "rendering",
    "SettingInfo": "catalog",
    "as_rgb": "rendering",
    "corruption": "catalog",  # not where it is defined: built-in perturbations must be registered before a user's
    "fingerprint": "catalog",
    "get": "rendering",
    "illusions": "illusion_folder",
    "info": "catalog",
    "names": "catalog",
    "perturbed": "questions",
    "super_resolution": "neural",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    thing = globals()[name] = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    return thing


def __dir__() -> list[str]:
    return __all__
