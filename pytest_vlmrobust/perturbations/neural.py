"""Super-resolution by a checkpoint of your own: a network enlarges small images and invents the detail.

An optional extra. Beside ``backends`` the only code that speaks to model libraries (torch, spandrel), and inside functions only,
so that nothing is loaded until a network is asked for. The rest of ``perturbations`` reaches it through the package's attributes.

Not checked: real weights and GPUs were not available. Tests run randomly initialised networks of the real
architectures on a CPU; they test the code, not the look of the images.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.errors import (
    BackendError,
    MissingExtra,
    ModelError,
    UsageError,
    VlmRobustError,
    did_you_mean,
    files_beside,
    typed_path,
)
from pytest_vlmrobust.core.fingerprint import file_digest
from pytest_vlmrobust.perturbations.catalog import corruption
from pytest_vlmrobust.perturbations.pixels import Image, opencv, to_uint8
from pytest_vlmrobust.perturbations.preprocessing import LEVELS, large_already
from pytest_vlmrobust.perturbations.registry import REGISTRY, Parameters
from pytest_vlmrobust.perturbations.resolution import LONG_EDGE, aligned_size

if TYPE_CHECKING:
    from torch import Tensor


# A super-resolution checkpoint through spandrel: read without running its code, refused unless it enlarges RGB images.


FEATURE = "super-resolution"
EXTRA = "super-resolution"
NOISY = ("AuraSR",)
"""Architectures that draw from torch's global generator, so that runs differ."""
DTYPES = ("float32", "float16", "bfloat16")
"""Names in torch of the numbers that networks may compute with."""
SUFFIXES = (".safetensors", ".pth", ".ckpt", ".pt")


class BrokenExtra(MissingExtra):
    """A package of an extra is installed and cannot be imported, mostly because torchvision was built for another torch."""

    __module__ = "pytest_vlmrobust"

    def __init__(self, feature: str, package: str, reason: Exception) -> None:
        VlmRobustError.__init__(
            self,
            f"{feature} needs the package {package!r}, which is installed and cannot be imported "
            f"({type(reason).__name__}: {reason}). Mostly torchvision was built for another torch: install both from one index, "
            "such as uv pip install --torch-backend=auto --reinstall torch torchvision",
        )


@contextmanager
def importing(feature: str, package: str, *, extra: str) -> Iterator[None]:
    """Surrounds the import of ``package``, which the extra ``extra`` of this project brings."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != package:
            raise BrokenExtra(feature, package, error) from error
        raise MissingExtra(feature, package, extra=extra) from error
    except (ImportError, RuntimeError) as error:  # libraries that import lazily, and operators that are registered twice or never
        raise BrokenExtra(feature, package, error) from error


def load_upscaler(path: Path, *, device: str, dtype: str) -> Any:
    """Returns the ``spandrel.ImageModelDescriptor`` of a checkpoint, in evaluation mode.

    Only tensors are read: safetensors, or pickles accepted by ``torch.load(weights_only=True)``. TorchScript archives contain
    programs and are refused, like every pickle with anything but tensors and plain containers.
    """
    import torch

    spandrel = _spandrel()
    with torch.random.fork_rng(devices=[]):  # networks are initialised randomly before their weights are loaded
        model = _recognise(spandrel, _tensors(path), path)
    _require_upscaler(spandrel, model, path)
    try:
        return model.to(torch.device(device), getattr(torch, dtype)).eval()
    except (RuntimeError, AssertionError, spandrel.UnsupportedDtypeError) as error:
        raise ModelError(f"{path} ({_describe(model)}) does not run on {device!r} in {dtype}: {error}") from error


def _spandrel() -> Any:
    with importing(FEATURE, "spandrel", extra=EXTRA):
        import spandrel
    return spandrel


def _tensors(path: Path) -> Mapping[str, Any]:
    import torch
    from safetensors.torch import load_file

    try:
        if path.suffix.lower() == ".safetensors":
            return dict(load_file(path))
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # any error of a file that is not what its name says
        raise ModelError(
            f"{path} cannot be read as weights ({type(error).__name__}: {_reason(error)}). Expected safetensors, or a pickle of "
            "nothing but tensors: a pickle or TorchScript archive with more runs its code when loaded. Where you trust it, load "
            "it elsewhere and save its state_dict with safetensors.torch.save_file"
        ) from error
    if not isinstance(weights, Mapping):
        raise ModelError(f"{path} holds a {type(weights).__name__}. Expected the state_dict of a network")
    return weights


def _reason(error: Exception) -> str:
    """Returns the problem without torch's advice to run the code in the file."""
    text = str(error).partition("WeightsUnpickler error:")[2] or str(error)
    return re.split(r"\. |\n", text.strip())[0]


