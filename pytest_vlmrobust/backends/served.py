"""Served models: how they are named, and the facts that a store keeps about them.

``BASE_URL[,BASE_URL...]#MODEL[@REVISION]``: several base URLs are replicas of the same model. The weights of a
server cannot be hashed from outside, so the user declares the revision. A store keeps in one small file per
served model what was seen at its first use.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pytest_vlmrobust.core.errors import BackendError
from pytest_vlmrobust.core.fingerprint import fingerprint

FORM = "BASE_URL#MODEL or BASE_URL#MODEL@REVISION"
EXAMPLE = "http://localhost:8000/v1#qwen2-vl"
_SCHEME = re.compile(r"(openai:)?([a-z]+://)?")


@dataclass(frozen=True, slots=True)
class Served:
    """A model on servers: the base URL of each replica, and the model's name there."""

    urls: tuple[str, ...]
    model: str

    @property
    def location(self) -> str:
        """The text in a ModelRef."""
        return f"{','.join(self.urls)}#{self.model}"

    @classmethod
    def of(cls, location: str) -> Served:
        """Parses a :attr:`location`."""
        urls, _, model = location.partition("#")
        return cls(tuple(urls.split(",")), model)

    def identity(self, revision: str) -> dict[str, Any]:
        """Returns the identity of this model: its declared revision, else its URLs.

        With a declared revision, servers may move and replicas may be added.
        """
        return {"model": self.model, "revision": revision} if revision else {"model": self.model, "urls": sorted(self.urls)}


def read_typed(text: str) -> tuple[Served, str]:
    """Parses the text after ``openai:``; returns the model and its declared revision, which may be empty.

    >>> read_typed("http://a/v1,http://b/v1/#org/m@2024-06")
    (Served(urls=('http://a/v1', 'http://b/v1'), model='org/m'), '2024-06')
    """
    urls, mark, name = text.partition("#")
    model, at, revision = name.rpartition("@")
    if not at:
        model, revision = name, ""
    if not mark or not model or (at and not revision):
        raise ValueError(f"expected {FORM}, such as {EXAMPLE}")
    return Served(read_urls(urls.split(",")), model), revision


def read_urls(texts: Iterable[str]) -> tuple[str, ...]:
    """Returns base URLs in normal form."""
    urls = [text.strip().rstrip("/") for text in texts]
    for url in urls:
        shown = without_secrets(url)
        try:
            parts = urlsplit(url)
        except ValueError:
            raise ValueError(f"{shown!r} is not a base URL. Expected {FORM}, such as {EXAMPLE}") from None
        if "@" in parts.netloc:
            raise ValueError("a base URL has a user or a password before the host. Leave it out: keys come from the environment")
        if parts.query:
            raise ValueError(f"the base URL {shown!r} has a query, not shown here. Leave it out: keys come from the environment")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment:
            raise ValueError(f"{shown!r} is not a base URL. Expected {FORM}, such as {EXAMPLE}")
    return tuple(dict.fromkeys(urls))


def without_secrets(name: str) -> str:
    """Returns a URL or model name without user, password and query, which may be secrets.

    >>> without_secrets("openai:http://a/v1?key=secret#m@r"), without_secrets("http://user:secret@a/v1")
    ('openai:http://a/v1#m@r', 'http://...')
    """
    urls, mark, model = name.partition("#")
    if "@" in urls:  # nobody can tell where a password begins
        return f"{''.join(_SCHEME.findall(urls)[0])}...{mark}{model}"
    return f"{urls.partition('?')[0]}{mark}{model}"


# Facts that a store keeps about a served model.


@dataclass(frozen=True, slots=True)
class Remembered:
    """What was seen at the first use of a served model. Later runs compare with it and store answers under the same name."""

    identity: Mapping[str, Any]
    letters: bool
    """Whether letter log-probabilities are used: it begins its answers to choices with a letter."""
    logprobs: bool = False
    """Whether it gives log-probabilities at all."""
    constraint: str = ""
    """How it is constrained to letters if it does not begin with one: ``structured_choice``, ``logit_bias`` or empty."""
    engine: str = ""
    """The server's name for the owner of the model, such as ``vllm``; empty if it gives none."""
    witnesses: Mapping[str, str] = field(default_factory=dict)
    """Answers to the fixed questions that it answers the same way twice."""
    urls: tuple[str, ...] = ()
    """The URLs it was used at."""
    checked: bool = True
    """Whether it was shown to be the same model after the last answer."""
    learned: tuple[str, ...] = ()
    """Parameters that it refuses, as keys of :data:`client.LEARNED`."""
    changed: str = ""
    """The sign that the store has answers of another model under its name; empty without a sign."""


