"""Loading a model with its processor, and saying what to do when that fails."""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.errors import BackendError, VlmRobustError
from pytest_vlmrobust.core.words import first_few, kind_and_reason, quantity

from .chat import ControlTokens, conversation, message
from .contract import FAST
from .devices import SPREADS, Leased, device_class, free_memory, leased, require_device
from .models_file import published_at
from .qwen_images import accelerated

# Loading a processor, also without torchvision.
#
# Many processors include a video processor that needs torchvision, and refuse to load without it although their image
# processor needs Pillow alone. Nothing here sends video, so the parts are loaded one by one and the video processor is left out.
# This uses undocumented interfaces of transformers; the tests load a checkpoint of each family.


_VIDEO_IS_NEEDED = frozenset({"SmolVLMProcessor"})
"""Processors that read their video processor's settings for every request."""


_PLAIN_TEMPLATE = (
    "{% for m in messages %}{% for p in m['content'] %}{{ 'IMAGE' if p['type'] == 'image' else p['text'] }}"
    "{% endfor %}{% endfor %}"
)


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model's files are: a directory, or a hub id at a commit."""

    location: str
    commit: str = ""
    offline: bool = False
    runs_code: bool = False
    """Whether Python code that comes with the checkpoint may run."""

    @property
    def where(self) -> dict[str, Any]:
        """Keyword arguments for reading one of its files."""
        return {"revision": self.commit or None, "local_files_only": self.offline}

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of every ``from_pretrained``; code that comes with a checkpoint runs only where the user says so."""
        return {**self.where, "trust_remote_code": self.runs_code}


def load_processor(source: ModelSource, image_backend: str) -> Any:
    """Returns the processor of a model, with the image backend asked for and padding on the left."""
    processor = _assembled(source, image_backend)
    actual = getattr(processor.image_processor, "backend", "unknown")
    if actual != image_backend:
        raise BackendError(
            f"{source.location}: {type(processor.image_processor).__name__} has no {image_backend!r} image backend (it uses "
            f"{actual!r}). Install torchvision and ask for image backend 'torchvision'"
        )
    if processor.chat_template is None:  # some have it only in tokenizer_config.json
        processor.chat_template = processor.tokenizer.chat_template
    if processor.chat_template is None:
        image = str(getattr(processor, "image_token", None) or "<image>")
        raise BackendError(
            f"{source.location}: the checkpoint has no chat template, so its prompt is not known. Add chat_template.jinja: that "
            "of the model that it was trained from; or the prompt that it was trained with, such as "
            f"{_PLAIN_TEMPLATE.replace('IMAGE', image)} (without the image token if the processor adds it)"
        )
    tokenizer = processor.tokenizer
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is None:  # masked everywhere, so any token will do
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    return processor


def limit_pixels(images: Any, least: int | None, most: int | None) -> None:
    """Sets how many pixels an image may have after resizing, for image processors that resize by area."""
    if least is None and most is None:
        return
    if "min_pixels" not in type(images).valid_kwargs.__annotations__:
        raise BackendError(
            f"min_pixels and max_pixels do not apply to {type(images).__name__}, which resizes to {_size(images)}. "
            "Remove them from the model's entry"
        )
    size = _size(images)
    wanted = {"shortest_edge": least or size["shortest_edge"], "longest_edge": most or size["longest_edge"]}  # pixel counts
    if wanted["shortest_edge"] > wanted["longest_edge"]:
        raise BackendError(f"min_pixels {wanted['shortest_edge']} is above max_pixels {wanted['longest_edge']}. Set both")
    images.size = type(images.size)(**wanted)
    if _size(images) != wanted:
        raise BackendError(f"{type(images).__name__} did not take the pixel limits {wanted}: its size is {_size(images)}")


def load_image_processor(source: ModelSource, image_backend: str) -> Any:
    """Returns the image processor of a model alone."""
    from transformers import AutoImageProcessor

    return AutoImageProcessor.from_pretrained(source.location, backend=image_backend, **source.arguments)


def picture_size(images: Any, grid: Sequence[int]) -> tuple[int, int] | None:
    """Returns width and height in pixels of an image that an image processor cut into a grid of patches.

    Returns: None if the processor has no patch size.
    """
    patch = getattr(images, "patch_size", None)
    return (int(grid[2]) * patch, int(grid[1]) * patch) if isinstance(patch, int) else None


def size_after(images: Any, width: int, height: int) -> tuple[int, int] | None:
    """Returns width and height in pixels that an image of ``width`` x ``height`` pixels has after an image processor.

    None if the processor's grid does not depend on the image size, or if it refuses this size: a
    request with such an image then fails with the processor's own words.
    """
    if "image_grid_thw" not in images.model_input_names:
        return None
    from PIL import Image

    try:
        grid = images(Image.new("RGB", (width, height)), return_tensors="np")["image_grid_thw"][0]
    except ValueError:
        return None
    return picture_size(images, grid)


def _size(images: Any) -> dict[str, int]:
    return {key: value for key, value in dict(images.size).items() if value is not None}


def _assembled(source: ModelSource, image_backend: str) -> Any:
    from transformers import AutoProcessor, AutoTokenizer, AutoVideoProcessor

    kind, settings = _kind_and_settings(source)
    parts = kind.get_attributes() if kind is not None else []
    if "image_processor" not in parts or not set(parts) <= {"image_processor", "tokenizer", "video_processor"}:
        processor = AutoProcessor.from_pretrained(source.location, **source.arguments)
        if getattr(processor, "image_processor", None) is None:
            raise BackendError(f"{source.location}: {type(processor).__name__} takes no images: not a vision-language model")
        if processor.image_processor.backend != image_backend:
            processor.image_processor = load_image_processor(source, image_backend)
        return processor
    loaded = {"image_processor": load_image_processor(source, image_backend)}
    loaded["tokenizer"] = AutoTokenizer.from_pretrained(source.location, **source.arguments)
    if kind.__name__ in _VIDEO_IS_NEEDED:
        loaded["video_processor"] = AutoVideoProcessor.from_pretrained(source.location, **source.arguments)
    return _without_video_check(kind).from_args_and_dict([loaded.get(part) for part in parts], settings)


def _kind_and_settings(source: ModelSource) -> tuple[Any, dict[str, Any]]:
    """Returns the processor class (None if only AutoProcessor knows it) and its saved settings."""
    from transformers import AutoConfig, ProcessorMixin
    from transformers.models.auto.image_processing_auto import get_image_processor_config
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES, processor_class_from_name
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    where = source.where
    settings, _ = ProcessorMixin.get_processor_dict(source.location, **where)
    name = settings.get("processor_class")
    name = name or get_image_processor_config(source.location, **where).get("processor_class")
    name = name or get_tokenizer_config(source.location, **where).get("processor_class")
    kind = processor_class_from_name(name) if name else None
    if kind is None:
        model_type = AutoConfig.from_pretrained(source.location, **source.arguments).model_type
        name = PROCESSOR_MAPPING_NAMES.get(model_type)
        kind = processor_class_from_name(name) if name else None
    return kind, settings


def _without_video_check(kind: Any) -> Any:
    """Returns a subclass of ``kind`` that accepts None for the video processor."""

    def check(self: Any, name: str, argument: Any) -> Any:
        if name == "video_processor" and argument is None:
            return None
        return kind.check_argument_for_proper_class(self, name, argument)

    return type(kind.__name__, (kind,), {"check_argument_for_proper_class": check})


@dataclass(frozen=True, slots=True)
class Placement:
    """How and where a model is to run."""

    device: str
    requested_device: str
    dtype: str
    """A torch dtype by name, or ``checkpoint`` for the one it was saved in."""
    attention: str
    image_backend: str
    preprocessing: str = FAST
    """``fast`` or ``library``: two ways to the same bits."""
    min_pixels: int | None = None
    max_pixels: int | None = None
    adapter: str = ""
    """The directory of a LoRA adapter that is applied to the weights."""
    quantization: Mapping[str, str | bool] = field(default_factory=dict)
    """How bitsandbytes quantises weights while they load; empty without quantisation."""
    device_map: str = ""
    """As in the model's entry; empty to load weights into main memory first and then onto the device."""
    max_memory: Mapping[str, str] = field(default_factory=dict)

    @property
    def spreads(self) -> bool:
        """Whether weights are spread over all GPUs."""
        return self.device_map in SPREADS and device_class(self.device) == "cuda"

    @property
    def parameter_bytes(self) -> float:
        """Bytes of a parameter in memory; published checkpoints are in bfloat16."""
        if self.quantization:
            return 0.5 if "load_in_4bit" in self.quantization else 1.0
        return 4.0 if self.dtype == "float32" else 2.0

    @property
    def embeds_by_matrix(self) -> bool:
        """Whether convolutions over whole patches are computed as matrix products, which round differently."""
        return self.device == "cpu" and self.dtype == "float32"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded model and everything needed to use it."""

    model: Any
    processor: Any
    device: str
    """Where inputs go: the first of ``devices``."""
    control: ControlTokens
    stop_ids: frozenset[int]
    image_token_id: int | None
    plain_prompt: str
    """A rendered prompt without images; the model's answer would begin at its end."""
    note: str = ""
    """A note for the user about the device; empty without one."""
    notes: tuple[str, ...] = ()
    """Notes for the user about the checkpoint."""
    devices: tuple[str, ...] = ()
    """The devices that compute."""
    shares_weights: bool = True
    """Whether a copy of the model can share its weights."""
    system_prompt: str = ""


