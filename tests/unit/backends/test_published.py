"""Published models: the built-in names of the papers, and what each needs."""

from __future__ import annotations

import re

import pytest

from pytest_vlmrobust.backends import model_id, resolve
from pytest_vlmrobust.backends.published import _LISTED, PUBLISHED, Published, described
from pytest_vlmrobust.core.boxes import CONVENTIONS
from pytest_vlmrobust.core.errors import ModelError

HERE = {name for name, about in PUBLISHED.items() if not about.is_served}
"""Those that run in the process of a gate."""


def test_they_are_hub_ids_with_size_and_family() -> None:
    for name, published in PUBLISHED.items():
        assert name == model_id(name)
        assert published.family
        if published.hub_id:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+", published.hub_id)
            assert published.billions > 0
    assert len({published.hub_id for published in PUBLISHED.values() if published.hub_id}) == sum(
        bool(published.hub_id) for published in PUBLISHED.values()
    )


@pytest.mark.cases(
    "family",
    [
        *("qwen2-vl-72b", "qwen2.5-vl-72b", "qwen3-vl-30b-a3b", "qwen3-vl-30b-a3b-thinking", "internvl2.5-26b", "internvl3-78b"),
        *(
            "internvl3.5-38b",
            "molmo-72b",
            "molmo2-8b",
            "gemma-3-27b",
            "llava-onevision-72b",
            "phi-3.5-vision",
            "phi-4-multimodal",
        ),
        *(
            "phi-4-multimodal",
            "pixtral-12b",
            "smolvlm2-2.2b",
            "minicpm-v-2.6",
            "deepseek-vl2",
            "kimi-vl-a3b",
            "gpt-4o",
            "gemini-1.5-pro",
        ),
    ],
)
def test_every_model_family_of_the_papers_has_a_name(family: str) -> None:
    assert family in PUBLISHED


def test_weights_are_parameters_times_bytes() -> None:
    assert PUBLISHED["qwen2-vl-7b"].weights == {"bfloat16": 14.0, "float32": 28.0}
    assert PUBLISHED["qwen3-vl-30b-a3b"].weights["bfloat16"] == 60.0, "all experts are loaded"
    assert PUBLISHED["gpt-4o"].weights == {}
    assert described("x", Published("a/b", "gemma-3", 4)) == ("x", "a/b", "8 / 16", "", "direct", "not run here")


def test_what_brings_code_or_is_not_published_has_to_be_served() -> None:
    with pytest.raises(ModelError, match=r"runs by Python code in its checkpoint.* --trust-remote-code.* --vlm=openai:BASE_URL#"):
        resolve("molmo-7b-d")
    with pytest.raises(ModelError, match=r"'gpt-4o': its weights are not published\..* --vlm=openai:BASE_URL#gpt-4o@REVISION"):
        resolve("gpt-4o")
    assert {about.extra for about in PUBLISHED.values()} == {"", "openai", "torchvision"}


def test_models_that_run_here_are_known_to_transformers_and_others_are_not() -> None:
    from transformers.models.auto import modeling_auto

    known = modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    types = {
        "qwen2-vl": "qwen2_vl",
        "qwen2.5-vl": "qwen2_5_vl",
        "qwen3-vl": "qwen3_vl",
        "internvl3": "internvl",
        "internvl3.5": "internvl",
        "gemma-3": "gemma3",
        "llava-onevision": "llava_onevision",
        "idefics3": "idefics3",
        "smolvlm": "idefics3",
        "smolvlm2": "smolvlm",
        "pixtral": "llava",
        "molmo2": "molmo2",
    }
    assert {types[PUBLISHED[name].family] for name in HERE} <= set(known)
    assert "qwen3_vl_moe" in known
    assert not {"internvl_chat", "molmo", "phi3_v", "phi4mm", "minicpmv", "deepseek_vl_v2", "kimi_vl"} & set(known)


def test_boxes_are_read_as_the_family_writes_them() -> None:
    conventions = {PUBLISHED[name].family: resolve(name).box_convention for name in HERE}
    assert conventions["qwen2-vl"] == conventions["qwen3-vl"] == conventions["internvl3.5"] == "thousandths"
    assert conventions["qwen2.5-vl"] == "resized_pixels"
    assert conventions["gemma-3"] == ""
    assert set(conventions.values()) <= {"", *CONVENTIONS}
    assert {family for family, facts in _LISTED["families"].items() if "boxes" in facts} <= set(conventions)
    assert {about.family for about in PUBLISHED.values()} >= set(_LISTED["families"])


def test_thinking_models_are_asked_in_thinking_mode() -> None:
    assert {name for name in HERE if resolve(name).prompt_mode == "thinking"} == {name for name in HERE if "thinking" in name}
