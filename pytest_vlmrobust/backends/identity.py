"""Identity: what distinguishes one model from another, from the models file and the files it names, without loading them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from pytest_vlmrobust.core.errors import BackendError
from pytest_vlmrobust.core.fingerprint import file_digest, fingerprint
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.words import kind_and_reason

from .contract import Backend, BackendOptions
from .generation import generation_for
from .served import Served

_AS_DECLARED = ("dtype", "answer", "quantization", "device_map", "min_pixels", "max_pixels", "remote_code", "tokenizer")

_TO_FILL = re.compile(r"(dir|directory|folder|cache|storage[-_]path|media[-_]path)\Z")
"""Names of engine options whose folders are written to or hold no part of the model."""


def decoding_of(ref: ModelRef) -> dict[str, Any]:
    """Returns the parameters that shape a text; its length limit is part of each request."""
    generation = generation_for(ref)
    if not generation.samples:
        return {"temperature": 0.0, "repetition_penalty": generation.repetition_penalty}
    return {name: value for name, value in dataclasses.asdict(generation).items() if name != "max_new_tokens"}


def identity_of(ref: ModelRef, options: BackendOptions) -> dict[str, Any]:
    """Returns everything that the entry of a model decides, with digests of the files it names."""
    adapter: dict[str, Any] = {}
    if ref.adapter:
        adapter["adapter"] = adapter_digests(Path(ref.adapter), options.digest_cache, run=options.digests_of)
    declared = {name: value for name in _AS_DECLARED if (value := getattr(ref, name)) not in (None, "", False)}
    named = {text: _digest_at(text, options) for text in sorted({*_named_by(ref.engine)})}
    files = {"engine_files": named} if named else {}
    return {"model": _model(ref, options), "decoding": decoding_of(ref), **declared, **adapter, **ref.deployment, **files}


def _named_by(value: Any, option: str = "") -> Iterator[str]:
    """Yields the files and folders named in engine options, also after ``name=`` and in JSON; folders for output are left out."""
    if isinstance(value, str) and value.startswith(("{", "[")):
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _named_by(inner, str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from _named_by(inner, option)
    elif isinstance(value, str):
        for text in {value, value.partition("=")[2]}:
            # these return False for a text that is too long for a path; pathlib raises
            if os.path.isfile(text) or (os.path.isdir(text) and not _TO_FILL.search(option)):  # noqa: PTH112, PTH113
                yield text


def _digest_at(text: str, options: BackendOptions) -> str:
    place = Path(text)
    if place.is_dir():
        return fingerprint(directory_digests(place, options.digest_cache, run=options.digests_of))
    return _digests(place.parent, [place], options.digest_cache, options.digests_of)[place.name]


def _model(ref: ModelRef, options: BackendOptions) -> dict[str, Any]:
    place = Path(ref.location)
    if ref.location and place.is_dir():
        return {"sha256": fingerprint(directory_digests(place, options.digest_cache, run=options.digests_of))}
    if place.is_file():
        return {"sha256": file_digest(place)}
    if place.is_absolute():
        raise BackendError(f"model {ref.name!r}: there is no file or directory {ref.location!r}. Check 'path' in the models file")
    if "#" in ref.location:
        return Served.of(ref.location).identity(ref.revision)
    if not ref.location:
        return {"revision": ref.revision}
    return {"hub_id": ref.location, "commit": commit_of(ref.location, ref.revision, offline=options.offline)}


class IdentifiedBackend:
    """A backend whose fingerprint always contains the identity of its model."""

    def __init__(self, backend: Backend, ref: ModelRef, options: BackendOptions) -> None:
        self._backend, self.ref, self._options = backend, ref, options

    def __getattr__(self, member: str) -> Any:
        """Returns any other member of the wrapped backend."""
        return getattr(self._backend, member)

    def fingerprint(self) -> Mapping[str, Any]:
        """Returns the backend's fingerprint with the identity of its model."""
        facts = self._backend.fingerprint()
        if not issubclass(type(facts), Mapping) or not facts:
            return facts  # refused by the guard
        return {**facts, "identity": identity_of(self.ref, self._options)}


# Digests of the files of a checkpoint.


SAFETENSORS_INDEX = "model.safetensors.index.json"
WEIGHT_NAMES = ("model.safetensors", SAFETENSORS_INDEX, "pytorch_model.bin", "pytorch_model.bin.index.json")

