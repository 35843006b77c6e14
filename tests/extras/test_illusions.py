"""The recipe for illusions, on randomly initialised networks: what it is given, what it gives, and what it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import PIL.Image
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.shipped import shipped

if find_spec("diffusers") is None:
    pytest.skip("needs diffusers: pip install -e '.[illusions]'", allow_module_level=True)

Image = NDArray[np.uint8]
Scene = Callable[..., Image]
Diffusion = Callable[..., tuple[Path, Path]]


@pytest.fixture(scope="module")
def recipe() -> Any:
    spec = spec_from_file_location("illusions_recipe", shipped("recipes") / "illusions.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def images(tmp_path: Path, scene: Scene) -> Path:
    (tmp_path / "images").mkdir()
    PIL.Image.fromarray(scene()).save(tmp_path / "images" / "a.png")
    PIL.Image.fromarray(scene(40, 30)).save(tmp_path / "images" / "b.png")
    return tmp_path / "images"


def run(
    recipe: Any, diffusion: Diffusion, images: Any, folder: Path, *options: str, networks: tuple[Path, Path] | None = None
) -> Any:
    return recipe.main(
        [*map(str, networks or diffusion()), str(images), str(folder), "--steps", "1", "--long-edge", "64", *options]
    )


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def test_a_folder_is_made_once_and_is_a_perturbation(recipe: Any, diffusion: Diffusion, images: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(recipe, diffusion, images, out, "--variants", "origami", "ocean", "--preset", "faces") == 0
    before = files(out)
    assert [*before] == [
        *(f"{part}/{name}.{kind}" for part in ("ocean", "origami") for name in "ab" for kind in ("json", "png")),
        *(f"original/{name}.png" for name in "ab"),
    ]
    (out / "ocean" / "b.png").unlink()  # as after an interruption
    assert run(recipe, diffusion, images, out, "--variants", "origami", "ocean", "--preset", "faces") == 0
    assert files(out) == before
    made = json.loads(before["ocean/b.json"])
    assert (made["controlnet_scale"], made["guidance_scale"], made["steps"], made["long_edge"]) == (3.0, 7.5, 1, 64)
    assert made["prompt"] == recipe.VARIANTS["ocean"]
    assert perturbations.illusions(out) == ["illusion:ocean", "illusion:origami"]
    source = np.asarray(PIL.Image.open(images / "b.png"))
    stored = perturbations.get("illusion:ocean")(source, seed=1)
    assert stored.shape == source.shape
    np.testing.assert_array_equal(stored, np.asarray(PIL.Image.open(out / "ocean" / "b.png")))


def test_illusions_of_another_making_are_not_mixed(
    recipe: Any, diffusion: Diffusion, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(recipe, diffusion, images, tmp_path / "out", "--variants", "ocean")
    before = files(tmp_path / "out")
    for options, key in ((["--preset", "faces"], "controlnet_scale"), (["--seed", "9"], "seed"), (["--steps", "2"], "steps")):
        capsys.readouterr()
        assert run(recipe, diffusion, images, tmp_path / "out", "--variants", "ocean", *options) == 4
        assert f"was made with {key} " in capsys.readouterr().err
    PIL.Image.new("RGB", (80, 60)).save(images / "a.png")
    assert run(recipe, diffusion, images, tmp_path / "out", "--variants", "ocean") == 4
    assert "original/a.png is another image than 'a' of now" in capsys.readouterr().err
    assert files(tmp_path / "out") == before


def test_different_images_of_a_dataset_are_made_once(recipe: Any) -> None:
    names, pixels = zip(*recipe.images("words"), strict=True)
    assert len({*names}) == len(names) == len({image.tobytes() for image in pixels}) > 10


@pytest.mark.parametrize("shape", [(60, 80), (1, 1), (1, 37), (5, 300), (200, 130)])
def test_an_illusion_is_as_large_as_its_source(recipe: Any, diffusion: Diffusion, scene: Scene, shape: tuple[int, int]) -> None:
    render = recipe.load(options(diffusion))
    first, again, other = (render(scene(*shape), "sand", seed) for seed in (1, 1, 2))
    assert first.dtype == np.uint8
    assert first.shape == (*shape, 3)
    np.testing.assert_array_equal(first, again)
    assert shape == (1, 1) or (first != other).any()


def test_the_controlnet_and_the_prompt_decide(recipe: Any, diffusion: Diffusion, scene: Scene) -> None:
    render = recipe.load(options(diffusion))
    image = scene()
    assert (render(image, "sand", 1) != render(255 - image, "sand", 1)).any()
    assert (render(image, "sand", 1) != render(image, "a stormy ocean", 1)).any()


@pytest.mark.parametrize(("height", "width", "size"), [(60, 80, (64, 48)), (1, 37, (64, 8)), (200, 130, (40, 64))])
def test_the_condition_is_luma_of_the_working_size(
    recipe: Any, scene: Scene, height: int, width: int, size: tuple[int, int]
) -> None:
    given = recipe.condition(scene(height, width), 64)
    assert given.size == size
    red, green, blue = np.moveaxis(np.asarray(given), -1, 0)
    assert (red == green).all()
    assert (green == blue).all()


def test_what_cannot_be_loaded_is_said_in_one_line(
    recipe: Any, diffusion: Diffusion, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, _ = diffusion()
    shutil.copytree(base, tmp_path / "base")
    (tmp_path / "base" / "unet" / "diffusion_pytorch_model.safetensors").rename(tmp_path / "base" / "unet" / "model.bin")
    _, controlnet = diffusion()
    _, wider = diffusion(text_width=24)
    for networks, words in (
        ((tmp_path / "base", controlnet), "safetensors"),
        ((tmp_path / "absent", controlnet), "absent"),
        ((base, wider), "was made for another base"),
    ):
        capsys.readouterr()
        assert run(recipe, diffusion, images, tmp_path / "out", networks=networks) == 4
        said = capsys.readouterr().err.splitlines()[-1]
        assert said.startswith("illusions.py: ")
        assert words in said
    assert not (tmp_path / "out").exists()


def test_digests_follow_what_decides(recipe: Any, diffusion: Diffusion, tmp_path: Path) -> None:
    base, controlnet = (shutil.copytree(source, tmp_path / source.name) for source in diffusion())
    before = recipe.facts(options(diffusion))
    copied = recipe.facts(options(diffusion, base=base, controlnet=controlnet))
    assert copied["base"] == before["base"]
    scheduler = base / "scheduler" / "scheduler_config.json"
    scheduler.write_text(scheduler.read_text().replace("0.02", "0.03"))
    changed = recipe.facts(options(diffusion, base=base, controlnet=controlnet))
    assert changed["base"] != before["base"]
    assert changed["controlnet"] == before["controlnet"]
    assert {*changed["versions"]} == {"torch", "diffusers", "transformers"}


def test_prompts_and_scales_are_those_of_the_paper_where_it_has_them(recipe: Any) -> None:
    assert recipe.NEGATIVE == "glitch, low quality"
    assert recipe.PRESETS == {"words": (1.2, 10.5), "faces": (3.0, 7.5)}
    assert len({*recipe.VARIANTS.values()}) == 15
    assert max(len(prompt.split()) for prompt in recipe.VARIANTS.values()) < 30  # CLIP cuts at 77 tokens


def options(diffusion: Diffusion, **more: Any) -> SimpleNamespace:
    base, controlnet = diffusion()
    given = {"base": base, "controlnet": controlnet, "preset": "words", "steps": 1, "long_edge": 64, "device": "cpu"}
    return SimpleNamespace(**{**given, "dtype": "float32", **more})
