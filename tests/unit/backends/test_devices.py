from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_vlmrobust.backends import devices
from pytest_vlmrobust.backends.devices import device_class, device_for, gpu_count, require_device, torch_is_built_for_cuda
from pytest_vlmrobust.core.errors import BackendError, MissingExtra


def _torch_says(monkeypatch: pytest.MonkeyPatch, folder: Path, cuda: str) -> None:
    (folder / "version.py").write_text(f"__version__ = '2.13.0'\ncuda: Optional[str] = {cuda}\nhip: Optional[str] = None\n")
    found = SimpleNamespace(origin=str(folder / "__init__.py"))
    monkeypatch.setattr(devices, "find_spec", lambda _name: found)


def test_a_named_device_is_taken_as_it_is() -> None:
    assert [device_for(name) for name in ("cpu", "cuda:1", "mps")] == ["cpu", "cuda:1", "mps"]
    assert [device_class(name) for name in ("cpu", "cuda:1", "cuda")] == ["cpu", "cuda", "cuda"]


@pytest.mark.parametrize(("cuda", "built"), [("'12.8'", True), ("None", False)])
def test_reads_the_build_from_torchs_version_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cuda: str, built: bool
) -> None:
    _torch_says(monkeypatch, tmp_path, cuda)
    assert torch_is_built_for_cuda() is built


def test_agrees_with_the_torch_that_is_installed() -> None:
    import torch

    assert torch_is_built_for_cuda() is (torch.version.cuda is not None)


@pytest.mark.parametrize(
    ("machine", "device"),
    [
        (("'12.8'", 2, "linux"), "cuda"),
        (("'12.8'", 0, "linux"), "cpu"),
        (("None", 2, "linux"), "cpu"),
        (("None", 0, "darwin"), "mps"),
    ],
)
def test_auto(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, machine: tuple[str, int, str], device: str) -> None:
    cuda, gpus, platform = machine
    _torch_says(monkeypatch, tmp_path, cuda)
    monkeypatch.setattr(devices, "gpu_count", lambda: gpus)
    monkeypatch.setattr(devices, "sys", SimpleNamespace(platform=platform))
    monkeypatch.setattr(devices, "platform", SimpleNamespace(machine=lambda: "arm64"))
    assert device_for("auto") == device


def test_counts_gpus_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_count.cache_clear()
    answers = iter([SimpleNamespace(returncode=0, stdout="3\n"), SimpleNamespace(returncode=1, stdout="")])
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_kwargs: next(answers))
    assert gpu_count() == 3
    assert gpu_count() == 3  # asked once
    gpu_count.cache_clear()
    assert gpu_count() == 0
    gpu_count.cache_clear()


def test_the_counting_program_runs_here() -> None:
    gpu_count.cache_clear()
    assert gpu_count() >= 0


def test_without_torch_the_pip_line_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtra, match=r"'torch', which is not installed. Install it: pip install torch"):
        device_for("auto")


def test_a_device_that_torch_cannot_use(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        BackendError, match=r"device 'cuda:0' was asked for, but torch .* cannot use it here. Say --vlm-device cpu"
    ):
        require_device("cuda:0", "cuda:0")
    with pytest.raises(BackendError, match="'auto' chose 'cuda', but torch"):
        require_device("cuda", "auto")
    require_device("cpu", "auto")


def test_a_gpu_that_auto_missed_is_not_passed_over_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    require_device("cpu", "cpu")
    with pytest.raises(BackendError, match="'auto' chose 'cpu', but torch sees a GPU"):
        require_device("cpu", "auto")
    with pytest.raises(BackendError, match=r"device 'cuda:1' was asked for, but torch sees 1 GPU\(s\)"):
        require_device("cuda:1", "cuda:1")
