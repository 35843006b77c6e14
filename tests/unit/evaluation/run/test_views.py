from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Setting
from pytest_vlmrobust.core.errors import ImageError
from pytest_vlmrobust.core.fingerprint import derive_seed, pixels_digest
from pytest_vlmrobust.evaluation.run import views as module
from pytest_vlmrobust.evaluation.run.views import ViewMaker, code_digest
from pytest_vlmrobust.perturbations.registry import REGISTRY
from tests.unit.evaluation.conftest import MemoryImage, picture, sample

STOCHASTIC = Setting.parse("gaussian_noise:mid")
FIXED = Setting.parse("invert")


def test_clean_is_the_source_and_no_image_is_nothing() -> None:
    one = sample(1)
    clean = ViewMaker(1).view(one, CLEAN)
    assert np.array_equal(clean.images[0], picture(1))
    assert clean.digests == (pixels_digest(picture(1)),)
    nothing = ViewMaker(1).view(one, NO_IMAGE)
    assert nothing.images == nothing.digests == ()


def test_a_view_is_the_perturbation_seeded_by_sample() -> None:
    view = ViewMaker(1234).view(sample(1), STOCHASTIC)
    expected = perturbations.get("gaussian_noise:mid")(picture(1), seed=derive_seed(1234, "q1"))
    assert np.array_equal(view.images[0], expected)
    assert view.digests == (pixels_digest(expected),)


def test_every_picture_of_a_sample_is_perturbed() -> None:
    two = sample(1, images=(MemoryImage(picture(1)), MemoryImage(picture(2))))
    assert [image.tolist() for image in ViewMaker(1).view(two, FIXED).images] == [
        (255 - picture(1)).tolist(),
        (255 - picture(2)).tolist(),
    ]


def test_pictures_that_were_made_for_a_rung_are_shown_as_they_are() -> None:
    one = sample(1, sizes={448: (MemoryImage(picture(2)),), 1344: (MemoryImage(picture(1)),)})
    maker = ViewMaker(1)
    made = Setting.parse("resolution:448")
    assert np.array_equal(maker.view(one, made).images[0], picture(2))
    assert maker.view(one, CLEAN).digests == maker.view(one, Setting.parse("resolution:1344")).digests
    assert maker.recipe(one, made) == maker.recipe(sample(2), CLEAN)
    assert maker.recipe(one, made) != maker.recipe(sample(1), made)
    padded = maker.view(one, Setting.parse("resolution:448+invert"))  # what comes after a rung begins with it
    assert np.array_equal(padded.images[0], 255 - picture(2))
    assert maker.recipe(one, Setting.parse("resolution:448+invert")) == maker.recipe(sample(2), FIXED)
    own = Setting.parse("resolution:16")  # nobody made this one, nor others of the kind
    assert maker.view(one, own).digests == maker.view(sample(1), own).digests
    lanczos = Setting.parse("resolution_lanczos:448")
    assert maker.view(one, lanczos).digests == maker.view(sample(1), lanczos).digests


def test_samples_differ_and_seeds_differ() -> None:
    same_picture = [sample(i, images=(MemoryImage(picture(0)),)) for i in (1, 2)]
    digests = {ViewMaker(seed).view(one, STOCHASTIC).digests for seed in (1, 2) for one in same_picture}
    assert len(digests) == 4


def test_every_thread_makes_the_same_view() -> None:
    wanted = [(sample(i), Setting.parse(name)) for i in range(4) for name in ("gaussian_noise:mid", "rain:high", "flip_h")] * 3
    alone = [ViewMaker(1).view(*one).digests for one in wanted]
    maker = ViewMaker(1)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda one: maker.view(*one).digests, wanted)) == alone


def test_a_source_is_read_once_for_all_settings() -> None:
    one, maker = sample(1), ViewMaker(1)
    for setting in (CLEAN, FIXED, STOCHASTIC, CLEAN):
        maker.view(one, setting)
    assert [image.loaded for image in one.images if isinstance(image, MemoryImage)] == [1]


def test_sources_are_let_go_when_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SOURCE_BYTES", 2 * picture(0).nbytes)
    samples, maker = [sample(i) for i in range(3)], ViewMaker(1)
    for one in (*samples, samples[2], samples[0]):
        maker.view(one, CLEAN)
    assert [one.images[0].loaded for one in samples if isinstance(one.images[0], MemoryImage)] == [2, 1, 1]


def test_a_source_cannot_be_written_to_through_a_view() -> None:
    with pytest.raises(ValueError, match="read-only"):
        ViewMaker(1).view(sample(1), CLEAN).images[0][0, 0, 0] = 1


def test_a_broken_picture_is_an_image_error() -> None:
    with pytest.raises(ImageError, match="cannot be decoded"):
        ViewMaker(1).view(sample(1, images=(MemoryImage(picture(1), broken=True),)), FIXED)


def test_recipes_depend_on_the_seed_only_where_pixels_do() -> None:
    one = sample(1)
    for setting in (CLEAN, NO_IMAGE, FIXED):
        assert ViewMaker(1).recipe(one, setting) == ViewMaker(2).recipe(one, setting)
    assert ViewMaker(1).recipe(one, STOCHASTIC) != ViewMaker(2).recipe(one, STOCHASTIC)
    assert ViewMaker(1).recipe(one, Setting.parse("invert+gaussian_noise:mid")) != ViewMaker(2).recipe(
        one, Setting.parse("invert+gaussian_noise:mid")
    )


def test_samples_with_one_picture_share_the_recipes_without_randomness() -> None:
    first, second = (sample(i, images=(MemoryImage(picture(0)),)) for i in (1, 2))
    maker = ViewMaker(1)
    assert maker.recipe(first, FIXED) == maker.recipe(second, FIXED)
    assert maker.recipe(first, STOCHASTIC) != maker.recipe(second, STOCHASTIC)


def test_recipes_depend_on_the_source_picture_and_on_the_setting() -> None:
    maker = ViewMaker(1)
    recipes = [maker.recipe(sample(i), Setting.parse(name)) for i in range(3) for name in ("clean", "fog:low", "fog:mid")]
    assert len(set(recipes)) == 9
    forwards = sample(1, images=(MemoryImage(picture(1)), MemoryImage(picture(2))))
    backwards = sample(1, images=(MemoryImage(picture(2)), MemoryImage(picture(1))))
    assert maker.recipe(forwards, CLEAN) != maker.recipe(backwards, CLEAN)


def test_recipes_depend_on_the_version_of_a_perturbation(monkeypatch: pytest.MonkeyPatch) -> None:
    maker, one = ViewMaker(1), sample(1)
    before = maker.recipe(one, FIXED)
    raised = dataclasses.replace(REGISTRY.get("invert"), version=REGISTRY.get("invert").version + 1)
    monkeypatch.setitem(REGISTRY._things, "invert", raised)
    assert maker.recipe(one, FIXED) != before


def test_recipes_depend_on_the_code_and_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    maker, one = ViewMaker(1), sample(1)
    before = maker.recipe(one, FIXED)
    code_digest.cache_clear()
    monkeypatch.setattr(module, "_installed", lambda package: "0.0.0")
    try:
        assert maker.recipe(one, FIXED) != before
    finally:
        code_digest.cache_clear()


def test_no_picture_is_read_for_a_recipe() -> None:
    one = sample(1)
    ViewMaker(1).recipe(one, STOCHASTIC)
    assert [image.loaded for image in one.images if isinstance(image, MemoryImage)] == [0]
