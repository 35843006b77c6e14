"""Which device will compute, without importing torch: the import takes seconds that a finished gate can save.

Several processes on several GPUs are tested with lock files only, not on real GPUs.
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
"""Values of ``device_map`` that spread weights over all GPUs; any other value is a device."""

# Another process counts the devices: initialising the driver here would break a later fork and freeze CUDA_VISIBLE_DEVICES.
_COUNT_GPUS = """
import ctypes, sys
driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
count = ctypes.c_int()
failed = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
print(0 if failed else count.value)
"""


def device_for(requested: str) -> str:
    """Returns the device for ``requested``, with ``auto`` resolved for this machine.

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
    """Returns the number of NVIDIA GPUs visible to this process; 0 without a driver."""
    command = [sys.executable, "-I", "-S", "-c", _COUNT_GPUS]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 - a constant program
    return int(answer.stdout) if answer.returncode == 0 else 0


def free_memory(device: str) -> dict[str, int]:
    """Returns the free bytes by device; ``cuda`` without a number means all GPUs. Imports torch.

    Empty if unknown.
    """
    import torch

    if device_class(device) == "cuda":
        number = device.partition(":")[2]
        gpus = [int(number)] if number else range(torch.cuda.device_count())
        return {f"GPU {gpu}": torch.cuda.mem_get_info(gpu)[0] for gpu in gpus}
    free = free_bytes() if device == "cpu" else None
    return {} if free is None else {"the memory of this machine": free}


# Memory, as the system reports it.


PROC, CGROUP = Path("/proc"), Path("/sys/fs/cgroup")
SPARE = 2.0
"""Batches double only while this multiple of their memory so far is free."""


def room_for_twice(loaded_bytes: int | None) -> bool:
    """Returns whether ``SPARE`` times the memory of batches so far is free; False if unknown."""
    peak, free = _field(PROC / "self/status", "VmHWM"), free_bytes()
    if loaded_bytes is None or peak is None or free is None:
        return False
    return free > SPARE * (peak - loaded_bytes)


def held_bytes() -> int | None:
    """Returns the memory of this process in bytes; None if unknown."""
    return _field(PROC / "self/status", "VmRSS")


def free_bytes() -> int | None:
    """Returns the memory that this process may still take, on the machine and in its control group; None if unknown."""
    machine = _field(PROC / "meminfo", "MemAvailable")
    limit, used = (_number(CGROUP / name) for name in ("memory.max", "memory.current"))
    group = None if limit is None or used is None else limit - used
    amounts = [amount for amount in (machine, group) if amount is not None]
    return min(amounts) if amounts else None


def _field(file: Path, name: str) -> int | None:
    try:
        lines = file.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)


def _number(file: Path) -> int | None:
    """Returns the number in a file; None without one, such as for ``max``."""
    try:
        text = file.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


# Leases: processes without a GPU number, such as pytest-xdist workers, each take a GPU for themselves.


@dataclass(frozen=True, slots=True)
class Leased:
    """A device to compute on."""

    device: str
    note: str = ""
    """A note for the user; empty without one."""
    lock: Any = None
    """The lock file of the lease; the system frees the lock when the process ends, even if it is killed."""


def leased(device: str) -> Leased:
    """Returns the device of this process: for ``cuda``, a GPU that no other process of this user has leased; else ``device``.

    The lease lasts as long as the process, for all its models. A GPU named by its number is used
    even if other processes use it.
    """
    return _lease_of_this_process() if device == "cuda" else Leased(device)


@functools.cache
def _lease_of_this_process() -> Leased:
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "")
    return lease_one(Path(tempfile.gettempdir()) / f"vlmrobust-gpus-{user}", _names_of_gpus())


def lease_one(folder: Path, gpus: Sequence[str]) -> Leased:
    """Returns the first GPU with a free lock; if all are taken, the GPU shared by the fewest processes.

    Each GPU has one lock per process that may share it: second locks are tried when all first locks are taken.
    """
    if not gpus:
        return Leased("cuda")  # loading the weights reports what is wrong
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
    """Yields how many others share a GPU, its number, and its free lock."""
    from filelock import FileLock, Timeout  # comes with torch

    for share in itertools.count():
        for number, name in enumerate(gpus):
            lock = FileLock(folder / f"{re.sub(r'[^A-Za-z0-9-]', '_', name)}.{share}.lock", timeout=0, mode=0o600)
            with contextlib.suppress(Timeout):
                lock.acquire()
                yield share, number, lock


def _names_of_gpus() -> list[str]:
    """Returns the name of each visible GPU: its number on the machine, or its entry in ``CUDA_VISIBLE_DEVICES``."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    named = [part.strip() for part in visible.split(",")] if visible else map(str, itertools.count())
    return list(itertools.islice(named, gpu_count()))


# Threads: all workers together use as many torch threads as there are cores.


def threads_for(workers: int) -> int | None:
    """Returns how many CPU threads torch may use in each of ``workers`` processes; None leaves it to torch.

    The environment variable ``OMP_NUM_THREADS`` wins. A single process uses all cores anyway.
    """
    if workers < 2 or os.environ.get("OMP_NUM_THREADS"):
        return None
    return max(1, usable_cores() // workers)


def wait_passively() -> None:
    """Makes the OpenMP threads of torch sleep while they wait; the default of the GNU library is to spin.

    A spinning thread keeps a core busy that could make views or serve another worker:
    ``OMP_WAIT_POLICY=ACTIVE python studies/performance/batch_sizes.py`` shows the cost on a machine
    with other work. OpenMP reads the setting when torch is imported; later changes have no effect, and a value in the
    environment is kept. No answer depends on it.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def usable_cores() -> int:
    """Returns the number of cores this process may use; container quotas are ignored."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_device(device: str, requested: str, mapped: str = "") -> None:
    """Checks that torch can use ``device``, which ``--vlm-device`` or ``device_map`` names; imports torch."""
    import torch

    kind = device_class(device)
    usable = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}[kind]
    in_entry = mapped not in ("", *SPREADS)
    chosen = f"'auto' chose {kind!r}" if requested == "auto" else f"device {device!r} was asked for"
    chosen = f"the models file has device_map: {mapped}" if in_entry else chosen
    if not usable:
        advice = "Write device_map: cpu there" if in_entry else "Say --vlm-device cpu"
        raise BackendError(f"{chosen}, but torch {torch.__version__} cannot use it here. {advice}, or repair the driver")
    if not in_entry and requested == "auto" and kind == "cpu" and torch.cuda.is_available():
        raise BackendError(
            "'auto' chose 'cpu', but torch sees a GPU. Say --vlm-device cuda or --vlm-device cpu, so that it is recorded"
        )
    if ":" in device and int(device.partition(":")[2]) >= torch.cuda.device_count():
        raise BackendError(f"{chosen}, but torch sees {torch.cuda.device_count()} GPU(s), numbered from 0")
