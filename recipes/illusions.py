"""Makes illusions for the gate: the same layout in another scene, by Stable Diffusion 1.x and a ControlNet of yours.

    python illusions.py BASE CONTROLNET IMAGES FOLDER --preset words --device cuda:0 --dtype float16

BASE and CONTROLNET are directories that diffusers saved, as safetensors: a Stable Diffusion 1.x, and a ControlNet for it
such as one for QR codes. IMAGES is a folder of images, or a dataset such as ``words``. FOLDER gets the layout that
``perturbations.illusions`` reads, and beside each illusion a JSON file that says how it was made. Files that exist are kept:
run it again after an interruption.

Perceptual Observatory, section 9.3, after IllusionBench. What it publishes is followed: a ControlNet that sees the source,
prompts of scene, style and light, the negative prompt, and the two scales of each dataset. It does not publish its prompts,
steps, scheduler, working size and checkpoints: the prompts here are ours, the rest is yours or the base's. IllusionBench
doubles the size in latent space afterwards; that pass is not made here.

Real weights and GPUs were not available: how the images look was not checked.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image

from pytest_vlmrobust import datasets, perturbations
from pytest_vlmrobust.core.errors import VlmRobustError
from pytest_vlmrobust.core.fingerprint import derive_seed, file_digest, fingerprint, pixels_digest

NEGATIVE = "glitch, low quality"
PRESETS = {"words": (1.2, 10.5), "faces": (3.0, 7.5)}
"""Scale of the ControlNet, and of classifier-free guidance: section 9.3 for WORD and CELEB."""
VARIANTS = {
    "origami": "folded paper figures on a table, origami, paper craft, soft studio light",
    "starry_sky": "the Milky Way over a mountain ridge, long exposure astrophotography, deep blue and violet",
    "window_blinds": "an empty room with window blinds, minimalist interior photograph, striped afternoon sunlight",
    "night_forest": "a dense forest with a winding path, fantasy matte painting, moonlight and fireflies",
    "clouds": "towering clouds seen from a plane, aerial photograph, pink and orange dawn",
    "beach_sunset": "a beach with rocks and waves, postcard photograph, low golden sunset",
    "medieval_village": "a medieval village on a hill, oil painting, warm evening light",
    "noir_alley": "a narrow alley after the rain, film noir, black and white photograph, a single street lamp",
    "candles": "hundreds of candles on stone steps, still life photograph, flickering candlelight",
    "sand_dunes": "rippled sand dunes in a desert, landscape photograph, long shadows of the morning",
    "pastel_city": "a small city block with gardens, isometric 3D render, pastel colours",
    "ocean": "a stormy ocean with breaking waves, romantic seascape painting, silver light through clouds",
    "underwater_ruins": "sunken temple ruins with coral, underwater photograph, turquoise rays from above",
    "museum": "a museum hall with sculptures and visitors, architectural photograph, bright skylight",
    "bazaar": "a crowded bazaar with carpets and spices, watercolour illustration, colourful lanterns",
}
DECIDING = {".json", ".safetensors", ".txt"}
"""Files of a network that decide what it computes."""
MACHINE = {"device", "versions"}
"""What may differ among the illusions of one folder: several machines may share the work."""

Image = np.ndarray[Any, np.dtype[np.uint8]]
Render = Callable[[Image, str, int], Image]
"""Image, prompt and seed to an illusion of the same size."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes what is missing; returns 0, or 4 with one line on standard error."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("base", type=Path)
    parser.add_argument("controlnet", type=Path)
    parser.add_argument("images", help="a folder of images, or a dataset")
    parser.add_argument("folder", type=Path, help="where the illusions go")
    parser.add_argument(
        "--variants", nargs="+", choices=VARIANTS, default=[*VARIANTS], metavar="VARIANT", help=", ".join(VARIANTS)
    )
    parser.add_argument("--preset", choices=PRESETS, default="words", help="scales of the paper for words or faces")
    parser.add_argument("--steps", type=int, default=30, help="denoising steps; the paper does not say how many")
    parser.add_argument("--long-edge", type=int, default=512, help="long edge in pixels at which the network works")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), default="float32")
    parser.add_argument("--seed", type=int, default=1234)
    options = parser.parse_args(arguments)
    if options.steps < 1 or options.long_edge < 8:
        parser.error(f"got --steps {options.steps} and --long-edge {options.long_edge}. Expected 1 or more, and 8 or more")
    try:
        render = load(options)
        count = make(
            render,
            images(options.images),
            options.folder,
            variants=options.variants,
            how=facts(options),
            seed=options.seed,
        )
    except ImportError as error:
        print(f"illusions.py: {error}. Install it: pip install diffusers accelerate", file=sys.stderr)
        return 4
    except (VlmRobustError, OSError, ValueError, RuntimeError, AssertionError) as error:  # the last two: torch lacks the device
        print(f"illusions.py: {error}", file=sys.stderr)
        return 4
    print(f"{options.folder}: {count} new illusions")
    return 0


def images(source: str) -> Iterator[tuple[str, Image]]:
    """Yields name and pixels of each image of a folder, or of each different image of a dataset."""
    if Path(source).is_dir():
        for file in sorted(Path(source).iterdir()):
            if file.is_file() and not file.name.startswith("."):
                with PIL.Image.open(file) as opened:
                    yield file.stem, perturbations.as_rgb(opened)
        return
    seen: set[str] = set()
    for sample in datasets.resolve(source).samples():
        for image in sample.images:
            pixels = perturbations.as_rgb(image.load())
            if (digest := pixels_digest(pixels)) not in seen:
                seen.add(digest)
                yield digest[:16], pixels


