from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import cv2
import numpy as np
import PIL.Image
import pytest
from numpy.typing import NDArray
from scipy import ndimage, stats

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.perturbations import observatory

Image = NDArray[np.uint8]
Stochastic = Callable[[Image, np.random.Generator], Image]

GREY = np.full((64, 64, 3), 128, np.uint8)
RAMP = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2)
SEEDS = range(60)


def textured(height: int = 60, width: int = 80) -> Image:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def smooth(height: int = 120, width: int = 160) -> Image:
    blurred: Image = cv2.normalize(
        cv2.GaussianBlur(textured(height, width), (0, 0), 5), np.empty(0), 20, 235, cv2.NORM_MINMAX
    ).astype(np.uint8)
    return blurred


def drawn(augment: Stochastic, image: Image) -> Iterator[Image]:
    """Yields ``image`` under the draws of many seeds."""
    for seed in SEEDS:
        yield augment(image, np.random.default_rng(seed))


def spans(values: list[float], low: float, high: float) -> bool:
    """Whether ``values`` stay in [low, high] and come near both of its ends, as an even distribution does."""
    margin = (high - low) / 8
    return low <= min(values) < low + margin and high - margin < max(values) <= high


def test_the_set_is_the_papers_list() -> None:
    names = perturbations.names("observatory_id")
    assert len(names) == len({*names}) == 15
    assert names[:3] == ["observatory_gaussian_blur", "observatory_median_filter", "observatory_zoom_blur"]
    assert names[-2:] == ["observatory_motion_blur", "observatory_gaussian_noise"]
    facts = [perturbations.info(name) for name in names]
    assert {(fact.family, fact.level, fact.keeps_size) for fact in facts} == {("observatory", None, True)}
    assert [fact.name for fact in facts if not fact.stochastic] == ["observatory_gaussian_blur", "observatory_posterize"]


def test_a_users_own_perturbation_of_the_family_is_not_in_the_set() -> None:
    before = perturbations.names("observatory_id")
    perturbations.corruption(family="observatory", name="my_observatory")(lambda image: image)
    assert "my_observatory" in perturbations.names("all")
    assert perturbations.names("observatory_id") == before


def test_gaussian_blur_has_11_pixels_and_a_deviation_of_11() -> None:
    weights = np.exp(-0.5 * (np.arange(-5, 6) / 11.0) ** 2)
    weights /= weights.sum()
    image = textured()
    expected = ndimage.correlate1d(
        ndimage.correlate1d(image.astype(float), weights, axis=0, mode="mirror"), weights, axis=1, mode="mirror"
    )
    assert np.abs(observatory.observatory_gaussian_blur(image) - expected).max() < 1.0


def test_median_filter_draws_one_of_ten_sizes_evenly() -> None:
    image = textured(40, 50)
    medians = {size: ndimage.median_filter(image, (size, size, 1), mode="nearest").tobytes() for size in range(3, 22, 2)}
    sizes = {result: size for size, result in medians.items()}
    drawn_sizes = [sizes[each.tobytes()] for each in drawn(observatory.observatory_median_filter, image)]
    assert {*drawn_sizes} == {*medians}
    assert stats.chisquare(np.unique(drawn_sizes, return_counts=True)[1]).pvalue > 0.001


def test_zoom_blur_smears_outwards_by_less_than_seven_percent() -> None:
    image = np.zeros((401, 401, 3), np.uint8)
    image[:, 20:23] = 255  # 180 pixels from the centre
    ends = []
    for result in drawn(observatory.observatory_zoom_blur, image):
        smear = np.flatnonzero(result[200, :, 0])
        assert smear.max() == 22  # nothing moves inwards
        ends.append(smear.min())
    assert 200 - 180 * 1.07 - 2 < min(ends) < 10
    assert 13 < max(ends) < 200 - 180 * 1.02


def test_zoom_blur_is_the_mean_of_the_picture_and_its_zooms() -> None:
    image = smooth()
    rng = np.random.default_rng(3)
    zooms = np.arange(1.0, rng.uniform(1.05, 1.07), rng.uniform(0.01, 0.03))
    middle = (np.array(image.shape[:2]) - 1) / 2
    layers = [image[..., 1].astype(float)] + [
        ndimage.affine_transform(image[..., 1].astype(float), [1 / zoom] * 2, middle * (1 - 1 / zoom), order=1) for zoom in zooms
    ]
    result = observatory.observatory_zoom_blur(image, np.random.default_rng(3))
    assert np.abs(result[..., 1] - np.mean(layers, axis=0)).max() < 2


