from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_vlmrobust.backends import devices
from pytest_vlmrobust.backends.devices import (
    Leased,
    device_class,
    device_for,
    gpu_count,
    lease_one,
    leased,
    require_device,
    threads_for,
    torch_is_built_for_cuda,
    wait_passively,
)
from pytest_vlmrobust.core.errors import BackendError, MissingExtra

Lease = Callable[[Path, list[str]], Leased]


def _torch_says(monkeypatch: pytest.MonkeyPatch, folder: Path, cuda: str) -> None:
    (folder / "version.py").write_text(f"__version__ = '2.13.0'\ncuda: Optional[str] = {cuda}\nhip: Optional[str] = None\n")
    spec = SimpleNamespace(origin=str(folder / "__init__.py"))
    monkeypatch.setattr(devices, "find_spec", lambda _name: spec)


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
    said = r"the models file has device_map: cuda:9, but torch .* cannot use it here. Write device_map: cpu there, or repair"
    with pytest.raises(BackendError, match=said):
        require_device("cuda:9", "auto", "cuda:9")
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
    with pytest.raises(BackendError, match=r"the models file has device_map: cuda:9, but torch sees 1 GPU\(s\)"):
        require_device("cuda:9", "auto", "cuda:9")
    require_device("cpu", "auto", "cpu")


HOLDER = """
import sys, time
from pathlib import Path
from pytest_vlmrobust.backends.devices import lease_one
lease = lease_one(Path(sys.argv[1]), sys.argv[2].split(","))
print(lease.device, flush=True)
time.sleep(600)
"""


@pytest.fixture
def lease() -> Iterator[Lease]:
    """Leases in this process, until the test ends."""
    taken: list[Leased] = []

    def take(folder: Path, gpus: list[str]) -> Leased:
        taken.append(lease_one(folder, gpus))
        return taken[-1]

    yield take
    for each in taken:
        if each.lock is not None:
            each.lock.release()


def _holder(folder: Path, gpus: str) -> tuple[subprocess.Popen[str], str]:
    """Starts a process that leases a GPU and keeps it; returns it and what it leased."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder), gpus], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_each_process_leases_a_gpu_of_its_own_and_a_killed_one_frees_it(tmp_path: Path, lease: Lease) -> None:
    first, held_first = _holder(tmp_path, "0,1")
    second, held_second = _holder(tmp_path, "0,1")
    try:
        assert (held_first, held_second) == ("cuda:0", "cuda:1")
        first.kill()
        first.wait()
        replacement = lease(tmp_path, ["0", "1"])
        assert (replacement.device, replacement.note) == ("cuda:0", "")
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()


def test_more_processes_than_gpus_share_evenly_and_say_so(tmp_path: Path, lease: Lease) -> None:
    leases = [lease(tmp_path, ["0", "1"]) for _ in range(5)]
    assert [each.device for each in leases] == ["cuda:0", "cuda:1", "cuda:0", "cuda:1", "cuda:0"]
    assert [each.note for each in leases[:2]] == ["", ""]
    assert leases[2].note == (
        "shares GPU 0 with 1 other process: there are more processes than the 2 GPUs of this machine. "
        "Each loads weights of its own; fewer workers (-n 2) take less memory"
    )
    assert "shares GPU 0 with 2 other processes" in leases[4].note


def test_leases_are_about_gpus_not_about_their_numbers(tmp_path: Path, lease: Lease) -> None:
    held = lease(tmp_path, ["1"])
    assert held.device == "cuda:0"  # the only one that this process sees
    leased = lease(tmp_path, ["0", "1"])
    other = lease(tmp_path, ["1", "0"])
    assert (leased.device, other.device) == ("cuda:0", "cuda:0")
    assert (leased.note, other.note[:14]) == ("", "shares GPU 0 w")


@pytest.mark.parametrize("visible", [None, "", "2, GPU-4f/a", "3"])
def test_gpus_are_named_as_the_environment_numbers_them(monkeypatch: pytest.MonkeyPatch, visible: str | None) -> None:
    monkeypatch.setattr(devices, "gpu_count", lambda: 2 if visible != "3" else 1)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert devices._names_of_gpus() == {"2, GPU-4f/a": ["2", "GPU-4f/a"], "3": ["3"]}.get(visible or "", ["0", "1"])


def test_a_folder_that_cannot_hold_locks_is_said(tmp_path: Path, lease: Lease) -> None:
    file = tmp_path / "file"
    file.write_text("")
    leased = lease(file, ["0", "1"])
    assert leased.device == "cuda"
    assert leased.note.startswith(f"no GPU could be leased in {file} ([Errno ")
    assert leased.note.endswith("so that processes may share one. Name one: --vlm-device cuda:N")


def test_a_file_system_without_locks_is_said(tmp_path: Path, lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def no_locks(*_arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert "No locks available" in lease(tmp_path, ["0"]).note


def test_a_process_leases_once_and_only_where_no_number_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(devices, "gpu_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    devices._lease_of_this_process.cache_clear()
    assert [leased(device).device for device in ("cpu", "mps", "cuda:1", "cuda:0")] == ["cpu", "mps", "cuda:1", "cuda:0"]
    assert not list(tmp_path.iterdir())
    assert leased("cuda") is leased("cuda")
    assert (leased("cuda").device, leased("cuda").note) == ("cuda:0", "")
    leased("cuda").lock.release()
    devices._lease_of_this_process.cache_clear()


def test_without_gpus_there_is_nothing_to_lease(tmp_path: Path, lease: Lease) -> None:
    assert lease(tmp_path, []).device == "cuda"


@pytest.mark.parametrize(
    ("workers", "cores", "environment", "threads"),
    [(0, 8, "", None), (1, 8, "", None), (2, 8, "", 4), (3, 8, "", 2), (8, 8, "", 1), (16, 8, "", 1), (2, 8, "3", None)],
)
def test_workers_share_the_cores(
    monkeypatch: pytest.MonkeyPatch, workers: int, cores: int, environment: str, threads: int | None
) -> None:
    monkeypatch.setattr(devices, "usable_cores", lambda: cores)
    monkeypatch.setenv("OMP_NUM_THREADS", environment)
    assert threads_for(workers) == threads


def test_cores_are_those_that_this_process_may_use() -> None:
    assert 1 <= devices.usable_cores() <= (os.cpu_count() or 1)


OPENED = """
import os, sys
from pytest_vlmrobust.backends import open_backend, resolve
open_backend(resolve("tiny"))
print(os.environ["OMP_WAIT_POLICY"], "torch" in sys.modules)
"""


@pytest.mark.parametrize(("before", "after"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_of_openmp_sleep_while_they_wait(monkeypatch: pytest.MonkeyPatch, before: str | None, after: str) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if before is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", before)
    opened = subprocess.run([sys.executable, "-c", OPENED], capture_output=True, text=True, check=True)
    assert opened.stdout.split() == [after, "False"]


def test_what_is_set_after_torch_is_imported_would_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch  # noqa: F401 - as in a process that has one already

    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    wait_passively()
    assert "OMP_WAIT_POLICY" not in os.environ
