from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest

from pytest_vlmrobust.backends.digests import commit_of
from pytest_vlmrobust.core.errors import BackendError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)


def _cache(monkeypatch: pytest.MonkeyPatch, found: str | None) -> list[str]:
    asked: list[str] = []

    def look(_hub_id: str, _file: str, *, revision: str) -> str | None:
        asked.append(revision)
        return found

    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", look)
    return asked


def _hub(monkeypatch: pytest.MonkeyPatch, answer: Exception | str | None) -> None:
    def model_info(self: Any, hub_id: str, **_: Any) -> SimpleNamespace:
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(sha=answer)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)


def test_a_commit_stands_for_itself() -> None:
    assert commit_of("org/name", COMMIT, offline=True) == COMMIT


def test_the_cache_is_asked_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = _cache(monkeypatch, str(tmp_path / "snapshots" / COMMIT / "config.json"))
    _hub(monkeypatch, RuntimeError("not to be asked"))
    assert commit_of("org/name", "", offline=False) == COMMIT
    assert commit_of("org/name", "v2", offline=True) == COMMIT
    assert asked == ["main", "v2"]


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
