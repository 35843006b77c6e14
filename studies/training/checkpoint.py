"""The parts of the `tiny` checkpoint that are not learned: tokenizer, configuration, image processor, chat template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2VLConfig

from pytest_vlmrobust.demo.scenes import COLORS, DIRECTIONS, QUADRANTS, SHAPES
from pytest_vlmrobust.demo.shapes import RELATIONS, plural
from pytest_vlmrobust.demo.words import INKS, PLACES, WORDS
from pytest_vlmrobust.evaluation.run.prompts import _CHOICE_INSTRUCTIONS, _YES_NO_INSTRUCTIONS

LAYERS = 5
"""Of the language model, before the last stage puts more of them below."""
PATCH, MERGE = 20, 2
TOKEN_PIXELS = PATCH * MERGE
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_PIECES = r"\n[A-D]\.|\n?[A-Za-z]+:| ?[A-Za-z]+|\d|[^\sA-Za-z\d]+|\s+"


def corpus() -> list[str]:
    """Returns every text the questions are made of, so that each word of theirs becomes one token."""
    words = [*COLORS, *SHAPES, *WORDS, *INKS, *PLACES, *DIRECTIONS, "yes", "no", "user", "assistant"]
    texts = [f"{word} {word}" for word in words]
    texts += [f"How many {plural(shape)} are there? How many {color} shapes are there?" for shape in SHAPES for color in COLORS]
    texts += [
        f"Which shape is in the {q}? What color is the shape in the {q}?\nA. {q}\nB. {q}\nC. {q}\nD. {q}\n" for q in QUADRANTS
    ]
    texts += [f"Which shape is {relation} the {shape}? Where is the {shape}?" for relation in RELATIONS for shape in SHAPES]
    texts += [f"Is there a {color} {shape}? Is there an {color}?" for color in COLORS for shape in SHAPES]
    texts += [f"Which way does the {color} arrow point? Which way does the arrow point?" for color in COLORS]
    texts += [
        "Which shape is the largest? What color is the largest shape?",
        "Question: Options:\nOptions:\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:",
    ]
    texts += [f"What color is the word {w}? Does the picture show the word {w}? Which word is in the picture?" for w in WORDS]
    texts += [f"What color is the word at the {p}? Which word is at the {p}?" for p in PLACES]
    texts += ["Please select the correct answer", "Yes No A B C D", "Hint: this is a hint"]
    return [text for text in texts for _ in range(4)]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Builds a byte-level BPE tokenizer in which each word of the questions is one token; any other text still encodes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        min_frequency=2,
        special_tokens=list(SPECIAL),
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    instructions = (_CHOICE_INSTRUCTIONS["direct"], _YES_NO_INSTRUCTIONS["direct"])
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in instructions])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
        extra_special_tokens={
            "image_token": "<|image_pad|>",
            "video_token": "<|video_pad|>",
            "vision_start_token": "<|vision_start|>",
            "vision_end_token": "<|vision_end|>",
        },
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
    )


def build_config(tokenizer: PreTrainedTokenizerFast) -> Qwen2VLConfig:
    """Returns the configuration of a Qwen2-VL of about 3 million parameters."""
    ids: dict[str, int] = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL}
    vocabulary = (len(tokenizer) + 31) // 32 * 32
    return Qwen2VLConfig(
        text_config={
            "hidden_size": 192,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "intermediate_size": 320,
            "vocab_size": vocabulary,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {"rope_type": "default", "rope_theta": 20.0, "mrope_section": [4, 6, 6]},
            "bos_token_id": None,
            "eos_token_id": ids["<|im_end|>"],
            "pad_token_id": ids["<|endoftext|>"],
            "tie_word_embeddings": True,
        },
        vision_config={
            "depth": 4,
            "embed_dim": 128,
            "hidden_size": 192,
            "num_heads": 4,
            "mlp_ratio": 3,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": 2,
            "rope_parameters": {"rope_type": "axial", "rope_theta": 100.0},
        },
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )


def processor_files(directory: Path) -> None:
    """Writes the image-processor configuration: native resolution between 80 and 320 px squared, steps of 40 px."""
    image: dict[str, Any] = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2VLProcessor",
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "merge_size": MERGE,
        "patch_size": PATCH,
        "temporal_patch_size": 2,
        "resample": 3,
        "rescale_factor": 1 / 255,
        "size": {"shortest_edge": 80 * 80, "longest_edge": 320 * 320},
    }
    (directory / "preprocessor_config.json").write_text(json.dumps(image, indent=2) + "\n")
