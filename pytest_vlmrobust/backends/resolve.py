"""From the text after ``--vlm`` to a ModelRef, and from that to a backend."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

from pytest_vlmrobust.core.errors import BackendError, ModelError, UnknownName, did_you_mean, files_beside, typed_path
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.registry import Registry
from pytest_vlmrobust.core.words import first_few

from .contract import Backend, BackendOptions, traits_of
from .devices import wait_passively
from .engine import ChatBackend
from .generation import generation_for
from .identity import IdentifiedBackend, base_of, is_adapter, missing_parts
from .models_file import PUBLISHED, check_dtype, read_models
from .served import read_typed, without_secrets

# Models with a short name.


MODELS: Registry[Callable[[], ModelRef]] = Registry("model", "models")
"""Models of installed packages; ``tiny`` comes from the demo."""


def names() -> list[str]:
    """Returns the built-in names, those of installed packages first."""
    return [*MODELS.names(), *PUBLISHED]


ORDER = (
    "A name is looked up as: an entry of the models file (--vlm-models); a built-in name; openai:BASE_URL#MODEL[@REVISION]; "
    "scripted:FILE; a local checkpoint directory; a hub id 'owner/name'"
)

ORACLES = Path(__file__).parent / "oracles"
"""Folder of the scripted models that ship with the package."""
ORACLE = "oracle"
"""The name of that folder on the command line."""
_SCHEMES = ("openai", "scripted")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+\Z")
_LOCAL_START = (".", "/", "~", os.sep)


def resolve(name: str, *, models_file: Path | None = None, dtype: str | None = None, answer: str = "") -> ModelRef:
    """Returns the model called ``name``; reads the models file and lists directories, but opens no weights.

    Args:
        name: The text after ``--vlm``.
        models_file: The user's registry of models, or None.
        dtype: Overrides the model's own dtype when given.
        answer: Overrides how the model answers a choice when given, one of ``ANSWERS``.

    Raises:
        UnknownName: no model has this name; the message gives the order of the look-up.
        ModelError: the model exists but cannot be used.
    """
    user_models = read_models(models_file) if models_file else {}
    scheme, colon, rest = name.partition(":")
    ref = user_models.get(name) or (MODELS.get(name)() if name in MODELS else None)
    ref = PUBLISHED[name].ref(name) if ref is None and name in PUBLISHED else ref
    if ref is None and colon and scheme in _SCHEMES:
        ref = _openai(name, rest) if scheme == "openai" else _scripted(name, rest)
    ref = ref or _by_place(name)
    if ref is None:
        entries = f"The models file has {first_few(user_models)}. " if user_models else ""
        raise UnknownName("model", name, [*user_models, *names()], more=f"{entries}{ORDER}.{_scheme_meant(name)}")
    ref = _with_base(ref) if ref.backend == "transformers" and not ref.adapter else ref
    ref = ref if dtype is None else dataclasses.replace(ref, dtype=check_dtype(dtype, "--vlm-dtype"))
    ref = dataclasses.replace(ref, answer=answer) if answer else ref
    generation_for(ref)  # raises if a model that reasons first is to answer by letters
    return ref


def model_id(name: str) -> str:
    """Returns the short name of a model for test ids from the text after ``--vlm``; opens nothing.

    A declared revision is not part of it, so that revisions are compared under one name.

    >>> model_id("Qwen/Qwen2-VL-2B-Instruct"), model_id("openai:http://localhost/v1#my model@2"), model_id("scripted:a/b.yaml")
    ('Qwen2-VL-2B-Instruct', 'my-model', 'b')
    """
    scheme, colon, rest = name.partition(":")
    if colon and scheme == "openai":
        served = rest.partition("#")[2]
        short = (served.rpartition("@")[0] or served).rpartition("/")[2]
    elif colon and scheme == "scripted":
        short = Path(rest).stem
    elif name.startswith(_LOCAL_START):
        short = os.path.basename(os.path.abspath(os.path.expanduser(name)))  # noqa: PTH100, PTH111, PTH119 - '.' and '..' by text
    else:
        short = name.rstrip("/").rpartition("/")[2]
    return _UNSAFE.sub("-", short).strip("-") or "model"


def model_ids(names: Iterable[str]) -> list[str]:
    """Returns the test-id name of each model."""
    taken: dict[str, str] = {}
    for name in names:
        short = model_id(name)
        if short in taken:
            raise ModelError(
                f"--vlm {_shown(name)!r} and --vlm {_shown(taken[short])!r} would both be called {short!r} in "
                "test ids. Give each model once; to compare two of one name, enter them under different names in a models file "
                "(--vlm-models)"
            )
        taken[short] = name
    return list(taken)


def _shown(name: str) -> str:
    return without_secrets(name) if "://" in name else name


def _scheme_meant(name: str) -> str:
    """Returns the scheme that is most like the scheme of a name; empty without a scheme or a near match."""
    scheme, colon, _ = name.partition(":")
    return did_you_mean(scheme, [f"{other}:" for other in _SCHEMES]) if colon else ""


def _openai(name: str, rest: str) -> ModelRef:
    try:
        served, revision = read_typed(rest)
    except ValueError as error:
        raise ModelError(f"--vlm {without_secrets(name)!r}: {error}") from None
    return ModelRef(name=model_id(name), backend="openai", location=served.location, revision=revision)


def _scripted(name: str, file: str) -> ModelRef:
    path = typed_path(file, given_as="--vlm scripted:")
    kind, _, oracle = file.partition("/")
    if not path.is_file() and kind == ORACLE:
        path = ORACLES / f"{oracle}.yaml"
        if not path.is_file():
            names = oracles()
            raise ModelError(
                f"--vlm {name!r}: no oracle is called {oracle!r}.{did_you_mean(oracle, names)} Known: {', '.join(names)}"
            )
    if not path.is_file():
        hint = did_you_mean(file, files_beside(Path(file)))
        raise ModelError(
            f"--vlm {name!r}: there is no file {str(path)!r}.{hint} Expected scripted:FILE, a YAML or JSON file of rules, or "
            f"scripted:{ORACLE}/NAME of one that is shipped"
        )
    return ModelRef(name=model_id(name), backend="scripted", location=str(path.resolve()))


def oracles() -> list[str]:
    """Returns the names of the scripted models that ship with the package."""
    return sorted(path.stem for path in ORACLES.glob("*.yaml"))


def _saved_at(path: Path) -> float:
    return path.stat().st_mtime


def _by_place(name: str) -> ModelRef | None:
    folder = typed_path(name, given_as="--vlm")
    if folder.is_dir():
        if not (folder / "config.json").is_file() and not is_adapter(folder):
            files = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
            below = [path for path in folder.iterdir() if (path / "config.json").is_file() or is_adapter(path)]
            meant = f". Name a checkpoint in it, such as {str(max(below, key=_saved_at))!r}" if below else ""
            raise ModelError(
                f"--vlm {name!r}: the directory {str(folder)!r} is not a checkpoint as transformers saves it. "
                f"Missing: {'; '.join(missing_parts(folder))}. It holds: {files}{meant}"
            )
        return ModelRef(name=model_id(name), backend="transformers", location=str(folder.resolve()))
    if "://" in name:
        raise ModelError(f"--vlm {without_secrets(name)!r}: a URL alone names no model. {ORDER}.{_scheme_meant(name)}")
    if name.startswith(_LOCAL_START) or name.endswith(("/", os.sep)) or name.count("/") > 1:  # looks like a path
        raise ModelError(f"--vlm {name!r}: there is no directory {str(folder)!r}. {ORDER}")
    if _HUB_ID.match(name):
        return ModelRef(name=model_id(name), backend="transformers", location=name)
    return None


def _with_base(ref: ModelRef) -> ModelRef:
    """For a directory that holds only an adapter, returns its base model with that adapter."""
    folder = Path(ref.location)
    if not is_adapter(folder):
        return ref
    try:
        base = base_of(folder)
    except BackendError as error:
        raise ModelError(f"model {ref.name!r}: {error}") from error
    if not base or not Path(base).is_dir():
        raise ModelError(
            f"model {ref.name!r}: {str(folder)!r} holds an adapter alone, made for {base or 'a model that it does not name'}, "
            "which is no directory here. Enter both in the models file (--vlm-models): the model as 'path', or as 'id' with its "
            "'revision', and this directory as 'adapter'. Or merge them (merge_and_unload of peft), and save model and processor"
        )
    return dataclasses.replace(ref, location=str(Path(base).resolve()), adapter=str(folder.resolve()))


# Backend names and the functions that open them; packages add theirs by the entry-point group ``backends``.


Factory: TypeAlias = Callable[[ModelRef, BackendOptions], Backend]

_SCRIPTED = "scripted"

backends: Registry[Factory] = Registry("backend", "backends")


def open_backend(ref: ModelRef, options: BackendOptions | None = None) -> Backend:
    """Returns the backend of a model without loading weights or reading its files.

    Raises:
        UnknownName: no backend is called ``ref.backend``.
        ModelError: the model's generation parameters cannot be honoured.
        MissingExtra: a package that the backend or the cluster needs is not installed.
    """
    options = options or BackendOptions()
    opened = _open_here(ref, options)
    if options.cluster is None or traits_of(opened).check is not None or ref.backend == _SCRIPTED:
        return opened
    from .ray import RayBackend

    return RayBackend(ref, options, options.cluster, _open_here)


def _open_here(ref: ModelRef, options: BackendOptions) -> Backend:
    factory = backends.get(ref.backend)
    opened = factory(ref, options)
    lacking = [name for name in ("fingerprint", "describe", "infer", "close") if not callable(getattr(opened, name, None))]
    if lacking:
        what = f"a {type(opened).__name__}, which has no method {lacking[0]!r}"
        hint = did_you_mean(lacking[0], [name for name in dir(opened) if not name.startswith("_")])
        raise ModelError(f"model {ref.name!r}: the backend {ref.backend!r} opened {what}.{hint} Fix what it registers")
    if ref.system_prompt and not isinstance(opened, ChatBackend) and factory is not _open_transformers:
        raise ModelError(
            f"model {ref.name!r}: 'system_prompt' is put to the model by built-in backends and by a ChatBackend; "
            f"{ref.backend!r} is neither. Build it on ChatBackend, or write the text into 'template'"
        )
    return opened if factory in _TAKE_IDENTITY else IdentifiedBackend(opened, ref, options)


def _open_transformers(ref: ModelRef, options: BackendOptions) -> Backend:
    from .transformers import TransformersBackend

    wait_passively()
    return TransformersBackend(ref, options)


def _open_scripted(ref: ModelRef, options: BackendOptions) -> Backend:
    from .scripted import ScriptedBackend

    opened = ScriptedBackend.from_file(ref.location, name=ref.name, answers=options.answers, answer=ref.answer)
    opened.ref = ref
    return opened


def _opener(module: str, kind: str) -> Factory:
    def opened(ref: ModelRef, options: BackendOptions) -> Backend:
        backend: Backend = getattr(import_module(f".{module}", __package__), kind)(ref, options)
        return backend

    return opened


_open_openai = _opener("openai", "OpenAIBackend")
_TAKE_IDENTITY = (_open_transformers, _open_openai, _open_scripted)
"""These backends compute the model identity themselves, from only the files that matter."""
backends.add("transformers", _open_transformers)
backends.add("openai", _open_openai)
backends.add("vllm", _opener("vllm", "VllmBackend"))
backends.add("serve", _opener("serving", "ServingBackend"))
backends.add(_SCRIPTED, _open_scripted)
