"""Which commit of a hub repository is meant, so that weights, tokenizer and answers all belong to one state of it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.errors import BackendError

_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_TIMEOUT_SECONDS = 20.0


def commit_of(hub_id: str, revision: str, *, offline: bool) -> str:
    """Returns the commit that ``revision`` (empty: the default branch) of a hub repository stands for.

    A commit stands for itself. What is in the local cache is used before the hub is asked, so that a branch that moved on
    does not change a model half-way through a series of runs; the manifest says which commit it was.

    Raises:
        BackendError: not in the cache, and the hub cannot be asked or does not have it.
    """
    if _COMMIT.match(revision):
        return revision
    cached = _cached_commit(hub_id, revision or "main")
    if cached:
        return cached
    if offline or offline_by_environment():
        raise BackendError(
            f"model {hub_id!r} (revision {revision or 'main'!r}) is not in the local cache of the hub, and this run is offline. "
            f"Download it where there is a network: hf download {hub_id}; or give a local checkpoint directory"
        )
    return _asked_commit(hub_id, revision)


def offline_by_environment() -> bool:
    """Returns whether the environment forbids asking the hub."""
    return any(
        os.environ.get(name, "").upper() in {"1", "ON", "YES", "TRUE"} for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    )


def _cached_commit(hub_id: str, revision: str) -> str:
    from huggingface_hub import try_to_load_from_cache

    found: Any = try_to_load_from_cache(hub_id, "config.json", revision=revision)
    return Path(found).parent.name if isinstance(found, str) else ""


def _asked_commit(hub_id: str, revision: str) -> str:
    from huggingface_hub import HfApi

    try:
        commit = HfApi().model_info(hub_id, revision=revision or None, timeout=_TIMEOUT_SECONDS).sha
    except Exception as error:  # every way a network can fail
        raise BackendError(
            f"the hub did not say which commit {hub_id!r} (revision {revision or 'main'!r}) is: {_first_line(error)}. "
            "Check the id (there is no local directory of that name either), the network, and for gated models 'hf auth login'; "
            f"or download it beforehand: hf download {hub_id}"
        ) from error
    if not commit:
        raise BackendError(f"the hub knows {hub_id!r} but names no commit of it. Give one as the model's revision")
    return commit


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['(no message)'])[0]}"
