"""Builds tiny, randomly initialised checkpoints of real architectures, laid out as the hub lays them out.

Weights are random, so answers mean nothing; what is under test is everything around them. Byte-level tokenizers are built
on the fly, and each family keeps the file layout, the special tokens and the chat template style of its published models.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

SPECIALS: dict[str, dict[str, str]] = {
    "qwen": {
        "vision_start": "<|vision_start|>",
        "vision_end": "<|vision_end|>",
        "image_token": "<|image_pad|>",
        "video_token": "<|video_pad|>",
    },
    "internvl": {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    },
    "llava_onevision": {"image_token": "<image>", "video_token": "<video>"},
    "gemma3": {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"},
    "idefics3": {
        "fake_image": "<fake_token_around_image>",
        "image": "<image>",
        "global": "<global-img>",
        "row": "<row_1_col_1>",
        "end": "<end_of_utterance>",
    },
}

QWEN_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}IMAGE"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEMPLATES = {
    "qwen": QWEN_TEMPLATE.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>"),
    "internvl": QWEN_TEMPLATE.replace("IMAGE", "<IMG_CONTEXT>\n"),
    "llava_onevision": QWEN_TEMPLATE.replace("IMAGE", "<image>"),
    "gemma3": "{{ bos_token }}"
    + QWEN_TEMPLATE.replace("IMAGE", "<start_of_image>")
    .replace("<|im_start|>assistant", "<|im_start|>model")
    .replace("<|im_start|>", "<start_of_turn>")
    .replace("<|im_end|>", "<end_of_turn>"),
    "idefics3": "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}:"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>{% else %} {{ part['text'] }}{% endif %}"
    "{% endfor %}<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}",
}
TEXT = {
    "vocab_size": 320,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 4096,
}
MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
SIGLIP = {
    "model_type": "siglip_vision_model",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 7,
}


def build_tokenizer(family: str, folder: Path) -> Any:
    """Returns a byte-level tokenizer with the family's special tokens, saved in ``folder``."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ġ", letter) for letter in "ABCD"]
    vocabulary = {token: index for index, token in enumerate([*alphabet, *("".join(pair) for pair in merges)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    ends = ("<start_of_turn>", "<end_of_turn>") if family == "gemma3" else ("<|im_start|>", "<|im_end|>")
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<bos>",  # noqa: S106 - no password
        eos_token=ends[1],
        pad_token="<pad>",  # noqa: S106 - no password
        additional_special_tokens=[ends[0]],
        extra_special_tokens=SPECIALS[family],
        padding_side="right",  # the backend must pad on the left whatever was saved
    )
    wrapped.save_pretrained(folder)
    return wrapped


def _ids(tokenizer: Any, family: str) -> dict[str, int]:
    return {name: tokenizer.convert_tokens_to_ids(token) for name, token in SPECIALS[family].items()}


def _qwen_ids(tokenizer: Any) -> dict[str, int]:
    ids = _ids(tokenizer, "qwen")
    return {
        "image_token_id": ids["image_token"],
        "video_token_id": ids["video_token"],
        "vision_start_token_id": ids["vision_start"],
        "vision_end_token_id": ids["vision_end"],
    }


def _qwen2_vl(tokenizer: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    from transformers import Qwen2VLConfig

    vision: dict[str, Any] = {"depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2, "patch_size": 14}
    config = Qwen2VLConfig(text_config={**TEXT, "rope_parameters": MROPE}, vision_config=vision, **_qwen_ids(tokenizer))
    image: dict[str, Any] = {"image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2VLProcessor"}
    return config, {**image, "min_pixels": 784, "max_pixels": 12544, "patch_size": 14, "merge_size": 2}, {}


def _qwen2_5_vl(tokenizer: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    from transformers import Qwen2_5_VLConfig

    vision: dict[str, Any] = {"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 32}
    vision |= {"window_size": 56, "fullatt_block_indexes": [1], "patch_size": 14}
    config = Qwen2_5_VLConfig(text_config={**TEXT, "rope_parameters": MROPE}, vision_config=vision, **_qwen_ids(tokenizer))
    image: dict[str, Any] = {"image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2_5_VLProcessor"}
    return config, {**image, "min_pixels": 784, "max_pixels": 12544, "patch_size": 14, "merge_size": 2}, {}


def _qwen3_vl(tokenizer: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    from transformers import Qwen3VLConfig

    vision: dict[str, Any] = {"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 32}
    vision |= {"patch_size": 16, "num_position_embeddings": 64, "deepstack_visual_indexes": [0]}
    text: dict[str, Any] = {**TEXT, "head_dim": 16, "rope_parameters": {**MROPE, "mrope_interleaved": True}}
    config = Qwen3VLConfig(text_config=text, vision_config=vision, **_qwen_ids(tokenizer))
    image: dict[str, Any] = {"image_processor_type": "Qwen2VLImageProcessorFast", "processor_class": "Qwen3VLProcessor"}
    size = {"size": {"shortest_edge": 1024, "longest_edge": 16384}, "patch_size": 16, "merge_size": 2}
    return config, {**image, **size, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}, {}


def _internvl(tokenizer: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    from transformers import InternVLConfig

    vision: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"intermediate_size": 48, "image_size": [28, 28], "patch_size": [7, 7]}
    image_token = _ids(tokenizer, "internvl")["context_image_token"]
    config = InternVLConfig(
        text_config={**TEXT, "model_type": "qwen2"}, vision_config=vision, image_token_id=image_token, image_seq_length=4
    )
    image: dict[str, Any] = {
        "image_processor_type": "GotOcr2ImageProcessorFast",
        "size": {"height": 28, "width": 28},
        "max_patches": 4,
    }
    return config, image, {"processor_class": "InternVLProcessor", "image_seq_length": 4}


def _llava_onevision(tokenizer: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    from transformers import LlavaOnevisionConfig

    ids = _ids(tokenizer, "llava_onevision")
    pinpoints = [[28, 28], [28, 56], [56, 28], [56, 56]]
    config = LlavaOnevisionConfig(
        text_config={**TEXT, "model_type": "qwen2"},
        vision_config={**SIGLIP, "vision_use_head": False},
        image_token_index=ids["image_token"],
        video_token_index=ids["video_token"],
        image_grid_pinpoints=pinpoints,
    )
    image: dict[str, Any] = {"image_processor_type": "LlavaOnevisionImageProcessor", "processor_class": "LlavaOnevisionProcessor"}
    image |= {"size": {"height": 28, "width": 28}, "image_grid_pinpoints": pinpoints}
    processor = {"processor_class": "LlavaOnevisionProcessor", "num_image_tokens": 16, "vision_feature_select_strategy": "full"}
    return config, image, processor


def _gemma3(tokenizer: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    from transformers import Gemma3Config

    ids = _ids(tokenizer, "gemma3")
    text: dict[str, Any] = {**TEXT, "head_dim": 16, "sliding_window": 16, "sliding_window_pattern": 2}
    text |= {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    config = Gemma3Config(
        text_config=text,
        vision_config={**SIGLIP, "vision_use_head": False},
        mm_tokens_per_image=4,
        boi_token_index=ids["boi_token"],
        eoi_token_index=ids["eoi_token"],
        image_token_index=ids["image_token"],
    )
    image: dict[str, Any] = {"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 28, "width": 28}}
    return config, image, {"processor_class": "Gemma3Processor", "image_seq_length": 4}


def _idefics3(tokenizer: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    from transformers import Idefics3Config

    vision: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"image_size": 28, "patch_size": 7}
    ids = _ids(tokenizer, "idefics3")
    config = Idefics3Config(
        text_config={**TEXT, "model_type": "llama", "pad_token_id": tokenizer.pad_token_id},
        vision_config=vision,
        image_token_id=ids["image"],
        scale_factor=2,
        pad_token_id=tokenizer.pad_token_id,
    )
    image: dict[str, Any] = {
        "image_processor_type": "Idefics3ImageProcessor",
        "size": {"longest_edge": 56},
        "max_image_size": {"longest_edge": 28},
    }
    return config, image, {"processor_class": "Idefics3Processor", "image_seq_len": 4}


Recipe = Callable[[Any], tuple[Any, dict[str, Any], dict[str, Any]]]
FAMILIES: dict[str, tuple[str, Recipe]] = {
    "qwen2_vl": ("qwen", _qwen2_vl),
    "qwen2_5_vl": ("qwen", _qwen2_5_vl),
    "qwen3_vl": ("qwen", _qwen3_vl),
    "internvl": ("internvl", _internvl),
    "llava_onevision": ("llava_onevision", _llava_onevision),
    "gemma3": ("gemma3", _gemma3),
    "idefics3": ("idefics3", _idefics3),
}


def build_checkpoint(family: str, folder: Path) -> Path:
    """Writes the checkpoint of ``family`` into ``folder`` unless it is there already, and returns the folder."""
    if (folder / "model.safetensors").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what transformers warns about while building is not under test
        _write(family, folder)
    return folder


def _write(family: str, folder: Path) -> None:
    import torch
    from transformers import AutoModelForImageTextToText

    style, recipe = FAMILIES[family]
    tokenizer = build_tokenizer(style, folder)
    config, image, processor = recipe(tokenizer)
    (folder / "preprocessor_config.json").write_text(json.dumps(image))
    if processor:
        (folder / "processor_config.json").write_text(json.dumps(processor))
    if family == "qwen2_vl":  # the oldest layout on the hub
        (folder / "chat_template.json").write_text(json.dumps({"chat_template": TEMPLATES[style]}))
    else:
        (folder / "chat_template.jinja").write_text(TEMPLATES[style])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = AutoModelForImageTextToText.from_config(config)
        for weight in model.parameters():  # larger than the usual initialisation, so that logits differ visibly
            if weight.dim() > 1:
                torch.nn.init.normal_(weight, std=0.2)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
