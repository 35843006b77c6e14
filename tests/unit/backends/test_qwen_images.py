"""Preprocessing by table against the image processor of the installed transformers: equal to the last bit, or not taken."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pytest_vlmrobust.backends import BackendOptions, open_backend, qwen_images, resolve
from pytest_vlmrobust.backends.loading import ModelSource, limit_pixels, load_image_processor, quiet
from pytest_vlmrobust.backends.qwen_images import Patches, accelerated, cuts_by_table, patches_and_grids, preprocessing_of
from pytest_vlmrobust.core.prediction import Request

Find = Callable[[str], Path]
Pair = tuple[Any, Any]

FAMILY = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
CLIP = {"image_mean": (0.48145466, 0.4578275, 0.40821073), "image_std": (0.26862954, 0.26130258, 0.27577711)}


def _library(**settings: Any) -> Any:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    return Qwen2VLImageProcessorPil(**settings)


def _pair(**settings: Any) -> Pair:
    library = _library(**settings)
    fast = accelerated(library)
    assert (preprocessing_of(library), preprocessing_of(fast)) == ("library", "fast")
    return library, fast


def _picture(height: int, width: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def _assert_same_bits(pair: Pair, images: Any, **settings: Any) -> None:
    expected, actual = (processor(images, return_tensors="np", **settings) for processor in pair)
    assert expected.keys() == actual.keys()
    for name in expected:
        assert (expected[name].dtype, expected[name].shape) == (actual[name].dtype, actual[name].shape)
        assert expected[name].tobytes() == actual[name].tobytes()


@pytest.mark.parametrize("family", FAMILY)
def test_serves_the_whole_family(checkpoint: Find, family: str) -> None:
    with quiet():
        library = load_image_processor(ModelSource(str(checkpoint(family))), "pil")
    fast = accelerated(library)
    assert preprocessing_of(fast) == "fast"
    assert type(fast).__name__ == type(library).__name__
    assert fast.to_dict() == library.to_dict()
    _assert_same_bits((library, fast), [_picture(70, 90), _picture(224, 224)])


def test_serves_the_embedded_model() -> None:
    with quiet():
        library = load_image_processor(ModelSource(resolve("tiny").location), "pil")
    _assert_same_bits((library, accelerated(library)), [_picture(160, 160), _picture(113, 160), _picture(480, 320)])


SIDES = st.one_of(st.integers(1, 40), st.integers(1, 400))


@given(
    heights=st.lists(SIDES, min_size=1, max_size=3),
    width=SIDES,
    patch=st.sampled_from([4, 14, 16, 20]),
    merge=st.sampled_from([1, 2, 3]),
    times=st.sampled_from([1, 2, 3]),
    least=st.sampled_from([1, 56 * 56, 80 * 80]),
    span=st.sampled_from([1, 2, 50]),
    moments=st.sampled_from([{}, CLIP, {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}, {"do_normalize": False}]),
    rescale=st.sampled_from([{}, {"rescale_factor": 1 / 127.5}, {"do_rescale": False}]),
    seed=st.integers(0, 2**32),
)
def test_gives_the_bits_of_the_library(
    heights: list[int],
    width: int,
    patch: int,
    merge: int,
    times: int,
    least: int,
    span: int,
    moments: dict[str, Any],
    rescale: dict[str, Any],
    seed: int,
) -> None:
    size = {"shortest_edge": least, "longest_edge": least * span + (patch * merge) ** 2}
    shape = {"patch_size": patch, "merge_size": merge, "temporal_patch_size": times}
    pair = _pair(size=size, **shape, **moments, **rescale)
    pictures = [_picture(height, width, seed) for height in heights]
    if any(max(height, width) / min(height, width) > 200 for height in heights):
        for processor in pair:
            with pytest.raises(ValueError, match="absolute aspect ratio must be smaller than 200"):
                processor(pictures)
    else:
        _assert_same_bits(pair, pictures)


@pytest.mark.cases("size", [(1, 1), (1, 200), (200, 1), (2, 3), (3, 400), (1, 199), (1500, 40), (1344, 1008)])
def test_odd_and_small_pictures(size: tuple[int, int]) -> None:
    _assert_same_bits(_pair(), _picture(*size))


def test_every_value_of_every_channel() -> None:
    values = np.stack([np.roll(np.arange(256, dtype=np.uint8), 85 * channel).reshape(16, 16) for channel in range(3)], axis=-1)
    picture = Image.fromarray(np.tile(values, (4, 4, 1)))
    _assert_same_bits(_pair(size={"shortest_edge": 1, "longest_edge": 10**6}, patch_size=16, merge_size=2), picture)


def test_pixel_limits_set_later_count() -> None:
    pair = _pair()
    for processor in pair:
        limit_pixels(processor, 56 * 56, 112 * 112)
    _assert_same_bits(pair, _picture(300, 500))
    assert list(pair[1](_picture(300, 500), return_tensors="np")["image_grid_thw"][0]) == [1, 6, 10]


@pytest.mark.parametrize(
    "settings",
    [{"size": {"shortest_edge": 3136, "longest_edge": 50000}}, {"do_normalize": False}, {"image_mean": 0.4}, {"resample": 2}],
)
def test_settings_of_a_call_count(settings: dict[str, Any]) -> None:
    _assert_same_bits(_pair(), _picture(150, 200), **settings)


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1"])
def test_pictures_of_other_modes_are_left_to_the_library(mode: str) -> None:
    _assert_same_bits(_pair(), [_picture(60, 80).convert(mode), _picture(60, 80)])


def test_arrays_are_left_to_the_library() -> None:
    array = np.asarray(_picture(60, 80))
    _assert_same_bits(_pair(), [array, array])
    _assert_same_bits(_pair(), [np.zeros((56, 56, 3), np.uint8)], do_resize=False)
    _assert_same_bits(_pair(), [_picture(56, 56)], do_resize=False)


@pytest.mark.cases("flipped", [np.s_[:], np.s_[::-1], np.s_[:, ::-1]])
@pytest.mark.cases("size", [(56, 84), (60, 80)])
def test_arrays_are_cut_as_the_pictures_that_they_are(size: tuple[int, int], flipped: Any) -> None:
    library, fast = _pair()
    arrays = [np.asarray(_picture(*size, seed))[flipped] for seed in (1, 2)]
    expected = library([Image.fromarray(array) for array in arrays], return_tensors="np")
    patches, grids = patches_and_grids(fast, arrays)
    numbers = np.empty((len(patches), patches.width), np.float32)
    patches.write(numbers)
    assert numbers.tobytes() == expected["pixel_values"].tobytes()
    assert patches.nbytes == numbers.nbytes
    assert grids.tobytes() == expected["image_grid_thw"].tobytes()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_device_finds_the_numbers_of_the_batch(dtype: str) -> None:
    _, fast = _pair()
    sizes = [[(56, 84)], [(60, 80), (28, 28)]]
    parts = [patches_and_grids(fast, [np.asarray(_picture(*size, 7)) for size in request])[0] for request in sizes]
    numbers = [np.empty((len(part), part.width), np.float32) for part in parts]
    for part, place in zip(parts, numbers, strict=True):
        part.write(place)
    numbers_there = Patches.joined(parts).on("cpu", getattr(torch, dtype))
    assert numbers_there.is_contiguous()
    assert torch.equal(numbers_there, torch.from_numpy(np.concatenate(numbers)).to(getattr(torch, dtype)))


def test_no_arrays_are_cut_that_are_not_to_be_resized() -> None:
    library, fast = _pair()
    assert (cuts_by_table(library), cuts_by_table(fast)) == (False, True)
    fast.do_resize = False
    assert not cuts_by_table(fast)


def test_threads_share_one() -> None:
    library, fast = _pair()
    pictures = [_picture(40 + 10 * number, 200, number) for number in range(24)]
    with ThreadPoolExecutor(4) as pool:
        bits = list(pool.map(lambda picture: fast(picture, return_tensors="np")["pixel_values"].tobytes(), pictures))
    assert bits == [library(picture, return_tensors="np")["pixel_values"].tobytes() for picture in pictures]


def test_another_kind_is_returned_as_it_is(checkpoint: Find) -> None:
    for family in ("internvl", "gemma3", "idefics3", "llava_onevision"):
        with quiet():
            other = load_image_processor(ModelSource(str(checkpoint(family))), "pil")
        assert accelerated(other) is other


def test_another_backend_is_returned_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    library = _library()
    monkeypatch.setattr(type(library), "backend", "torchvision")
    assert accelerated(library) is library


@pytest.mark.parametrize("factor", [1 / 255 + 1e-9, 1 / 254])
def test_a_library_that_computes_otherwise_is_kept(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    library = _library()
    own_step = type(library)._preprocess
    monkeypatch.setattr(
        type(library), "_preprocess", lambda self, images, **rest: own_step(self, images, **{**rest, "rescale_factor": factor})
    )
    qwen_images._faster_kind.cache_clear()
    assert accelerated(library) is library


def test_one_that_refuses_the_pictures_of_the_comparison_is_kept() -> None:
    library = _library(do_resize=False)
    assert accelerated(library) is library


def test_answers_of_the_embedded_model_are_the_same_to_the_last_bit() -> None:
    pictures = [np.asarray(_picture(height, width, height)) for height, width in ((160, 160), (90, 133), (300, 200), (64, 64))]
    requests = [Request(str(n), (picture,), "What is shown?", ("A", "B", "C")) for n, picture in enumerate(pictures)]
    backends = [open_backend(resolve("tiny"), BackendOptions(preprocessing=way)) for way in ("library", "fast")]
    by_library, by_table = (backend.infer(requests) for backend in backends)
    assert [backend.describe()["loaded"]["preprocessing"] for backend in backends] == ["library", "fast"]
    assert [dict(prediction.logprobs) for prediction in by_table] == [dict(prediction.logprobs) for prediction in by_library]
    assert backends[0].fingerprint() == backends[1].fingerprint()
