"""A super-resolution checkpoint through spandrel: read without running its code, refused unless it enlarges RGB pictures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.errors import ModelError

from .importing import importing

FEATURE = "super-resolution"
EXTRA = "super-resolution"
NOISY = ("AuraSR",)
"""Architectures that draw from torch's global random numbers, so that no run gives the bytes of another."""
SUFFIXES = (".safetensors", ".pth", ".ckpt", ".pt")


def load_upscaler(path: Path, *, device: str, dtype: str) -> Any:
    """Returns the ``spandrel.ImageModelDescriptor`` of a checkpoint, in evaluation mode.

    Only tensors are read: safetensors, or what ``torch.load(weights_only=True)`` takes of a pickle. TorchScript archives hold
    programs and are refused, as is every pickle that asks for anything but tensors and plain containers.

    Args:
        path: a file that holds the weights of one network.
        device: a torch device, such as ``cuda:0``.
        dtype: ``float32``, ``float16`` or ``bfloat16``.

    Raises:
        MissingExtra: spandrel is not installed, or cannot be imported.
        ModelError: the file cannot be read safely, is no network that spandrel knows, is one that does something else than
            enlarge a single RGB picture, or does not work with ``device`` and ``dtype``.
    """
    import torch

    spandrel = _spandrel()
    with torch.random.fork_rng(devices=[]):  # networks are initialised at random before their weights are put in
        model = _recognised(spandrel, _tensors(path), path)
    _require_upscaler(spandrel, model, path)
    try:
        return model.to(torch.device(device), getattr(torch, dtype)).eval()
    except (RuntimeError, AssertionError, spandrel.UnsupportedDtypeError) as error:
        raise ModelError(f"{path} ({_described(model)}) does not run on {device!r} in {dtype}: {error}") from error


def _spandrel() -> Any:
    with importing(FEATURE, "spandrel", extra=EXTRA):
        import spandrel
    return spandrel


def _tensors(path: Path) -> Mapping[str, Any]:
    import torch
    from safetensors.torch import load_file

    try:
        if path.suffix.lower() == ".safetensors":
            return dict(load_file(path))
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a file that is not what its name says can cause
        raise ModelError(
            f"{path} cannot be read as weights ({type(error).__name__}: {_reason(error)}). Expected safetensors, or a pickle of "
            "nothing but tensors: a pickle or TorchScript archive with more runs its code when loaded. Where you trust it, load "
            "it elsewhere and save its state_dict with safetensors.torch.save_file"
        ) from error
    if not isinstance(weights, Mapping):
        raise ModelError(f"{path} holds a {type(weights).__name__}. Expected the state_dict of a network")
    return weights


def _reason(error: Exception) -> str:
    """Returns what is wrong, without the advice of torch to run what is in the file."""
    text = str(error).partition("WeightsUnpickler error:")[2] or str(error)
    return re.split(r"\. |\n", text.strip())[0]


def _recognised(spandrel: Any, weights: Mapping[str, Any], path: Path) -> Any:
    try:
        return spandrel.ModelLoader().load_from_state_dict(weights)
    except spandrel.UnsupportedModelError as error:
        first = ", ".join(map(repr, list(weights)[:3]))
        raise ModelError(
            f"{path} is no network that spandrel {spandrel.__version__} knows: {len(weights)} entries, beginning with {first}. "
            "Expected the weights of a super-resolution network such as ESRGAN, SwinIR, DAT or SPAN"
        ) from error
    except Exception as error:  # it was taken for an architecture that it is not
        raise ModelError(
            f"{path} looks like a network that spandrel {spandrel.__version__} knows, and cannot be loaded as one "
            f"({type(error).__name__}: {' '.join(str(error).split())}). Download it again, in full"
        ) from error


def _require_upscaler(spandrel: Any, model: Any, path: Path) -> None:
    takes_a_picture = isinstance(model, spandrel.ImageModelDescriptor)
    colour = (model.input_channels, model.output_channels) == (3, 3)
    if not (takes_a_picture and colour and model.purpose == "SR" and model.scale > 1):
        raise ModelError(
            f"{path} is {_described(model)}. Expected a network for super-resolution (SR) that takes one RGB picture and "
            "enlarges it 2 times or more"
        )
    if model.architecture.id in NOISY:
        raise ModelError(
            f"{path} is {_described(model)}, and draws noise that nothing here can seed: the same picture would not give the "
            "same bytes. Choose a network that draws none"
        )


def _described(model: Any) -> str:
    return (
        f"{model.architecture.name} for {model.purpose}: {model.input_channels} channels in, {model.output_channels} out, "
        f"{model.scale} times the size"
    )
