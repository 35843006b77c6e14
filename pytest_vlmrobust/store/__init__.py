"""Store: predictions that are made once; of a run, the journal of its records, its evidence, manifest and thumbnails."""

from __future__ import annotations

from .evidence import Evidence, StoredCell
from .journal import Journal, last_records, read_journal
from .manifest import read_manifest, write_manifest
from .pictures import Pictures
from .predictions import Store
from .rows import Answer

__all__ = [
    "Answer",
    "Evidence",
    "Journal",
    "Pictures",
    "Store",
    "StoredCell",
    "last_records",
    "read_journal",
    "read_manifest",
    "write_manifest",
]
