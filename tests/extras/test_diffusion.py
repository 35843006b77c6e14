"""The pipeline of illusions, on randomly initialised networks: what it is given, what it gives, and what it refuses."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.errors import BackendError, ImageError, ModelError, UnknownName, UsageError
from pytest_vlmrobust.core.fingerprint import pixels_digest
from pytest_vlmrobust.perturbations.neural import diffusion
from pytest_vlmrobust.perturbations.neural.diffusion import IllusionPipeline, _condition

if find_spec("diffusers") is None:
    pytest.skip("needs diffusers: pip install -e '.[illusions]'", allow_module_level=True)

Image = NDArray[np.uint8]
Scene = Callable[..., Image]
Diffusion = Callable[..., tuple[Path, Path]]
DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "illusions.md"


@pytest.fixture(scope="session")
def shared(diffusion: Diffusion) -> IllusionPipeline:
    """A pipeline that tests may render with and not change."""
    return perturbations.IllusionPipeline(*diffusion(), preset="faces", steps=2, long_edge=64)


@pytest.fixture
def open_pipeline(diffusion: Diffusion) -> Callable[..., IllusionPipeline]:
    return lambda **options: perturbations.IllusionPipeline(*diffusion(), **{"steps": 1, "long_edge": 64, **options})


def difference(one: Image, other: Image) -> float:
    return float(np.abs(one.astype(np.int16) - other).mean())


@pytest.mark.parametrize("shape", [(60, 80), (1, 1), (1, 37), (41, 1), (5, 300), (200, 130)])
def test_an_illusion_is_as_large_as_its_source(shared: IllusionPipeline, scene: Scene, shape: tuple[int, int]) -> None:
    source = scene(*shape)
    before = source.copy()
    illusion = shared.render(source, "origami", 7)
    assert illusion.dtype == np.uint8
    assert illusion.shape == (*shape, 3)
    np.testing.assert_array_equal(source, before)


def test_the_same_arguments_give_the_same_bytes(shared: IllusionPipeline, scene: Scene) -> None:
    import torch

    state = torch.get_rng_state()
    first = shared.render(scene(), "origami", 7)
    np.testing.assert_array_equal(shared.render(scene(), "origami", 7), first)
    with ThreadPoolExecutor(3) as pool:
        for again in pool.map(lambda _: shared.render(scene(), "origami", 7), range(3)):
            np.testing.assert_array_equal(again, first)
    assert torch.equal(torch.get_rng_state(), state), "torch's global random numbers were drawn from"


def test_seed_variant_and_source_decide(shared: IllusionPipeline, scene: Scene) -> None:
    first = shared.render(scene(), "origami", 7)
    assert difference(first, shared.render(scene(), "origami", 8)) > 5
    assert difference(first, shared.render(scene(), "ocean", 7)) > 0
    assert difference(first, shared.render(scene()[:, ::-1], "origami", 7)) > 1


def test_the_scales_decide(open_pipeline: Callable[..., IllusionPipeline], scene: Scene) -> None:
    words, faces = (open_pipeline(preset=name).render(scene(), "origami", 7) for name in ("words", "faces"))
    assert difference(words, faces) > 0


def test_only_the_luma_of_the_source_matters(shared: IllusionPipeline, scene: Scene) -> None:
    grey = perturbations.get("grayscale")(scene(), seed=1)
    np.testing.assert_array_equal(shared.render(grey, "ocean", 1), shared.render(scene(), "ocean", 1))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((60, 80), (64, 48)), ((80, 60), (48, 64)), ((1, 37), (64, 8)), ((640, 640), (64, 64)), ((100, 90), (56, 64))],
)
def test_the_condition_is_grey_with_sides_of_multiples_of_8(scene: Scene, shape: tuple[int, int], expected: Any) -> None:
    condition = _condition(scene(*shape), 64)
    assert condition.size == expected
    levels = np.asarray(condition)
    assert (levels == levels[..., :1]).all()


@pytest.mark.parametrize(("preset", "scales"), [("words", (1.2, 10.5)), ("faces", (3.0, 7.5))])
def test_the_network_is_asked_as_published(
    open_pipeline: Callable[..., IllusionPipeline], scene: Scene, preset: str, scales: tuple[float, float]
) -> None:
    pipeline, asked = open_pipeline(preset=preset, steps=4), SimpleNamespace()

    def network(text: str, **options: Any) -> Any:
        vars(asked).update(options, text=text)
        return SimpleNamespace(images=[np.full((48, 64, 3), 127.7 / 255, np.float32)])

    pipeline._pipeline = network
    illusion = pipeline.render(scene(), "candles", 3)
    assert (asked.controlnet_conditioning_scale, asked.guidance_scale) == scales
    assert (asked.text, asked.negative_prompt) == (diffusion.prompt("candles"), "glitch, low quality")
    assert asked.num_inference_steps == 4
    assert (asked.generator.device.type, asked.generator.initial_seed()) == ("cpu", 3)
    assert (illusion == 128).all(), "rounded, not cut off"


def test_no_safety_checker_and_no_warning_about_it(
    open_pipeline: Callable[..., IllusionPipeline], capfd: pytest.CaptureFixture[str]
) -> None:
    pipeline = open_pipeline()
    assert pipeline._pipeline.safety_checker is None
    assert "safety" not in capfd.readouterr().err.lower()


def test_values_that_are_no_numbers_are_no_picture(open_pipeline: Callable[..., IllusionPipeline], scene: Scene) -> None:
    import torch

    pipeline = open_pipeline()
    with torch.no_grad():
        pipeline._pipeline.vae.decoder.conv_out.bias.fill_(float("nan"))
    with pytest.raises(BackendError, match=r"base' gave values that are not numbers in float32|gave values that are not numbers"):
        pipeline.render(scene(), "origami", 1)


def test_bfloat16(open_pipeline: Callable[..., IllusionPipeline], scene: Scene) -> None:
    pipeline = open_pipeline(dtype="bfloat16")
    assert {str(part.dtype) for part in (pipeline._pipeline.unet, pipeline._pipeline.text_encoder)} == {"torch.bfloat16"}
    assert pipeline.render(scene(), "origami", 1).std() > 1


def test_arguments_out_of_range(shared: IllusionPipeline, scene: Scene, open_pipeline: Callable[..., IllusionPipeline]) -> None:
    with pytest.raises(UnknownName, match="unknown variant of illusions 'oceans'"):
        shared.render(scene(), "oceans", 1)
    for seed in (-1, 2**64):
        with pytest.raises(UsageError, match=f"got seed={seed}. Expected 0 to"):
            shared.render(scene(), "ocean", seed)
    assert shared.render(scene(), "ocean", 2**64 - 1).shape == (60, 80, 3)
    with pytest.raises(ImageError, match="as_rgb got an array of shape"):
        shared.render(np.zeros((2, 2, 9), np.uint8), "ocean", 1)
    with pytest.raises(UnknownName, match="unknown preset of illusions 'word'"):
        open_pipeline(preset="word")
    for options in ({"steps": 0}, {"long_edge": 7}, {"dtype": "int8"}):
        with pytest.raises(UsageError, match="Expected 1 step or more, 8 pixels or more, and float32 or float16 or bfloat16"):
            open_pipeline(**options)


def test_directories_that_are_something_else(diffusion: Diffusion, tmp_path: Path) -> None:
    base, controlnet = diffusion()
    with pytest.raises(ModelError, match=r"is not a pipeline of diffusers: it has no model_index.json"):
        perturbations.IllusionPipeline(tmp_path / "absent", controlnet)
    with pytest.raises(ModelError, match=r"is not a ControlNet: it has no config.json"):
        perturbations.IllusionPipeline(base, base)
    (tmp_path / "model_index.json").write_text('{"_class_name": "StableDiffusionXLPipeline"}')
    with pytest.raises(ModelError, match=r"is a StableDiffusionXLPipeline. Expected a Stable Diffusion 1.x"):
        perturbations.IllusionPipeline(tmp_path, controlnet)
    _, other = diffusion(24)
    with pytest.raises(ModelError, match=r"made for another base.*it reads texts of 24 numbers a token, the base of 16"):
        perturbations.IllusionPipeline(base, other)
    with pytest.raises(ModelError, match=r"cannot be loaded on 'warp' in float32"):
        perturbations.IllusionPipeline(base, controlnet, device="warp")


def test_pickled_weights_are_not_read(diffusion: Diffusion, tmp_path: Path) -> None:
    import torch

    base, controlnet = diffusion()
    shutil.copytree(base, tmp_path / "base")
    (tmp_path / "base" / "unet" / "diffusion_pytorch_model.safetensors").unlink()
    torch.save({}, tmp_path / "base" / "unet" / "diffusion_pytorch_model.bin")
    with pytest.raises(ModelError, match=r"diffusion_pytorch_model.safetensors.*Expected complete directories with safetensors"):
        perturbations.IllusionPipeline(tmp_path / "base", controlnet)


def test_code_in_a_directory_is_not_run(diffusion: Diffusion, tmp_path: Path) -> None:
    base, controlnet = diffusion()
    copy = shutil.copytree(base, tmp_path / "base")
    index = json.loads((copy / "model_index.json").read_text())
    (copy / "model_index.json").write_text(json.dumps({**index, "unet": ["custom", "Custom"]}))
    (copy / "unet" / "custom.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Custom: pass\n")
    with pytest.raises(ModelError, match="cannot be loaded"):
        perturbations.IllusionPipeline(copy, controlnet)
    assert not (tmp_path / "ran").exists()


def test_facts_have_the_digests_of_both_networks(diffusion: Diffusion, tmp_path: Path, shared: IllusionPipeline) -> None:
    facts = shared.facts
    assert {key: facts[key] for key in ("controlnet_scale", "guidance_scale", "steps", "long_edge", "dtype", "device")} == {
        "controlnet_scale": 3.0,
        "guidance_scale": 7.5,
        "steps": 2,
        "long_edge": 64,
        "dtype": "float32",
        "device": "cpu",
    }
    assert {*facts["versions"]} == {"torch", "diffusers", "transformers"}
    base, controlnet = diffusion()
    copies = [shutil.copytree(source, tmp_path / source.name) for source in (base, controlnet)]
    assert perturbations.IllusionPipeline(*copies).facts["base"] == facts["base"]
    scheduler = copies[0] / "scheduler" / "scheduler_config.json"
    scheduler.write_text(scheduler.read_text().replace("0.02", "0.03"))
    changed = perturbations.IllusionPipeline(*copies).facts
    assert changed["base"] != facts["base"]
    assert changed["controlnet"] == facts["controlnet"]


def test_a_generated_folder_is_a_perturbation(shared: IllusionPipeline, scene: Scene, tmp_path: Path) -> None:
    pictures = {"a": scene(), "b": scene(40, 30)}
    assert perturbations.generate_folder(shared, pictures, tmp_path, variants=["origami", "ocean"]) == 4
    assert perturbations.generate_folder(shared, pictures, tmp_path, variants=["origami", "ocean"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "index.jsonl").read_text(encoding="utf-8").splitlines()]
    assert perturbations.illusions(tmp_path) == ["illusion:ocean", "illusion:origami"]
    for line in lines:
        part, _, name = line["file"].partition("/")
        source = pictures[name.removesuffix(".png")]
        assert line["source"] == pixels_digest(source)
        stored = perturbations.get(f"illusion:{part}")(source, seed=1)
        np.testing.assert_array_equal(stored, shared.render(source, part, line["seed"]))


def test_the_documented_program_generates_a_folder(diffusion: Diffusion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = re.findall(r"^```python\n(# generate\.py.*?)^```$", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "generate.py").write_text(program, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["generate.py"])  # with two arguments it would take them for networks
    generate = runpy.run_path("generate.py")["generate"]
    assert generate(*diffusion(), steps=1, long_edge=16) > 0
    assert len(list((tmp_path / "illusions" / "original").iterdir())) == 24
    assert perturbations.illusions("illusions") == ["illusion:origami", "illusion:starry_sky"]
