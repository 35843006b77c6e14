from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.core.fingerprint import canonical_json, file_digest, fingerprint, pixels_digest

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(value: dict[str, object], order: object) -> None:
    shuffled = list(value.items())
    getattr(order, "shuffle")(shuffled)  # noqa: B009 - typed as object by the strategy
    assert fingerprint(dict(shuffled)) == fingerprint(value)


def test_the_spelling_is_one() -> None:
    assert canonical_json({"b": [1, 2.5, None], "a": "ä"}) == '{"a":"ä","b":[1,2.5,null]}'
    assert fingerprint({"a": 1}) == hashlib.sha256(b'{"a":1}').hexdigest()


def test_what_json_cannot_spell_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        fingerprint([math.nan])
    with pytest.raises(TypeError, match="not JSON serializable"):
        fingerprint([np.float64(1).astype(object), object()])


def test_a_picture_is_its_shape_and_its_bytes() -> None:
    flat = np.arange(24, dtype=np.uint8)
    picture = flat.reshape(2, 4, 3)
    changed = picture.copy()
    changed[1, 2, 0] += 1
    assert pixels_digest(picture) == pixels_digest(picture.copy())
    assert len({pixels_digest(picture), pixels_digest(flat.reshape(4, 2, 3)), pixels_digest(changed)}) == 3


def test_memory_layout_does_not_matter() -> None:
    picture = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    assert pixels_digest(np.asfortranarray(picture)) == pixels_digest(picture)
    assert pixels_digest(picture[:, ::-1]) == pixels_digest(np.ascontiguousarray(picture[:, ::-1]))


def test_files_by_their_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert file_digest(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