def load(source: ModelSource, placement: Placement, system_prompt: str = "") -> Loaded:
    """Loads processor and weights; for ``cuda`` without a number, onto a GPU that this process leases.

    An adapter is not merged: its layers compute next to those of the model, as in training with peft. Merged into half precision,
    small changes would be lost to rounding.
    """
    require_device(placement.device, placement.requested_device, placement.device_map)
    lease = Leased(placement.device, _spread_by_workers()) if placement.spreads else leased(placement.device)
    placement = dataclasses.replace(placement, device=lease.device)
    _require_room(source, placement)
    with _explained("model", source):
        _refuse_adapter_on_hub(source)
        _refuse_foreign_code(source)
        processor = load_processor(source, placement.image_backend)
        processor.image_processor = _set_up(processor.image_processor, placement)
        prompt = _plain_prompt(processor, source, system_prompt)
        model, notes = _load_weights(source, placement)
    saved = model.generation_config.eos_token_id
    ends = [*(saved if isinstance(saved, list) else [saved]), processor.tokenizer.eos_token_id]
    stop_ids = frozenset(int(token) for token in ends if token is not None)
    if not stop_ids:
        notes.append(
            "has no token that ends a text (eos_token_id in generation_config.json, or eos_token of the tokenizer): each text "
            "runs to max_new_tokens"
        )
    _forget_saved_generation(model, processor.tokenizer, stop_ids)
    devices = _devices_of(model, placement)
    return Loaded(
        model,
        processor,
        devices[0],
        ControlTokens.of(processor),
        stop_ids,
        getattr(model.config, "image_token_id", None),
        prompt,
        lease.note,
        tuple(notes),
        devices,
        not placement.quantization and len({device_class(place) for place in _places(model)}) == 1,
        system_prompt,
    )


