from __future__ import annotations

import pytest

from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.errors import UnknownName
from pytest_vlmrobust.perturbations.neural import diffusion


def test_there_are_fifteen_variants_that_can_be_written_in_a_setting() -> None:
    assert len(diffusion.VARIANTS) == 15
    assert all(str(Setting.parse(f"illusion:{name}")) == f"illusion:{name}" for name in diffusion.VARIANTS)


def test_a_prompt_is_scene_style_and_light() -> None:
    assert diffusion.prompt("sand_dunes") == "rippled sand dunes in a desert, landscape photograph, long shadows of the morning"
    assert len({diffusion.prompt(name) for name in diffusion.VARIANTS}) == 15
    for parts in diffusion.VARIANTS.values():
        assert parts.scene
        assert parts.style
        assert parts.light


@pytest.mark.parametrize("name", diffusion.VARIANTS)
def test_prompts_fit_into_what_clip_reads(name: str) -> None:
    assert len(diffusion.prompt(name).split()) < 30  # CLIP cuts at 77 tokens; common words are one each, or two


def test_scales_are_the_published_ones() -> None:
    assert {name: (each.controlnet_scale, each.guidance_scale) for name, each in diffusion.PRESETS.items()} == {
        "words": (1.2, 10.5),
        "faces": (3.0, 7.5),
    }
    assert diffusion.NEGATIVE == "glitch, low quality"


def test_unknown_names() -> None:
    with pytest.raises(UnknownName, match=r"unknown variant of illusions 'origamy'. Did you mean 'origami'"):
        diffusion.prompt("origamy")
    with pytest.raises(UnknownName, match=r"unknown preset of illusions 'word'. Did you mean 'words'"):
        diffusion.prompt_preset("word")
