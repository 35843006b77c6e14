"""Loading a model with its processor, and saying what to do when that fails."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from pytest_vlmrobust.core.errors import BackendError, VlmRobustError

from .devices import leased, require_device
from .messages import ControlTokens, message
from .qwen_images import FAST, accelerated

# Loading a processor, also where torchvision is absent.
#
# Many processors carry a video processor that exists for torchvision only, and refuse to load without it although their image
# processor needs Pillow alone. Nothing here sends video, so the parts are loaded one by one and the video processor is left out.
# The assembly leans on interfaces of transformers that it does not document; the tests hold one checkpoint of each family.


_VIDEO_IS_NEEDED = frozenset({"SmolVLMProcessor"})
"""Processors that read their video processor's settings for every request."""


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
        """Keyword arguments of whatever reads a file of it."""
        return {"revision": self.commit or None, "local_files_only": self.offline}

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of every ``from_pretrained``; code that comes with a checkpoint runs only where the user says so."""
        return {**self.where, "trust_remote_code": self.runs_code}


def load_processor(source: ModelSource, image_backend: str) -> Any:
    """Returns the processor of a model, with the image backend asked for and padding on the left.

    Raises:
        BackendError: the model's image processor has no such backend, or there is no chat template.
        ImportError: a package is missing that this family cannot do without.
    """
    processor = _assembled(source, image_backend)
    found = getattr(processor.image_processor, "backend", "unknown")
    if found != image_backend:
        raise BackendError(
            f"{source.location}: {type(processor.image_processor).__name__} has no {image_backend!r} image backend (it uses "
            f"{found!r}). Install torchvision and ask for image backend 'torchvision'"
        )
    if processor.chat_template is None:
        raise BackendError(
            f"{source.location}: the checkpoint has no chat template, so nobody can say how a question is put to it. "
            "Add chat_template.jinja (base models without one cannot be gated on questions)"
        )
    _pad_left(processor.tokenizer)
    return processor


def limit_pixels(processor: Any, least: int | None, most: int | None) -> None:
    """Sets how many pixels an image may have after resizing, for processors that resize by area.

    Raises:
        BackendError: this processor resizes otherwise, or did not take the limits.
    """
    limit_image_pixels(processor.image_processor, least, most)


def limit_image_pixels(images: Any, least: int | None, most: int | None) -> None:
    """Does what ``limit_pixels`` does, to an image processor.

    Raises:
        BackendError: as ``limit_pixels``.
    """
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
    return _part("image_processor", "", source, image_backend)


def picture_size(images: Any, grid: Sequence[int]) -> tuple[int, int] | None:
    """Returns width and height in pixels of a picture after an image processor that cut it into a grid of patches.

    Args:
        images: the image processor.
        grid: patches in time, down and across, before any are merged: a row of its ``image_grid_thw``.

    Returns:
        None where the processor does not say how large a patch is.
    """
    patch = getattr(images, "patch_size", None)
    return (int(grid[2]) * patch, int(grid[1]) * patch) if isinstance(patch, int) else None


def size_after(images: Any, width: int, height: int) -> tuple[int, int] | None:
    """Returns width and height in pixels that a picture of ``width`` x ``height`` pixels has after an image processor.

    None where the processor does not cut pictures into a grid that depends on their size, and where it refuses this size: a
    request with such a picture then fails with the processor's own words.
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


def _pad_left(tokenizer: Any) -> None:
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token  # masked out everywhere, so any token serves


def _assembled(source: ModelSource, image_backend: str) -> Any:
    from transformers import AutoProcessor

    kind, settings = _kind_and_settings(source)
    parts = kind.get_attributes() if kind is not None else []
    if "image_processor" not in parts or not set(parts) <= {"image_processor", "tokenizer", "video_processor"}:
        return _with_image_backend(AutoProcessor.from_pretrained(source.location, **source.arguments), source, image_backend)
    arguments = [_part(part, kind.__name__, source, image_backend) for part in parts]
    return _without_video_check(kind).from_args_and_dict(arguments, settings)