def make(
    render: Render, sources: Iterable[tuple[str, Image]], folder: Path, *, variants: Sequence[str], how: dict[str, Any], seed: int
) -> int:
    """Writes the illusions that FOLDER lacks, and returns how many; refuses a folder that was made in another way."""
    count = 0
    for name, source in sources:
        original = folder / "original" / f"{name}.png"
        if not original.exists():
            write_png(original, source)
        elif pixels_digest(np.asarray(PIL.Image.open(original).convert("RGB"))) != pixels_digest(source):
            raise ValueError(f"{original} is another image than {name!r} of now. Choose another folder")
        for variant in variants:
            file = folder / variant / f"{name}.png"
            number = derive_seed(seed, name, variant)
            made = {**how, "prompt": VARIANTS[variant], "seed": number, "source": pixels_digest(source)}
            record = file.with_suffix(".json")
            if file.exists():
                before = json.loads(record.read_text(encoding="utf-8")) if record.exists() else made
                if other := [key for key in made.keys() - MACHINE if before.get(key) != made[key]]:
                    raise ValueError(
                        f"{file} was made with {min(other)} {before.get(min(other))!r}, and now it is {made[min(other)]!r}. "
                        "Choose another folder, or delete what is to be made again"
                    )
                continue
            illusion = render(source, VARIANTS[variant], number)
            file.parent.mkdir(parents=True, exist_ok=True)
            record.write_text(json.dumps(made, indent=1, sort_keys=True), encoding="utf-8")  # first, so that no illusion lacks it
            write_png(file, illusion)
            count += 1
    return count


def write_png(file: Path, image: Image) -> None:
    """Writes a PNG in one step, so that a file with this name is always complete."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    PIL.Image.fromarray(image).save(draft, format="png")
    draft.replace(file)


def load(options: argparse.Namespace) -> Render:
    """Returns what renders. Only safetensors are read, and no code from the directories is run."""
    import torch
    from diffusers import ControlNetModel, StableDiffusionControlNetPipeline

    how = {"dtype": getattr(torch, options.dtype), "use_safetensors": True, "local_files_only": True}
    # the safety checker would replace images by black ones, and the prompts are fixed
    unchecked = {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
    control = ControlNetModel.from_pretrained(str(options.controlnet), **how)
    pipeline = StableDiffusionControlNetPipeline.from_pretrained(str(options.base), controlnet=control, **unchecked, **how)
    widths = [part.config.cross_attention_dim for part in (pipeline.unet, pipeline.controlnet)]
    if widths[0] != widths[1]:
        raise ValueError(
            f"{options.controlnet} was made for another base than {options.base}: it reads texts of {widths[1]} numbers a token, "
            f"the base of {widths[0]}. Expected a ControlNet for Stable Diffusion 1.x"
        )
    pipeline.to(options.device)
    pipeline.set_progress_bar_config(disable=True)
    controlnet_scale, guidance_scale = PRESETS[options.preset]

    def render(source: Image, prompt: str, seed: int) -> Image:
        image = pipeline(
            prompt,
            image=condition(source, options.long_edge),
            negative_prompt=NEGATIVE,
            num_inference_steps=options.steps,
            guidance_scale=guidance_scale,
            controlnet_conditioning_scale=controlnet_scale,
            generator=torch.Generator("cpu").manual_seed(seed),  # the CPU's: the same noise on every device
            output_type="np",
        ).images[0]
        if not np.isfinite(image).all():
            raise ValueError(f"{options.base} gave values that are not numbers in {options.dtype}. Try --dtype float32")
        drawn = PIL.Image.fromarray((image * 255).round().astype(np.uint8))
        # the size of the source, so that boxes in pixels stay where they are
        return np.asarray(drawn.resize((source.shape[1], source.shape[0]), PIL.Image.Resampling.LANCZOS))

    return render


def condition(source: Image, long_edge: int) -> PIL.Image.Image:
    """Returns what the ControlNet sees: the luma of the source, its shape kept but for rounding to multiples of 8."""
    height, width = source.shape[:2]
    scale = long_edge / max(height, width)
    size = (max(1, round(width * scale / 8)) * 8, max(1, round(height * scale / 8)) * 8)
    return PIL.Image.fromarray(source).convert("L").resize(size, PIL.Image.Resampling.LANCZOS).convert("RGB")


def facts(options: argparse.Namespace) -> dict[str, Any]:
    """Returns what decides an illusion beside the image, the prompt and the seed; reads all weights to hash them."""
    controlnet_scale, guidance_scale = PRESETS[options.preset]
    return {
        "base": digest(file for file in options.base.glob("*/*") if file.parent.name != "safety_checker"),
        "controlnet": digest(options.controlnet.glob("*")),
        "controlnet_scale": controlnet_scale,
        "guidance_scale": guidance_scale,
        "negative_prompt": NEGATIVE,
        "steps": options.steps,
        "long_edge": options.long_edge,
        "dtype": options.dtype,
        "device": options.device,
        "versions": {package: version(package) for package in ("torch", "diffusers", "transformers")},
    }


def digest(files: Iterable[Path]) -> str:
    """Returns the SHA-256 over names and bytes of what decides."""
    chosen = [file for file in files if file.suffix in DECIDING and not file.name.startswith(".")]
    return fingerprint({f"{file.parent.name}/{file.name}": file_digest(file) for file in chosen})


if __name__ == "__main__":
    raise SystemExit(main())
