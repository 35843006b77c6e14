"""The user's own neural networks for collections: boxes on faces, and which images look alike.

The only code in ``datasets`` that uses model libraries (torch, transformers, mediapipe), imported inside functions only, so that
nothing is loaded until a folder needs it.

Not checked: real weights, which were not available. Tests run randomly initialised encoders of the real architectures, and
a stand-in for MediaPipe's model; they show that the code works as described, but not how good the boxes or the
neighbours are.

Embeddings come from an image encoder known to transformers, for images only or dual like CLIP or SigLIP; they run on a CPU
in float32, and no code of a checkpoint is executed. Boxes of eyes, nose and mouth are MediaPipe's.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.boxes import Box
from pytest_vlmrobust.core.errors import MissingExtra, ModelError, VlmRobustError
from pytest_vlmrobust.core.fingerprint import file_digest, fingerprint
from pytest_vlmrobust.core.words import first_few, kind_and_reason
from pytest_vlmrobust.datasets.faces_folder_table import EncoderName

if TYPE_CHECKING:
    from torch import Tensor


BATCH = 16
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHOWN = 12
_CONFIGURATION = ("config.json", "preprocessor_config.json", "processor_config.json")
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
"""The second is used only without the first."""


@dataclass(frozen=True)
class ImageEncoder:
    """An encoder on disk; it is loaded when images are embedded."""

    written: str
    folder: Path

    @classmethod
    def of(cls, name: EncoderName) -> ImageEncoder:
        """Returns the encoder in a folder, or that of a hub id, from the local cache or else from the hub."""
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
        """SHA-256, in hex, of the files that determine the encoder's output."""
        return fingerprint({file.name: file_digest(file) for file in _deciding(self.folder)})

    @property
    def name(self) -> str:
        """``encoder:NAME@REVISION``: a commit of the hub, or the start of the digest of a folder."""
        commit = self.folder.name if _COMMIT.fullmatch(self.folder.name) else self.digest
        return f"encoder:{self.written}@{commit[:_SHOWN]}"

    def embed(self, pictures: Iterable[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """Returns one embedding for each image, float32, shape (images, d).

        For a dual encoder, it is the one compared with text. Otherwise it is the pooled output or, if the checkpoint has no
        weights for that, the mean over its last hidden states. The images are RGB, uint8, shape (H, W, 3).
        """
        import torch

        try:
            with _quiet():
                processor, model, pools = self._load_model()
                parts = [self._embed_batch(processor, model, batch, pools=pools) for batch in _batches(pictures)]
        except VlmRobustError:
            raise
        except Exception as error:  # any error of the library about a checkpoint
            raise ModelError(
                f"encoder {self.folder} cannot embed images ({kind_and_reason(error)}). Expected a checkpoint of an image "
                "encoder, with its image processor, that the installed transformers supports"
            ) from error
        return np.asarray(torch.cat(parts).numpy(), np.float32)

    def _load_model(self) -> tuple[Any, Any, bool]:
        """Returns processor and model, and whether the checkpoint has all weights that the model's pooling needs."""
        import torch
        from transformers import AutoImageProcessor, AutoModel

        source: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        processor = AutoImageProcessor.from_pretrained(str(self.folder), backend="pil", **source)
        with torch.random.fork_rng(devices=[]):  # weights missing from the checkpoint are initialised at random
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
    there = [file.name for file in _deciding(folder)]
    parts = {
        "config.json": "config.json" in there,
        "image processor settings (preprocessor_config.json)": bool({*_CONFIGURATION[1:]} & {*there}),
        f"weights ({' or '.join(_WEIGHTS)})": not {*there} <= {*_CONFIGURATION},
    }
    return [part for part, present in parts.items() if not present]


def _download(name: EncoderName) -> Path:
    """Returns the folder of a hub id in the local cache, after downloading it if parts are missing."""
    cached = _cached_folder(name)
    if cached is not None and not _absent(cached):
        return cached
    try:
        folder = _snapshot(name, _WEIGHTS[:1])
        folder = _snapshot(name, _WEIGHTS) if _absent(folder) else folder  # older repositories
    except Exception as error:  # any failure of the network
        raise ModelError(
            f"encoder {name.written!r} is not a folder, is not in full in the local cache of the hub, and the hub did not give "
            f"it ({kind_and_reason(error)}). Check the id and the network; or download it beforehand: hf download {name.id}"
        ) from error
    if absent := _absent(folder):
        raise ModelError(
            f"encoder {name.written!r} of the hub lacks {' and '.join(absent)}. Name an encoder such as CLIP or SigLIP"
        )
    return folder


def _cached_folder(name: EncoderName) -> Path | None:
    try:
        return _snapshot(name, _WEIGHTS, offline=True)
    except OSError:  # no part of it is there
        return None


def _snapshot(name: EncoderName, weights: Sequence[str], *, offline: bool = False) -> Path:
    from huggingface_hub import snapshot_download

    patterns = [*_CONFIGURATION, *weights]
    return Path(snapshot_download(name.id, revision=name.revision or None, allow_patterns=patterns, local_files_only=offline))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences output and warnings of transformers while it loads; runs that turn warnings into errors must not fail."""
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


# Boxes by MediaPipe, which puts 468 or 478 numbered points on a face. A box is the smallest that holds the points of an
# attribute, by MediaPipe's own lists (``FaceLandmarksConnections``): an eye is the outline of its lids, the mouth that of the
# lips, the nose its bridge, tip and wings.


EYES = (
    (7, 33, 133, 144, 145, 153, 154, 155, 157, 158, 159, 160, 161, 163, 173, 246),
    (249, 263, 362, 373, 374, 380, 381, 382, 384, 385, 386, 387, 388, 390, 398, 466),
)
"""The person's right eye, then the left."""
NOSE = (1, 2, 4, 5, 6, 19, 45, 48, 64, 94, 97, 98, 115, 168, 195, 197, 220, 275, 278, 294, 326, 327, 344, 440)
LIPS = (
    0, 13, 14, 17, 37, 39, 40, 61, 78, 80, 81, 82, 84, 87, 88, 91, 95, 146, 178, 181,
    185, 191, 267, 269, 270, 291, 308, 310, 311, 312, 314, 317, 318, 321, 324, 375, 402, 405, 409, 415,
)  # fmt: skip
LEAST_POINTS = 468
MOST_FACES = 2
"""Maximum number of faces to find: two are enough to refuse an image."""


@contextmanager
def face_finder(model: Path) -> Iterator[Callable[[NDArray[np.uint8]], list[dict[str, Box]]]]:
    """Yields a function from an image, RGB, uint8, shape (H, W, 3), to the boxes of each face in it, as in ``boxes_of``.

    ``model`` is MediaPipe's face landmarker, a ``.task`` file.
    """
    if find_spec("mediapipe") is None:
        raise MissingExtra("finding the boxes of faces", "mediapipe", extra="faces")
    with _refusals(model), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of it and its dependencies on import
        import mediapipe
        from mediapipe.tasks.python import BaseOptions, vision

        options = vision.FaceLandmarkerOptions(
            base_options=BaseOptions(model_asset_buffer=model.read_bytes()), num_faces=MOST_FACES
        )
        landmarker = vision.FaceLandmarker.create_from_options(options)

    def find(picture: NDArray[np.uint8]) -> list[dict[str, Box]]:
        height, width = picture.shape[:2]
        with _refusals(model):
            image = mediapipe.Image(image_format=mediapipe.ImageFormat.SRGB, data=np.ascontiguousarray(picture))
            faces = landmarker.detect(image).face_landmarks
        return [boxes_of(_points(face, model), (width, height)) for face in faces]

    try:
        yield find
    finally:
        landmarker.close()


def boxes_of(points: NDArray[np.float64], size: tuple[int, int]) -> dict[str, Box]:
    """Returns the boxes of ``left_eye``, ``right_eye``, ``nose`` and ``mouth``, clipped to the image.

    Left and right are the viewer's, whether or not the image is mirrored. Parts outside the image have no box. ``points`` are
    the landmarks of one face as fractions of width and height, shape (468 or more, 2); ``size`` is width and height in pixels.
    """
    pixels = np.clip(points, 0.0, 1.0) * size
    left, right = sorted(EYES, key=lambda eye: float(pixels[list(eye), 0].mean()))
    boxes = {}
    for attribute, numbers in {"left_eye": left, "right_eye": right, "nose": NOSE, "mouth": LIPS}.items():
        (x1, y1), (x2, y2) = pixels[list(numbers)].min(axis=0), pixels[list(numbers)].max(axis=0)
        if x1 < x2 and y1 < y2:
            boxes[attribute] = (float(x1), float(y1), float(x2), float(y2))
    return boxes


def _points(face: Any, model: Path) -> NDArray[np.float64]:
    points = np.array([(point.x, point.y) for point in face], np.float64).reshape(-1, 2)
    if len(points) < LEAST_POINTS:
        raise ModelError(
            f"{model} puts {len(points)} landmarks on a face. Expected {LEAST_POINTS} or more, as MediaPipe's face mesh has"
        )
    return points


@contextmanager
def _refusals(model: Path) -> Iterator[None]:
    """Turns the errors of MediaPipe's C library into a ModelError that names the file."""
    try:
        yield
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        raise ModelError(
            f"MediaPipe cannot find faces with {model} ({kind_and_reason(error)}). Expected its face landmarker (.task), "
            "and an installation of mediapipe that can be imported"
        ) from error
