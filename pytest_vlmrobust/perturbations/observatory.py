"""Observatory: the 15 in-distribution augmentations of The Perceptual Observatory (arXiv 2512.15949, supplement 9.3).

The paper lists a parameter or range for each and names Albumentations as the library. Ranges are sampled uniformly, once for
each sample. Unlisted details were measured on the images that the authors released (an original and its 15
augmentations, of a face and of a word), by searching for the parameters that reproduce them; "released" below means these. Where
two images do not decide, the default of Albumentations 2.0.8 is used. The formulas are those of that library, except for its
bugs: it truncates where levels are rounded here; other corrections are noted at each function.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import blur, noise, resolution, tone
from .pixels import Image, Plane, look_up, opencv, to_uint8
from .registry import corruption

LEVELS = np.arange(256, dtype=np.float64)


_observatory = partial(corruption, family="observatory", source="The Perceptual Observatory, supplement 9.3")


@_observatory(changes=["text_18"])
def observatory_gaussian_blur(image: Image) -> Image:
    """Convolves with a Gaussian of 11 x 11 pixels and a standard deviation of 11, listed as "(11, 11)".

    Such a wide Gaussian is nearly flat over its kernel: a box of 11 pixels with slightly lighter rims. It reproduces both
    released images within a level, which settles what the two numbers are; the customary deviation for 11 pixels, 2, is far from
    them.
    """
    blurred: Image = opencv().GaussianBlur(image, (11, 11), 11.0, borderType=opencv().BORDER_REFLECT_101)
    return blurred


@_observatory(stochastic=True, changes=["count", "presence", "text"])
def observatory_median_filter(image: Image, rng: np.random.Generator) -> Image:
    """Replaces every value by the median of its channel in a square of 3, 5 ... or 21 pixels, all ten sizes equally likely.

    The listed "21" is the largest size, as Albumentations reads a single number: the released images are medians of 17 and 11
    pixels, to the level. The image's last pixel is repeated beyond the border.
    """
    median: Image = opencv().medianBlur(image, 2 * int(rng.integers(1, 10, endpoint=True)) + 1)
    return median


@_observatory(stochastic=True)
def observatory_zoom_blur(image: Image, rng: np.random.Generator) -> Image:
    """Averages the image with zooms about its centre, from 1 in steps of 0.01 to 0.03 to below a largest of 1.05 to 1.07.

    The steps are the library's default, and the released images agree: four zooms, in steps of 0.016 and 0.0205. The image
    itself counts twice, as there. The zooms share one centre here; there each is cropped to whole pixels, up to one pixel off.
    """
    cv2 = opencv()
    height, width = image.shape[:2]
    zooms = np.arange(1.0, rng.uniform(1.05, 1.07), rng.uniform(0.01, 0.03))
    total = image.astype(np.float32)
    total *= 2.0
    for zoom in zooms[1:]:
        matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), 0.0, zoom)
        cv2.accumulate(cv2.warpAffine(image, matrix, (width, height), borderMode=cv2.BORDER_REPLICATE), total)
    total *= 1.0 / (len(zooms) + 1)
    return to_uint8(total)


@_observatory(stochastic=True)
def observatory_chromatic_aberration(image: Image, rng: np.random.Generator) -> Image:
    """Distorts red and blue radially, both outwards or both inwards, with coefficients up to 0.2 and 0.1, and leaves green.

    A value at position p, as a share of width and height from the centre, comes from ``p (1 + k1 r^2 + k2 r^4)``, r the length
    of p. For each channel k1 is drawn up to 0.2, as listed, and k2 up to 0.1, which is not listed: the released images have
    0.055, 0.081, 0.081 and 0.095, above the library's default of 0.05. Those of an image have one sign, which is the library's
    default mode (green against purple) and holds in both. The last pixel is repeated beyond the border, and the centre is that
    of the image, half a pixel from the library's.
    """
    cv2 = opencv()
    of_red, of_blue = (rng.choice([-1.0, 1.0]) * rng.uniform(0.0, (0.2, 0.1), (2, 2))).tolist()
    red, green, blue = cv2.split(image)
    merged: Image = cv2.merge([_distort(red, *of_red), green, _distort(blue, *of_blue)])
    return merged


@_observatory(stochastic=True)
def observatory_iso_noise(image: Image, rng: np.random.Generator) -> Image:
    """Moves the lightness of a few pixels, drawn by chance, towards white: by ``intensity``, 0.1 to 0.5, for each hit.

    ``intensity`` is drawn as listed, and hits are a Poisson count; a pixel of lightness L in [0, 1] (the L of HLS) with n hits
    gets ``L + n * intensity * (1 - L)``, at most 1, and keeps its hue and saturation. The expected n is ``intensity`` times the
    standard deviation of L over the image. These bright specks look little like the grain of a sensor, yet they are what was
    published: 7 and 0.05 percent of the pixels of the released images differ, by multiples of intensities 0.339 and 0.117.

    The listed colour shift, 0.01 to 0.05, has no effect there and none here: the library adds normal numbers with a deviation of
    at most 0.025 to a hue in degrees, which is below a level, and the released pixels without a hit equal the original's.
    """
    intensity = rng.uniform(0.1, 0.5)
    rate = intensity * float(opencv().meanStdDev(_lightness(image))[1][0, 0]) / 255.0
    height, width = image.shape[:2]
    # hits thrown at random places are, for each pixel, a Poisson count, without a draw for each pixel
    hits = np.bincount(rng.integers(0, height * width, rng.poisson(rate * height * width)), minlength=height * width)
    struck = np.flatnonzero(hits)
    result = image.copy()
    if struck.size:
        pixels = result.reshape(-1, 3)
        pixels[struck] = _lighten(pixels[struck], hits[struck] * intensity)
    return result


@_observatory(stochastic=True)
def observatory_rgb_shift(image: Image, rng: np.random.Generator) -> Image:
    """Adds to each channel a number of its own, drawn from -20 to 20 levels.

    No change of colour is declared: all disks in the colours of a chart keep their names; see
    ``studies/declarations``.
    """
    return look_up(image, LEVELS[:, None] + rng.uniform(-20.0, 20.0, 3))


@_observatory(stochastic=True)
def observatory_salt_pepper(image: Image, rng: np.random.Generator) -> Image:
    """Makes a share of 0.0001 to 0.001 of the pixels black or white, in all channels, half of them each.

    The share is listed, the halves are not: one released image has 233 white and 233 black specks; the library's default for
    the share of white ones, 0.4 to 0.6, would give that in one image of a hundred. A small image may get no speck at all.
    """
    return noise.salt_pepper(image, rng, amount=rng.uniform(0.0001, 0.001))


@_observatory(stochastic=True)
def observatory_gamma(image: Image, rng: np.random.Generator) -> Image:
    """Raises every value, in [0, 1], to a power drawn from 0.8 to 1.4, listed in percent; the released have 1.27 and 0.98."""
    return tone.gamma(image, factor=rng.uniform(0.8, 1.4))


@_observatory(stochastic=True)
def observatory_jpeg_compression(image: Image, rng: np.random.Generator) -> Image:
    """Writes and reads the image as a JPEG with 4:2:0 chroma and a whole quality drawn from 20 to 50.

    Red is stored as red. The library hands its RGB pixels to an encoder that expects BGR, so that the weights of red and blue are
    exchanged; with that fault the released images are reproduced to the level, at qualities 36 and 38.
    """
    return resolution.jpeg_compression(image, quality=int(rng.integers(20, 50, endpoint=True)))


@_observatory(stochastic=True)
def observatory_multiplicative_noise(image: Image, rng: np.random.Generator) -> Image:
    """Multiplies every value by one factor drawn from 0.9 to 1.1.

    One for the whole image, the library's default and what the released images show (1.087 and 0.988): in spite of its name
    it is a change of brightness.
    """
    return tone.brightness(image, factor=rng.uniform(0.9, 1.1))


@_observatory(stochastic=True)
def observatory_sharpen(image: Image, rng: np.random.Generator) -> Image:
    """Adds to every value ``alpha``, 0.3 to 0.5, times its differences from its eight neighbours, and darkens a little.

    ``alpha`` is drawn from 0.3 to 0.5, as listed. Each neighbour weighs ``-alpha``, the pixel itself
    ``1 - alpha + alpha (8 + lightness)``, which reproduces the released images; so flat areas are multiplied by
    ``1 - alpha (1 - lightness)``. ``lightness`` is not listed, and drawn from 0.9 to 1: the released images have 0.971 and
    0.959, and of pairs drawn from the library's default, 0.5 to 1, fewer than one in a hundred is that high.
    """
    cv2 = opencv()
    alpha, lightness = rng.uniform(0.3, 0.5), rng.uniform(0.9, 1.0)
    kernel = np.full((3, 3), -alpha, np.float32)
    kernel[1, 1] = 1.0 - alpha + alpha * (8.0 + lightness)
    sharpened: Image = cv2.filter2D(image, -1, kernel, borderType=cv2.BORDER_REFLECT_101)
    return sharpened


@_observatory(stochastic=True)
def observatory_glass_blur(image: Image, rng: np.random.Generator) -> Image:
    """Shuffles pixels once with neighbours up to 2 pixels away, between two Gaussian blurs of 0.3 pixels.

    Both numbers are listed. The number of rounds is not: the released face differs from the original by 3.8, 3.7 and 3.5 levels
    (standard deviation, per channel), which one round gives; the library's default of two gives 5.3, 5.1 and 4.8.

    The library tries to exchange each pixel with another at an offset from -2 to 1, all at once, and exchanges collide: two
    of three pixels get a colour from the opposite offset, and the rim is left out. Here every pixel copies one at such
    an offset or its opposite with equal probability: the same distance without drift, up to the mirrored border.
    """
    scattered = _scatter(blur.gaussian_blur(image, radius=0.3), rng, delta=2)
    return blur.gaussian_blur(scattered, radius=0.3)


@_observatory()
def observatory_posterize(image: Image) -> Image:
    """Keeps the 4 highest bits of every value and clears the others: 16 levels; the released images, to the level.

    Values fall by 7.5 levels on average, and all disks in the colours of a chart keep their names: no change of colour is
    declared.
    """
    return resolution.posterize(image, bits=4)


@_observatory(stochastic=True)
def observatory_motion_blur(image: Image, rng: np.random.Generator) -> Image:
    """Averages the 7 pixels nearest to a straight line through each pixel, in a direction drawn evenly.

    "(7, 7)" is listed, a range of one size. The line has a point for each pixel of its length, rounded to whole pixels, and two
    that meet count once. It is centred, as in both released images, which are reproduced to the level at any angle from 49 to
    56 and from 34 to 41 degrees; the library's default would shift it and shorten one end. The angle is not listed.
    """
    cv2 = opencv()
    blurred: Image = cv2.filter2D(image, -1, _dotted_line(7, rng.uniform(0.0, np.pi)), borderType=cv2.BORDER_REFLECT_101)
    return blurred


@_observatory(stochastic=True, version=2)
def observatory_gaussian_noise(image: Image, rng: np.random.Generator) -> Image:
    """Adds normal noise to each channel of each pixel, with a standard deviation drawn from 0.05 to 0.1 of the range of values.

    Mean 0 and the range are listed; independent channels are the library's default and what the released images have
    (deviations of 0.056 and 0.060).
    """
    return noise.gaussian_noise(image, rng, std=rng.uniform(0.05, 0.1))


def _distort(channel: NDArray[np.uint8], primary: float, secondary: float) -> NDArray[np.uint8]:
    """Returns ``channel`` with each value taken from ``1 + primary r^2 + secondary r^4`` times its place, from the centre."""
    cv2 = opencv()
    height, width = channel.shape
    x = np.arange(width, dtype=np.float32) - (width - 1) / 2
    y = np.arange(height, dtype=np.float32)[:, None] - (height - 1) / 2
    square = (x / width) ** 2 + (y / height) ** 2
    factor = secondary * square
    factor += primary
    factor *= square
    factor += 1.0
    columns, rows = factor * x, factor * y
    columns += (width - 1) / 2
    rows += (height - 1) / 2
    moved: NDArray[np.uint8] = cv2.remap(channel, columns, rows, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return moved


def _dotted_line(length: int, angle: float) -> blur.Kernel:
    """Returns equal weights for the pixels of a centred line at ``angle`` radians, shape (length, length), their sum 1."""
    centre = length // 2
    along = np.arange(length) - centre
    columns, rows = (centre + np.rint(along * part).astype(np.intp) for part in (np.cos(angle), np.sin(angle)))
    kernel = np.zeros((length, length), np.float32)
    kernel[rows, columns] = 1.0
    kernel /= kernel.sum()
    return kernel


def _lightness(image: Image) -> Plane:
    """Returns the mean of the largest and the smallest channel of each pixel, in 0..255, shape (H, W)."""
    cv2 = opencv()
    red, green, blue = cv2.split(image)
    largest, smallest = cv2.max(cv2.max(red, green), blue), cv2.min(cv2.min(red, green), blue)
    mean: Plane = cv2.addWeighted(largest, 0.5, smallest, 0.5, 0.0, dtype=cv2.CV_32F)
    return mean


def _lighten(pixels: NDArray[np.uint8], share: NDArray[np.floating[Any]]) -> NDArray[np.uint8]:
    """Returns ``pixels``, shape (N, 3), with their lightness moved to white by ``share``, their hue and saturation as they were.

    At constant saturation the distances of the channels from the lightness L grow as ``255 - |2 L - 255|`` does.
    """
    values = pixels.astype(np.float32)
    before = (values.max(axis=1) + values.min(axis=1)) / 2.0
    after = np.minimum(before + share * (255.0 - before), 255.0)
    room_before = np.maximum(255.0 - np.abs(2.0 * before - 255.0), 1.0)  # 0 in black and white, which have no distances
    growth = (255.0 - np.abs(2.0 * after - 255.0)) / room_before
    return to_uint8((after[:, None] + growth[:, None] * (values - before[:, None])).astype(np.float32))


def _scatter(image: Image, rng: np.random.Generator, *, delta: int) -> Image:
    """Returns ``image`` with each pixel taken from an offset in [-delta, delta) or its opposite, in each axis, by chance.

    An offset or its opposite, each with probability 1/2, is distributed as the offset plus 0 or 1. The border is mirrored.
    """
    cv2 = opencv()
    height, width = image.shape[:2]
    sources = np.empty((height, width, 2), np.int16)
    sources[..., 0] = np.arange(width, dtype=np.int16)
    sources[..., 1] = np.arange(height, dtype=np.int16)[:, None]
    sources += rng.integers(-delta, delta, sources.shape, dtype=np.int8)
    sources += rng.integers(0, 2, sources.shape, dtype=np.int8)
    moved: Image = cv2.remap(image, sources, None, cv2.INTER_NEAREST, borderMode=cv2.BORDER_REFLECT)
    return moved
