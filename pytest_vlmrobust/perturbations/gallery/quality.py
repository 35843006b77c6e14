"""The distance of an image from the clean one: PSNR and SSIM."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.perturbations.pixels import Image, Plane, luma, opencv

PEAK = 255.0
SIGMA = 1.5
WINDOW = 11
SHORTER_SIDE = 256
"""Pixels of the shorter side, about, of the reduced images that SSIM compares."""
C1 = (0.01 * PEAK) ** 2
C2 = (0.03 * PEAK) ** 2


def psnr(image: Image, clean: Image) -> float:
    """Returns the peak signal-to-noise ratio in dB: ``10 log10(255**2 / mse)``, the mean taken over pixels and channels.

    Both are uint8 of shape (H, W, 3). Identical images give infinity.
    """
    _same_shape(image.shape, clean.shape)
    total = float(opencv().norm(image, clean, opencv().NORM_L2SQR))
    return 10.0 * math.log10(PEAK**2 * image.size / total) if total else math.inf


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """The inputs of SSIM: the reduced luma of an image, with mean and variance of the window around each pixel."""

    size: tuple[int, int]
    """Height and width of the image before it was reduced."""
    luma: Plane
    mean: Plane
    variance: Plane


def structure(image: Image) -> Structure:
    """Returns the structure of an image, uint8, shape (H, W, 3), reduced to about :data:`SHORTER_SIDE` pixels.

    Reduced like in the program of Wang et al.: by averaging squares of ``f`` x ``f`` pixels, with ``f`` the shorter side over
    256, rounded, and at least 1. The index is meant for viewing an image as a whole.
    """
    grey = luma(image)
    height, width = grey.shape
    factor = max(1, round(min(height, width) / SHORTER_SIDE))
    if factor > 1:
        rows, columns = height // factor, width // factor  # whole squares only: OpenCV averages these seven times as fast
        grey = opencv().resize(grey[: rows * factor, : columns * factor], (columns, rows), interpolation=opencv().INTER_AREA)
    plane = grey.astype(np.float32)
    mean = _window_mean(plane)
    return Structure((height, width), plane, mean, _window_mean(plane * plane) - mean * mean)


def ssim(one: Structure, other: Structure) -> float:
    """Returns the mean structural similarity of the luma of two images, in [-1, 1]; 1 if identical.

    Wang, Bovik, Sheikh & Simoncelli 2004, equation 13, with their constants: a Gaussian window of 11 x 11 pixels with a standard
    deviation of 1.5, K1 = 0.01, K2 = 0.03. As in their program, the mean is over windows that lie inside the image; an image
    smaller than the window is mirrored at its borders. Luma is BT.601, so a pure change of colour does not show.
    """
    _same_shape(one.size, other.size)
    covariance = _window_mean(one.luma * other.luma) - one.mean * other.mean
    likeness = (2.0 * one.mean * other.mean + C1) * (2.0 * covariance + C2)
    likeness /= (one.mean * one.mean + other.mean * other.mean + C1) * (one.variance + other.variance + C2)
    return float(_inside(likeness).mean())


def resize_image(image: Image, height: int, width: int) -> Image:
    """Returns ``image`` at another size: shrunk by averaging areas, or enlarged bicubically."""
    if image.shape[:2] == (height, width):
        return image
    cv2 = opencv()
    shrinks = height <= image.shape[0] and width <= image.shape[1]
    other: Image = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_CUBIC)
    return other


def _window_mean(field: Plane) -> Plane:
    """Returns the Gaussian-weighted mean around each pixel."""
    cv2 = opencv()
    mean: Plane = cv2.GaussianBlur(field, (WINDOW, WINDOW), SIGMA, borderType=cv2.BORDER_REFLECT)
    return mean


def _inside(field: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    edge = WINDOW // 2
    return field[edge:-edge, edge:-edge] if min(field.shape) >= WINDOW else field


def _same_shape(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    if one != other:
        raise ValueError(f"got images of shapes {one} and {other}. Expected the same shape: resize one of them")
