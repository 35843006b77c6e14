from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_vlmrobust.core.errors import MissingExtra
from pytest_vlmrobust.perturbations.neural import super_resolution
from pytest_vlmrobust.perturbations.neural.importing import BrokenExtra, importing


def test_the_attributes_of_the_package_load_no_model_library() -> None:
    program = (
        "import sys\n"
        "from pytest_vlmrobust import perturbations\n"
        "assert not any('neural' in name for name in sys.modules)\n"
        "perturbations.super_resolution\n"
        "import pytest_vlmrobust.perturbations.neural.super_resolution\n"
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
    with pytest.raises(BrokenExtra) as caught, importing("super-resolution", "spandrel", extra="super-resolution"):
        raise reason
    assert isinstance(caught.value, MissingExtra)
    assert f"'spandrel', which is installed and cannot be imported ({type(reason).__name__}: {reason})" in str(caught.value)
    assert "uv pip install --torch-backend=auto --reinstall torch torchvision" in str(caught.value)


def test_an_absent_requirement_of_the_package_is_named() -> None:
    with pytest.raises(BrokenExtra, match="No module named 'einops'"), importing("f", "spandrel", extra="super-resolution"):
        raise ModuleNotFoundError("No module named 'einops'", name="einops")
