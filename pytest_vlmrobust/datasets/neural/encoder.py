"""Embeddings of images by an image encoder that transformers knows: of images alone, or a dual one such as CLIP or SigLIP.

On a CPU in float32. Nothing of a checkpoint is executed.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.errors import ModelError, VlmRobustError
from pytest_vlmrobust.core.fingerprint import file_digest, fingerprint
from pytest_vlmrobust.core.words import first_few
from pytest_vlmrobust.datasets.faces_folder_table import EncoderName

if TYPE_CHECKING:
    from torch import Tensor


# What a library says went wrong, in one line.


def reason(error: Exception) -> str:
    r"""Returns the kind of an error and the first line of its message.

    >>> reason(ValueError("no such layer\n  in layer 3"))
    'ValueError: no such layer'
    """
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['(no message)'])[0]}"


BATCH = 16
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHOWN = 12
_CONFIGURATION = ("config.json", "preprocessor_config.json", "processor_config.json")
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
"""The second only where there is none of the first."""


@dataclass(frozen=True)
class ImageEncoder:
    """An encoder on disk; it is loaded when images are embedded."""

    written: str
    folder: Path

    @classmethod
    def of(cls, name: EncoderName) -> ImageEncoder:
        """Returns the encoder in a folder, or that of a hub id: from the local cache, and where it is not there from the hub."""
        if name.folder is None:
            return cls(name.id, _download(name))
        absent = _absent(name.folder)
        if absent:
            raise ModelError(
                f"encoder {name.folder} lacks {' and '.join(absent)}. Save it again with its image processor, in full"
            )
        return cls(name.written, name.folder)

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of the files that decide what the encoder says."""
        return fingerprint({file.name: file_digest(file) for file in _deciding(self.folder)})

    @property
    def name(self) -> str:
        """``encoder:NAME@REVISION``: a commit of the hub, or the start of the digest of a folder."""
        commit = self.folder.name if _COMMIT.fullmatch(self.folder.name) else self.digest
        return f"encoder:{self.written}@{commit[:_SHOWN]}"

    def embed(self, pictures: Iterable[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """Returns one embedding for each image, float32, shape (images, d).

        That of a dual encoder is what it compares with text. Else it is what the encoder pools, or, where the checkpoint has no
        weights for that, the mean over its last hidden states. The images are RGB, uint8, shape (H, W, 3).
        """
        import torch

        try:
            with _quiet():
                processor, model, pools = self._load_model()
                parts = [self._embed_batch(processor, model, batch, pools=pools) for batch in _batches(pictures)]
        except VlmRobustError:
            raise
        except Exception as error:  # whatever the library raises about a checkpoint
            raise ModelError(
                f"encoder {self.folder} cannot embed images ({reason(error)}). Expected a checkpoint of an image encoder, with "
                "its image processor, that the installed transformers supports"
            ) from error
        return np.asarray(torch.cat(parts).numpy(), np.float32)

    def _load_model(self) -> tuple[Any, Any, bool]:
        """Returns processor and model, and whether the checkpoint has the weights of everything that the model pools by."""
        import torch
        from transformers import AutoImageProcessor, AutoModel

        source: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        processor = AutoImageProcessor.from_pretrained(str(self.folder), backend="pil", **source)
        with torch.random.fork_rng(devices=[]):  # what the checkpoint lacks is initialised at random
            model, report = AutoModel.from_pretrained(str(self.folder), dtype=torch.float32, output_loading_info=True, **source)
        absent = sorted(report["missing_keys"])
        strange = [key for key in absent if "pooler" not in key]
        if strange:
            raise ModelError(
                f"encoder {self.folder} lacks {len(strange)} tensor(s) that {type(model).__name__} needs, such as "
                f"{first_few(strange, 3)}. Save or download the checkpoint again, in full"
            )
        return processor, model.eval(), not absent

    def _embed_batch(self, processor: Any, model: Any, batch: Sequence[NDArray[np.uint8]], *, pools: bool) -> Tensor:
        import torch
        from PIL import Image

        inputs = processor(images=[Image.fromarray(picture) for picture in batch], return_tensors="pt")
        with torch.inference_mode():
            features = _features(model, inputs, pools=pools)
        if len(features) != len(batch) or not bool(torch.isfinite(features).all()):
            raise ModelError(
                f"encoder {self.folder}: {type(model).__name__} makes {len(features)} embeddings of {len(batch)} images, or "
                "some that are not finite. Expected one for each, as of an image encoder such as CLIP, SigLIP, DINOv2 or ViT"
            )
        return features


def _features(model: Any, inputs: Any, *, pools: bool) -> Tensor:
    import torch

    output = model.get_image_features(**inputs) if hasattr(model, "get_image_features") else model(**inputs)
    if isinstance(output, torch.Tensor):
        return output.flatten(1)
    pooled = getattr(output, "pooler_output", None)
    if pooled is not None and pools:
        return torch.as_tensor(pooled).flatten(1)
    hidden = torch.as_tensor(output.last_hidden_state)
    return hidden.mean(dim=1) if hidden.dim() == 3 else hidden.flatten(2).mean(dim=2)


def _batches(pictures: Iterable[NDArray[np.uint8]]) -> Iterator[list[NDArray[np.uint8]]]:
    rest = iter(pictures)
    while batch := list(islice(rest, BATCH)):
        yield batch


def _deciding(folder: Path) -> list[Path]:
    weights = next((files for pattern in _WEIGHTS if (files := sorted(folder.glob(pattern)))), [])
    return [*weights, *(folder / name for name in _CONFIGURATION if (folder / name).is_file())]


def _absent(folder: Path) -> list[str]:
    """Returns which parts of an encoder a folder lacks, in words."""
    there = [file.name for file in _deciding(folder)]
    parts = {
        "config.json": "config.json" in there,
        "image processor settings (preprocessor_config.json)": bool({*_CONFIGURATION[1:]} & {*there}),
        f"weights ({' or '.join(_WEIGHTS)})": not {*there} <= {*_CONFIGURATION},
    }
    return [part for part, present in parts.items() if not present]


def _download(name: EncoderName) -> Path:
    """Returns the folder of a hub id in the local cache, after a download where parts are missing."""
    cached = _cached_folder(name)
    if cached is not None and not _absent(cached):
        return cached
    try:
        folder = _snapshot(name, _WEIGHTS[:1])
        folder = _snapshot(name, _WEIGHTS) if _absent(folder) else folder  # older repositories
    except Exception as error:  # every way a network can fail
        raise ModelError(
            f"encoder {name.written!r} is not a folder, is not in full in the local cache of the hub, and the hub did not give "
            f"it ({reason(error)}). Check the id and the network; or download it beforehand: hf download {name.id}"
        ) from error
    if absent := _absent(folder):
        raise ModelError(
            f"encoder {name.written!r} of the hub lacks {' and '.join(absent)}. Name an encoder such as CLIP or SigLIP"
        )
    return folder


def _cached_folder(name: EncoderName) -> Path | None:
    try:
        return _snapshot(name, _WEIGHTS, offline=True)
    except OSError:  # nothing of it is there
        return None


def _snapshot(name: EncoderName, weights: Sequence[str], *, offline: bool = False) -> Path:
    from huggingface_hub import snapshot_download

    patterns = [*_CONFIGURATION, *weights]
    return Path(snapshot_download(name.id, revision=name.revision or None, allow_patterns=patterns, local_files_only=offline))


@contextmanager
def _quiet() -> Iterator[None]:
    """Holds back what transformers prints and warns about while it loads; a run that turns warnings into errors must not fail."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
