"""Which device will compute, known without importing torch: importing it costs seconds that a finished gate need not spend.

What several processes do on several GPUs is tested with locks that stand for them, and was not tried on GPUs.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.errors import BackendError, MissingExtra
from pytest_vlmrobust.core.words import quantity

SPREADS = ("auto", "balanced", "sequential")
"""Values of ``device_map`` by which weights are spread over all GPUs; any other value is a device."""

# Another process counts the devices: initialising the driver here would break a later fork and freeze CUDA_VISIBLE_DEVICES.
_COUNT_GPUS = """
import ctypes, sys
driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
count = ctypes.c_int()
failed = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
print(0 if failed else count.value)
"""


def device_for(requested: str) -> str:
    """Returns the device for ``requested``: itself, or what ``auto`` stands for on this machine.

    ``auto`` is ``cuda`` when torch is built for it and the driver reports a GPU, ``mps`` on Apple silicon, else ``cpu``.
    """
    if requested != "auto":
        return requested
    if torch_is_built_for_cuda() and gpu_count() > 0:
        return "cuda"
    return "mps" if sys.platform == "darwin" and platform.machine() == "arm64" else "cpu"


def device_class(device: str) -> str:
    """Returns the kind of a device, without its number.

    >>> device_class("cuda:1")
    'cuda'
    """
    return device.partition(":")[0]


def torch_is_built_for_cuda() -> bool:
    """Returns whether the installed torch carries CUDA, as its version file says."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        raise MissingExtra("running a model", "torch")
    text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    return re.search(r"^cuda\b[^=]*=\s*['\"]", text, flags=re.MULTILINE) is not None


@functools.cache
def gpu_count() -> int:
    """Returns how many NVIDIA GPUs the driver shows to this process; 0 without a driver."""
    command = [sys.executable, "-I", "-S", "-c", _COUNT_GPUS]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 - a constant program
    return int(answer.stdout) if answer.returncode == 0 else 0


def free_memory(device: str) -> dict[str, int]:
    """Returns how many bytes are free, by device: of one, or of all GPUs for ``cuda`` without a number; imports torch.

    Empty where nobody tells.
    """
    import torch

    if device_class(device) == "cuda":
        number = device.partition(":")[2]
        gpus = [int(number)] if number else range(torch.cuda.device_count())
        return {f"GPU {gpu}": torch.cuda.mem_get_info(gpu)[0] for gpu in gpus}
    free = free_bytes() if device == "cpu" else None
    return {} if free is None else {"the memory of this machine": free}


# Memory, as the system tells it.


PROC, CGROUP = Path("/proc"), Path("/sys/fs/cgroup")
SPARE = 2.0
"""How many times what batches took so far has to be free before they grow to twice the size."""


def room_for_twice(loaded_bytes: int | None) -> bool:
    """Returns whether ``SPARE`` times what batches needed so far is free; False where the system does not tell."""
    peak, free = _field(PROC / "self/status", "VmHWM"), free_bytes()
    if loaded_bytes is None or peak is None or free is None:
        return False
    return free > SPARE * (peak - loaded_bytes)


def held_bytes() -> int | None:
    """Returns how much memory this process holds; None where the system does not tell."""
    return _field(PROC / "self/status", "VmRSS")


def free_bytes() -> int | None:
    """Returns how much memory this process may still take, of the machine and of its control group; None where nobody tells."""
    machine = _field(PROC / "meminfo", "MemAvailable")
    limit, used = (_number(CGROUP / name) for name in ("memory.max", "memory.current"))
    group = None if limit is None or used is None else limit - used
    known = [amount for amount in (machine, group) if amount is not None]
    return min(known) if known else None


def _field(file: Path, name: str) -> int | None:
    """Returns a field of a file of proc(5) in bytes."""
    try:
        lines = file.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)


def _number(file: Path) -> int | None:
    """Returns the number in a file; None where there is none, as where it says ``max``."""
    try:
        text = file.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


# Leases: processes that are told no number, such as the workers of pytest-xdist, each take a GPU of their own.


@dataclass(frozen=True, slots=True)
class Leased:
    """A device to compute on."""

    device: str
    note: str = ""
    """What the user should know about it; empty where there is nothing to say."""
    lock: Any = None
    """A locked file: its lock is the lease, and the system frees it when the process ends, however it does."""


