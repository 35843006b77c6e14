"""What settings are declared to change follows from `studies/declarations/README.md`, which is measured again in part."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.sample import TEXT_HEIGHTS

FILE = Path(__file__).parents[2] / "studies" / "declarations" / "declarations.py"
AGAIN = (
    *("brightness_up:high", "fog:high", "contrast:high", "solarize:low", "gaussian_blur:high", "saturation_up:high"),
    *("center_occlusion:mid", "grid_mask:high", "rotate:mid", "upsample:low", "flip_h", "flip_v", "jpeg_compression:high"),
)


@pytest.fixture(scope="module")
def declarations() -> ModuleType:
    spec = importlib.util.spec_from_file_location("declarations", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["declarations"] = module
    spec.loader.exec_module(module)
    return module


def test_the_table_has_every_setting_that_is_measured(declarations: ModuleType) -> None:
    assert list(declarations.read_table()) == declarations.measured_settings()


def test_what_is_declared_follows_from_the_table(declarations: ModuleType) -> None:
    for setting, effect in declarations.read_table().items():
        expected = declarations.declared(Setting.parse(setting).name, effect)
        assert perturbations.info(setting).label_changing == expected, setting


def _is_still_so(declarations: ModuleType, setting: str) -> None:
    stated, effect = declarations.read_table()[setting], declarations.measure(setting)
    for share in ("renamed", "hidden", "moved", "across", "down", "read_12", "read_18", "read_24", "read_36"):
        # another build of OpenCV may round a colour to its neighbour: one disk in twenty
        assert getattr(effect, share) == pytest.approx(getattr(stated, share), abs=0.051), share


@pytest.mark.cases("setting", AGAIN)
def test_measures_the_same_again(declarations: ModuleType, setting: str) -> None:
    _is_still_so(declarations, setting)


@pytest.mark.slow
@pytest.mark.cases("setting", [name for name in perturbations.names("robustbench") if name not in AGAIN])
def test_measures_the_same_again_everywhere(declarations: ModuleType, setting: str) -> None:
    _is_still_so(declarations, setting)


def test_letters_that_are_lost_at_a_height_are_lost_at_smaller_ones(declarations: ModuleType) -> None:
    measured = declarations.Effect(*[0.0] * 5, 0.9, 0.6, 0.9, 1.0)
    assert measured.legible_from == "24"
    assert declarations.declared("blur", measured) == {"text_12", "text_18"}
    assert declarations.Effect(*[0.0] * 5, 0.1, 0.2, 0.3, 0.4).legible_from == "none"
    hidden = declarations.Effect(0.0, 0.4, 0.0, 0.0, 0.0, *[None] * 4)
    assert hidden.legible_from == ""
    assert declarations.declared("crop", hidden) == {"presence", "count", "text", *(f"text_{n}" for n in TEXT_HEIGHTS)}


def test_letters_are_read_where_they_stand_if_they_are_large_enough(declarations: ModuleType) -> None:
    shares = [declarations._read_share("downsample:high", height, 1) for height in TEXT_HEIGHTS]
    assert shares == sorted(shares)
    assert shares[0] < 0.5
    assert shares[-1] > 0.9


def test_clean_pictures_lose_nothing(declarations: ModuleType) -> None:
    assert declarations.measure("clean") == declarations.Effect(*[0.0] * 5, *[1.0] * 4)
    for name, colour in declarations.IN_A_CHART.items():
        assert declarations._name(np.array(colour, float)) == name
