"""Store: predictions that are made once; of a run, the journal of its records, its evidence, manifest and thumbnails."""

from __future__ import annotations

from .evidence import Evidence, StoredCell, StoredScores
from .journal import Journal, last_records, read_journal
from .predictions import Store
from .questions import Answer
from .run_directory import Pictures, read_manifest, write_manifest

__all__ = [
    "Answer",
    "Evidence",
    "Journal",
    "Pictures",
    "Store",
    "StoredCell",
    "StoredScores",
    "last_records",
    "read_journal",
    "read_manifest",
    "write_manifest",
]
