"""Names of backends to the functions that open them; packages add theirs by the entry-point group ``backends``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pytest_vlmrobust.core.model import ModelRef
from pytest_vlmrobust.core.registry import Registry

from .protocol import Backend, BackendOptions

Factory: TypeAlias = Callable[[ModelRef, BackendOptions], Backend]

backends: Registry[Factory] = Registry("backend", "backends")


def open_backend(ref: ModelRef, options: BackendOptions | None = None) -> Backend:
    """Returns the backend of a model; no weights are loaded and no file of the model is read yet.

    Raises:
        UnknownName: no backend is called ``ref.backend``.
        ModelError: the model's generation parameters cannot be honoured.
    """
    return backends.get(ref.backend)(ref, options or BackendOptions())


def _transformers(ref: ModelRef, options: BackendOptions) -> Backend:
    from .transformers import TransformersBackend

    return TransformersBackend(ref, options)


def _scripted(ref: ModelRef, options: BackendOptions) -> Backend:
    from .scripted import ScriptedBackend

    return ScriptedBackend.from_file(ref.location, name=ref.name, answers=options.answers)


backends.add("transformers", _transformers)
backends.add("scripted", _scripted)
