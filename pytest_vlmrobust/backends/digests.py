"""Digests of a checkpoint's files: what a model is, known without loading it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pytest_vlmrobust.core.errors import BackendError
from pytest_vlmrobust.core.fingerprint import file_digest

SAFETENSORS_INDEX = "model.safetensors.index.json"
WEIGHT_NAMES = ("model.safetensors", SAFETENSORS_INDEX, "pytorch_model.bin", "pytorch_model.bin.index.json")

_PARTS: dict[str, tuple[str, ...]] = {
    "config.json": ("config.json",),
    "weights (model.safetensors, or its shards with model.safetensors.index.json)": WEIGHT_NAMES,
    "a tokenizer (tokenizer.json)": ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "tokenizer_config.json"),
    "image processor settings (preprocessor_config.json)": ("preprocessor_config.json", "processor_config.json"),
}
_TEXT_SUFFIXES = {".json", ".jinja", ".txt", ".model", ".tiktoken"}
_LFS_POINTER = b"version https://git-lfs"


def missing_parts(folder: Path) -> list[str]:
    """Returns which parts of a checkpoint a directory lacks, in words."""
    return [part for part, names in _PARTS.items() if not any((folder / name).is_file() for name in names)]


def checkpoint_digests(folder: Path, cache: Path | None = None) -> dict[str, str]:
    """Returns the SHA-256 of each file that decides what a checkpoint answers, by its path relative to ``folder``.

    These are the weights (safetensors where there are any, else ``pytorch_model*.bin``), the configuration, the tokenizer, the
    processor settings and the chat templates.

    Args:
        folder: A checkpoint directory.
        cache: A JSON file that remembers digests by path, size and time of change; None hashes every file.

    Raises:
        BackendError: the directory is absent, or a part of the checkpoint is missing or is a Git LFS pointer.
    """
    _require_complete(folder)
    remembered = DigestCache(cache)
    digests = {file.relative_to(folder).as_posix(): remembered.digest(file) for file in _deciding_files(folder)}
    remembered.save()
    return digests


def _deciding_files(folder: Path) -> list[Path]:
    files = [file for file in folder.iterdir() if file.is_file() and not file.name.startswith(".")]
    weights = [file for file in files if file.suffix == ".safetensors"]
    weights = weights or [file for file in files if file.match("pytorch_model*.bin")]
    texts = [file for file in files if file.suffix in _TEXT_SUFFIXES]
    return sorted([*weights, *texts, *folder.glob("additional_chat_templates/*.jinja")])


def _require_complete(folder: Path) -> None:
    if not folder.is_dir():
        raise BackendError(
            f"there is no checkpoint directory {str(folder)!r}. Check the path, or train or download the model first"
        )
    missing = [*missing_parts(folder), *_missing_shards(folder)]
    if missing:
        raise BackendError(
            f"the checkpoint {str(folder)!r} is incomplete. Missing: {'; '.join(missing)}. Download or save it again, in full"
        )
    for file in _deciding_files(folder):
        _refuse_pointer(file)


def _missing_shards(folder: Path) -> list[str]:
    index = folder / SAFETENSORS_INDEX
    if not index.is_file() or (folder / "model.safetensors").is_file():
        return []
    try:
        shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError) as error:
        raise BackendError(f"{index}: not an index of weights ({type(error).__name__}: {error}). Download it again") from error
    return sorted(shard for shard in shards if not (folder / shard).is_file())


def _refuse_pointer(file: Path) -> None:
    with file.open("rb") as stream:
        if stream.read(len(_LFS_POINTER)) == _LFS_POINTER:
            raise BackendError(f"{file} is a Git LFS pointer, not the file itself. Run 'git lfs pull' in {file.parent}")


class DigestCache:
    """Remembers digests of files by absolute path, as long as size and time of change stay the same."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, list[int | str]] = _read(path)
        self._changed = False

    def digest(self, file: Path) -> str:
        """Returns the SHA-256 of a file's bytes, hashed anew when the file changed."""
        status, key = file.stat(), str(file.resolve())
        known = self._known.get(key)
        if known is not None and known[:2] == [status.st_size, status.st_mtime_ns]:
            return str(known[2])
        found = file_digest(file)
        self._known[key] = [status.st_size, status.st_mtime_ns, found]
        self._changed = True
        return found

    def save(self) -> None:
        """Writes the cache if it learnt something; the file is replaced in one step, so that readers never see half of it.

        In a directory that can only be read nothing is remembered: the same files are hashed again by the next run.
        """
        if self._path is None or not self._changed:
            return
        if self._path.parent.is_dir() and not os.access(self._path.parent, os.W_OK):
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        draft.write_text(json.dumps(self._known, sort_keys=True), encoding="utf-8")
        draft.replace(self._path)


def _read(path: Path | None) -> dict[str, list[int | str]]:
    if path is None or not path.is_file():
        return {}
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return {}  # a damaged cache is no evidence of anything: hash again
    return {key: value for key, value in known.items() if _is_entry(value)} if isinstance(known, dict) else {}


def _is_entry(value: object) -> bool:
    return isinstance(value, list) and [type(item) for item in value] == [int, int, str]
