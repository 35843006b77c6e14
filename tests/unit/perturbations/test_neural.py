"""What is known of super-resolution before a network is loaded; tests/extras has the rest."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.errors import MissingExtra, ModelError, SettingError, UsageError
from pytest_vlmrobust.core.fingerprint import file_digest
from pytest_vlmrobust.perturbations import neural as super_resolution
from pytest_vlmrobust.perturbations.neural import BrokenExtra, importing
from pytest_vlmrobust.perturbations.registry import REGISTRY


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    file = tmp_path / "weights.safetensors"
    file.write_bytes(b"not read when registered")
    return file


def test_levels_are_sizes_of_the_long_edge_as_of_bicubic_upscaling(weights: Path) -> None:
    assert perturbations.super_resolution(weights)[:2] == ["super_resolution:336", "super_resolution:448"]
    ours, bicubic = REGISTRY.get("super_resolution"), REGISTRY.get("upscale_bicubic")
    assert ours.levels == bicubic.levels
    assert ours.parameters("500") == {"long_edge": 500}
    assert (ours.family, ours.category, ours.keeps_size) == (bicubic.family, bicubic.category, False)
    assert ours.doc.startswith("Enlarges the image by a super-resolution network")
    with pytest.raises(SettingError, match=r"no level 'large'"):
        perturbations.get("super_resolution:large")


def test_a_picture_that_is_large_already_stays_with_a_note_and_needs_no_network(weights: Path) -> None:
    perturbations.super_resolution(weights)
    picture = np.full((20, 500, 3), 7, np.uint8)
    rendering = perturbations.get("super_resolution:448").render(picture, seed=1)
    np.testing.assert_array_equal(rendering.image, picture)
    assert rendering.notes == ("super_resolution:448: the long edge has 500 pixels, 448 or more: left as it is",)


def test_the_fingerprint_has_the_checkpoint_and_how_it_runs(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(super_resolution, "version", {"torch": "2.9", "spandrel": "0.4.2"}.__getitem__)
    perturbations.super_resolution(weights, tile=64, dtype="bfloat16", device="cuda:1")
    expected = {
        "checkpoint": file_digest(weights),
        "tile": 64,
        "device": "cuda:1",
        "dtype": "bfloat16",
        "torch": "2.9",
        "spandrel": "0.4.2",
    }
    for size in (448, 450):
        (step,) = perturbations.fingerprint(f"super_resolution:{size}")
        assert step["params"] == {"long_edge": size, **expected}


def test_without_spandrel_there_is_no_fingerprint(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if package == "spandrel":
            raise PackageNotFoundError(package)
        return "1"

    monkeypatch.setattr(super_resolution, "version", version)
    perturbations.super_resolution(weights)
    with pytest.raises(MissingExtra, match=r"pip install 'spandrel>="):
        perturbations.fingerprint("super_resolution:448")


def test_several_networks_have_names_of_their_own(weights: Path) -> None:
    perturbations.super_resolution(weights)
    with pytest.raises(UsageError, match=r"registered already by perturbations.super_resolution\('.*weights.safetensors'\)"):
        perturbations.super_resolution(weights)
    assert perturbations.super_resolution(weights, name="swinir")[0] == "swinir:336"
    assert perturbations.super_resolution(weights, replace=True)[0] == "super_resolution:336"


def test_files_that_are_not_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"super_resolution: there is no file '.*x.pth'. Expected a checkpoint, .safetensors or"):
        perturbations.super_resolution(tmp_path / "x.pth")
    (tmp_path / "x.onnx").write_bytes(b"")
    with pytest.raises(ModelError, match=r"'.*x.onnx' is no checkpoint by its name. Expected .safetensors or .pth"):
        perturbations.super_resolution(tmp_path / "x.onnx")


@pytest.mark.parametrize("options", [{"tile": 0}, {"dtype": "int8"}, {"dtype": "float64"}])
def test_options_that_make_no_sense(weights: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="Expected tile=1 or more pixels, and float32 or float16 or bfloat16"):
        perturbations.super_resolution(weights, **options)
    assert "super_resolution" not in REGISTRY


@pytest.mark.cases(("length", "tile"), [(1, 1), (7, 3), (256, 256), (257, 256), (1000, 256), (5, 1)])
def test_tiles_cover_everything_once_and_are_about_equal(length: int, tile: int) -> None:
    spans = list(super_resolution._spans(length, tile))
    assert [place for start, end in spans for place in range(start, end)] == list(range(length))
    sizes = [end - start for start, end in spans]
    assert max(sizes) <= tile
    assert max(sizes) - min(sizes) <= 1
    assert len(spans) == -(-length // tile)


def test_the_attributes_of_the_package_load_no_model_library() -> None:
    program = (
        "import sys\n"
        "from pytest_vlmrobust import perturbations\n"
        "assert not any('neural' in name for name in sys.modules)\n"
        "perturbations.super_resolution\n"
        "import pytest_vlmrobust.perturbations.neural\n"
        "loaded = {'torch', 'spandrel', 'transformers', 'safetensors'} & {*sys.modules}\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_absent_package_gives_the_pip_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "spandrel", None)
    with pytest.raises(MissingExtra) as caught:
        super_resolution.load_upscaler(tmp_path / "x.pth", device="cpu", dtype="float32")
    assert str(caught.value).startswith(
        "super-resolution needs the package 'spandrel', which is not installed. Install it: pip install 'spandrel>="
    )


@pytest.mark.parametrize("reason", [RuntimeError("operator torchvision::nms does not exist"), ImportError("x.so: no symbol")])
def test_a_package_that_cannot_be_imported_is_not_called_absent(reason: Exception) -> None:
    with (
        pytest.raises(BrokenExtra) as caught,
        importing("super-resolution", "spandrel", extra="super-resolution"),
    ):
        raise reason
    assert isinstance(caught.value, MissingExtra)
    assert f"'spandrel', which is installed and cannot be imported ({type(reason).__name__}: {reason})" in str(caught.value)
    assert "uv pip install --torch-backend=auto --reinstall torch torchvision" in str(caught.value)


def test_an_absent_requirement_of_the_package_is_named() -> None:
    with (
        pytest.raises(BrokenExtra, match="No module named 'einops'"),
        importing("f", "spandrel", extra="super-resolution"),
    ):
        raise ModuleNotFoundError("No module named 'einops'", name="einops")