def test_chromatic_aberration_moves_red_and_blue_alike_outwards_or_inwards_and_not_green() -> None:
    image = np.zeros((301, 301, 3), np.uint8)
    yy, xx = np.mgrid[:301, :301]
    image[np.hypot(xx - 150, yy - 150) < 100] = 255
    shifts = []
    for result in drawn(observatory.observatory_chromatic_aberration, image):
        np.testing.assert_array_equal(result[..., 1], image[..., 1])
        red, blue = (np.sqrt((result[..., channel] > 127).sum() / np.pi) - 99.8 for channel in (0, 2))
        assert red * blue > -0.5
        shifts += [red, blue]
    assert min(shifts) < -1.0
    assert max(shifts) > 1.0


def test_chromatic_aberration_takes_each_value_from_the_distorted_place() -> None:
    image = smooth(91, 131)[..., 0].copy()
    y, x = np.mgrid[0:91, 0:131].astype(float)
    u, v = (x - 65) / 131, (y - 45) / 91
    factor = 1 + 0.15 * (u**2 + v**2) - 0.08 * (u**2 + v**2) ** 2
    places = [45 + factor * (y - 45), 65 + factor * (x - 65)]
    expected = ndimage.map_coordinates(image.astype(float), places, order=1, mode="nearest")
    assert np.abs(observatory._distort(image, 0.15, -0.08) - expected).max() < 2


def test_chromatic_aberration_never_leaves_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[float, float]] = []

    def note(channel: NDArray[np.uint8], primary: float, secondary: float) -> NDArray[np.uint8]:
        seen.append((primary, secondary))
        return channel

    monkeypatch.setattr(observatory, "_distort", note)
    list(drawn(observatory.observatory_chromatic_aberration, GREY))
    primaries, secondaries = zip(*seen, strict=True)
    assert spans([*primaries], -0.2, 0.2)
    assert spans([*secondaries], -0.1, 0.1)
    signs = np.sign(np.array(seen).reshape(-1, 4))
    assert (signs == signs[:, :1]).all()


def test_iso_noise_lightens_a_share_of_pixels_given_by_the_contrast() -> None:
    image = np.full((300, 300, 3), 50, np.uint8)
    image[:, 150:] = (150, 100, 120)
    lightness = image.astype(float).max(axis=2) / 2 + image.astype(float).min(axis=2) / 2
    for seed in (1, 2, 3):
        intensity = np.random.default_rng(seed).uniform(0.1, 0.5)
        rate = intensity * lightness.std() / 255
        result = observatory.observatory_iso_noise(image, np.random.default_rng(seed)).astype(float)
        changed = (result != image).any(axis=2)
        assert changed.mean() == pytest.approx(1 - np.exp(-rate), abs=4 * np.sqrt(rate / changed.size))
        moved = (result.max(axis=2) + result.min(axis=2)) / 2
        hits = (moved - lightness)[changed] / (255 - lightness[changed]) / intensity
        assert np.abs(hits - np.rint(hits)).max() < 0.05
        assert hits.min() > 0.9


def test_iso_noise_keeps_hue_and_saturation() -> None:
    pixels = np.array([[200, 40, 90], [10, 60, 30], [90, 90, 90], [0, 0, 0], [255, 255, 255]], np.uint8)
    shares = np.array([0.3, 0.3, 0.5, 0.2, 0.4])
    before, after = (
        cv2.cvtColor(each[None].astype(np.float32) / 255, cv2.COLOR_RGB2HLS)[0]
        for each in (pixels, observatory._lighten(pixels, shares))
    )
    np.testing.assert_allclose(after[:, 1], before[:, 1] + shares * (1 - before[:, 1]), atol=1 / 255)
    np.testing.assert_allclose(after[:2, 0], before[:2, 0], atol=2)
    np.testing.assert_allclose(after[:2, 2], before[:2, 2], atol=0.02)
    assert (observatory._lighten(pixels, np.full(5, 1.7)) == 255).all()


