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
    """Returns the one JSON spelling of a JSON-safe value: sorted keys, no spaces, no NaN."""
    return _ENCODER.encode(value)


def fingerprint(value: Any) -> str:
    """Returns the SHA-256, in hex, of the canonical JSON of a JSON-safe value."""
    return hashlib.sha256(canonical_json(value).encode("utf-8", "surrogatepass")).hexdigest()


def fingerprints_after(*elements: str) -> Callable[..., str]:
    """Returns what gives the fingerprint of a list that begins with these elements, from the others: one or more.

    For many lists that begin alike: how they begin is hashed once. All elements are canonical JSON. Several threads may call it.

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
    """Returns the SHA-256 of an image's shape and bytes: two images are the same when every pixel is."""
    digest = hashlib.sha256(repr(image.shape).encode())
    digest.update(image.data if image.flags.c_contiguous else image.tobytes())  # without a copy, where its bytes follow another
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
    """Returns what identities are ordered by, where tasks lay them out and where a smaller dataset takes some of them.

    It is one order, so that the first ones of it are laid out in balance as well.
    """
    return derive_seed(seed, "rank", name)


def rng_for(seed: int, *parts: str) -> np.random.Generator:
    """Returns a generator that depends on ``seed`` and ``parts`` and on nothing else."""
    import numpy as np

    return np.random.Generator(np.random.PCG64(derive_seed(seed, *parts)))
