"""Illusions by Stable Diffusion and a ControlNet: another scene, laid out like the source picture.

Perceptual Observatory, section 9.3, after IllusionBench. What it publishes is followed: Stable Diffusion with a ControlNet that
is given the source, prompts composed of scene, style and light (``prompts``: the values are ours), the negative prompt, and the
two scales of each dataset. What it does not publish is chosen here: steps, scheduler (that of the base checkpoint), the working
size, and the checkpoints, which are the user's. IllusionBench used Stable Diffusion 1.5 (Realistic Vision 5.1) with the QR-code
ControlNet "monster" at 512 pixels, enlarged twice in latent space; that second pass is not built here.

Real weights and GPUs were not available: how the pictures look was not checked.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.errors import BackendError, ModelError, UnknownName, UsageError, typed_path
from pytest_vlmrobust.core.fingerprint import file_digest, fingerprint
from pytest_vlmrobust.perturbations.pixels import Image, luma, opencv, to_uint8
from pytest_vlmrobust.perturbations.rendering import as_rgb

from .importing import DTYPES, importing

# What an illusion is made to look like: prompts composed of scene, style and light, and the published scales.
#
# The Perceptual Observatory publishes the template ``[scene] x [style] x [light or colour]``, the negative prompt and the
# scales; the list of values that its section 9.3 announces is not in the published text, and no code for it was released. The
# values below are therefore ours: scenes after those its figures show and those of its predecessor IllusionBench, one
# combination for each of the 15 variants.


NEGATIVE = "glitch, low quality"
"""The negative prompt of section 9.3."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Scene, style and light of one variant."""

    scene: str
    style: str
    light: str

    def __str__(self) -> str:
        return f"{self.scene}, {self.style}, {self.light}"


@dataclass(frozen=True, slots=True)
class Preset:
    """How strongly the source picture and the prompt hold."""

    controlnet_scale: float
    """Factor on what the ControlNet adds: the larger, the more of the source is kept."""
    guidance_scale: float
    """Of classifier-free guidance: the larger, the more the prompt holds."""


VARIANTS: Mapping[str, Prompt] = MappingProxyType(
    {
        "origami": Prompt("folded paper figures on a table", "origami, paper craft", "soft studio light"),
        "starry_sky": Prompt("the Milky Way over a mountain ridge", "long exposure astrophotography", "deep blue and violet"),
        "window_blinds": Prompt(
            "an empty room with window blinds", "minimalist interior photograph", "striped afternoon sunlight"
        ),
        "night_forest": Prompt("a dense forest with a winding path", "fantasy matte painting", "moonlight and fireflies"),
        "clouds": Prompt("towering clouds seen from a plane", "aerial photograph", "pink and orange dawn"),
        "beach_sunset": Prompt("a beach with rocks and waves", "postcard photograph", "low golden sunset"),
        "medieval_village": Prompt("a medieval village on a hill", "oil painting", "warm evening light"),
        "noir_alley": Prompt("a narrow alley after the rain", "film noir, black and white photograph", "a single street lamp"),
        "candles": Prompt("hundreds of candles on stone steps", "still life photograph", "flickering candlelight"),
        "sand_dunes": Prompt("rippled sand dunes in a desert", "landscape photograph", "long shadows of the morning"),
        "pastel_city": Prompt("a small city block with gardens", "isometric 3D render", "pastel colours"),
        "ocean": Prompt("a stormy ocean with breaking waves", "romantic seascape painting", "silver light through clouds"),
        "underwater_ruins": Prompt("sunken temple ruins with coral", "underwater photograph", "turquoise rays from above"),
        "museum": Prompt("a museum hall with sculptures and visitors", "architectural photograph", "bright skylight"),
        "bazaar": Prompt("a crowded bazaar with carpets and spices", "watercolour illustration", "colourful lanterns"),
    }
)
"""Variant, as in ``illusion:origami``, to its prompt."""

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "words": Preset(controlnet_scale=1.2, guidance_scale=10.5),
        "faces": Preset(controlnet_scale=3.0, guidance_scale=7.5),
    }
)
"""The scales of section 9.3 for WORD and CELEB."""


def prompt(variant: str) -> str:
    """Returns the prompt of a variant."""
    if variant not in VARIANTS:
        raise UnknownName("variant of illusions", variant, VARIANTS)
    return str(VARIANTS[variant])


