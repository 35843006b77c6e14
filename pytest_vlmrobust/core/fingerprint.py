"""Fingerprint: the key that makes two results "the same"."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def canonical_json(value: Any) -> str:
    """Returns the one JSON spelling of a JSON-safe value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def fingerprint(value: Any) -> str:
    """Returns the SHA-256, in hex, of the canonical JSON of a JSON-safe value."""
    return hashlib.sha256(canonical_json(value).encode("utf-8", "surrogatepass")).hexdigest()


def pixels_digest(image: NDArray[np.uint8]) -> str:
    """Returns the SHA-256 of an image's shape and bytes: two pictures are the same when every pixel is."""
    digest = hashlib.sha256(repr(image.shape).encode())
    digest.update(image.tobytes())
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
