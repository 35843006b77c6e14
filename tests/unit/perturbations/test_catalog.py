from __future__ import annotations

import dataclasses
import json

import pytest

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.errors import SettingError, UnknownName


def test_robustbench_has_133_settings_in_the_order_of_the_paper() -> None:
    names = perturbations.names("robustbench")
    assert len(names) == len({*names}) == 133
    assert names == perturbations.names()
    assert names[:4] == ["gaussian_blur:low", "gaussian_blur:mid", "gaussian_blur:high", "motion_blur:low"]
    assert names[-8:-6] == ["add_border:high", "flip_h"]
    families = list(dict.fromkeys(perturbations.info(name).category for name in names))
    assert families == [
        *("Blur", "Noise", "Weather", "Digital", "Geometric", "Color/Tone", "Occlusion", "Resolution", "VLM-specific", "Binary")
    ]


def test_counts_by_category_are_those_of_table_1() -> None:
    counted: dict[str, set[str]] = {}
    for setting in perturbations.names():
        facts = perturbations.info(setting)
        counted.setdefault(facts.category, set()).add(facts.name)
    assert {category: len(members) for category, members in counted.items()} == {
        "Blur": 5,
        "Noise": 4,
        "Weather": 5,
        "Digital": 2,
        "Geometric": 5,
        "Occlusion": 3,
        "Color/Tone": 10,
        "Resolution": 5,
        "VLM-specific": 3,
        "Binary": 7,
    }


def test_all_begins_with_robustbench_and_adds_the_extras() -> None:
    every = perturbations.names("all")
    assert every[:133] == perturbations.names("robustbench")
    assert "true_upsample:high" in every[133:]
    assert not {"clean", "no_image"} & {*every}


def test_unknown_set_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"unknown set of perturbations 'robustbanch'\. Did you mean 'robustbench'"):
        perturbations.names("robustbanch")


def test_unknown_perturbation_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"unknown perturbation 'glas_blur'\. Did you mean 'glass_blur'"):
        perturbations.get("glas_blur:low")


@pytest.mark.cases(
    ("setting", "message"),
    [
        ("fog", "setting 'fog' lacks a level. Expected one of 'fog:low', 'fog:mid', 'fog:high'"),
        ("fog:medium", "setting 'fog:medium': no level 'medium'. Expected one of 'fog:low', 'fog:mid', 'fog:high'"),
        ("fog:intensity=0.60", "'intensity=0.60' has a shorter spelling. Write 'fog:intensity=0.6'"),
        (
            "fog:intensity=1.1",
            "beyond the levels, where nothing is known about it. Expected 'fog:intensity=N' with intensity from",
        ),
        ("fog:intensty=0.5", "no parameter 'intensty'. Did you mean 'intensity'? Expected 'fog:intensity=N' with"),
        ("posterize:bits=2.5", "bits is a whole number. Expected 'posterize:bits=N' with bits from 2 to 6"),
        ("patches:n=2", "no level 'n=2'. Expected one of 'patches:2'"),
        ("resolution:long_edge=448", "no level 'long_edge=448'. Expected 'resolution:N'"),
        ("flip_h:n=2", "setting 'flip_h:n=2': flip_h is binary and takes no level"),
        ("flip_h:low", "setting 'flip_h:low': flip_h is binary and takes no level. Write 'flip_h'"),
        ("clean:low", "setting 'clean:low': clean is binary and takes no level. Write 'clean'"),
        ("no_image", "the evaluation drops the image"),
        ("fog:low+no_image", "the evaluation drops the image"),
        ("fog:low+", "cannot read ''"),
    ],
)
def test_settings_that_cannot_be_applied_say_why(setting: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        perturbations.get(setting)
    assert message in str(caught.value)


def test_info_of_a_level() -> None:
    facts = perturbations.info("glass_blur:low")
    assert (facts.setting, facts.name, facts.family, facts.category) == ("glass_blur:low", "glass_blur", "blur", "Blur")
    assert (facts.level, facts.version, facts.stochastic, facts.keeps_size) == ("low", 2, True, True)
    assert facts.doc.startswith("Shuffles pixels")
    assert dataclasses.is_dataclass(facts)


def test_info_of_a_composition_joins_its_steps() -> None:
    facts = perturbations.info("fog:mid+flip_h+rain:low+add_border:low")
    assert (facts.name, facts.family) == ("fog+flip_h+rain+add_border", "weather+binary+overlay")
    assert (facts.level, facts.version, facts.stochastic, facts.keeps_size) == (None, None, True, False)
    assert facts.label_changing == {"colour", "left_right", "position"}


@pytest.mark.parametrize("name", ["clean", "no_image"])
def test_the_two_unperturbed_settings_are_families_of_their_own(name: str) -> None:
    assert perturbations.info(name).family == name
    assert perturbations.fingerprint(name) == [{"name": name, "level": None, "params": {}, "version": 1}]


TEXT = frozenset({"text", "text_12", "text_18", "text_24", "text_36"})


@pytest.mark.cases(
    ("setting", "changed"),
    [
        ("flip_h", {"left_right", "position"}),
        ("flip_v", {"up_down", "position"}),
        ("grayscale", {"colour"}),
        ("saturation_up:low", set()),
        ("brightness_up:high", {"colour"}),
        ("saturation:high", {"colour"}),
        ("hue_shift:low", set()),
        ("hue_shift:mid", {"colour"}),
        ("rotate:low", set()),
        ("rotate:high", {"presence", "count"}),
        ("upsample:low", {"presence", "count", "position", *TEXT}),
        ("random_occlusion:low", {"presence", "count"}),
        ("text_overlay:low", TEXT),
        ("gaussian_blur:high", set()),
        ("defocus_blur:high", {"text_12"}),
        ("downsample:high", {"text_12", "text_18"}),
        ("glass_blur:mid", TEXT - {"text_36"}),
    ],
)
def test_which_answers_change(setting: str, changed: set[str]) -> None:
    assert perturbations.info(setting).label_changing == changed


def test_fingerprint_has_each_step_and_is_json() -> None:
    steps = perturbations.fingerprint("fog:mid+flip_h")
    assert json.loads(json.dumps(steps)) == [
        {"name": "fog", "level": "mid", "params": {"intensity": 0.6}, "version": 3},
        {"name": "flip_h", "level": None, "params": {}, "version": 1},
    ]


def test_unknown_things_are_refused() -> None:
    with pytest.raises(UnknownName, match="'fogg'"):
        perturbations.info("fogg:low")
    with pytest.raises(SettingError, match="lacks a level"):
        perturbations.fingerprint("fog")
