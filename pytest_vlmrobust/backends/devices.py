"""Which device will compute, known without importing torch: importing it costs seconds that a finished gate need not spend."""

from __future__ import annotations

import functools
import platform
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from pytest_vlmrobust.core.errors import BackendError, MissingExtra

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

    Raises:
        MissingExtra: torch is not installed.
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
    """Returns whether the installed torch carries CUDA, as its version file says.

    Raises:
        MissingExtra: torch is not installed.
    """
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


def require_device(device: str, requested: str) -> None:
    """Checks that torch can use ``device``; imports torch.

    Raises:
        BackendError: it cannot; the message says which option to give.
    """
    import torch

    kind = device_class(device)
    usable = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}[kind]
    if not usable:
        chosen = f"'auto' chose {kind!r}" if requested == "auto" else f"device {device!r} was asked for"
        raise BackendError(
            f"{chosen}, but torch {torch.__version__} cannot use it here. Say --vlm-device cpu, or mend the driver"
        )
    if requested == "auto" and kind == "cpu" and torch.cuda.is_available():
        raise BackendError(
            "'auto' chose 'cpu', but torch sees a GPU. Say --vlm-device cuda or --vlm-device cpu, so that it is recorded"
        )
    if ":" in device and int(device.partition(":")[2]) >= torch.cuda.device_count():
        raise BackendError(f"device {device!r} was asked for, but torch sees {torch.cuda.device_count()} GPU(s), numbered from 0")