def prompt_preset(name: str) -> Preset:
    """Returns the scales called ``name``."""
    if name not in PRESETS:
        raise UnknownName("preset of illusions", name, PRESETS)
    return PRESETS[name]


FEATURE = "generating illusions"
MULTIPLE = 8
"""Sides of the latent image are an eighth of the picture's."""
BASES = ("StableDiffusionPipeline", "StableDiffusionControlNetPipeline")
DECIDING = (".json", ".safetensors", ".txt")


class IllusionPipeline:
    """Stable Diffusion 1.x with a ControlNet, from directories on this machine; threads that share it take turns.

    Only safetensors are read, and no code from the directories is run. The safety checker is off: the prompts are fixed, and it
    would replace pictures by black ones.

    Args:
        base: a directory in the layout of diffusers (with ``model_index.json``) of a Stable Diffusion 1.x.
        controlnet: a directory in the layout of diffusers (with ``config.json``) of a ControlNet for it, such as a QR-code one.
        preset: ``words`` (ControlNet scale 1.2, guidance 10.5) or ``faces`` (3.0 and 7.5): the published scales of each dataset.
        steps: how many denoising steps; the number used for the paper is not published.
        long_edge: long edge in pixels at which the network works, 8 or more; 512 is what Stable Diffusion 1.x was trained at.
        device: a torch device, such as ``cuda:0``.
        dtype: ``float32``, ``float16`` or ``bfloat16``.

    Raises:
        MissingExtra: diffusers is not installed, or cannot be imported.
        ModelError: a directory is absent, incomplete or of another kind, or the two do not fit.
        UnknownName: there is no such preset.
        UsageError: ``steps`` or ``long_edge`` is too small, or there is no such ``dtype``.
    """

    def __init__(
        self,
        base: str | Path,
        controlnet: str | Path,
        *,
        preset: str = "words",
        steps: int = 30,
        long_edge: int = 512,
        device: str = "cpu",
        dtype: str = "float32",
    ) -> None:
        if steps < 1 or long_edge < MULTIPLE or dtype not in DTYPES:
            raise UsageError(
                f"IllusionPipeline: got steps={steps}, long_edge={long_edge}, dtype={dtype!r}. Expected 1 step or more, "
                f"{MULTIPLE} pixels or more, and {' or '.join(DTYPES)}"
            )
        self._preset = prompt_preset(preset)
        self._base, self._controlnet = typed_path(base), typed_path(controlnet)
        self._steps, self._long_edge, self._device, self._dtype = steps, long_edge, device, dtype
        self._lock = Lock()
        self._pipeline = _load(self._base, self._controlnet, device=device, dtype=dtype)

    def render(self, image: Any, variant: str, seed: SupportsIndex) -> Image:
        """Returns an illusion that keeps the layout of ``image``: uint8 RGB, as high and wide as ``image``.

        The ControlNet is given the luma of ``image`` at the working size, its shape kept but for rounding to multiples of 8. The
        result is resized to the size of ``image``, so that boxes in pixels stay where they are. The noise comes from a
        generator on the CPU: with one build of the libraries on one machine, the same arguments give the same bytes.

        Args:
            image: a Pillow image or an array, as :func:`perturbations.as_rgb` takes it.
            variant: a key of ``prompts.VARIANTS``, such as ``origami``.
            seed: from 0 to 2**64 - 1.
        """
        import torch

        text, source, number = prompt(variant), as_rgb(image), operator.index(seed)
        if not 0 <= number < 2**64:
            raise UsageError(f"IllusionPipeline.render: got seed={number}. Expected 0 to 2**64 - 1")
        generator = torch.Generator("cpu").manual_seed(number)
        with self._lock:
            picture = self._pipeline(
                text,
                image=_condition(source, self._long_edge),
                negative_prompt=NEGATIVE,
                num_inference_steps=self._steps,
                guidance_scale=self._preset.guidance_scale,
                controlnet_conditioning_scale=self._preset.controlnet_scale,
                generator=generator,
                output_type="np",
            ).images[0]
        if not np.isfinite(picture).all():
            raise BackendError(f"{self._base} gave values that are not numbers in {self._dtype}. Say dtype='float32'")
        return _as_large_as(source, picture)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What decides an illusion beside the picture, the variant and the seed, JSON-safe; reads all weights to hash them."""
        return {
            "base": _digest(file for file in self._base.glob("*/*") if file.parent.name != "safety_checker"),
            "controlnet": _digest(self._controlnet.glob("*")),
            "controlnet_scale": self._preset.controlnet_scale,
            "guidance_scale": self._preset.guidance_scale,
            "negative_prompt": NEGATIVE,
            "steps": self._steps,
            "long_edge": self._long_edge,
            "dtype": self._dtype,
            "device": self._device,
            "versions": {package: version(package) for package in ("torch", "diffusers", "transformers")},
        }


def _load(base: Path, controlnet: Path, *, device: str, dtype: str) -> Any:
    """Returns a ``StableDiffusionControlNetPipeline`` on ``device``."""
    with importing(FEATURE, "diffusers", extra="illusions"):
        import torch
        from diffusers import ControlNetModel, StableDiffusionControlNetPipeline

    _require_base(base)
    if not (controlnet / "config.json").is_file():
        raise ModelError(
            f"{str(controlnet)!r} is not a ControlNet: it has no config.json. Expected a directory that diffusers saved"
        )
    how = {"dtype": getattr(torch, dtype), "use_safetensors": True, "local_files_only": True}
    # without these three, diffusers would load the safety checker, or warn that there is none
    unchecked = {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
    try:
        control = ControlNetModel.from_pretrained(str(controlnet), **how)
        pipeline = StableDiffusionControlNetPipeline.from_pretrained(str(base), controlnet=control, **unchecked, **how)
        pipeline.to(device)
    except Exception as error:  # whatever an incomplete directory can cause
        raise ModelError(
            f"{str(base)!r} with the ControlNet {str(controlnet)!r} cannot be loaded on {device!r} in {dtype} "
            f"({type(error).__name__}: {error}). Expected complete directories with safetensors"
        ) from error
    _require_fit(pipeline, base, controlnet)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _require_base(base: Path) -> None:
    index = base / "model_index.json"
    if not index.is_file():
        raise ModelError(
            f"{str(base)!r} is not a pipeline of diffusers: it has no model_index.json. Expected a Stable Diffusion 1.x"
        )
    kind = json.loads(index.read_text(encoding="utf-8")).get("_class_name")
    if kind not in BASES:
        raise ModelError(f"{str(base)!r} is a {kind}. Expected a Stable Diffusion 1.x, {' or '.join(BASES)}")


def _require_fit(pipeline: Any, base: Path, controlnet: Path) -> None:
    widths = [part.config.cross_attention_dim for part in (pipeline.unet, pipeline.controlnet)]
    if widths[0] != widths[1]:
        raise ModelError(
            f"the ControlNet {str(controlnet)!r} was made for another base than {str(base)!r}: it reads texts of {widths[1]} "
            f"numbers a token, the base of {widths[0]}. Expected a ControlNet for Stable Diffusion 1.x"
        )


def _condition(source: Image, long_edge: int) -> Any:
    """Returns what the ControlNet is given: the luma of ``source``, its long edge near ``long_edge``, as a Pillow image."""
    import PIL.Image

    height, width = source.shape[:2]
    scale = long_edge / max(height, width)
    size = [max(1, round(side * scale / MULTIPLE)) * MULTIPLE for side in (width, height)]
    grey = PIL.Image.fromarray(luma(source)).resize((size[0], size[1]), PIL.Image.Resampling.LANCZOS)
    return grey.convert("RGB")


def _as_large_as(source: Image, picture: NDArray[np.float32]) -> Image:
    """Returns values in [0, 1], shape (h, w, 3), as uint8 of the size of ``source``."""
    cv2 = opencv()
    height, width = source.shape[:2]
    method = cv2.INTER_AREA if max(height, width) < max(picture.shape) else cv2.INTER_CUBIC
    return to_uint8(cv2.resize(picture * np.float32(255.0), (width, height), interpolation=method))


def _digest(files: Iterable[Path]) -> str:
    deciding = [file for file in files if file.suffix in DECIDING and not file.name.startswith(".")]
    return fingerprint({f"{file.parent.name}/{file.name}": file_digest(file) for file in deciding})
