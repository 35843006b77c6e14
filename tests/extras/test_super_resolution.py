"""Super-resolution, on randomly initialised networks that spandrel recognises."""

from __future__ import annotations

import shutil
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.errors import BackendError, ModelError
from pytest_vlmrobust.core.fingerprint import file_digest
from pytest_vlmrobust.perturbations import neural as super_resolution

if find_spec("spandrel") is None:
    pytest.skip("needs spandrel: pip install -e '.[super-resolution]'", allow_module_level=True)

Image = NDArray[np.uint8]
Scene = Callable[..., Image]
Weights = Callable[..., Path]


@pytest.fixture
def weights(spandrel: ModuleType, tmp_path: Path) -> Weights:
    """Saves a tiny network: ``weights(name, architecture, change=..., **sizes)``; its file type is that of the name."""
    import torch
    from safetensors.torch import save_file

    def save(name: str = "net.safetensors", architecture: str = "Compact", change: Any = None, **sizes: Any) -> Path:
        small = {
            "Compact": {"num_feat": 8, "num_conv": 2, "upscale": 4},
            "ESRGAN": {"num_filters": 8, "num_blocks": 1, "scale": 2},
        }
        kind = getattr(import_module(f"spandrel.architectures.{architecture}"), architecture)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            tensors = {key: value.contiguous() for key, value in kind(**{**small[architecture], **sizes}).state_dict().items()}
        stored = change(tensors) if change else tensors
        if name.endswith(".safetensors"):
            save_file(stored, tmp_path / name)
        else:
            torch.save(stored, tmp_path / name)
        return tmp_path / name

    return save


def enlarged(file: Path, picture: Image, long_edge: int, **options: Any) -> Image:
    perturbations.super_resolution(file, replace=True, **options)
    return perturbations.get(f"super_resolution:{long_edge}")(picture, seed=1)


@pytest.mark.parametrize("architecture", ["Compact", "ESRGAN"])
def test_pictures_of_any_shape_get_the_long_edge_asked_for(weights: Weights, scene: Scene, architecture: str) -> None:
    file = weights(architecture=architecture)
    for shape, expected in [((60, 80), (150, 200)), ((1, 1), (200, 200)), ((1, 37), (5, 200)), ((41, 1), (200, 5))]:
        picture = scene(*shape)
        before = picture.copy()
        large = enlarged(file, picture, 200)
        assert large.shape == (*expected, 3)
        assert large.dtype == np.uint8
        assert large.flags.writeable
        np.testing.assert_array_equal(picture, before)


def test_the_same_bytes_again_on_threads_and_from_strided_pictures(weights: Weights, scene: Scene) -> None:
    import torch

    perturbations.super_resolution(weights())
    render, state = perturbations.get("super_resolution:448"), torch.get_rng_state()
    first = render(scene(), seed=1)
    strided = np.repeat(scene(), 2, axis=1)[:, ::2]
    with ThreadPoolExecutor(4) as pool:
        for again in pool.map(lambda picture: render(picture, seed=2), [scene(), strided] * 2):
            np.testing.assert_array_equal(again, first)
    assert torch.equal(torch.get_rng_state(), state), "torch's global random numbers were drawn from"


def test_the_checkpoint_is_loaded_once_and_when_first_used(
    weights: Weights, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Path] = []
    load = super_resolution.load_upscaler

    def counted(path: Path, **options: str) -> Any:
        loaded.append(path)
        return load(path, **options)

    monkeypatch.setattr(super_resolution, "load_upscaler", counted)
    file = weights()
    perturbations.super_resolution(file)
    render = perturbations.get("super_resolution:100")
    perturbations.info("super_resolution:100")
    assert not loaded
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: render(scene(), seed=1), range(8)))
    assert loaded == [file]


def test_it_is_the_network_and_then_the_average_of_areas(spandrel: ModuleType, weights: Weights, scene: Scene) -> None:
    import torch

    file = weights()
    model = spandrel.ModelLoader().load_from_file(file)
    once = model(torch.from_numpy(scene()).permute(2, 0, 1)[None] / 255.0)  # 80 pixels wide; 320 now, and 1280 after another pass
    for long_edge, picture in [(300, once), (320, once), (448, model(once))]:
        levels = picture[0].permute(1, 2, 0).numpy() * 255.0
        small = cv2.resize(levels, (long_edge, round(60 * long_edge / 80)), interpolation=cv2.INTER_AREA)
        np.testing.assert_array_equal(enlarged(file, scene(), long_edge), np.rint(small).astype(np.uint8))


