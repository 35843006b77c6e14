"""Identity: what tells one model from another, taken from the models file and the files that it names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.errors import BackendError
from pytest_vlmrobust.core.fingerprint import file_digest, fingerprint
from pytest_vlmrobust.core.prediction import ModelRef

from .contract import Backend, BackendOptions
from .digests import adapter_digests, commit_of, directory_digests
from .generation import generation_for
from .served import Served

_AS_DECLARED = ("dtype", "answer", "quantization", "device_map", "min_pixels", "max_pixels", "remote_code", "tokenizer")


def decoding_of(ref: ModelRef) -> dict[str, Any]:
    """Returns the parameters that shape a text; its greatest length is part of each request."""
    generation = generation_for(ref)
    if not generation.samples:
        return {"temperature": 0.0, "repetition_penalty": generation.repetition_penalty}
    return {name: value for name, value in dataclasses.asdict(generation).items() if name != "max_new_tokens"}


def identity_of(ref: ModelRef, options: BackendOptions) -> dict[str, Any]:
    """Returns everything about a model that its entry in the models file decides, with digests of the files it names."""
    adapter: dict[str, Any] = {}
    if ref.adapter:
        adapter["adapter"] = adapter_digests(Path(ref.adapter), options.digest_cache, run=options.digests_of)
    declared = {name: value for name in _AS_DECLARED if (value := getattr(ref, name)) not in (None, "", False)}
    return {"model": _model(ref, options), "decoding": decoding_of(ref), **declared, **adapter, **ref.deployment}


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
    """A backend whose fingerprint has the identity of its model, whatever the backend itself says."""

    def __init__(self, backend: Backend, ref: ModelRef, options: BackendOptions) -> None:
        self._backend, self.ref, self._options = backend, ref, options

    def __getattr__(self, member: str) -> Any:
        """Returns any other member of the backend itself."""
        return getattr(self._backend, member)

    def fingerprint(self) -> Mapping[str, Any]:
        """Returns what the backend says, and the identity of its model."""
        said = self._backend.fingerprint()
        if not issubclass(type(said), Mapping) or not said:
            return said  # refused where it is read
        return {**said, "identity": identity_of(self.ref, self._options)}