def _recognise(spandrel: Any, weights: Mapping[str, Any], path: Path) -> Any:
    try:
        return spandrel.ModelLoader().load_from_state_dict(weights)
    except spandrel.UnsupportedModelError as error:
        first = ", ".join(map(repr, list(weights)[:3]))
        raise ModelError(
            f"{path} is not a network that spandrel {spandrel.__version__} knows: {len(weights)} entries, beginning with "
            f"{first}. Expected the weights of a super-resolution network such as ESRGAN, SwinIR, DAT or SPAN"
        ) from error
    except Exception as error:  # it was mistaken for another architecture
        raise ModelError(
            f"{path} looks like a network that spandrel {spandrel.__version__} knows, and cannot be loaded as one "
            f"({type(error).__name__}: {' '.join(str(error).split())}). Download it again, in full"
        ) from error


def _require_upscaler(spandrel: Any, model: Any, path: Path) -> None:
    takes_a_picture = isinstance(model, spandrel.ImageModelDescriptor)
    colour = (model.input_channels, model.output_channels) == (3, 3)
    if not (takes_a_picture and colour and model.purpose == "SR" and model.scale > 1):
        raise ModelError(
            f"{path} is {_describe(model)}. Expected a network for super-resolution (SR) that takes one RGB image and "
            "enlarges it 2 times or more"
        )
    if model.architecture.id in NOISY:
        raise ModelError(
            f"{path} is {_describe(model)}, and draws noise that nothing here can seed: the same image would not give the "
            "same bytes. Choose a network that draws none"
        )


def _describe(model: Any) -> str:
    return (
        f"{model.architecture.name} for {model.purpose}: {model.input_channels} channels in, {model.output_channels} out, "
        f"{model.scale} times the size"
    )


OVERLAP = 32
"""Pixels of surroundings that the network sees on each side of a tile."""


def super_resolution(
    path: str | Path,
    *,
    name: str = "super_resolution",
    tile: int = 256,
    device: str = "cpu",
    dtype: str = "float32",
    replace: bool = False,
) -> list[str]:
    """Registers enlarging by a super-resolution network as a perturbation: ``super_resolution:448``.

    Call it in ``conftest.py``. The level is the long edge in pixels, as for ``upscale_bicubic``, its comparison.
    The checkpoint is read at the first image, once per process, without running code from it. The
    fingerprint of a setting has the checkpoint's SHA-256, the device and the versions of torch and spandrel.

    The network runs in evaluation mode; on a CPU the same image gives the same bytes with one build of torch on one machine.
    Real checkpoints and GPUs were not available and not checked. Res-Bench used DiffIR, which spandrel 0.4 does not load:
    with another network, results are not those of the paper.

    ``path`` is a checkpoint that spandrel knows: ``.safetensors``, or a pickle of tensors alone. ``tile`` is the longest side in
    pixels that the network sees at once, surroundings not counted; less needs less memory. ``device`` is a torch device such as
    ``cuda:0``; ``dtype`` is ``float32``, ``float16`` or ``bfloat16``. ``name`` tells several networks apart, and ``replace``
    takes the place of a perturbation of that name. Returned are the settings of the sizes in Res-Bench's Table 3; any other size
    can be named too. A setting raises ModelError where the file cannot be read safely or is not a network that enlarges a single
    RGB image, and MissingExtra without spandrel.
    """
    upscaler = Upscaler(typed_path(path).absolute(), tile=tile, device=device, dtype=dtype)

    def enlarge(image: Image, *, long_edge: int) -> Image:
        """Enlarges the image by a super-resolution network until its long edge has ``long_edge`` pixels.

        The network is applied until that size is reached; a larger result is shrunk by averaging areas.
        """
        return upscaler(image, long_edge)

    enlarge.__module__, enlarge.__qualname__ = "perturbations", f"super_resolution({str(path)!r})"  # "is registered already by"
    corruption(
        name=name,
        family="preprocessing",
        levels=LEVELS,
        numbered=LONG_EDGE,
        keeps_size=False,
        note=large_already,
        depends_on=lambda *, long_edge: upscaler.facts,  # noqa: ARG005  # the same at all levels
        source="Res-Bench Table 3, a network of the user's own",
        replace=replace,
    )(enlarge)
    return REGISTRY.get(name).settings()


