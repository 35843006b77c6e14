"""Store: predictions made once, and the journal, evidence, manifest and thumbnails of runs."""

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
