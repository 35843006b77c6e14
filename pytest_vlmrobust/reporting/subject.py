"""Subject: what a run judged, as shown at the top of all reports: models, data, date, version and policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.fingerprint import canonical_json
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.words import first_few, on_one_line, quantity

from .facts import mapping, objects

_SHOWN = 12
"""Digits of a SHA-256 or of a revision that people compare."""
_UNKNOWN = "revision not recorded"
_PATCHES = "patches"
_MOST = 4
"""Datasets that a title names."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model: its name in test ids, its origin, and its version."""

    name: str
    location: str = ""
    version: str = _UNKNOWN
    """The requested revision, else the beginning of the SHA-256 of its weights."""
    mode: str = ""
    """Its prompt mode: direct, cot, thinking."""
    deployment: str = ""
    """Its declared deployment settings; empty if none."""

    def __str__(self) -> str:
        from_a_hub = self.location != self.name and not Path(self.location).is_absolute()
        return f"{self.name} ({', '.join(filter(None, (self.location if from_a_hub else '', self.version)))})"


@dataclass(frozen=True, slots=True)
class AppliedPolicy:
    """The policy of a model: its files, and the hash of their meaning."""

    model: str
    files: tuple[str, ...]
    sha256: str

    def __str__(self) -> str:
        return " ".join(filter(None, (", ".join(self.files), self.sha256[:_SHOWN] or "hash unknown")))


@dataclass(frozen=True, slots=True)
class Subject:
    """What a run judged. Facts that were not recorded are shown as unknown."""

    models: tuple[Model, ...]
    data: Mapping[str, int]
    """Samples by dataset; 0 if unknown."""
    policies: tuple[AppliedPolicy, ...]
    run: str
    date: str
    version: str

    @property
    def lines(self) -> list[tuple[str, str]]:
        """The label and text of each line."""
        several = len({one.sha256 for one in self.policies}) > 1
        named = [(f"policy of {one.model}" if several else "policy", str(one)) for one in self.policies]
        return [
            ("model" if len(self.models) == 1 else "models", ", ".join(map(str, self.models)) or "none"),
            *(("asked with", f"{one.name}: {one.deployment}") for one in self.models if one.deployment),
            ("data", ", ".join(self.datasets) or "none"),
            ("date", self.date or "not recorded"),
            ("gate", f"pytest-vlmrobust {self.version or 'of a version not recorded'}"),
            *(dict.fromkeys(named) or [("policy", "none: nothing was gated")]),
            *([("run", self.run)] if self.run else []),
        ]

    @property
    def datasets(self) -> list[str]:
        """Its datasets, each with its samples."""
        return [f"{name} ({quantity(count, 'sample')})" if count else name for name, count in self.data.items()]

    def title(self, decision: str) -> str:
        """Returns the title of the run's page, for browsers and PDF files."""
        models, data = first_few(map(str, self.models), _MOST), first_few(self.datasets, _MOST)
        about = " on ".join(filter(None, (models, data)))
        policies = " ".join(dict.fromkeys(one.sha256[:_SHOWN] for one in self.policies if one.sha256))
        told = (self.date, f"pytest-vlmrobust {self.version}".strip(), f"policy {policies}" if policies else "no policy")
        return on_one_line(", ".join(filter(None, (f"{decision}: {about}" if about else decision, *told))))


def subject(records: Sequence[Record], origins: Mapping[str, object]) -> Subject:
    """Returns the subject of a run."""
    known = mapping(origins.get("models"))
    names = sorted({*known, *(record.model for record in records if record.model and record.dataset)})  # as manifests do
    run, date, version = (str(origins.get(name) or "") for name in ("run", "date", "version"))
    return Subject(
        tuple(_model(name, mapping(known.get(name))) for name in names),
        _data(records),
        tuple(_policies(records, mapping(origins.get("policies")))),
        run,
        date,
        version,
    )


def _model(name: str, origin: Mapping[str, Any]) -> Model:
    said = mapping(origin.get("fingerprint"))
    weights = mapping(said.get("weights")) or mapping(mapping(said.get("identity")).get("model"))
    digest = str(weights.get("sha256") or weights.get("commit") or "")[:_SHOWN]
    revision = str(origin.get("revision") or "")
    version = f"revision {revision}" if revision else f"weights {digest}" if digest else _UNKNOWN
    return Model(name, str(origin.get("location") or ""), version, str(origin.get("prompt_mode") or ""), _deployment(origin))


def _deployment(origin: Mapping[str, Any]) -> str:
    """Returns an adapter, a system prompt, and other settings of every question, by key."""
    given = {name: origin[name] for name in ("adapter", "quantization") if name in origin}
    declared = {**given, **mapping(origin.get("deployment"))}
    decoding = mapping(mapping(origin.get("fingerprint")).get("decoding"))
    if "temperature" in decoding and decoding["temperature"] is None:
        declared["temperature"] = "none"
    return ", ".join(f"{key}: {value if isinstance(value, str) else canonical_json(value)}" for key, value in declared.items())


def _data(records: Iterable[Record]) -> dict[str, int]:
    """Returns how many samples each dataset has. Cells of patches count views, and cells that were not asked about nothing."""
    counts: dict[str, int] = {}
    for record in records:
        if not record.dataset:
            continue
        cell = record.test == "cell" and record.family != _PATCHES
        asked = (record.n_samples or record.n_requested) if cell else 0
        counts[record.dataset] = max(counts.get(record.dataset, 0), asked)
    return dict(sorted(counts.items()))


def _policies(records: Iterable[Record], known: Mapping[str, Any]) -> Iterable[AppliedPolicy]:
    hashes: dict[str, dict[str, None]] = {str(name): {} for name in known}
    for record in records:
        if record.policy_sha256:
            hashes.setdefault(record.model, {})[record.policy_sha256] = None
    for model, digests in hashes.items():
        entry = mapping(known.get(model))
        files = tuple(str(file.get("name")) for file in objects(entry.get("files")))
        yield AppliedPolicy(model, files, ", ".join(digests) or str(entry.get("sha256") or ""))
