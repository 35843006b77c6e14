from __future__ import annotations

from multiprocessing.pool import ThreadPool
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.store import Pictures
from pytest_vlmrobust.store.pictures import LONG_EDGE, file_name


def read(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    with Image.open(path) as picture:
        assert picture.format == "WEBP"
        return np.asarray(picture.convert("RGB"))


def test_a_picture_is_kept_under_its_digest_with_its_long_edge_cut(tmp_path: Path) -> None:
    image = np.zeros((300, 1200, 3), np.uint8)
    image[:, 600:] = (250, 120, 10)
    pictures = Pictures(tmp_path / "store" / "pictures")
    assert not pictures.has("ab")
    pictures.add("ab", image)
    assert pictures.has("ab")
    found = read(tmp_path / "store" / "pictures" / file_name("ab"))
    assert found.shape == (80, LONG_EDGE, 3)
    assert np.abs(found[:, 200:].astype(int) - (250, 120, 10)).max() < 12
    assert found[:, :120].max() < 12


def test_a_small_picture_stays_as_large_as_it_is(tmp_path: Path) -> None:
    Pictures(tmp_path).add("cd", np.full((1, 7, 3), 90, np.uint8))
    assert read(tmp_path / "cd.webp").shape == (1, 7, 3)


def test_a_picture_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "ab.webp").write_bytes(b"there")
    Pictures(tmp_path).add("ab", np.zeros((4, 4, 3), np.uint8))
    assert (tmp_path / "ab.webp").read_bytes() == b"there"


def test_several_writers_leave_one_whole_file(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (400, 400, 3), np.uint8)
    with ThreadPool(8) as pool:
        pool.starmap(Pictures(tmp_path).add, [("ab", image)] * 16)
    assert [path.name for path in tmp_path.iterdir()] == ["ab.webp"]
    assert read(tmp_path / "ab.webp").shape == (320, 320, 3)


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "pictures").write_text("")
    with pytest.raises(StoreError, match=r"pictures/ab\.webp: cannot write the thumbnail: File exists\. Check that its"):
        Pictures(tmp_path / "pictures").add("ab", np.zeros((4, 4, 3), np.uint8))