def test_iso_noise_leaves_an_even_picture_alone() -> None:
    np.testing.assert_array_equal(observatory.observatory_iso_noise(GREY, np.random.default_rng(0)), GREY)


def test_iso_noise_draws_its_intensity_from_a_tenth_to_a_half() -> None:
    image = np.zeros((80, 80, 3), np.uint8)
    image[:, 40:] = 255
    steps = [result[result > 0].min() / 255 for result in drawn(observatory.observatory_iso_noise, image)]
    assert spans(steps, 0.098, 0.502)


def test_rgb_shift_moves_each_channel_by_a_whole_number_of_its_own() -> None:
    shifts = []
    for result in drawn(observatory.observatory_rgb_shift, GREY):
        difference = result.astype(int) - GREY
        assert (difference == difference[0, 0]).all()
        shifts.append(difference[0, 0])
    moves = np.array(shifts)
    assert all(spans(moves[:, channel].tolist(), -20, 20) for channel in range(3))
    assert np.abs(np.corrcoef(moves.T)[np.triu_indices(3, 1)]).max() < 0.4
    assert moves.mean() == pytest.approx(0, abs=3)


def test_salt_pepper_speckles_a_thousandth_of_the_pixels_at_most() -> None:
    image = np.full((500, 500, 3), 128, np.uint8)
    black, white = [], []
    for result in drawn(observatory.observatory_salt_pepper, image):
        assert (result == result[..., :1]).all()
        black.append((result[..., 0] == 0).mean())
        white.append((result[..., 0] == 255).mean())
    total = np.add(black, white)
    assert 0.00005 < total.min() < 0.0003
    assert 0.0008 < total.max() < 0.0013
    assert np.sum(white) == pytest.approx(np.sum(black), rel=0.15)


def test_gamma_draws_its_power_and_rounds() -> None:
    powers = []
    for result in drawn(observatory.observatory_gamma, RAMP):
        assert result[0, 0, 0] == 0
        assert result[0, 255, 0] == 255
        powers.append(float(np.log(result[0, 64, 0] / 255) / np.log(64 / 255)))
    assert spans(powers, 0.795, 1.405)
    power = np.random.default_rng(5).uniform(0.8, 1.4)
    exact = 255 * (np.arange(256) / 255) ** power
    np.testing.assert_array_equal(observatory.observatory_gamma(RAMP, np.random.default_rng(5))[0, :, 0], np.rint(exact))


def test_jpeg_compression_draws_a_whole_quality_from_20_to_50() -> None:
    image = smooth(40, 48)
    by_quality = {jpeg(image, quality): quality for quality in range(15, 56)}
    assert len(by_quality) > 35  # qualities can be told apart
    qualities = [by_quality[result.tobytes()] for result in drawn(observatory.observatory_jpeg_compression, image)]
    assert spans([float(quality) for quality in qualities], 20, 50)


def jpeg(image: Image, quality: int) -> bytes:
    stream = io.BytesIO()
    PIL.Image.fromarray(image).save(stream, "JPEG", quality=quality, subsampling="4:2:0")
    return np.asarray(PIL.Image.open(stream)).tobytes()


def test_multiplicative_noise_is_one_factor_for_the_whole_picture() -> None:
    factors = []
    for seed, result in zip(SEEDS, drawn(observatory.observatory_multiplicative_noise, RAMP), strict=True):
        factor = np.random.default_rng(seed).uniform(0.9, 1.1)
        expected = np.clip(np.rint(np.arange(256) * factor), 0, 255)
        np.testing.assert_array_equal(result, np.repeat(expected[None, :, None], 3, axis=2))
        factors.append(factor)
    assert spans(factors, 0.9, 1.1)


def test_sharpen_steepens_edges_and_darkens_flat_areas_a_little() -> None:
    image = smooth()
    rows, columns = (np.abs(np.diff(image.astype(int), axis=axis)).sum() for axis in (0, 1))
    for result in drawn(observatory.observatory_sharpen, image):
        assert np.abs(np.diff(result.astype(int), axis=0)).sum() > rows
        assert np.abs(np.diff(result.astype(int), axis=1)).sum() > columns
    flat = [float(result[5, 5, 0]) / 200 for result in drawn(observatory.observatory_sharpen, np.full((9, 9, 3), 200, np.uint8))]
    assert 0.945 <= min(flat) < 0.975
    assert 0.99 < max(flat) <= 1.0