_PARTS: dict[str, tuple[str, ...]] = {
    "config.json": ("config.json",),
    "weights (model.safetensors, or its shards with model.safetensors.index.json)": WEIGHT_NAMES,
    "a tokenizer (tokenizer.json)": ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "tokenizer_config.json"),
    "image processor settings (preprocessor_config.json)": ("preprocessor_config.json", "processor_config.json"),
}
_TEXT_SUFFIXES = {".json", ".jinja", ".txt", ".model", ".tiktoken", ".spm", ".bpe", ".codes", ".vocab", ".tokenizer"}
_LFS_POINTER = b"version https://git-lfs"
_ADAPTER = "adapter_config.json"
_ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
_SETTLED_NS = 2_000_000_000
"""How long a file must be unchanged before its digest is cached.

File system clocks tick every few milliseconds, some every two seconds: a second write within one tick leaves no trace.
"""


def missing_parts(folder: Path) -> list[str]:
    """Returns in words which parts of a checkpoint a directory lacks."""
    return [part for part, names in _PARTS.items() if not any((folder / name).is_file() for name in names)]


def checkpoint_digests(folder: Path, cache: Path | None = None, *, run: str = "", code: bool = False) -> dict[str, str]:
    """Returns the SHA-256 of each file that determines the answers of a checkpoint, by its path relative to ``folder``.

    These are the weights with every shard of their index (safetensors if present, else ``pytorch_model*.bin``),
    the configuration, the tokenizer, the processor settings and the chat templates. A link counts by what it points to.
    With ``code`` its Python code counts too. ``cache`` and ``run`` are those of :class:`DigestCache`.
    """
    _require_complete(folder)
    return _digests(folder, _deciding_files(folder, code=code), cache, run)


def checkpoint_state(folder: Path, *, code: bool = False) -> dict[str, list[int]]:
    """Returns the file system's facts about each of these files: they change with any file, and no weights are read."""
    _require_complete(folder)
    return {str(file): _stamp(file) for file in _deciding_files(folder, code=code)}


def adapter_digests(folder: Path, cache: Path | None = None, *, run: str = "") -> dict[str, str]:
    """Returns the SHA-256 of each file of a LoRA adapter that peft saved: its configuration and its weights."""
    return _digests(folder, _adapter_files(folder), cache, run)


def directory_digests(folder: Path, cache: Path | None = None, *, run: str = "") -> dict[str, str]:
    """Returns the SHA-256 of every file below a directory, except hidden files and compiled Python."""
    files = sorted(_files_below(folder))
    for file in files:
        _refuse_pointer(file)
    return _digests(folder, files, cache, run)


def _files_below(folder: Path, above: tuple[tuple[int, int], ...] = ()) -> Iterator[Path]:
    """Yields the files below a directory, following links; a circular link is skipped."""
    status = folder.stat()
    here = (status.st_dev, status.st_ino)
    if here in above or not os.access(folder, os.R_OK | os.X_OK):
        return
    for path in folder.iterdir():
        if path.name.startswith((".", "__pycache__")):
            continue
        if path.is_dir():
            yield from _files_below(path, (*above, here))
        elif path.is_file():
            yield path


def adapter_state(folder: Path) -> dict[str, list[int]]:
    """:func:`checkpoint_state` for the files of an adapter."""
    return {str(file): _stamp(file) for file in _adapter_files(folder)}


def is_adapter(folder: Path) -> bool:
    """Returns whether a directory holds an adapter without the weights of a model."""
    return (folder / _ADAPTER).is_file() and not any((folder / name).is_file() for name in ("config.json", *WEIGHT_NAMES))


def base_of(folder: Path) -> str:
    """Returns the base model that an adapter's configuration names; empty if it names none."""
    return str(_read_json(folder / _ADAPTER, "the configuration of an adapter").get("base_model_name_or_path") or "")


def _digests(folder: Path, files: list[Path], cache: Path | None, run: str) -> dict[str, str]:
    remembered = DigestCache(cache, run=run)
    digests = {file.relative_to(folder).as_posix(): remembered.digest(file) for file in files}
    remembered.save()
    return digests


