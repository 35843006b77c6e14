"""Store: predictions that are made once, the journal of a run's records, and its manifest."""

from __future__ import annotations

from .journal import Journal, read_journal
from .manifest import read_manifest, write_manifest
from .predictions import Store

__all__ = ["Journal", "Store", "read_journal", "read_manifest", "write_manifest"]