def test_tiles_leave_no_seams(weights: Weights, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    file, picture = weights(architecture="ESRGAN"), scene(60, 100)
    whole = enlarged(file, picture, 200, tile=1000).astype(np.int16)
    assert whole.std() > 2
    for tile in (23, 50, 99):
        assert np.abs(enlarged(file, picture, 200, tile=tile) - whole).max() <= 1  # sums in another order
    monkeypatch.setattr(super_resolution, "OVERLAP", 0)
    assert np.abs(enlarged(file, picture, 200, tile=50) - whole).max() > 1, "this network does look beyond its tile"


def test_networks_that_are_not_to_be_tiled_see_the_whole(
    spandrel: ModuleType, weights: Weights, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, seen = weights(architecture="ESRGAN"), []
    model = super_resolution.load_upscaler(file, device="cpu", dtype="float32")
    model.model.register_forward_hook(lambda _module, inputs, _output: seen.append(tuple(inputs[0].shape[2:])))
    monkeypatch.setattr(super_resolution, "load_upscaler", lambda *_args, **_options: model)
    enlarged(file, scene(), 160, tile=50)
    assert len(seen) == 4
    seen.clear()
    model.tiling = spandrel.ModelTiling.INTERNAL
    enlarged(file, scene(), 160, tile=50)
    assert seen == [(60, 80)]


@pytest.mark.parametrize("name", ["net.pth", "net.ckpt", "net.pt"])
def test_pickles_of_tensors_alone_are_read(weights: Weights, scene: Scene, name: str) -> None:
    expected = enlarged(weights(), scene(), 300)
    np.testing.assert_array_equal(enlarged(weights(name), scene(), 300), expected)
    wrapped = weights(name, change=lambda tensors: {"params_ema": tensors})
    np.testing.assert_array_equal(enlarged(wrapped, scene(), 300), expected)


def test_bfloat16_is_near(weights: Weights, scene: Scene) -> None:
    half = enlarged(weights(), scene(), 300, dtype="bfloat16").astype(np.int16)
    difference = np.abs(half - enlarged(weights(), scene(), 300))
    assert 0 < difference.mean() < 3


def test_the_fingerprint_has_the_checkpoint(spandrel: ModuleType, weights: Weights) -> None:
    file = weights()
    perturbations.super_resolution(file)
    (step,) = perturbations.fingerprint("super_resolution:500")
    assert step["params"]["checkpoint"] == file_digest(file)
    assert step["params"]["spandrel"] == spandrel.__version__
    assert step["params"]["long_edge"] == 500


def refused(file: Path, message: str, scene: Scene, **options: Any) -> None:
    with pytest.raises(ModelError, match=message):
        enlarged(file, scene(), 448, **options)


def test_networks_that_do_something_else(weights: Weights, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = r"Expected a network for super-resolution \(SR\) that takes one RGB image and enlarges it 2 times or more"
    grey = weights(num_in_ch=1, num_out_ch=1)
    refused(grey, rf"is RealESRGAN Compact for SR: 1 channels in, 1 out, 4 times the size. {expected}", scene)
    same = weights(upscale=1)
    refused(same, rf"is RealESRGAN Compact for Restoration: 3 channels in, 3 out, 1 times the size. {expected}", scene)
    monkeypatch.setattr(super_resolution, "NOISY", ("Compact",))
    refused(weights(), "draws noise that nothing here can seed", scene)


def test_files_that_hold_no_network(weights: Weights, scene: Scene, tmp_path: Path) -> None:
    import torch

    def without(tensors: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in tensors.items() if key != "body.0.bias"}

    refused(weights(change=without), r"cannot be loaded as one \(RuntimeError: .*body.0.bias.*Download it again", scene)
    other = weights(change=lambda _tensors: {"a.b": torch.zeros(1), "c": torch.zeros(1)})
    refused(other, r"not a network that spandrel .* knows: 2 entries, beginning with 'a.b', 'c'. Expected the weights", scene)
    refused(weights("x.pth", change=lambda _tensors: torch.zeros(3)), r"x.pth holds a Tensor. Expected the state_dict", scene)
    whole = weights()
    (tmp_path / "torn.safetensors").write_bytes(whole.read_bytes()[:400])
    refused(tmp_path / "torn.safetensors", r"cannot be read as weights \(SafetensorError: .*\). Expected safetensors", scene)


def test_code_in_a_pickle_is_not_run(weights: Weights, scene: Scene, tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self) -> tuple[Any, ...]:
            return shutil.copy, (sys.executable, str(tmp_path / "ran"))

    file = weights("net.pth", change=lambda tensors: {**tensors, "extra": Runs()})
    refused(
        file, r"cannot be read as weights \(UnpicklingError: Unsupported global: GLOBAL shutil.copy was not an allowed", scene
    )
    assert not (tmp_path / "ran").exists()


def test_torchscript_archives_are_refused(spandrel: ModuleType, scene: Scene, tmp_path: Path) -> None:
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.jit.(script|save).* is deprecated")
        program: Any = torch.jit.script(torch.nn.Linear(2, 2))
        program.save(str(tmp_path / "net.pt"))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*looks like a TorchScript archive", category=UserWarning)
        refused(
            tmp_path / "net.pt", r"cannot be read as weights \(RuntimeError: .*TorchScript archives.*\). Expected safetens", scene
        )


def test_devices_that_are_not_there(weights: Weights, scene: Scene) -> None:
    refused(weights(), r"does not run on 'warp' in float32: ", scene, device="warp")


def test_values_that_are_no_numbers_are_no_picture(weights: Weights, scene: Scene) -> None:
    file = weights(change=lambda tensors: {key: value * float("nan") for key, value in tensors.items()})
    with pytest.raises(BackendError, match=r"gave values that are not numbers in float32. Say dtype='float32'"):
        enlarged(file, scene(), 300)