def _with_image_backend(processor: Any, source: ModelSource, image_backend: str) -> Any:
    if getattr(processor, "image_processor", None) is None:
        raise BackendError(f"{source.location}: {type(processor).__name__} takes no images: not a vision-language model")
    if processor.image_processor.backend != image_backend:
        processor.image_processor = _part("image_processor", type(processor).__name__, source, image_backend)
    return processor


def _kind_and_settings(source: ModelSource) -> tuple[Any, dict[str, Any]]:
    """Returns the processor class (None when only AutoProcessor can tell) and the settings saved for it."""
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


def _part(part: str, kind: str, source: ModelSource, image_backend: str) -> Any:
    from transformers import AutoImageProcessor, AutoTokenizer, AutoVideoProcessor

    if part == "tokenizer":
        return AutoTokenizer.from_pretrained(source.location, **source.arguments)
    if part == "image_processor":
        return AutoImageProcessor.from_pretrained(source.location, backend=image_backend, **source.arguments)
    if kind in _VIDEO_IS_NEEDED:
        return AutoVideoProcessor.from_pretrained(source.location, **source.arguments)
    return None


def _without_video_check(kind: Any) -> Any:
    """Returns ``kind`` accepting None where it insists on a video processor."""

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

    @property
    def embeds_by_matrix(self) -> bool:
        """Whether convolutions over whole patches are computed as matrix products, which rounds otherwise."""
        return self.device == "cpu" and self.dtype == "float32"


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
    note: str = ""
    """What the user should know about the device; empty where there is nothing to say."""


def load(source: ModelSource, placement: Placement) -> Loaded:
    """Loads processor and weights; where the device has no number, onto a GPU that this process leases.

    Raises:
        BackendError: something is missing, damaged, or does not fit this installation; the message says what to do.
    """
    require_device(placement.device, placement.requested_device)
    lease = leased(placement.device)
    placement = dataclasses.replace(placement, device=lease.device)
    import_losses()
    try:
        if source.runs_code:
            _refuse_foreign_code(source)
        processor = load_processor(source, placement.image_backend)
        limit_pixels(processor, placement.min_pixels, placement.max_pixels)
        processor.image_processor = _by_preprocessing(processor.image_processor, placement.preprocessing)
        prompt = _plain_prompt(processor, source)
        model = _load_weights(source, placement)
    except VlmRobustError:
        raise
    except Exception as error:  # whatever the library raises about a checkpoint
        raise BackendError(f"the model at {source.location!r} does not load: {_explained(error)}") from error
    stop_ids = _stop_ids(model, processor.tokenizer)
    _forget_saved_generation(model, processor.tokenizer, stop_ids)
    image_token_id = getattr(model.config, "image_token_id", None)
    control = ControlTokens.of(processor)
    return Loaded(model, processor, placement.device, control, stop_ids, image_token_id, prompt, lease.note)


def load_tokenizer(source: ModelSource) -> tuple[Any, str]:
    """Loads the tokenizer alone; returns it with a rendered prompt that ends where the model's answer begins.

    Raises:
        BackendError: as ``load``.
    """
    try:
        processor = load_processor(source, "pil")
        return processor.tokenizer, _plain_prompt(processor, source)
    except VlmRobustError:
        raise
    except Exception as error:  # whatever the library raises about a checkpoint
        raise BackendError(f"the tokenizer at {source.location!r} does not load: {_explained(error)}") from error


def _refuse_foreign_code(source: ModelSource) -> None:
    """Refuses a checkpoint that has code of another one run, of which no revision is said.

    Raises:
        BackendError: it does.
    """
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
            f"{source.location} runs code of another checkpoint ({foreign[0]}), of which nobody says which revision. Copy that "
            "code into a directory with the checkpoint, and name it there"
        )