def leased(device: str) -> Leased:
    """Returns where this process computes: for ``cuda``, a GPU that no other process of this user holds; else ``device``.

    The lease is for as long as the process lives, for all of its models. A GPU that is named by its number is taken as it is,
    without asking who else is on it.
    """
    return _lease_of_this_process() if device == "cuda" else Leased(device)


@functools.cache
def _lease_of_this_process() -> Leased:
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "")
    return lease_one(Path(tempfile.gettempdir()) / f"vlmrobust-gpus-{user}", _names_of_gpus())


def lease_one(folder: Path, gpus: Sequence[str]) -> Leased:
    """Returns the first GPU whose lock is free; where none is, one that as few processes as possible share.

    A GPU has a lock for each process that may share it: the second one is tried when the first of every GPU is taken.
    """
    if not gpus:
        return Leased("cuda")  # whoever loads the weights says what is wrong
    try:
        folder.mkdir(parents=True, exist_ok=True)
        share, number, lock = next(_free_locks(folder, gpus))
    except (OSError, NotImplementedError) as error:
        why = f"no GPU could be leased in {folder} ({error}), so that processes may share one. Name one: --vlm-device cuda:N"
        return Leased("cuda", why)
    note = (
        f"shares GPU {number} with {quantity(share, 'other process', 'other processes')}: there are more processes than the "
        f"{quantity(len(gpus), 'GPU')} of this machine. Each loads weights of its own; fewer workers (-n {len(gpus)}) take less "
        "memory"
    )
    return Leased(f"cuda:{number}", note if share else "", lock)


def _free_locks(folder: Path, gpus: Sequence[str]) -> Iterator[tuple[int, int, Any]]:
    """Yields how many others share a GPU, its number and the lock that was free."""
    from filelock import FileLock, Timeout  # comes with torch

    for share in itertools.count():
        for number, name in enumerate(gpus):
            lock = FileLock(folder / f"{re.sub(r'[^A-Za-z0-9-]', '_', name)}.{share}.lock", timeout=0, mode=0o600)
            with contextlib.suppress(Timeout):
                lock.acquire()
                yield share, number, lock


def _names_of_gpus() -> list[str]:
    """Returns a name for each GPU that this process sees: its number on the machine, or as ``CUDA_VISIBLE_DEVICES`` has it."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    named = [part.strip() for part in visible.split(",")] if visible else map(str, itertools.count())
    return list(itertools.islice(named, gpu_count()))


# Threads: those of torch in all workers together are as many as the cores.


def threads_for(workers: int) -> int | None:
    """Returns how many CPU threads torch may use in each of so many processes; None leaves it to torch.

    An environment variable ``OMP_NUM_THREADS`` has the last word, and one process alone has all cores by itself.
    """
    if workers < 2 or os.environ.get("OMP_NUM_THREADS"):
        return None
    return max(1, usable_cores() // workers)


def wait_passively() -> None:
    """Has the threads of OpenMP, which torch computes with, sleep while they wait; by itself the GNU library has them spin.

    A thread that spins holds a core that threads which make views, another worker or another program could use, and whoever waits
    for what does not run waits long: ``OMP_WAIT_POLICY=ACTIVE python studies/performance/batch_sizes.py`` shows it on a machine
    that has something else to do. OpenMP reads the setting when torch is imported: after that nothing changes, nor where the
    environment already holds ``OMP_WAIT_POLICY``. No answer depends on it.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def usable_cores() -> int:
    """Returns how many cores this process may run on; a quota of a container is not known here."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_device(device: str, requested: str) -> None:
    """Checks that torch can use ``device``; imports torch."""
    import torch

    kind = device_class(device)
    usable = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}[kind]
    if not usable:
        chosen = f"'auto' chose {kind!r}" if requested == "auto" else f"device {device!r} was asked for"
        raise BackendError(
            f"{chosen}, but torch {torch.__version__} cannot use it here. Say --vlm-device cpu, or repair the driver"
        )
    if requested == "auto" and kind == "cpu" and torch.cuda.is_available():
        raise BackendError(
            "'auto' chose 'cpu', but torch sees a GPU. Say --vlm-device cuda or --vlm-device cpu, so that it is recorded"
        )
    if ":" in device and int(device.partition(":")[2]) >= torch.cuda.device_count():
        raise BackendError(f"device {device!r} was asked for, but torch sees {torch.cuda.device_count()} GPU(s), numbered from 0")
