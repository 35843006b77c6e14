from __future__ import annotations

import json
import math
import re
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.store import Pictures, read_manifest, write_manifest
from pytest_vlmrobust.store.run_directory import LONG_EDGE, file_name, planned_tests, read_docket, write_docket


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = write_manifest(tmp_path / "runs" / "1", {"seed": 1234, "model": "größe", "files": [{"sha256": "ab"}]})
    assert path == tmp_path / "runs" / "1" / "manifest.json"
    assert read_manifest(path.parent) == {"seed": 1234, "model": "größe", "files": [{"sha256": "ab"}], "manifest_version": 1}
    assert "größe" in path.read_text(encoding="utf-8")


def test_a_manifest_is_replaced_as_a_whole(tmp_path: Path) -> None:
    write_manifest(tmp_path, {"seed": 1, "only_here": True})
    write_manifest(tmp_path, {"seed": 2})
    assert read_manifest(tmp_path) == {"seed": 2, "manifest_version": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


@pytest.mark.parametrize(("content", "error"), [({"value": math.nan}, ValueError), ({"path": Path("x")}, TypeError)])
def test_what_json_cannot_say_writes_nothing(tmp_path: Path, content: dict[str, Any], error: type[Exception]) -> None:
    write_manifest(tmp_path, {"seed": 1})
    with pytest.raises(error):
        write_manifest(tmp_path, content)
    assert read_manifest(tmp_path)["seed"] == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_a_failed_replacement_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    write_manifest(tmp_path, {"seed": 1})
    monkeypatch.setattr("os.fsync", no_room)
    with pytest.raises(StoreError, match=r"manifest\.json: cannot write the manifest: No space left on device\. Check that"):
        write_manifest(tmp_path, {"seed": 2})
    assert read_manifest(tmp_path)["seed"] == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_a_directory_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(StoreError, match=r"run/manifest\.json: cannot write the manifest: File exists"):
        write_manifest(tmp_path / "run", {})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "manifest.json: not a manifest: Expecting value"),
        ("{", "manifest.json: not a manifest: "),
        ("\xff", "manifest.json: not a manifest: "),
        ("[]", "not a manifest: it has no 'manifest_version'. Expected the JSON file that a run wrote"),
        ('{"manifest_version": true}', "not a manifest: it has no 'manifest_version'"),
        ('{"manifest_version": 2}', "the manifest has version 2, and this release reads version 1. Upgrade pytest-vlmrobust"),
    ],
)
def test_what_is_no_manifest_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "manifest.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(StoreError, match=re.escape(message)):
        read_manifest(tmp_path)


def test_an_absent_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        StoreError, match=r"manifest\.json: cannot read the manifest: No such file or directory\. Expected the dir"
    ):
        read_manifest(tmp_path)


def test_it_is_plain_sorted_json(tmp_path: Path) -> None:
    text = write_manifest(tmp_path, {"b": 1, "a": 2}).read_text()
    assert list(json.loads(text)) == ["a", "b", "manifest_version"]
    assert text.endswith("}\n")


def test_halves_of_surrogate_pairs_come_back(tmp_path: Path) -> None:
    content = {"store": "undecodable\udcff", "note": "größe"}
    path = write_manifest(tmp_path, content)
    assert "größe" in path.read_text(encoding="utf-8")
    assert read_manifest(tmp_path) == {**content, "manifest_version": 1}


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [
        ("planned", "many", "planned of the manifest is 'many', expected a whole number of 0 or more"),
        ("selected", -1, "selected of the manifest is -1, expected a whole number"),
        ("missing", True, "missing of the manifest is True, expected a whole number"),
        ("store", 5, "store of the manifest is 5, expected text"),
        ("models", [], "models of the manifest is [], expected an object"),
        ("shortfalls", "x", "shortfalls of the manifest is 'x', expected a list"),
        ("policies", {"m": 5}, "policies['m'] of the manifest is 5, expected an object"),
        ("policies", {"m": {"rules": [{}]}}, "policies['m'].rules[0].id of the manifest is absent"),
        ("policies", {"m": {"files": [{"name": 5, "sha256": ""}]}}, "policies['m'].files[0].name of the manifest is 5"),
        ("policies", {"m": {"waivers": None}}, "policies['m'].waivers of the manifest is None, expected a list"),
        ("datasets", [5], "datasets of the manifest is [5], expected an object"),
        ("commit", [], "commit of the manifest is [], expected text"),
        ("spending", {"m": {"model": "m", "answers": "3"}}, "spending['m'].answers of the manifest is '3', expected a whole"),
        ("repeatability", [{"model": "m"}], "repeatability[0].dataset of the manifest is absent"),
        ("settings", {"vlm_dataset": 5}, "settings.vlm_dataset of the manifest is 5, expected a list"),
    ],
)
def test_parts_of_another_type_are_refused_with_their_line(tmp_path: Path, part: str, value: object, said: str) -> None:
    write_manifest(tmp_path, {"a": 1, part: value})
    with pytest.raises(StoreError, match=rf"manifest\.json:[34]: {re.escape(said)}"):
        read_manifest(tmp_path)


