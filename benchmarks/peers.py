"""What other libraries offer under other names, with parameters as strong as ours at ``mid``; and how to call it.

A peer that offers several ways is timed in the one it defaults to, or in the faster one (the ``fast`` mode of GlassBlur).
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]
Filter = Callable[[Image], Any]
Transforms = list[tuple[str, dict[str, Any]]]

IMAGECORRUPTIONS = {
    "gaussian_blur": ("gaussian_blur", 1),
    "motion_blur": ("motion_blur", 1),
    "defocus_blur": ("defocus_blur", 1),
    "zoom_blur": ("zoom_blur", 1),
    "glass_blur": ("glass_blur", 5),  # the one with our distance and number of shuffles
    "gaussian_noise": ("gaussian_noise", 1),
    "shot_noise": ("shot_noise", 3),
    "speckle_noise": ("speckle_noise", 1),
    "salt_pepper": ("impulse_noise", 1),
    "fog": ("fog", 3),
    "frost": ("frost", 3),
    "snow": ("snow", 3),
    "spatter": ("spatter", 4),  # the milder of the two with mud
    "jpeg_compression": ("jpeg_compression", 1),
    "pixelate": ("pixelate", 2),
    "elastic_transform": ("elastic_transform", 3),
    "brightness_up": ("brightness", 3),
    "contrast": ("contrast", 2),
    "saturation_up": ("saturate", 3),
}
"""Our name to theirs and the severity that is nearest to our ``mid``; 3, the middle one, where the scales do not compare."""


def albumentations_transforms(height: int, width: int) -> dict[str, Transforms]:
    """Returns, by our name, the transforms of albumentations and their arguments for a picture of that size.

    It has no frost and no watermark, and writes no text without the file of a font.
    """
    unit = min(height, width) // 8
    return {
        "gaussian_blur": [("GaussianBlur", {"blur_limit": 0, "sigma_limit": (1.5, 1.5)})],
        "motion_blur": [("MotionBlur", {"blur_limit": (9, 9), "allow_shifted": False, "direction_range": (0.0, 0.0)})],
        "defocus_blur": [("Defocus", {"radius": (3, 3), "alias_blur": (0.1, 0.1)})],
        "zoom_blur": [("ZoomBlur", {"max_factor": (1.06, 1.06), "step_factor": (0.01, 0.01)})],
        "glass_blur": [("GlassBlur", {"sigma": 0.9, "max_delta": 4, "iterations": 2, "mode": "fast"})],
        "gaussian_noise": [("GaussNoise", {"std_range": (0.06, 0.06)})],
        "shot_noise": [("ShotNoise", {"scale_range": (0.1, 0.1)})],
        # uniform in 1 +- 0.26 has our standard deviation of 0.15
        "speckle_noise": [("MultiplicativeNoise", {"multiplier": (0.74, 1.26), "per_channel": True, "elementwise": True})],
        "salt_pepper": [("SaltAndPepper", {"amount": (0.04, 0.04), "salt_vs_pepper": (0.5, 0.5)})],
        "fog": [("RandomFog", {"fog_coef_range": (0.6, 0.6)})],
        "snow": [("RandomSnow", {"snow_point_range": (0.3, 0.3), "method": "texture"})],
        "rain": [("RandomRain", {"rain_type": "heavy", "brightness_coefficient": 0.91})],
        "spatter": [("Spatter", {"mode": "mud", "intensity": (0.3, 0.3)})],
        "jpeg_compression": [("ImageCompression", {"quality_range": (50, 50)})],
        "pixelate": [_downscale(0.5, cv2.INTER_NEAREST)],
        "rotate": [("Rotate", {"limit": (15, 15)})],
        "shear": [("Affine", {"shear": {"x": (15, 15), "y": (0, 0)}})],
        "affine": [("Affine", {"rotate": (15, 15), "scale": (0.85, 0.85)})],
        "perspective_transform": [("Perspective", {"scale": (0.15, 0.15)})],
        "elastic_transform": [("ElasticTransform", {"alpha": 80, "sigma": 5, "noise_distribution": "uniform"})],
        # RandomBrightnessContrast adds a constant, and multiplies about zero in the place of the mean
        "brightness": [_color_jitter(brightness=(0.3, 0.3))],
        "brightness_up": [_color_jitter(brightness=(1.7, 1.7))],
        "contrast": [_color_jitter(contrast=(0.3, 0.3))],
        "contrast_up": [_color_jitter(contrast=(1.8, 1.8))],
        "saturation": [_color_jitter(saturation=(0.1, 0.1))],
        "saturation_up": [_color_jitter(saturation=(2.5, 2.5))],
        "gamma": [("RandomGamma", {"gamma_limit": (40, 40)})],
        "gamma_up": [("RandomGamma", {"gamma_limit": (200, 200)})],
        # in floating point, as ours; in 8 bits its hues are in steps of two degrees, and levels get lost on the way back
        "hue_shift": [("ToFloat", {"max_value": 255.0}), _color_jitter(hue=(1 / 9, 1 / 9)), ("FromFloat", {"max_value": 255.0})],
        "color_jitter": [_color_jitter(brightness=0.3, contrast=0.3, saturation=0.3)],
        "random_occlusion": [("Erasing", {"scale": (0.15, 0.15), "ratio": (0.5, 2.0)})],
        "grid_mask": [("GridDropout", {"ratio": math.sqrt(0.2), "unit_size_range": (unit, unit + 1)})],
        # it chooses the place; the area is ours
        "center_occlusion": [("CoarseDropout", {"num_holes_range": (1, 1), **_hole(0.3)})],
        "downsample": [_downscale(0.35, cv2.INTER_LINEAR)],
        "upsample": [
            ("CenterCrop", {"height": round(height / 3), "width": round(width / 3)}),
            ("Resize", {"height": height, "width": width, "interpolation": cv2.INTER_CUBIC}),
        ],
        "sharpen": [("Sharpen", {"alpha": (1.0, 1.0), "lightness": (1.0, 1.0)})],
        "posterize": [("Posterize", {"num_bits": 4})],
        "solarize": [("Solarize", {"threshold_range": (0.5, 0.5)})],
        "add_border": [("Pad", {"padding": 30})],
        "flip_h": [("HorizontalFlip", {})],
        "flip_v": [("VerticalFlip", {})],
        "grayscale": [("ToGray", {})],
        "invert": [("InvertImg", {})],
        "channel_swap": [("ChannelShuffle", {})],
        "equalize": [("Equalize", {})],
        "autocontrast": [("AutoContrast", {})],
    }


class Peer:
    """Another library, called by our names.

    Attributes:
        name: what it is imported as.
        title: its name and version.
        failures: our name to the error of what fails on the versions installed beside it.
    """

    def __init__(self, name: str, filters: Callable[[Any, int, int], dict[str, Filter]]) -> None:
        self.name = name
        self.title = f"{name} {version(name)}"
        self.failures: dict[str, str] = {}
        self._module = importlib.import_module(name)
        self._filters = filters

    def filters(self, height: int, width: int) -> dict[str, Filter]:
        """Returns what runs on a random picture of that size, by our name, and notes in ``failures`` what does not."""
        picture = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
        offered = self._filters(self._module, height, width)
        return {name: call for name, call in offered.items() if self._runs(name, call, picture)}

    def _runs(self, name: str, call: Filter, picture: Image) -> bool:
        try:
            call(picture)
        except (AttributeError, TypeError, ValueError) as error:  # it uses what the libraries below it have removed
            self.failures[name] = f"{type(error).__name__}: {error}".splitlines()[0]
            return False
        return True


def installed() -> list[Peer]:
    """Returns the peers that can be imported."""
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # it would ask a server for its newest version
    known = {"imagecorruptions": _imagecorruptions, "albumentations": _albumentations}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # imagecorruptions imports deprecated modules
        return [Peer(name, filters) for name, filters in known.items() if importlib.util.find_spec(name)]


def _imagecorruptions(module: Any, _height: int, _width: int) -> dict[str, Filter]:
    def bound(name: str, severity: int) -> Filter:
        return lambda image: module.corrupt(image, severity=severity, corruption_name=name)

    return {ours: bound(*theirs) for ours, theirs in IMAGECORRUPTIONS.items()}


def _albumentations(module: Any, height: int, width: int) -> dict[str, Filter]:
    def bound(transforms: Transforms) -> Filter:
        composed = module.Compose([getattr(module, name)(p=1.0, **arguments) for name, arguments in transforms], seed=1234)
        return lambda image: composed(image=image)["image"]

    return {ours: bound(theirs) for ours, theirs in albumentations_transforms(height, width).items()}


def _downscale(scale: float, upscale: int) -> tuple[str, dict[str, Any]]:
    pair = {"downscale": cv2.INTER_AREA, "upscale": upscale}
    return "Downscale", {"scale_range": (scale, scale), "interpolation_pair": pair}


def _color_jitter(**ranges: float | tuple[float, float]) -> tuple[str, dict[str, Any]]:
    return "ColorJitter", {"brightness": 0, "contrast": 0, "saturation": 0, "hue": 0, **ranges}


def _hole(side: float) -> dict[str, Any]:
    return {"hole_height_range": (side, side), "hole_width_range": (side, side)}