def _adapter_files(folder: Path) -> list[Path]:
    config = folder / _ADAPTER
    weights = [folder / name for name in _ADAPTER_WEIGHTS if (folder / name).is_file()]
    missing = [name for name, there in ((_ADAPTER, config.is_file()), (_ADAPTER_WEIGHTS[0], weights)) if not there]
    if missing:
        raise BackendError(
            f"the adapter {str(folder)!r} lacks {' and '.join(missing)}. Expected a directory that save_pretrained of peft wrote"
        )
    kind = _read_json(config, "the configuration of an adapter").get("peft_type")
    if kind != "LORA":
        raise BackendError(
            f"the adapter {str(folder)!r} is of the kind {kind!r}. Expected LORA: merge another one into its weights"
        )
    for file in weights:
        _refuse_pointer(file)
    return [config, *weights]


def _deciding_files(folder: Path, *, code: bool = False) -> list[Path]:
    files = [file for file in folder.iterdir() if file.is_file() and not file.name.startswith(".")]
    weights = [file for file in files if file.suffix == ".safetensors"]
    weights = weights or [file for file in files if file.match("pytorch_model*.bin")]
    texts = [file for file in files if file.suffix in _TEXT_SUFFIXES or file.name.startswith("tokenizer.model")]
    templates = folder.glob("additional_chat_templates/*.jinja")
    programs = folder.rglob("*.py") if code else ()
    return sorted({*weights, *texts, *templates, *programs, *_loaded_weights(folder)})


def _loaded_weights(folder: Path) -> list[Path]:
    """Returns the weight files: a single file, or an index and its shards, whether they exist or not."""
    named = _read_json(folder / "config.json", "a configuration").get("transformers_weights")
    first = next((name for name in WEIGHT_NAMES if (folder / name).is_file()), None)
    entry = named if isinstance(named, str) else first
    if entry is None:
        return []
    main = _inside(folder, entry, "config.json")
    if not entry.endswith(".index.json"):
        return [main]
    shards = _read_json(main, "an index of weights").get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(shard, str) for shard in shards.values()):
        raise BackendError(f"{main}: not an index of weights: it has no 'weight_map' of names to files. Download it again")
    return [main, *(_inside(folder, shard, entry) for shard in sorted(set(shards.values())))]


def _read_json(file: Path, what: str) -> dict[str, object]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BackendError(f"{file}: not {what} ({type(error).__name__}: {error}). Download it again") from error
    if not isinstance(content, dict):
        raise BackendError(f"{file}: not {what}: it holds no JSON object. Download it again")
    return content


def _inside(folder: Path, name: str, where: str) -> Path:
    path = PurePath(name)
    if path.is_absolute() or ".." in path.parts:
        raise BackendError(
            f"{folder / where} names the weights {name!r}, outside of the checkpoint: nobody could say later which weights "
            "answered. Copy or link that file into the directory, and name it there"
        )
    return folder / path


def _require_complete(folder: Path) -> None:
    if not folder.is_dir():
        raise BackendError(
            f"there is no checkpoint directory {str(folder)!r}. Check the path, or train or download the model first"
        )
    missing = missing_parts(folder)
    missing = missing or [file.relative_to(folder).as_posix() for file in _loaded_weights(folder) if not file.is_file()]
    if missing:
        raise BackendError(
            f"the checkpoint {str(folder)!r} is incomplete. Missing: {'; '.join(missing)}. Download or save it again, in full"
        )
    if (folder / _ADAPTER).is_file():
        raise BackendError(
            f"the checkpoint {str(folder)!r} holds an adapter ({_ADAPTER}), applied where peft is installed and left out "
            "elsewhere. Merge it into the weights (merge_and_unload of peft, then save_pretrained), or move the files adapter_* "
            "to a directory of their own, and name that as 'adapter' in the models file"
        )
    for file in _deciding_files(folder):
        _refuse_pointer(file)


def _refuse_pointer(file: Path) -> None:
    with file.open("rb") as stream:
        if stream.read(len(_LFS_POINTER)) == _LFS_POINTER:
            raise BackendError(f"{file} is a Git LFS pointer, not the file itself. Run 'git lfs pull' in {file.parent}")


def _stamp(file: Path) -> list[int]:
    """Returns device, inode, size, and the change times of content and inode of a file.

    Size and modification time survive ``cp -p``, container layers and stores that set all times alike. No program can set the
    change time of the inode.
    """
    status = file.stat()
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