def test_unknown_parts_of_a_manifest_are_passed_over(tmp_path: Path) -> None:
    content = {"later": 1, "settings": {"vlm_later": 1}}
    write_manifest(tmp_path, content)
    assert read_manifest(tmp_path) == {**content, "manifest_version": 1}


def test_a_key_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"manifest_version": 1, "decision": "NO-GO", "decision": "GO"}')
    with pytest.raises(StoreError, match=r"manifest\.json: not a manifest: the key 'decision' occurs twice"):
        read_manifest(tmp_path)


# The docket and the policies beside it are kept as they were.


def test_what_went_in_comes_out(tmp_path: Path) -> None:
    policies = [("a/p.yaml", "1" * 64, b"one\r\n"), ("b/p.yaml", "2" * 64, b"two")]
    tests = [{"nodeid": "a", "about": {"model": "m"}}, {"nodeid": "b", "about": {"family": "f"}}, {"nodeid": "c"}]
    for _ in range(2):  # every worker writes the same
        write_docket(tmp_path / "run", {"date": "2026-06-01", "tests": tests}, policies)
    assert read_docket(tmp_path / "run") == {"date": "2026-06-01", "tests": tests, "docket_version": 1}
    kept = {path.name: path.read_bytes() for path in (tmp_path / "run" / "policies").iterdir()}
    assert kept == {"111111111111-p.yaml": b"one\r\n", "222222222222-p.yaml": b"two"}
    assert planned_tests(tmp_path / "run") == {"a": "m", "b": "f", "c": ""}


def model_with(part: str, value: object) -> str:
    """Returns a docket with a model of which one part is something else."""
    model = {"name": "m", "backend": "scripted", "location": "answers.yaml", part: value}
    return json.dumps({"docket_version": 1, "models": {"m": model}})


def test_a_run_that_measured_nothing_has_no_tests(tmp_path: Path) -> None:
    assert planned_tests(tmp_path) == {}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not a docket"),
        ("[]", "has docket_version None, and this release reads 1"),
        ('{"docket_version": 2}', "has docket_version 2, and this release reads 1"),
        ('{"docket_version": 1, "tests": 5}', "tests of the docket is 5, expected a list"),
        ('{"docket_version": 1, "tests": [{}]}', "tests[0].nodeid of the docket is absent"),
        (model_with("max_pixels", []), "models['m'].max_pixels of the docket is [], expected a whole number of 0 or more"),
        (model_with("generation", {"top_p": []}), "models['m'].generation['top_p'] of the docket is []"),
        (model_with("remote_code", 1), "models['m'].remote_code of the docket is 1, expected true or false"),
        (model_with("location", None), "models['m'].location of the docket is None, expected text"),
    ],
)
def test_what_is_none_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "docket.json").write_text(content)
    with pytest.raises(StoreError, match=re.escape(words)):
        read_docket(tmp_path)


def test_an_absent_one_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"docket\.json: cannot read the docket: No such file.*Expected the directory of a run"):
        read_docket(tmp_path)


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(StoreError, match=r"cannot write docket\.json"):
        write_docket(tmp_path / "run", {}, [])


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
    picture = read(tmp_path / "store" / "pictures" / file_name("ab"))
    assert picture.shape == (80, LONG_EDGE, 3)
    assert np.abs(picture[:, 200:].astype(int) - (250, 120, 10)).max() < 12
    assert picture[:, :120].max() < 12


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
