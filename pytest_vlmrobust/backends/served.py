"""Served models: how one is named, and what a store remembers of it.

``BASE_URL[,BASE_URL...]#MODEL[@REVISION]``: several base URLs are replicas, which serve the same model. Nobody outside of a
server can hash its weights, so what it runs is what the user declares as the revision. A store remembers, in one small file for
each served model, what was seen when it was asked first.
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
    """A model on servers: the base URL of each replica, and its name there."""

    urls: tuple[str, ...]
    model: str

    @property
    def location(self) -> str:
        """As it stands in a ModelRef."""
        return f"{','.join(self.urls)}#{self.model}"

    @classmethod
    def of(cls, location: str) -> Served:
        """Reads what :attr:`location` wrote."""
        urls, _, model = location.partition("#")
        return cls(tuple(urls.split(",")), model)

    def identity(self, revision: str) -> dict[str, Any]:
        """Returns what tells this model from others: its declared revision, else where it is served.

        A declared revision holds wherever the model is served: a server may move, and replicas may be added.
        """
        return {"model": self.model, "revision": revision} if revision else {"model": self.model, "urls": sorted(self.urls)}


def read_typed(text: str) -> tuple[Served, str]:
    """Returns what stands behind ``openai:``, and the declared revision, empty where there is none.

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
    """Returns base URLs as they are kept."""
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
    """Returns a URL, or a typed model, as an error may repeat it: a user, a password or a query may be a key.

    >>> without_secrets("openai:http://a/v1?key=secret#m@r"), without_secrets("http://user:secret@a/v1")
    ('openai:http://a/v1#m@r', 'http://...')
    """
    urls, mark, model = name.partition("#")
    if "@" in urls:  # where a password begins, only its writer knows
        return f"{''.join(_SCHEME.findall(urls)[0])}...{mark}{model}"
    return f"{urls.partition('?')[0]}{mark}{model}"


# What a store remembers of a served model.


@dataclass(frozen=True, slots=True)
class Remembered:
    """What was seen when a served model was asked first: whoever asks later compares, and gives its answers the same name."""

    identity: Mapping[str, Any]
    letters: bool
    """Whether its log-probabilities are used: it begins its answers to choices with a letter."""
    logprobs: bool = False
    """Whether it gives log-probabilities, of letters or of other tokens."""
    constraint: str = ""
    """The method by which it is kept to letters where it begins with none: ``structured_choice``, ``logit_bias`` or none."""
    engine: str = ""
    """What the server calls the owner of the model, such as ``vllm``; empty where it does not say."""
    witnesses: Mapping[str, str] = field(default_factory=dict)
    """Answers to fixed questions, of those that it answers the same way twice."""
    urls: tuple[str, ...] = ()
    """Where it was asked."""
    checked: bool = True
    """Whether it was seen to be the same model after the last answer."""
    learned: tuple[str, ...] = ()
    """Which parameters it was seen to refuse, as :data:`client.LEARNED` calls them."""
    changed: str = ""
    """What showed that answers of another model are in the store under its name; empty while nothing did."""


class Memory:
    """One file that remembers a served model; without a folder this process alone does."""

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
        """The file that says what changed: one of its own, so that no process that writes the other one can undo it."""
        return (self._path or Path()).with_suffix(".changed")

    def read(self) -> Remembered | None:
        """Returns what is remembered, or None."""
        if self._path is None or not self._path.is_file():
            return self._here
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            # what was remembered before this was looked for is answered as before
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
        """Remembers what was seen first, and returns what is remembered: of several processes, what the first one saw."""
        draft = self._draft(seen)
        if draft is not None and self._path is not None:
            try:
                os.link(draft, self._path)  # fails where another process was first
            except FileExistsError:
                return self.read() or seen
            except OSError:  # a file system without hard links
                draft.replace(self._path)
            finally:
                draft.unlink(missing_ok=True)
        self._here = seen
        return seen

    def note(self, **changes: Any) -> None:
        """Changes something of what is remembered."""
        known = self.read()
        if known is None:
            return
        self._here = replace(known, **changes)
        if changes.get("changed") and self._path is not None:
            with contextlib.suppress(OSError):  # a store that can only be read
                self._mark.write_text(self._here.changed, encoding="utf-8")
        draft = self._draft(self._here)
        if draft is not None and self._path is not None:
            draft.replace(self._path)

    def _draft(self, seen: Remembered) -> Path | None:
        """Writes a file beside the one that is meant; None in a store that can only be read."""
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
    """Puts what several stores remember of served models into the folder of a new one."""
    for folder in folders:
        for file in sorted(folder.glob("*.json")):
            there = Memory(folder, {}, file.name).read()
            if there is None:
                continue  # gone meanwhile
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
    """Returns what shows that two processes asked two models, in words; empty where nothing does."""
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
