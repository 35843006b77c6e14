from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from pytest_vlmrobust.backends import digests
from pytest_vlmrobust.backends.digests import checkpoint_digests
from pytest_vlmrobust.core.errors import BackendError

FILES = {"config.json": "{}", "model.safetensors": "weights", "tokenizer.json": "{}", "preprocessor_config.json": "{}"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


def test_digests_every_file_that_decides(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("x")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tools.jinja").write_text("y")
    found = checkpoint_digests(folder)
    assert set(found) == {*FILES, "chat_template.jinja", "additional_chat_templates/tools.jinja"}
    assert found["model.safetensors"] == hashlib.sha256(b"weights").hexdigest()


def test_ignores_what_does_not(folder: Path) -> None:
    for name in ("README.md", "optimizer.pt", ".gitattributes", "LICENSE", "pytorch_model.bin"):
        (folder / name).write_text("x")
    assert set(checkpoint_digests(folder)) == set(FILES)


def test_older_weights_count_where_there_are_no_safetensors(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_text("x")
    assert "pytorch_model.bin" in checkpoint_digests(folder)


def test_remembers_by_size_and_time(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "deep" / "digests.json"
    first = checkpoint_digests(folder, cache)
    monkeypatch.setattr(digests, "file_digest", lambda path: pytest.fail(f"hashed {path} again"))
    assert checkpoint_digests(folder, cache) == first


def test_hashes_a_changed_file_again(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "digests.json"
    first = checkpoint_digests(folder, cache)
    (folder / "model.safetensors").write_text("weighed")
    second = checkpoint_digests(folder, cache)
    assert {name for name in first if first[name] != second[name]} == {"model.safetensors"}


def test_a_directory_that_can_only_be_read_keeps_its_cache(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "digests.json"
    first = checkpoint_digests(folder, cache)
    cache.write_text("{}")
    monkeypatch.setattr("os.access", lambda *_: False)
    assert checkpoint_digests(folder, cache) == first
    assert cache.read_text() == "{}"


@pytest.mark.parametrize("damage", ["{", "[]", '{"a": 1}', '{"a": ["x", 1, 2]}', ""])
def test_a_damaged_cache_is_written_anew(folder: Path, tmp_path: Path, damage: str) -> None:
    cache = tmp_path / "digests.json"
    cache.write_text(damage)
    expected = checkpoint_digests(folder)
    assert checkpoint_digests(folder, cache) == expected
    assert len(json.loads(cache.read_text())) == len(expected)
    assert [path.name for path in tmp_path.iterdir() if "digests" in path.name] == ["digests.json"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("config.json", "Missing: config.json. "),
        ("model.safetensors", "Missing: weights (model.safetensors, or its shards with model.safetensors.index.json). "),
        ("tokenizer.json", "Missing: a tokenizer (tokenizer.json). "),
        ("preprocessor_config.json", "Missing: image processor settings (preprocessor_config.json). "),
    ],
)
def test_says_what_a_checkpoint_lacks(folder: Path, name: str, words: str) -> None:
    (folder / name).unlink()
    with pytest.raises(BackendError) as caught:
        checkpoint_digests(folder)
    assert f"the checkpoint {str(folder)!r} is incomplete. {words}Download or save it again, in full" in str(caught.value)


def test_names_missing_shards(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model-1.safetensors").write_text("x")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}))
    with pytest.raises(BackendError, match=r"Missing: model-2\.safetensors\."):
        checkpoint_digests(folder)
    index.write_text("{}")
    with pytest.raises(BackendError, match=r"index\.json: not an index of weights \(KeyError"):
        checkpoint_digests(folder)


def test_recognises_a_git_lfs_pointer(folder: Path) -> None:
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
    with pytest.raises(BackendError, match=r"model\.safetensors is a Git LFS pointer.*git lfs pull"):
        checkpoint_digests(folder)


def test_an_absent_directory(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"there is no checkpoint directory '.*nowhere'"):
        checkpoint_digests(tmp_path / "nowhere")
