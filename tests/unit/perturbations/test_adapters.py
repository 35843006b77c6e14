"""Transforms of other libraries: by stand-ins, and by the libraries themselves where they are installed."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.errors import ImageError, MissingExtra, SettingError
from pytest_vlmrobust.evaluation.run.plan import expand_settings
from pytest_vlmrobust.perturbations import adapters

PICTURE = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)


class BasicTransform:
    """As albumentations has it."""

    def __init__(self, p: float = 0.5) -> None:
        assert p == 1.0

    def set_random_seed(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)


class GaussNoise(BasicTransform):
    def __init__(self, std_range: tuple[float, float] = (0.2, 0.4), shift: float = 0, p: float = 0.5) -> None:
        super().__init__(p)
        if not 0 <= std_range[0] <= std_range[1] <= 1:
            raise ValueError("std_range must be within 0 and 1")
        self.std_range, self.shift = std_range, shift

    def __call__(self, *, image: Any) -> dict[str, Any]:
        if image.shape[1] > 200:
            raise RuntimeError("too wide")
        noise = self.rng.normal(self.shift, self.rng.uniform(*self.std_range), image.shape)
        image[:] = np.clip(image + 255 * noise, 0, 255)
        return {"image": image}


class ToFloat(BasicTransform):
    def __call__(self, *, image: Any) -> dict[str, Any]:
        return {"image": image.astype(np.float32)}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    caches = (adapters._classes, adapters._transform)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("albumentations")
    vars(module).update(BasicTransform=BasicTransform, GaussNoise=GaussNoise, ToFloat=ToFloat, Compose=dict)
    monkeypatch.setitem(sys.modules, "albumentations", module)
    monkeypatch.setattr(adapters, "version", lambda _: "9.9")


@pytest.mark.usefixtures("standin")
def test_a_transform_is_a_setting_with_numbers() -> None:
    renderer = perturbations.get("albumentations:gauss_noise,std_range=0.1")
    before = PICTURE.copy()
    first, again, other = (renderer(PICTURE, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.array_equal(before, PICTURE)
    assert 10 < (first.astype(float) - PICTURE).std() < 30
    assert perturbations.fingerprint(renderer.setting)[0]["params"] == {
        "transform": "gauss_noise",
        "std_range": 0.1,
        "albumentations": "9.9",
    }
    assert str(Setting.parse(str(renderer.setting))) == "albumentations:gauss_noise,std_range=0.1"
    assert perturbations.info(renderer.setting).label_changing == frozenset()
    assert not any("albumentations" in name for name in perturbations.names("all"))


@pytest.mark.usefixtures("standin")
@pytest.mark.parametrize(
    ("level", "message"),
    [
        (":gaus_noise", "albumentations 9.9 has no transform 'gaus_noise'. Did you mean 'gauss_noise'? Expected"),
        (
            "",
            "setting 'albumentations:' names no transform. Expected one such as 'albumentations:gaussian_blur'",
        ),
        (":gauss_noise,std=0.1", "gauss_noise has no argument 'std'. Expected one of std_range, shift"),
        (":gauss_noise,p=0.1", "gauss_noise has no argument 'p'"),
        (":gauss_noise,std_range=2", "albumentations refuses it: ValueError: std_range must be within 0 and 1"),
        (":gauss_noise,std_range=0.10", "has a shorter spelling. Write 'albumentations:gauss_noise,std_range=0.1'"),
        (":to_float", "to_float returns float32 of shape (64, 64, 3). Expected one that makes uint8 RGB images"),
    ],
)
def test_a_transform_that_cannot_be_says_why(level: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        perturbations.get(f"albumentations{level}")
    assert message in str(caught.value)


@pytest.mark.usefixtures("standin")
def test_an_image_that_it_cannot_change_is_no_crash() -> None:
    with pytest.raises(ImageError, match=r"gauss_noise cannot be applied to this image: RuntimeError: too wide"):
        perturbations.get("albumentations:gauss_noise")(np.zeros((4, 300, 3), np.uint8), seed=1)


@pytest.mark.parametrize("name", ["albumentations", "nrtk"])
def test_a_library_that_is_not_installed_is_named_with_what_installs_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [each for each in sys.modules if each.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=rf"the setting '{name}:…' needs the package '{name}.*pip install .*{name}"):
        perturbations.get(f"{name}:gaussian_blur")
    with pytest.raises(MissingExtra):
        expand_settings([f"{name}:gaussian_blur"])  # before anything is asked
    assert perturbations.info(f"{name}:gaussian_blur").family == name  # a run of others can be verified


@pytest.mark.parametrize(
    ("setting", "draws"),
    [
        ("albumentations:gauss_noise,std_range=0.2", True),
        ("albumentations:motion_blur,blur_limit=7", True),
        ("albumentations:horizontal_flip", False),
        ("nrtk:gaussian_blur,ksize=5", False),
        ("nrtk:gaussian_noise,var=0.1", True),
    ],
)
def test_the_libraries_themselves(setting: str, *, draws: bool) -> None:
    library = setting.partition(":")[0]
    pytest.importorskip(library)
    renderer = perturbations.get(setting)
    first, again, other = (renderer(PICTURE, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert np.array_equal(first, other) is not draws
    assert not np.array_equal(first, PICTURE)
    if setting == "albumentations:horizontal_flip":
        assert np.array_equal(first, PICTURE[:, ::-1])