class Memory:
    """The file of facts about a served model; without a folder they are kept in this process only."""

    def __init__(self, folder: Path | None, identity: Mapping[str, Any], name: str = "") -> None:
        self._identity = dict(identity)
        self._path = folder / (name or f"{fingerprint(self._identity)[:16]}.json") if folder else None
        self._here: Remembered | None = None

    def __str__(self) -> str:
        if self._path is None:
            return "this process"
        return f"{self._path} and {self._mark}" if self._mark.is_file() else str(self._path)

    @property
    def _mark(self) -> Path:
        """The file that marks a change. It is separate, so that no process that writes the other file can undo it."""
        return (self._path or Path()).with_suffix(".changed")

    def read(self) -> Remembered | None:
        """Returns the stored facts, or None."""
        if self._path is None or not self._path.is_file():
            return self._here
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            # facts stored before this key existed keep their meaning
            content = {"constraint": "", "learned": (), "logprobs": content["letters"], **content}
            known = {name: content[name] for name in (field.name for field in fields(Remembered))}
            if self._mark.is_file():
                known["changed"] = self._mark.read_text(encoding="utf-8")
            return Remembered(**{**known, "urls": tuple(known["urls"]), "learned": tuple(known["learned"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BackendError(
                f"{self._path}: not what a run remembers of a served model ({error!r}). Remove it: the server is examined again"
            ) from None

    def add(self, seen: Remembered) -> Remembered:
        """Stores what was seen first and returns the stored facts: of several processes, the first one wins."""
        draft = self._draft(seen)
        if draft is not None and self._path is not None:
            try:
                os.link(draft, self._path)  # fails if another process was first
            except FileExistsError:
                return self.read() or seen
            except OSError:  # a file system without hard links
                draft.replace(self._path)
            finally:
                draft.unlink(missing_ok=True)
        self._here = seen
        return seen

    def note(self, **changes: Any) -> None:
        """Updates stored facts."""
        known = self.read()
        if known is None:
            return
        self._here = replace(known, **changes)
        if changes.get("changed") and self._path is not None:
            with contextlib.suppress(OSError):  # a read-only store
                self._mark.write_text(self._here.changed, encoding="utf-8")
        draft = self._draft(self._here)
        if draft is not None and self._path is not None:
            draft.replace(self._path)

    def _draft(self, seen: Remembered) -> Path | None:
        """Writes a draft next to the target file; None in a read-only store."""
        if self._path is None:
            return None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            draft = self._path.with_name(f"{self._path.name}.{os.getpid()}.{threading.get_ident()}")
            draft.write_text(json.dumps(asdict(seen), sort_keys=True, indent=1), encoding="utf-8")
        except OSError:
            return None
        return draft


def merge_memories(folders: Iterable[Path], out: Path) -> None:
    """Merges the facts of several stores about served models into a new folder."""
    for folder in folders:
        for file in sorted(folder.glob("*.json")):
            there = Memory(folder, {}, file.name).read()
            if there is None:
                continue  # deleted meanwhile
            known = Memory(out, there.identity).add(there)
            if there.changed:
                Memory(out, there.identity).note(changed=there.changed)
            if known == there:
                continue
            if problem := _contradiction(known, there):
                raise BackendError(f"{file}: {problem}. Stores of two models are not merged: declare a revision for each")
            Memory(out, there.identity).note(
                urls=tuple(dict.fromkeys((*known.urls, *there.urls))),
                checked=known.checked and there.checked,
                learned=tuple(dict.fromkeys((*known.learned, *there.learned))),
            )


def _contradiction(known: Remembered, there: Remembered) -> str:
    """Returns in words the sign that two processes used two models; empty without a sign."""
    if known.letters != there.letters:
        return "this server answers choices by letters and another one of the same revision does not, or the other way round"
    if known.constraint != there.constraint:
        return "this server can be kept to letters and another one of the same revision cannot, or in another way"
    if known.engine and there.engine and known.engine != there.engine:
        return f"asked of {there.engine!r}, and in a store before it of {known.engine!r}"
    for question, answer in there.witnesses.items():
        before = known.witnesses.get(question, answer)
        if before != answer:
            return f"the server answered {question!r} with {answer[:60]!r}, and in a store before it {before[:60]!r}"
    return ""