class Upscaler:
    """A super-resolution checkpoint, loaded when first used; threads that share it take turns."""

    def __init__(self, path: Path, *, tile: int, device: str, dtype: str) -> None:
        if not path.is_file():
            hint = did_you_mean(str(path), files_beside(path))
            expected = f"Expected a checkpoint, {' or '.join(SUFFIXES)}"
            raise ModelError(f"super_resolution: there is no file {str(path)!r}.{hint} {expected}")
        if path.suffix.lower() not in SUFFIXES:
            raise ModelError(f"super_resolution: {str(path)!r} is no checkpoint by its name. Expected {' or '.join(SUFFIXES)}")
        if tile < 1 or dtype not in DTYPES:
            raise UsageError(
                f"super_resolution: got tile={tile}, dtype={dtype!r}. Expected tile=1 or more pixels, and {' or '.join(DTYPES)}"
            )
        self._path, self._tile, self._device, self._dtype = path, tile, device, dtype
        self._lock = Lock()

    @cached_property
    def facts(self) -> Parameters:
        """The other inputs of the pixels: the digest of the checkpoint, its options, and library versions."""
        return {
            "checkpoint": file_digest(self._path),
            "tile": self._tile,
            "device": self._device,
            "dtype": self._dtype,
            "torch": _version("torch"),
            "spandrel": _version("spandrel"),
        }

    @cached_property
    def _model(self) -> Any:
        return load_upscaler(self._path, device=self._device, dtype=self._dtype)

    def __call__(self, image: Image, long_edge: int) -> Image:
        """Returns ``image``, uint8 RGB (H, W, 3), with a long edge of ``long_edge`` pixels; itself when it is as long already."""
        height, width = image.shape[:2]
        if large_already(height, width, long_edge=long_edge):
            return image
        with self._lock:
            large = self._enlarge(image, long_edge)
        cv2 = opencv()
        return to_uint8(cv2.resize(large, aligned_size(height, width, long_edge), interpolation=cv2.INTER_AREA))

    def _enlarge(self, image: Image, long_edge: int) -> NDArray[np.float32]:
        """Returns ``image`` enlarged as often as it takes; float32 levels in 0..255, shape (h, w, 3), unrounded."""
        import torch

        with torch.inference_mode():
            pixels = torch.from_numpy(image.copy()).to(self._model.device, self._model.dtype)
            picture = pixels.permute(2, 0, 1)[None] / 255.0
            while max(picture.shape[2:]) < long_edge:
                picture = self._once(picture)
            levels: NDArray[np.float32] = (picture[0].permute(1, 2, 0).float() * 255.0).contiguous().cpu().numpy()
        if not np.isfinite(levels).all():
            raise BackendError(f"{self._path} gave values that are not numbers in {self._dtype}. Say dtype='float32'")
        return levels

    def _once(self, picture: Tensor) -> Tensor:
        """Applies the network once to ``picture``, shape (1, 3, H, W), values in [0, 1], tile by tile."""
        model, scale = self._model, self._model.scale
        height, width = picture.shape[2:]
        tile = self._tile if model.tiling.name == "SUPPORTED" else max(height, width)
        result = picture.new_empty((1, 3, height * scale, width * scale))
        for top, bottom in _spans(height, tile):
            for left, right in _spans(width, tile):
                above, before = min(OVERLAP, top), min(OVERLAP, left)
                seen = picture[:, :, top - above : bottom + OVERLAP, left - before : right + OVERLAP]
                large = model(seen)[:, :, above * scale :, before * scale :]
                part = result[:, :, top * scale : bottom * scale, left * scale : right * scale]
                part.copy_(large[:, :, : part.shape[2], : part.shape[3]])
        return result


def _spans(length: int, tile: int) -> Iterator[tuple[int, int]]:
    """Yields the ends of the fewest nearly equal parts of ``length`` up to ``tile`` long."""
    parts = math.ceil(length / tile)
    for part in range(parts):
        yield length * part // parts, length * (part + 1) // parts


def _version(package: str) -> str:
    with importing(FEATURE, package, extra=EXTRA):
        return version(package)
