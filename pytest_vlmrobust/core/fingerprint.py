"""Fingerprint: the key that makes two results "the same"."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: Any) -> str:
    """Returns the canonical JSON of a JSON-safe value: sorted keys, no spaces, no NaN."""
    return _ENCODER.encode(value)


def fingerprint(value: Any) -> str:
    """Returns the SHA-256, in hex, of the canonical JSON of a JSON-safe value."""
    return hashlib.sha256(canonical_json(value).encode("utf-8", "surrogatepass")).hexdigest()


def fingerprints_after(*elements: str) -> Callable[..., str]:
    """Returns a function from further elements to the fingerprint of the list that begins with ``elements``.

    For many lists with the same beginning, which is hashed once. All elements are canonical JSON. Thread-safe.

    >>> fingerprints_after("1", "[2]")("3", "4") == fingerprint([1, [2], 3, 4])
    True
    """
    begun = hashlib.sha256(f"[{','.join(elements)}".encode("utf-8", "surrogatepass"))

    def completed(*others: str) -> str:
        digest = begun.copy()
        digest.update(f",{','.join(others)}]".encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    return completed


def pixels_digest(image: NDArray[np.uint8]) -> str:
    """Returns the SHA-256 of an image's shape and bytes."""
    digest = hashlib.sha256(repr(image.shape).encode())
    digest.update(image.data if image.flags.c_contiguous else image.tobytes())  # without a copy if the bytes are contiguous
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# Seeded generators, each derived from its purpose.


AUGMENTATION_SEED = 1234
SUBSET_SEED = 42


def derive_seed(seed: int, *parts: str) -> int:
    """Returns a 64-bit seed for ``parts`` (a sample id, a setting), the same in every process.

    >>> derive_seed(1234, "a", "b") == derive_seed(1234, "a", "b") != derive_seed(1234, "ab")
    True
    """
    digest = hashlib.sha256(str(seed).encode())
    for part in parts:
        digest.update(b"\x00" + part.encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest()[:8], "little")


def rank_seed(seed: int, name: str) -> int:
    """Returns the sort key of an identity, used to lay out tasks and to select smaller datasets.

    Both use the same order, so that a selection is balanced too.
    """
    return derive_seed(seed, "rank", name)


def rng_for(seed: int, *parts: str) -> np.random.Generator:
    """Returns a generator that depends only on ``seed`` and ``parts``."""
    import numpy as np

    return np.random.Generator(np.random.PCG64(derive_seed(seed, *parts)))