def load_tokenizer(source: ModelSource) -> tuple[Any, str]:
    """Loads only the tokenizer; returns it with a rendered prompt that ends where the model's answer begins."""
    with _explained("tokenizer", source):
        processor = load_processor(source, "pil")
        return processor.tokenizer, _plain_prompt(processor, source)


def _refuse_foreign_code(source: ModelSource) -> None:
    """Refuses a checkpoint that runs code of another repository without a fixed revision."""
    if not source.runs_code:
        return
    from transformers import PretrainedConfig, ProcessorMixin
    from transformers.models.auto.image_processing_auto import get_image_processor_config
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    files = [PretrainedConfig.get_config_dict(source.location, **source.where)[0]]
    files.append(ProcessorMixin.get_processor_dict(source.location, **source.where)[0])
    files += [read(source.location, **source.where) for read in (get_image_processor_config, get_tokenizer_config)]
    named = [file.get("auto_map") or {} for file in files]
    places = [place for table in named for place in (table.values() if isinstance(table, dict) else [table])]
    foreign = [
        str(part) for place in places for part in (place if isinstance(place, list | tuple) else [place]) if "--" in str(part)
    ]
    if foreign:
        raise BackendError(
            f"{source.location} runs code of another checkpoint ({foreign[0]}), and its revision is unknown. Copy that "
            "code into a directory with the checkpoint, and name it there"
        )


