"""Runs: what the directory of a run holds for those who report on it, also after it was killed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.repeatability import Repeatability
from pytest_vlmrobust.core.verdict import Decision
from pytest_vlmrobust.store import last_records, read_manifest
from pytest_vlmrobust.store.run_directory import DOCKET_FILE as DOCKET
from pytest_vlmrobust.store.run_directory import FOLDER, planned_tests
from pytest_vlmrobust.store.run_directory import MANIFEST_FILE as MANIFEST

from .junit import junit_xml, suite_properties
from .noise import noise_warnings
from .rerun import Command
from .wording import RunFacts

_STORE = Path("..", "..")
"""From a run's directory to its store, where its manifest does not say: that of a run kept elsewhere does."""


@dataclass(frozen=True, slots=True)
class RunFiles:
    """What a run left: of a test that ran again, the last record."""

    directory: Path
    records: tuple[Record, ...]
    facts: RunFacts
    manifest: Mapping[str, Any]

    @property
    def decision(self) -> Decision:
        """The decision of the run."""
        return self.facts.decision(self.records)

    @property
    def unrecorded(self) -> int:
        """How many tests left no record, as the run said when it was over; of a killed one, as many as are missing."""
        return int(self.manifest.get("missing", self.facts.missing(self.records)))

    @property
    def junit(self) -> str:
        """The run as a JUnit file."""
        suite = suite_properties(self.manifest, self.records, self.facts)
        return junit_xml(self.records, suite, self.facts.lost(self.records), self.facts.command)


def read_run(directory: Path) -> RunFiles:
    """Reads the journal, the manifest and the docket of a run.

    Raises:
        StoreError: journal or manifest are absent or cannot be read.
    """
    records = tuple(last_records(directory))
    manifest = read_manifest(directory)
    try:
        return RunFiles(directory, records, _facts(directory, manifest), manifest)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{directory}: {MANIFEST} or {DOCKET} is not what a run wrote: {error!r}") from error


def _facts(directory: Path, manifest: Mapping[str, Any]) -> RunFacts:
    repeatability = tuple(map(Repeatability.from_dict, manifest.get("repeatability", ())))
    return RunFacts(
        models=tuple(manifest.get("models", ())),
        planned=manifest["planned"],
        selected=manifest["selected"],
        shortfalls=manifest.get("shortfalls", ()),
        stopped=str(manifest.get("stopped", "")),
        pictures=directory / manifest.get("store", _STORE) / FOLDER,
        origins=manifest,
        tests=planned_tests(directory),
        repeatability=repeatability,
        warnings=noise_warnings(repeatability),
        command=Command.read(manifest.get("command")),
    )