class DigestCache:
    """Caches digests of files by absolute path while the file system reports no change.

    Only digests cached by ``run`` are used; without a run, any.
    """

    def __init__(self, path: Path | None, *, run: str = "") -> None:
        self._path = path
        self._run = run
        self._known: dict[str, list[int | str]] = _read(path)
        self._changed = False

    def digest(self, file: Path) -> str:
        """Returns the SHA-256 of a file, hashed again if the file changed."""
        key, stamp = str(file.resolve()), _stamp(file)
        *hashed, digest, run = self._known.get(key, ["", ""])
        if hashed == stamp and (not self._run or run == self._run):
            return str(digest)
        began = time.time_ns()
        digest = file_digest(file)
        if _stamp(file) != stamp:
            raise BackendError(f"{file} changed while it was read. Start again once nothing writes to {file.parent}")
        if max(stamp[-2:]) + _SETTLED_NS < began:
            self._known[key] = [*stamp, digest, self._run]
            self._changed = True
        return digest

    def save(self) -> None:
        """Writes the cache if it changed. The file is replaced atomically, so readers never see half of it.

        In a read-only directory nothing is cached, and the next run hashes the same files again.
        """
        if self._path is None or not self._changed:
            return
        if self._path.parent.is_dir() and not os.access(self._path.parent, os.W_OK):
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}.{threading.get_ident()}")
        draft.write_text(json.dumps(self._known, sort_keys=True), encoding="utf-8")
        draft.replace(self._path)


def _read(path: Path | None) -> dict[str, list[int | str]]:
    if path is None or not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return {}  # a damaged cache is ignored
    entry = [int, int, int, int, int, str, str]
    pairs = content.items() if isinstance(content, dict) else ()
    return {key: value for key, value in pairs if isinstance(value, list) and [type(item) for item in value] == entry}


def control_tokens_of(location: str, revision: str = "") -> list[str]:
    """Returns the special tokens of the tokenizer in a directory or in the hub's local cache; empty if unknown."""
    file: Path | None = Path(location) / "tokenizer.json"
    if file is not None and not file.is_file():
        file = _cached_file(location, revision or "main", "tokenizer.json") if _HUB_ID.fullmatch(location) else None
    if file is None:
        return []
    added: Any = _read_json(file, "a tokenizer").get("added_tokens") or []
    return [str(token["content"]) for token in added if token.get("special")]


# The commit of a hub repository, so that weights, tokenizer and answers come from the same commit.


_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_TIMEOUT_SECONDS = 20.0


def commit_of(hub_id: str, revision: str, *, offline: bool) -> str:
    """Returns the commit of a ``revision`` of a hub repository (empty: the default branch).

    A commit is returned as it is. The local cache is used before the hub, so that a branch that moved on
    does not change a model half-way through a series of runs; the manifest says which commit it was.
    """
    if _COMMIT.match(revision):
        return revision
    if cached := _cached_file(hub_id, revision or "main", "config.json"):
        return cached.parent.name
    forbidding = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    if offline or any(os.environ.get(name, "").upper() in {"1", "ON", "YES", "TRUE"} for name in forbidding):
        raise BackendError(
            f"model {hub_id!r} (revision {revision or 'main'!r}) is not in the local cache of the hub, and this run is offline. "
            f"Download it where there is a network: hf download {hub_id}; or give a local checkpoint directory"
        )
    return _commit_on_hub(hub_id, revision)


def _cached_file(hub_id: str, revision: str, name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    file: Any = try_to_load_from_cache(hub_id, name, revision=revision)
    return Path(file) if isinstance(file, str) else None


def _commit_on_hub(hub_id: str, revision: str) -> str:
    from huggingface_hub import HfApi

    try:
        commit = HfApi().model_info(hub_id, revision=revision or None, timeout=_TIMEOUT_SECONDS).sha
    except Exception as error:  # any network failure
        raise BackendError(
            f"the hub did not say which commit {hub_id!r} (revision {revision or 'main'!r}) is: {kind_and_reason(error)}. "
            "Check the id (there is no local directory of that name either), the network, and for gated models 'hf auth login'; "
            f"or download it beforehand: hf download {hub_id}"
        ) from error
    if not commit:
        raise BackendError(f"the hub knows {hub_id!r} but names no commit of it. Give one as the model's revision")
    return commit