def load_images_part(source: ModelSource, placement: Placement) -> Any:
    """Loads the image processor alone, with the pixel limits asked for.

    Raises:
        BackendError: as ``load``.
    """
    try:
        if source.runs_code:
            _refuse_foreign_code(source)
        images = load_image_processor(source, placement.image_backend)
        limit_image_pixels(images, placement.min_pixels, placement.max_pixels)
        images = _by_preprocessing(images, placement.preprocessing)
    except VlmRobustError:
        raise
    except Exception as error:  # whatever the library raises about a checkpoint
        raise BackendError(f"the image processor at {source.location!r} does not load: {_explained(error)}") from error
    return images


def _by_preprocessing(images: Any, preprocessing: str) -> Any:
    return accelerated(images) if preprocessing == FAST else images


def _plain_prompt(processor: Any, source: ModelSource) -> str:
    try:
        return str(processor.apply_chat_template([message((), "?")], add_generation_prompt=True, tokenize=False))
    except Exception as error:  # a template is a program, and fails in as many ways
        raise BackendError(
            f"{source.location}: the chat template does not render a user message that is a list of image and text parts: "
            f"{type(error).__name__}: {error}. Fix chat_template.jinja"
        ) from error


def _load_weights(source: ModelSource, placement: Placement) -> Any:
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
    if placement.embeds_by_matrix:
        embed_by_matrix(model)
    return model.to(placement.device).eval()


def embed_by_matrix(model: Any) -> None:
    """Replaces convolutions over whole patches, as vision transformers start with, by the matrix product that they are.

    On a CPU the product takes less than a third of the time, and a small model spends a quarter of its time here.
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
        "It needs Python code from the checkpoint. If you trust that code, say remote_code: true in its entry of the models file",
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


# Memory: what transformers imports for every model, and no answer needs.


_OPTIMIZE, _LOSSES = "scipy.optimize", "transformers.loss.loss_utils"


class _ImportedWhenUsed(ModuleType):
    """Stands for ``scipy.optimize`` while the losses are imported, and gives whatever else is asked of it in earnest."""

    def __init__(self) -> None:
        super().__init__(_OPTIMIZE)
        self._importing = threading.get_ident()

    def linear_sum_assignment(self, *arguments: Any, **options: Any) -> Any:
        """Does what the function of that name does."""
        return importlib.import_module(_OPTIMIZE).linear_sum_assignment(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        if name == "__path__" and threading.get_ident() == self._importing:
            raise AttributeError(name)  # else Python would look for the function among the files of the package
        if sys.modules.get(_OPTIMIZE) is self:
            del sys.modules[_OPTIMIZE]
        return getattr(importlib.import_module(_OPTIMIZE), name)


def import_losses() -> None:
    """Imports the losses of transformers, which each of its models brings along, without ``scipy.optimize``.

    Those that train detectors take one function from there, and with it 33 MiB. Whoever calls that function still gets it, and
    threads that import the library meanwhile get it as well.
    """
    if {_OPTIMIZE, _LOSSES} & sys.modules.keys() or importlib.util.find_spec("scipy") is None:
        return
    with suppress(ImportError):  # where a version of transformers lacks something, the model says so itself
        importlib.import_module("transformers.image_transforms")  # what the losses need beside it
        sys.modules[_OPTIMIZE] = stands_in = _ImportedWhenUsed()
        try:
            importlib.import_module(_LOSSES)
        finally:
            if sys.modules.get(_OPTIMIZE) is stands_in:
                del sys.modules[_OPTIMIZE]


# Silence around transformers: its progress bars and advice do not belong into the output of a gate.


_QUIET = threading.Lock()
_quiet: dict[str, Any] = {"users": 0}
"""How many threads want silence, and what is restored when the last of them is done."""


@contextmanager
def quiet() -> Iterator[None]:
    """Holds back progress bars, log lines below error, and Python warnings, and restores all three as they were.

    Warnings too, because a project that turns them into errors must not fail an inference over a library's deprecation. Several
    threads may be inside at a time: the first one sets what holds for the process, and the last one restores it.
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
                if (
                    warnings.filters is _quiet["filters"]
                ):  # else somebody has replaced them meanwhile, as pytest does between tests
                    _quiet["warnings"].__exit__(None, None, None)
                logging.set_verbosity(verbosity)
                if bars:
                    logging.enable_progress_bar()
