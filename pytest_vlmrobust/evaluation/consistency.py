"""Consistency: what the files of a run say of the same thing, held against each other."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.words import quantity, without_halves
from pytest_vlmrobust.policies.policy import policy_content
from pytest_vlmrobust.store import Evidence, read_journal
from pytest_vlmrobust.store.database import FILE_NAME as EVIDENCE
from pytest_vlmrobust.store.journal import FILE_NAME as JOURNAL
from pytest_vlmrobust.store.run_directory import DOCKET_FILE as DOCKET
from pytest_vlmrobust.store.run_directory import MANIFEST_FILE as MANIFEST

from .docket import Docket

_ORIGIN = ("backend", "location", "revision", "prompt_mode")
"""What the manifest and the docket both say of a model."""
_BLIND = "no_image"
"""How the settings name the absence of a reference model."""


def contradictions(run: Path, manifest: Mapping[str, Any]) -> list[str]:
    """Returns, a sentence for each, what the manifest of a run says and its docket and policies do not give.

    Raises:
        StoreError: the docket cannot be read.
        PolicyError: a policy that cannot be honoured.
    """
    docket = Docket.read(run)
    models = {name: {part: asdict(ref)[part] for part in _ORIGIN} for name, ref in docket.models.items()}
    policies = {name: policy_content(docket.policies[name]) for name in docket.models if name in docket.policies}
    settings = manifest.get("settings")
    reference = settings.get("vlm_reference") if isinstance(settings, dict) else None
    return [
        *_unlike("date", manifest.get("date"), docket.today.isoformat(), DOCKET),
        *_unlike("settings.vlm_reference", reference, docket.reference or _BLIND, DOCKET),
        *_unlike("models", manifest.get("models"), models, DOCKET),
        *_unlike("policies", manifest.get("policies"), policies, "the files in policies"),
    ]


def strangers(evidence: Evidence, docket: Docket) -> list[str]:
    """Returns, a sentence for each, what the evidence of a run holds and the run cannot have put there.

    Raises:
        StoreError: the evidence cannot be read.
    """
    asked = {cell.model for cell in evidence.cells()}
    known, fingerprinted, datasets = set(docket.models), set(evidence.models()), set(evidence.datasets())
    unknown = sorted({cell.dataset for cell in evidence.cells()} - datasets)
    return [
        *(f"{EVIDENCE}: holds {name!r}, which no run makes" for name in evidence.foreign()),
        *(f"{EVIDENCE}: is about the model {name!r}, and {DOCKET} is not" for name in sorted((asked | fingerprinted) - known)),
        *(f"{EVIDENCE}: has answers of the model {name!r} and not its fingerprint" for name in sorted(asked - fingerprinted)),
        *(f"{EVIDENCE}: has answers about the data set {name!r} and not its digest" for name in unknown),
    ]


def repeated(run: Path) -> tuple[list[str], list[str]]:
    """Returns what is wrong with tests that have several records, and a note about those that may be right: they ran again.

    Raises:
        StoreError: the records cannot be read.
    """
    records = read_journal(run)
    lines = Counter((record.key, record.to_json()) for record in records if record.seconds)
    wrong = [f"{key}: its record stands in {JOURNAL} {count} times" for (key, _), count in lines.items() if count > 1]
    more = [key for key, count in Counter(record.key for record in records).items() if count > 1]
    said = f"ran again, of which the last record was compared: {named(more)}"
    return wrong, [f"{quantity(len(more), 'test')} {said}"] if len(more) > len(wrong) else []


def named(things: Iterable[str], most: int = 5) -> str:
    """Returns the first names, and how many more there are."""
    every = list(things)
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


def _unlike(name: str, written: Any, derived: Any, source: str) -> Iterable[str]:
    """Says where two JSON values part, as deep as both are objects."""
    again = json.loads(without_halves(json.dumps(derived, ensure_ascii=False)))
    if isinstance(written, dict) and isinstance(again, dict):
        for key in dict.fromkeys((*written, *again)):
            yield from _unlike(f"{name}.{key}", written.get(key), again.get(key), source)
    elif written != again:
        yield f"{MANIFEST}: {name} is not what {source} {'give' if source.startswith('the') else 'gives'}"