def test_sharpen_weighs_neighbours_by_alpha() -> None:
    image = np.full((7, 7, 3), 40, np.uint8)
    image[3, 3] = 50
    for seed in range(5):
        rng = np.random.default_rng(seed)
        alpha, lightness = rng.uniform(0.3, 0.5), rng.uniform(0.9, 1.0)
        result = observatory.observatory_sharpen(image, np.random.default_rng(seed))[..., 0].astype(float)
        flat = 40 * (1 - alpha * (1 - lightness))
        assert result[3, 3] == pytest.approx(flat + 10 * (1 - alpha + alpha * (8 + lightness)), abs=0.51)
        np.testing.assert_allclose(result[2, 2:5], flat - 10 * alpha, atol=0.51)


def test_glass_blur_moves_pixels_by_two_at_most_and_without_drift() -> None:
    height, width = 200, 220
    y, x = np.mgrid[0:height, 0:width].astype(np.uint8)
    moved = observatory._scatter(np.stack([y, x, y], axis=-1), np.random.default_rng(0), delta=2).astype(int)
    inner = np.s_[4:-4, 4:-4]
    for channel, positions in ((0, y), (1, x)):
        shift = (moved[..., channel] - positions)[inner]
        shares = np.bincount(shift.ravel() + 2) / shift.size
        np.testing.assert_allclose(shares, np.array([1, 2, 2, 2, 1]) / 8, atol=0.01)


def test_glass_blur_shuffles_up_to_the_border_and_hardly_blurs() -> None:
    image = smooth()
    result = observatory.observatory_glass_blur(image, np.random.default_rng(0))
    assert (result[0] != image[0]).any()
    assert result.mean() == pytest.approx(image.mean(), abs=0.2)
    rough = textured()
    assert observatory.observatory_glass_blur(rough, np.random.default_rng(0)).std() == pytest.approx(rough.std(), rel=0.05)


def test_posterize_keeps_16_levels() -> None:
    result = observatory.observatory_posterize(RAMP)
    assert np.unique(result).tolist() == list(range(0, 256, 16))
    assert (result <= RAMP).all()


def test_motion_blur_averages_along_a_centred_line_in_any_direction() -> None:
    image = np.zeros((15, 15, 3), np.uint8)
    image[7, 7] = 255
    angles = []
    for result in drawn(observatory.observatory_motion_blur, image):
        places = np.argwhere(result[..., 0]) - 7
        assert 5 <= len(places) <= 7
        assert np.abs(places).max() <= 3
        np.testing.assert_array_equal(result, result[::-1, ::-1])  # both ends alike
        assert (result[result > 0] == round(255 / len(places))).all()
        rows, columns = places[np.abs(places).sum(axis=1).argmax()]
        angles.append(float(np.arctan2(rows, columns) % np.pi))
    assert spans(angles, 0.0, np.pi)


def test_motion_blur_line_is_a_row_a_column_or_a_diagonal_by_its_angle() -> None:
    row = np.zeros((7, 7), np.float32)
    row[3] = 1 / 7
    np.testing.assert_allclose(observatory._dotted_line(7, 0.0), row)
    np.testing.assert_allclose(observatory._dotted_line(7, np.pi / 2), row.T)
    diagonal = observatory._dotted_line(7, np.pi / 4)
    np.testing.assert_allclose(diagonal, np.diag([0, 1, 1, 1, 1, 1, 0]) / 5, atol=1e-7)


def test_gaussian_noise_is_independent_by_channel_and_of_a_drawn_deviation() -> None:
    deviations = []
    for result in drawn(observatory.observatory_gaussian_noise, GREY):
        noise = result.astype(float) - 128
        assert noise.mean() == pytest.approx(0, abs=1.0)
        assert np.abs(np.corrcoef(noise.reshape(-1, 3).T)[np.triu_indices(3, 1)]).max() < 0.08
        deviations.append(float(np.sqrt(noise.var() - 1 / 12) / 255))
    assert spans(deviations, 0.049, 0.102)
