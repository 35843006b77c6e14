from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest

from pytest_vlmrobust.backends import BackendOptions
from pytest_vlmrobust.backends import identity as digests
from pytest_vlmrobust.backends.identity import (
    DigestCache,
    adapter_digests,
    adapter_state,
    checkpoint_digests,
    checkpoint_state,
    commit_of,
    directory_digests,
    identity_of,
)
from pytest_vlmrobust.core.errors import BackendError
from pytest_vlmrobust.core.prediction import ModelRef

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
    digests = checkpoint_digests(folder)
    assert set(digests) == {*FILES, "chat_template.jinja", "additional_chat_templates/tools.jinja"}
    assert digests["model.safetensors"] == hashlib.sha256(b"weights").hexdigest()


def test_ignores_what_does_not(folder: Path) -> None:
    for name in ("README.md", "optimizer.pt", ".gitattributes", "LICENSE", "pytorch_model.bin"):
        (folder / name).write_text("x")
    assert set(checkpoint_digests(folder)) == set(FILES)


def test_older_weights_count_where_there_are_no_safetensors(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_text("x")
    assert "pytorch_model.bin" in checkpoint_digests(folder)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as left alone for long, although the test has just written them."""
    monkeypatch.setattr(digests, "_SETTLED_NS", -(10**18))


@pytest.mark.usefixtures("settled")
def test_remembers_what_nothing_changed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "deep" / "digests.json"
    first = checkpoint_digests(folder, cache)
    again = checkpoint_digests(folder, cache, run="this")
    monkeypatch.setattr(digests, "file_digest", lambda path: pytest.fail(f"hashed {path} again"))
    assert checkpoint_digests(folder, cache) == checkpoint_digests(folder, cache, run="this") == first == again


@pytest.mark.usefixtures("settled")
def test_a_run_that_believes_its_own_digests_only_hashes_afresh(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "digests.json"
    first = checkpoint_digests(folder, cache, run="earlier")
    monkeypatch.setattr(digests, "file_digest", lambda path: "hashed anew")
    assert checkpoint_digests(folder, cache) == first
    assert set(checkpoint_digests(folder, cache, run="this").values()) == {"hashed anew"}


@pytest.mark.usefixtures("settled")
def test_new_weights_of_the_same_size_and_time_are_noticed(folder: Path, tmp_path: Path) -> None:
    cache, weights = tmp_path / "digests.json", folder / "model.safetensors"
    os.utime(weights, ns=(1, 1))
    first = checkpoint_digests(folder, cache)
    weights.write_text("WEIGHTS")
    os.utime(weights, ns=(1, 1))
    assert (weights.stat().st_size, weights.stat().st_mtime_ns) == (len("weights"), 1)
    second = checkpoint_digests(folder, cache)
    assert {name for name in first if first[name] != second[name]} == {"model.safetensors"}


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("part", ["st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns"])
def test_whatever_the_file_system_says_else_has_it_hashed_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    file, cache = folder / "model.safetensors", tmp_path / "digests.json"
    remembered = DigestCache(cache)
    remembered.digest(file)
    remembered.save()
    status = file.stat()

    class Other:
        def __getattr__(self, name: str) -> Any:
            return getattr(status, name) + (name == part)

    monkeypatch.setattr(digests, "file_digest", lambda path: "hashed anew")
    assert DigestCache(cache).digest(file) != "hashed anew"
    resolved = str(file.resolve())
    monkeypatch.setattr(Path, "resolve", lambda _path: Path(resolved))
    monkeypatch.setattr(Path, "stat", lambda _path: Other())
    assert DigestCache(cache).digest(file) == "hashed anew"


def test_a_file_that_was_written_just_now_is_not_remembered(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "digests.json"
    checkpoint_digests(folder, cache)
    assert not cache.exists()


def test_a_file_that_changes_while_it_is_read_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def overwritten(path: Path) -> str:
        path.write_text("longer than before")
        return "half of each"

    monkeypatch.setattr(digests, "file_digest", overwritten)
    with pytest.raises(BackendError, match=r"config\.json changed while it was read\. Start again once nothing writes to"):
        checkpoint_digests(folder)


def test_the_state_of_a_checkpoint_changes_with_its_files(folder: Path) -> None:
    before = checkpoint_state(folder)
    assert checkpoint_state(folder) == before
    assert {Path(file).name for file in before} == set(FILES)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").write_text("others")
    assert checkpoint_state(folder) != before


@pytest.mark.usefixtures("settled")
def test_hashes_a_changed_file_again(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "digests.json"
    first = checkpoint_digests(folder, cache)
    (folder / "model.safetensors").write_text("weighed")
    second = checkpoint_digests(folder, cache)
    assert {name for name in first if first[name] != second[name]} == {"model.safetensors"}


@pytest.mark.usefixtures("settled")
def test_a_directory_that_can_only_be_read_keeps_its_cache(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "digests.json"
    first = checkpoint_digests(folder, cache)
    cache.write_text("{}")
    monkeypatch.setattr("os.access", lambda *_: False)
    assert checkpoint_digests(folder, cache) == first
    assert cache.read_text() == "{}"


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("damage", ["{", "[]", '{"a": 1}', '{"a": ["x", 1, 2]}', '{"a": [1, 2, "of an older release"]}', ""])
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
    for damage, said in [("{}", "it has no 'weight_map'"), ('{"weight_map": {"a": 1}}', "it has no"), ("[]", "no JSON object")]:
        index.write_text(damage)
        with pytest.raises(BackendError, match=f"index\\.json: not an index of weights: .*{said}"):
            checkpoint_digests(folder)
    index.write_text("{")
    with pytest.raises(BackendError, match=r"index\.json: not an index of weights \(JSONDecodeError"):
        checkpoint_digests(folder)


SHARDED = {"safetensors": "model.safetensors.index.json", "bin": "pytorch_model.bin.index.json"}


@pytest.mark.parametrize("kind", SHARDED)
def test_digests_shards_wherever_in_the_directory_they_are(folder: Path, kind: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "deep").mkdir()
    (folder / "deep" / f"one.{kind}").write_text("x")
    (folder / f"two.{kind}").write_text("y")
    (folder / SHARDED[kind]).write_text(json.dumps({"weight_map": {"a": f"deep/one.{kind}", "b": f"two.{kind}"}}))
    digests = checkpoint_digests(folder)
    assert {f"deep/one.{kind}", f"two.{kind}", SHARDED[kind]} <= set(digests)
    assert digests[f"deep/one.{kind}"] == hashlib.sha256(b"x").hexdigest()


@pytest.mark.parametrize("kind", SHARDED)
@pytest.mark.parametrize("way", ["absolute", "parent", "through"])
def test_refuses_an_index_that_names_a_file_outside(folder: Path, tmp_path: Path, kind: str, way: str) -> None:
    outside = tmp_path / f"outside.{kind}"
    outside.write_text("x")
    (folder / "model.safetensors").unlink()
    (folder / "deep").mkdir()
    name = {"absolute": str(outside), "parent": f"../outside.{kind}", "through": f"deep/../../outside.{kind}"}[way]
    (folder / SHARDED[kind]).write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(BackendError) as caught:
        checkpoint_digests(folder)
    assert str(caught.value).startswith(f"{folder / SHARDED[kind]} names the weights {name!r}, outside of the checkpoint: ")
    assert str(caught.value).endswith("Copy or link that file into the directory, and name it there")


def test_a_link_counts_by_what_it_points_to(folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").unlink()
    blob = tmp_path / "blobs" / "1234"
    blob.parent.mkdir()
    blob.write_text("one")
    (folder / "model-1.safetensors").symlink_to(blob)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "model-1.safetensors"}}))
    first = checkpoint_digests(folder)
    blob.write_text("two")
    assert checkpoint_digests(folder)["model-1.safetensors"] != first["model-1.safetensors"]


def test_linked_folders_count_by_what_they_hold(folder: Path, tmp_path: Path) -> None:
    before = directory_digests(folder)
    assert sorted(before) == sorted(FILES)
    real = tmp_path / "real" / "deep"
    real.mkdir(parents=True)
    (real / "part.safetensors").write_text("one")
    (folder / "sub").symlink_to(real.parent)
    (real / "circle").symlink_to(folder)
    first = directory_digests(folder)
    assert first.keys() - before.keys() == {"sub/deep/part.safetensors"}
    (real / "part.safetensors").write_text("two")
    assert directory_digests(folder) != first


@pytest.mark.parametrize(
    "option",
    [
        {"chat_template": "FILE"},
        {"lora_modules": ["one=FOLDER"]},
        {"speculative_config": {"model": "FOLDER"}},
        {"speculative_config": '{"model": "FOLDER"}'},
    ],
)
def test_files_that_options_of_the_engine_name_count(folder: Path, tmp_path: Path, option: dict[str, Any]) -> None:
    named = tmp_path / "named" / "t.jinja"
    named.parent.mkdir()
    named.write_text("one")
    text = json.dumps(option).replace("FILE", str(named)).replace("FOLDER", str(named.parent))
    ref = ModelRef("m", "vllm", str(folder), engine=json.loads(text))
    first = identity_of(ref, BackendOptions())
    assert len(first["engine_files"]) == 1
    named.write_text("two")
    assert identity_of(ref, BackendOptions()) != first


def test_options_that_name_no_file_to_read_add_nothing(folder: Path, tmp_path: Path) -> None:
    engine = {"download_dir": str(tmp_path), "tensor_parallel_size": 2, "load_format": "auto", "chat_template": "x" * 5000}
    assert "engine_files" not in identity_of(ModelRef("m", "vllm", str(folder), engine=engine), BackendOptions())


def test_older_weights_count_beside_other_safetensors(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    (folder / "extra.safetensors").write_text("x")
    assert {"pytorch_model.bin", "extra.safetensors"} <= set(checkpoint_digests(folder))


def test_weights_that_the_configuration_names_count(folder: Path, tmp_path: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "own.safetensors").write_text("x")
    (folder / "config.json").write_text(json.dumps({"transformers_weights": "deep/own.safetensors"}))
    assert "deep/own.safetensors" in checkpoint_digests(folder)
    (folder / "config.json").write_text(json.dumps({"transformers_weights": "../own.safetensors"}))
    with pytest.raises(BackendError, match=r"config\.json names the weights '\.\./own\.safetensors', outside of the checkpoint"):
        checkpoint_digests(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(BackendError, match=r"config\.json: not a configuration: it holds no JSON object"):
        checkpoint_digests(folder)


def test_refuses_an_adapter_that_is_applied_here_and_not_there(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(BackendError, match=r"holds an adapter \(adapter_config\.json\).*Merge it into the weights"):
        checkpoint_digests(folder)


def test_an_adapter_is_its_configuration_and_its_weights(tmp_path: Path) -> None:
    config, weights = tmp_path / "adapter_config.json", tmp_path / "adapter_model.safetensors"
    with pytest.raises(BackendError, match=r"lacks adapter_config\.json and adapter_model\.safetensors\. Expected"):
        adapter_digests(tmp_path)
    config.write_text('{"peft_type": "IA3"}')
    with pytest.raises(BackendError, match=r"lacks adapter_model\.safetensors\."):
        adapter_digests(tmp_path)
    weights.write_text("x")
    with pytest.raises(BackendError, match=r"is of the kind 'IA3'\. Expected LORA"):
        adapter_digests(tmp_path)
    config.write_text('{"peft_type": "LORA"}')
    (tmp_path / "README.md").write_text("x")
    before, state = adapter_digests(tmp_path), adapter_state(tmp_path)
    assert sorted(before) == ["adapter_config.json", "adapter_model.safetensors"]
    weights.write_text("y")
    assert adapter_digests(tmp_path) != before
    assert adapter_state(tmp_path) != state


def test_recognises_a_git_lfs_pointer(folder: Path) -> None:
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
    with pytest.raises(BackendError, match=r"model\.safetensors is a Git LFS pointer.*git lfs pull"):
        checkpoint_digests(folder)


def test_an_absent_directory(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"there is no checkpoint directory '.*nowhere'"):
        checkpoint_digests(tmp_path / "nowhere")


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)


def _cache(monkeypatch: pytest.MonkeyPatch, cached: str | None) -> list[str]:
    revisions: list[str] = []

    def look(_hub_id: str, _file: str, *, revision: str) -> str | None:
        revisions.append(revision)
        return cached

    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", look)
    return revisions


def _hub(monkeypatch: pytest.MonkeyPatch, answer: Exception | str | None) -> None:
    def model_info(self: Any, hub_id: str, **_: Any) -> SimpleNamespace:
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(sha=answer)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)


def test_a_commit_stands_for_itself() -> None:
    assert commit_of("org/name", COMMIT, offline=True) == COMMIT


def test_the_cache_is_asked_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    revisions = _cache(monkeypatch, str(tmp_path / "snapshots" / COMMIT / "config.json"))
    _hub(monkeypatch, RuntimeError("not to be asked"))
    assert commit_of("org/name", "", offline=False) == COMMIT
    assert commit_of("org/name", "v2", offline=True) == COMMIT
    assert revisions == ["main", "v2"]


def test_then_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    _cache(monkeypatch, None)
    _hub(monkeypatch, COMMIT)
    assert commit_of("org/name", "", offline=False) == COMMIT


@pytest.mark.parametrize("variable", [None, "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, variable: str | None) -> None:
    _cache(monkeypatch, None)
    _hub(monkeypatch, RuntimeError("not to be asked"))
    if variable:
        monkeypatch.setenv(variable, "1")
    with pytest.raises(
        BackendError, match=r"model 'org/name' \(revision 'main'\) is not in the local cache.*hf download org/name"
    ):
        commit_of("org/name", "", offline=variable is None)


def test_a_failing_hub_is_reported_with_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    _cache(monkeypatch, None)
    _hub(monkeypatch, ConnectionError("name resolution failed\nmore"))
    with pytest.raises(BackendError) as caught:
        commit_of("org/name", "v2", offline=False)
    message = str(caught.value)
    assert "'org/name' (revision 'v2') is: ConnectionError: name resolution failed. Check the id" in message
    assert "hf auth login" in message
    assert "no local directory of that name" in message


def test_a_hub_without_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    _cache(monkeypatch, None)
    _hub(monkeypatch, None)
    with pytest.raises(BackendError, match="names no commit"):
        commit_of("org/name", "", offline=False)
