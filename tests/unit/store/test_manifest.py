from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.store import read_manifest, write_manifest


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
        ("planned", "many", "'planned' is \"many\", expected a whole number that is not negative"),
        ("selected", -1, "'selected' is -1, expected a whole number"),
        ("missing", True, "'missing' is true, expected a whole number"),
        ("store", 5, "'store' is 5, expected text"),
        ("models", [], "'models' is \\[\\], expected an object"),
        ("shortfalls", "x", "'shortfalls' is \"x\", expected a list"),
    ],
)
def test_parts_of_another_type_are_refused_with_their_line(tmp_path: Path, part: str, value: object, said: str) -> None:
    write_manifest(tmp_path, {"a": 1, part: value})
    with pytest.raises(StoreError, match=rf"manifest\.json:[34]: {said}"):
        read_manifest(tmp_path)
