from __future__ import annotations

import dataclasses
import json

import pytest

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.errors import SettingError, UnknownName


def test_info_of_a_level() -> None:
    facts = perturbations.info("glass_blur:low")
    assert (facts.setting, facts.name, facts.family, facts.category) == ("glass_blur:low", "glass_blur", "blur", "Blur")
    assert (facts.level, facts.version, facts.stochastic, facts.keeps_size) == ("low", 1, True, True)
    assert facts.doc.startswith("Shuffles pixels")
    assert dataclasses.is_dataclass(facts)


def test_info_of_a_composition_joins_its_steps() -> None:
    facts = perturbations.info("fog:mid+flip_h+rain:low+add_border:low")
    assert (facts.name, facts.family) == ("fog+flip_h+rain+add_border", "weather+binary+overlay")
    assert (facts.level, facts.version, facts.stochastic, facts.keeps_size) == (None, None, True, False)
    assert facts.label_changing == {"left_right", "position"}


@pytest.mark.parametrize("name", ["clean", "no_image"])
def test_the_two_unperturbed_settings_are_families_of_their_own(name: str) -> None:
    assert perturbations.info(name).family == name
    assert perturbations.fingerprint(name) == [{"name": name, "level": None, "params": {}, "version": 1}]


@pytest.mark.parametrize(
    ("setting", "changed"),
    [
        ("flip_h", {"left_right", "position"}),
        ("flip_v", {"up_down", "position"}),
        ("grayscale", {"colour"}),
        ("saturation:low", set()),
        ("saturation:high", {"colour"}),
        ("hue_shift:low", set()),
        ("hue_shift:mid", {"colour"}),
        ("rotate:high", set()),
        ("upsample:low", {"presence", "count", "position"}),
        ("random_occlusion:low", {"presence", "count"}),
        ("text_overlay:low", {"text"}),
        ("gaussian_blur:high", set()),
    ],
)
def test_which_answers_change(setting: str, changed: set[str]) -> None:
    assert perturbations.info(setting).label_changing == changed


def test_fingerprint_has_each_step_and_is_json() -> None:
    steps = perturbations.fingerprint("fog:mid+flip_h")
    assert json.loads(json.dumps(steps)) == [
        {"name": "fog", "level": "mid", "params": {"intensity": 0.6}, "version": 2},
        {"name": "flip_h", "level": None, "params": {}, "version": 1},
    ]


def test_unknown_things_are_refused() -> None:
    with pytest.raises(UnknownName, match="'fogg'"):
        perturbations.info("fogg:low")
    with pytest.raises(SettingError, match="lacks a level"):
        perturbations.fingerprint("fog")