def load_images_part(source: ModelSource, placement: Placement) -> Any:
    """Loads the image processor alone, with the pixel limits asked for."""
    with _explained("image processor", source):
        _refuse_foreign_code(source)
        return _set_up(load_image_processor(source, placement.image_backend), placement)


def _set_up(images: Any, placement: Placement) -> Any:
    limit_pixels(images, placement.min_pixels, placement.max_pixels)
    return accelerated(images) if placement.preprocessing == FAST else images


def _plain_prompt(processor: Any, source: ModelSource, system_prompt: str = "") -> str:
    prompt = _rendered(processor, source, "")
    if not system_prompt:
        return prompt
    refusal = f"{source.location}: the chat template has no place for a system prompt"
    advice = "Leave 'system_prompt' out and write the text into 'template', before {question}; or change chat_template.jinja"
    try:
        prompt = _rendered(processor, source, system_prompt)
    except BackendError as error:
        raise BackendError(f"{refusal}: it refuses the role 'system' ({error.__cause__ or error}). {advice}") from error
    if system_prompt.strip() not in prompt:
        raise BackendError(f"{refusal}: it leaves out what the role 'system' says. {advice}")
    return prompt


def _rendered(processor: Any, source: ModelSource, system_prompt: str) -> str:
    question = "What is in the image?"
    messages = conversation(system_prompt, message((), question))
    try:
        prompt = str(processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
    except Exception as error:  # a template is a program and can fail in any way
        raise BackendError(
            f"{source.location}: the chat template does not render a user message that is a list of image and text parts: "
            f"{type(error).__name__}: {error}. Fix chat_template.jinja"
        ) from error
    if "'type': 'text'" in prompt:
        raise BackendError(
            f"{source.location}: the chat template writes the list of parts of a message into the prompt: it is for text alone. "
            "Add chat_template.jinja, as image-text-to-text checkpoints have it"
        )
    if question not in prompt:
        raise BackendError(
            f"{source.location}: the chat template leaves out the question. A message has a list of parts, such as "
            f"{{'type': 'text', 'text': {question!r}}}. Make chat_template.jinja write part['text']"
        )
    return prompt


def _load_weights(source: ModelSource, placement: Placement) -> tuple[Any, list[str]]:
    """Returns the model with its adapter on its devices, and notes for the user about the checkpoint."""
    from transformers import AutoModelForImageTextToText

    model, report = AutoModelForImageTextToText.from_pretrained(
        source.location,
        dtype="auto" if placement.dtype == "checkpoint" else placement.dtype,
        attn_implementation=None if placement.attention == "auto" else placement.attention,
        ignore_mismatched_sizes=True,  # so that the error below can name them
        output_loading_info=True,
        **_placed(source, placement),
        **source.arguments,
    )
    _require_fit(report, f"the weights at {source.location!r}", model)
    unused = sorted(report["unexpected_keys"])
    if lora := [name for name in unused if "lora_" in name]:
        raise BackendError(
            f"the weights at {source.location!r} hold {quantity(len(lora), 'tensor')} of a LoRA adapter that would not be "
            f"applied: {first_few(lora, 3)}. Merge the adapter into the weights (merge_and_unload of peft, then "
            "save_pretrained), or save it alone, and name its directory as 'adapter' in the models file"
        )
    notes = [f"does not use {quantity(len(unused), 'tensor')} of its weights: {first_few(unused, 3)}"] if unused else []
    places = _places(model)
    if placement.spreads and (waiting := places.count("cpu")):
        if placement.adapter:
            raise BackendError(
                f"the GPUs have no room for the weights at {source.location!r}: {waiting} of their parts would wait in the "
                "memory of the machine, where an adapter cannot reach them. Merge it into the weights (merge_and_unload of peft)"
            )
        notes.append(f"is slow: {waiting} of its {len(places)} parts wait in the memory of the machine for a GPU")
    if placement.adapter:
        _apply_adapter(model, placement.adapter)
        base = str(next(iter(model.peft_config.values())).base_model_name_or_path or source.location)
        if Path(base).name != Path(source.location).name:  # another release has the same shapes
            notes.append(f"runs an adapter that was made for {base}. Check that {source.location} is the same model")
    if placement.embeds_by_matrix:
        embed_by_matrix(model)
    if not placement.device_map and not placement.quantization:  # otherwise they are there already
        model = model.to(placement.device)
    return model.eval(), notes


def _placed(source: ModelSource, placement: Placement) -> dict[str, Any]:
    """Returns the keyword arguments of ``from_pretrained`` for placement and quantisation."""
    arguments: dict[str, Any] = {}
    if placement.device_map or placement.quantization:
        arguments["device_map"] = placement.device_map if placement.spreads else placement.device
    if placement.spreads and placement.max_memory:
        amounts = placement.max_memory.items()
        arguments["max_memory"] = {device if device == "cpu" else int(device.partition(":")[2]): most for device, most in amounts}
    if placement.quantization:
        from transformers import BitsAndBytesConfig, PretrainedConfig

        logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it warns about rounding in every batch
        if "quantization_config" in PretrainedConfig.get_config_dict(source.location, **source.where)[0]:
            raise BackendError(f"{source.location}: the checkpoint is quantised already. Remove 'quantization' from its entry")
        arguments["quantization_config"] = BitsAndBytesConfig(**placement.quantization)
    return arguments


def _require_fit(report: Mapping[str, Any], what: str, model: Any) -> None:
    """Refuses incomplete weights: the library would fill the gaps with random numbers and go on."""
    kind = type(model).__name__
    for name, given, needed in sorted(report["mismatched_keys"], key=lambda mismatch: str(mismatch[0])):
        raise BackendError(
            f"{what} hold {name!r} with the shape {tuple(given)}, and {kind} needs {tuple(needed)}, as config.json has it "
            f"({quantity(len(report['mismatched_keys']), 'tensor')} of another shape). Take both from one save"
        )
    if absent := sorted(report["missing_keys"]):
        raise BackendError(
            f"{what} lack {len(absent)} tensor(s) that {kind} needs, such as {', '.join(absent[:3])}. "
            "Save or download the checkpoint again, in full"
        )


def _apply_adapter(model: Any, folder: str) -> None:
    report = model.load_adapter(folder, adapter_kwargs={"local_files_only": True}, ignore_mismatched_sizes=True)
    what = f"the adapter's weights at {folder!r}"
    names = ("mismatched_keys", "missing_keys", "unexpected_keys")
    _require_fit({name: getattr(report, name) for name in names}, what, model)
    if report.unexpected_keys:
        unused = sorted(report.unexpected_keys)
        raise BackendError(
            f"{what} hold {quantity(len(unused), 'tensor')} that fit no layer of {type(model).__name__}, such as "
            f"{first_few(unused, 3)}. Name the model that it was made for as 'path' or 'id'"
        )


def _devices_of(model: Any, placement: Placement) -> tuple[str, ...]:
    if not placement.spreads:
        return (placement.device,)
    if not (gpus := dict.fromkeys(place for place in _places(model) if place != "cpu")):
        raise BackendError(f"no GPU has room for a part of the model. {_NO_ROOM}")
    return tuple(gpus)


def _places(model: Any) -> list[str]:
    """Returns the device of each part of a model; parts on ``cpu`` next to GPUs are moved to a GPU when needed."""
    placed = getattr(model, "hf_device_map", None) or {"": model.device}
    return [f"cuda:{place}" if str(place).isdigit() else str(place) for place in placed.values()]


def _spread_by_workers() -> str:
    """Returns a note for the user if several processes spread weights over the same GPUs; empty for a single process."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return f"is spread over all GPUs by each of {workers} processes. Run it in one (without -n)" if workers > 1 else ""


def _require_room(source: ModelSource, placement: Placement) -> None:
    """Refuses published weights that are larger than the available memory."""
    published = published_at(source.location)
    if published is None:
        return
    name, model = published
    free = free_memory(placement.device)
    if placement.spreads and not placement.quantization:  # bitsandbytes keeps no weights in main memory
        free |= free_memory("cpu")
    needed = model.billions * 1e9 * placement.parameter_bytes
    if not free or needed <= sum(free.values()):
        return
    shown = ", ".join(f"{place} has {amount / 1e9:.1f} GB free" for place, amount in free.items())
    ways = (
        "Write serve: vllm and engine: {tensor_parallel_size: N} in the models file; or serve it by 'vllm serve "
        f"{source.location} --tensor-parallel-size N' ('vlmrobust serve-command {name}' prints all of it)"
    )
    if device_class(placement.device) == "cuda" and not placement.spreads:
        everywhere = free_memory("cuda")
        if needed <= sum(everywhere.values()):
            ways += (
                f"; or spread it over the {len(everywhere)} GPUs, which have {sum(everywhere.values()) / 1e9:.1f} GB free "
                f"together: an entry of the models file with id: {source.location} and device_map: auto"
            )
    raise BackendError(
        f"{source.location} does not fit: its weights take {needed / 1e9:.4g} GB ({model.billions:g} billion parameters of "
        f"{placement.parameter_bytes:g} bytes), and {shown}. {ways}"
    )


def _refuse_adapter_on_hub(source: ModelSource) -> None:
    """Refuses a hub repository with an adapter: the library would apply it to an unknown revision of the base model."""
    from transformers.utils import find_adapter_config_file

    if not Path(source.location).is_dir() and find_adapter_config_file(source.location, **source.where):
        raise BackendError(
            f"{source.location} holds an adapter. Download it (hf download {source.location} --local-dir DIR), and enter the "
            "model that it was made for in the models file as 'id' with its 'revision', and DIR as 'adapter'"
        )


def embed_by_matrix(model: Any) -> None:
    """Replaces convolutions over whole patches, the first layer of vision transformers, by the equal matrix product.

    On a CPU the product takes less than a third of the time; a small model spends a quarter of its time in this layer.
    """
    import torch
    from torch.nn import functional

    class PatchProduct(torch.nn.Conv3d):
        """A convolution that multiplies where its kernel covers all of its input."""

        def forward(self, input: Any) -> Any:  # noqa: A002 - the name of the library
            if input.shape[2:] != self.weight.shape[2:]:
                return super().forward(input)
            return functional.linear(input.flatten(1), self.weight.flatten(1), self.bias)[:, :, None, None, None]

    for module in model.modules():
        if type(module) is torch.nn.Conv3d and module.groups == 1 and set(module.padding) == {0} and set(module.dilation) == {1}:
            module.__class__ = PatchProduct


def _forget_saved_generation(model: Any, tokenizer: Any, stop_ids: frozenset[int]) -> None:
    """Replaces the generation settings saved with the weights, so that they cannot affect answers."""
    from transformers import GenerationConfig

    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=sorted(stop_ids) or None, pad_token_id=tokenizer.pad_token_id
    )


@contextmanager
def _explained(part: str, source: ModelSource) -> Iterator[None]:
    try:
        yield
    except VlmRobustError:
        raise
    except Exception as error:
        otherwise = _INSTALL if isinstance(error, ImportError) else _ELSE
        if isinstance(error, ModuleNotFoundError):
            otherwise = f"Install it: pip install {error.name}"
        remedy = next((remedy for sign, remedy in _REMEDIES if sign in f"{type(error).__name__} {error}".lower()), otherwise)
        reason = kind_and_reason(error).partition(" Check out the instructions")[0]
        why = f"{reason.rstrip(' .')}. {remedy}"
        raise BackendError(f"the {part} at {source.location!r} does not load: {why}") from error


_NO_ROOM = (
    "The weights do not fit. Use a smaller dtype (--vlm-dtype bfloat16), another device (--vlm-device cpu), several GPUs "
    "(device_map: auto in the models file), or a server ('vlmrobust serve-command')"
)
_INSTALL = "Install what it needs where the tests run, or serve the model: 'vlmrobust serve-command' prints how"
_REMEDIES = (
    ("num2words", "This family needs two more packages: pip install torchvision num2words"),
    ("torchvision", "This family cannot do without torchvision: pip install torchvision, built for the same torch"),
    (
        "trust_remote_code",
        "It needs Python code from the checkpoint. If you trust that code, say remote_code: true in its entry of the models file",
    ),
    ("flashattention", "Install flash-attn, or leave attention at 'auto'"),
    ("valid json file", "Download or save it again"),
    ("jsondecodeerror", "A JSON file of the checkpoint is damaged. Download or save it again"),
    ("safetensor", "The weights are damaged or were not downloaded in full. Download them again"),
    ("offline", "Download the model beforehand where there is a network, or give a local checkpoint directory"),
    ("couldn't connect", "Check the network, or download the model beforehand and give a local checkpoint directory"),
    ("out of memory", _NO_ROOM),
    ("offload_folder", _NO_ROOM),
    ("dispatched on the cpu or the disk", _NO_ROOM),
    (
        "backend tokenizer",
        "The tokenizer's file is missing. Expected tokenizer.json, or tokenizer.model, beside tokenizer_config.json",
    ),
    ("bitsandbytes version", "Take a device that it supports, or leave 'quantization' out"),
    ("quantiz", _INSTALL),
)
_ELSE = "Check that it is an image-text-to-text checkpoint that the installed transformers supports"


# Silence around transformers: its progress bars and advice do not belong in the output of a gate.


_QUIET = threading.Lock()
_quiet: dict[str, Any] = {"users": 0}
"""How many threads want silence, and the settings to restore after the last of them."""


@contextmanager
def quiet() -> Iterator[None]:
    """Suppresses progress bars, log lines below error and Python warnings, then restores all three.

    Warnings too: a project that turns them into errors must not fail an inference over a library's deprecation. Several
    threads may be inside: the first one changes the settings of the process, and the last one restores them.
    """
    with _QUIET:
        _quiet["users"] += 1
        if _quiet["users"] == 1:
            _quiet["warnings"] = warnings.catch_warnings()
            _quiet["warnings"].__enter__()
            warnings.simplefilter("ignore")
            _quiet["filters"] = warnings.filters
            from transformers.utils import logging

            _quiet["logging"] = logging, logging.get_verbosity(), logging.is_progress_bar_enabled()
            logging.set_verbosity_error()
            logging.disable_progress_bar()
    try:
        yield
    finally:
        with _QUIET:
            _quiet["users"] -= 1
            if not _quiet["users"]:
                logging, verbosity, bars = _quiet["logging"]
                if warnings.filters is _quiet["filters"]:  # otherwise they were replaced meanwhile, as pytest does between tests
                    _quiet["warnings"].__exit__(None, None, None)
                logging.set_verbosity(verbosity)
                if bars:
                    logging.enable_progress_bar()
