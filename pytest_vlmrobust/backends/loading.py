"""Loading a model with its processor, and saying what to do when that fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_vlmrobust.core.errors import BackendError, VlmRobustError

from .control_tokens import ControlTokens
from .devices import require_device
from .messages import message
from .processors import Source, limit_image_pixels, limit_pixels, load_image_processor, load_processor


@dataclass(frozen=True, slots=True)
class Placement:
    """How and where a model is to run."""

    device: str
    requested_device: str
    dtype: str
    """A torch dtype by name, or ``checkpoint`` for the one it was saved in."""
    attention: str
    image_backend: str
    min_pixels: int | None = None
    max_pixels: int | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model in memory and what is needed to talk to it."""

    model: Any
    processor: Any
    device: str
    control: ControlTokens
    stop_ids: frozenset[int]
    image_token_id: int | None
    plain_prompt: str
    """A rendered prompt without images, ending where the model's answer begins."""


def load(source: Source, placement: Placement) -> Loaded:
    """Loads processor and weights.

    Raises:
        BackendError: something is missing, damaged, or does not fit this installation; the message says what to do.
    """
    require_device(placement.device, placement.requested_device)
    try:
        processor = load_processor(source, placement.image_backend)
        limit_pixels(processor, placement.min_pixels, placement.max_pixels)
        prompt = _plain_prompt(processor, source)
        model = _load_weights(source, placement)
    except VlmRobustError:
        raise
    except Exception as error:  # whatever the library raises about a checkpoint
        raise BackendError(f"the model at {source.location!r} does not load: {_explained(error)}") from error
    stop_ids = _stop_ids(model, processor.tokenizer)
    _forget_saved_generation(model, processor.tokenizer, stop_ids)
    image_token_id = getattr(model.config, "image_token_id", None)
    return Loaded(model, processor, placement.device, ControlTokens.of(processor), stop_ids, image_token_id, prompt)


def load_images_part(source: Source, placement: Placement) -> Any:
    """Loads the image processor alone, with the pixel limits asked for.

    Raises:
        BackendError: as ``load``.
    """
    try:
        images = load_image_processor(source, placement.image_backend)
        limit_image_pixels(images, placement.min_pixels, placement.max_pixels)
    except VlmRobustError:
        raise
    except Exception as error:  # whatever the library raises about a checkpoint
        raise BackendError(f"the image processor at {source.location!r} does not load: {_explained(error)}") from error
    return images


def _plain_prompt(processor: Any, source: Source) -> str:
    try:
        return str(processor.apply_chat_template([message((), "?")], add_generation_prompt=True, tokenize=False))
    except Exception as error:  # a template is a program, and fails in as many ways
        raise BackendError(
            f"{source.location}: the chat template does not render a user message that is a list of image and text parts: "
            f"{type(error).__name__}: {error}. Mend chat_template.jinja"
        ) from error


def _load_weights(source: Source, placement: Placement) -> Any:
    from transformers import AutoModelForImageTextToText

    model, report = AutoModelForImageTextToText.from_pretrained(
        source.location,
        dtype="auto" if placement.dtype == "checkpoint" else placement.dtype,
        attn_implementation=None if placement.attention == "auto" else placement.attention,
        output_loading_info=True,
        **source.arguments,
    )
    absent = sorted(report["missing_keys"])
    if absent:  # the library would fill them with random numbers and carry on
        raise BackendError(
            f"the weights at {source.location!r} lack {len(absent)} tensor(s) that {type(model).__name__} needs, such as "
            f"{', '.join(absent[:3])}. Save or download the checkpoint again, in full"
        )
    return model.to(placement.device).eval()


def _stop_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    saved = model.generation_config.eos_token_id
    several = saved if isinstance(saved, list) else [saved]
    return frozenset(int(token) for token in [*several, tokenizer.eos_token_id] if token is not None)


def _forget_saved_generation(model: Any, tokenizer: Any, stop_ids: frozenset[int]) -> None:
    """Replaces the generation settings saved with the weights: what is not set by us must not reach the answers."""
    from transformers import GenerationConfig

    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=sorted(stop_ids) or None, pad_token_id=tokenizer.pad_token_id
    )


def _explained(error: Exception) -> str:
    text = str(error)
    first = (text.strip().splitlines() or ["(no message)"])[0]
    remedy = next((remedy for sign, remedy in _REMEDIES if sign in f"{type(error).__name__} {text}".lower()), _ELSE)
    return f"{type(error).__name__}: {first.rstrip(' .')}. {remedy}"


_REMEDIES = (
    ("num2words", "This family needs two more packages: pip install torchvision num2words"),
    ("torchvision", "This family cannot do without torchvision: pip install torchvision, built for the same torch"),
    (
        "trust_remote_code",
        "It needs code from the checkpoint, which is never run here. Use a version that transformers itself supports",
    ),
    ("flashattention", "Install flash-attn, or leave attention at 'auto'"),
    ("valid json file", "Download or save it again"),
    ("jsondecodeerror", "A JSON file of the checkpoint is damaged. Download or save it again"),
    ("safetensor", "The weights are damaged or were not downloaded in full. Download them again"),
    ("offline", "Download the model beforehand where there is a network, or give a local checkpoint directory"),
    ("couldn't connect", "Check the network, or download the model beforehand and give a local checkpoint directory"),
    ("out of memory", "The weights do not fit. Use a smaller dtype (--vlm-dtype bfloat16) or another device (--vlm-device cpu)"),
)
_ELSE = "Check that it is an image-text-to-text checkpoint that the installed transformers supports"
