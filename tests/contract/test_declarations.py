"""What settings are declared to change follows from the table of `docs/declarations.md`, which is measured again in part."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import Setting

FILE = Path(__file__).parents[2] / "benchmarks" / "declarations.py"
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
    stated, found = declarations.read_table()[setting], declarations.measure(setting)
    assert (found.read is None) == (stated.read is None)
    for share in ("renamed", "hidden", "moved", "across", "down", "read"):
        # another build of OpenCV may round a colour to its neighbour: one disk in twenty
        assert getattr(found, share) in (None, pytest.approx(getattr(stated, share), abs=0.051)), share


@pytest.mark.parametrize("setting", AGAIN)
def test_measures_the_same_again(declarations: ModuleType, setting: str) -> None:
    _is_still_so(declarations, setting)


@pytest.mark.slow
@pytest.mark.parametrize("setting", [name for name in perturbations.names("robustbench") if name not in AGAIN])
def test_measures_the_same_again_everywhere(declarations: ModuleType, setting: str) -> None:
    _is_still_so(declarations, setting)


def test_clean_pictures_lose_nothing(declarations: ModuleType) -> None:
    assert declarations.measure("clean") == declarations.Effect(0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    for name, colour in declarations.IN_A_CHART.items():
        assert declarations._name(np.array(colour, float)) == name
