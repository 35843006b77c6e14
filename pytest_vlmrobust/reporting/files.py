"""Files of a report: report.html, results.json, cells.csv, summary.md, model_card.md, junit.xml, manifest.json; models.html."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.cell import NO_IMAGE_NAME
from pytest_vlmrobust.core.conversion import from_plain
from pytest_vlmrobust.core.decision import Allowance, Decision, Outcome
from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.words import on_one_line
from pytest_vlmrobust.evaluation.after.ranking import rank_run
from pytest_vlmrobust.store import Evidence, last_records, read_manifest, write_manifest
from pytest_vlmrobust.store.database import FILE_NAME as EVIDENCE
from pytest_vlmrobust.store.evidence import lost_answers
from pytest_vlmrobust.store.gates import GateCount
from pytest_vlmrobust.store.repeatability import Repeatability
from pytest_vlmrobust.store.run_directory import FOLDER, manifest_as_read, planned_tests, store_of
from pytest_vlmrobust.store.run_directory import MANIFEST_FILE as MANIFEST
from pytest_vlmrobust.store.spending import Spending

from . import junit, results
from .explanation import Command
from .facts import RunFacts, mapping, noise_warnings
from .html import render_html
from .markdown import MODEL_CARD, SUMMARY, model_card, summary
from .ranking import FILES as RANKING_FILES
from .ranking import write_ranking
from .view import RunView
from .writing import write_text

REPORT = "report.html"
UNREADABLE = "the answers of the run cannot be read"
WRITERS: Mapping[str, Callable[[RunView], str]] = {
    results.FILE_NAME: results.results_json,
    results.CSV_FILE: results.cells_csv,
    SUMMARY: summary,
    MODEL_CARD: model_card,
    junit.FILE_NAME: junit.junit_xml,
}
"""The files of a report that follow from its view alone, each with what returns its text."""


def write_report(directory: Path, view: RunView, manifest: Mapping[str, object] | None) -> list[Path]:
    """Writes the report into ``directory``, which is created, and returns its files; each is replaced atomically.

    Without a manifest (a report made again from a journal) an existing manifest is unchanged.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if manifest is not None:  # verifying renders the page from the files, with the manifest as read back
        origins = manifest_as_read(manifest)
        view = RunView(view.records, replace(view.facts, origins=origins, models=(*origins.get("models", view.facts.models),)))
    for name, text in WRITERS.items():
        write_text(directory / name, text(view))
    if manifest is not None:
        write_manifest(directory, manifest)
    if view.facts.ranking is not None:
        write_ranking(directory, view.facts.ranking)
    write_text(directory / REPORT, render_html(view))
    names = [*WRITERS, *([MANIFEST] if manifest is not None else []), *(RANKING_FILES if view.facts.ranking else []), REPORT]
    return [directory / name for name in names]


# Reading a run's directory, also after it was killed.


@dataclass(frozen=True, kw_only=True)
class RunFiles(RunView):
    """A run that was read from its directory; a repeated test has its last record."""

    directory: Path
    manifest: Mapping[str, Any]
    damage: str = ""
    """Why its answers cannot be read; empty if they can, or if it asked nothing."""

    @property
    def name(self) -> str:
        """Its name: that of its directory, where the manifest has none."""
        return str(self.manifest.get("run", self.directory.resolve().name))

    @property
    def unrecorded(self) -> int:
        """The number of tests without a record, as recorded at the end of the run, or as missing from a killed run."""
        return int(self.manifest.get("missing", self.facts.missing(self.records)))


def read_run(directory: Path) -> RunFiles:
    """Reads the journal, the manifest and ``docket.json`` of a run."""
    records = tuple(last_records(directory))
    manifest = read_manifest(directory)
    lost = lost_answers(directory, records)
    fingerprints, damage = ({}, lost) if lost else _fingerprints(directory)
    try:
        facts = _facts(directory, manifest, fingerprints, damage)
        return RunFiles(records, facts, directory=directory, manifest=manifest, damage=damage)
    except KeyError as error:
        raise StoreError(f"{directory / MANIFEST}: lacks {error}. Expected the JSON file that a run wrote") from error


def _facts(directory: Path, manifest: Mapping[str, Any], fingerprints: Mapping[str, Any], damage: str) -> RunFacts:
    repeatability = tuple(from_plain(entry, Repeatability) for entry in manifest.get("repeatability", ()))
    models = mapping(manifest.get("models"))
    extra = {name: {"fingerprint": fingerprints[name]} if name in fingerprints else {} for name in models}
    origins = {**manifest, "models": {name: {**mapping(origin), **extra[name]} for name, origin in models.items()}}
    warnings = map(str, manifest.get("warnings", noise_warnings(repeatability)))
    return RunFacts(
        models=tuple(models),
        planned=manifest["planned"],
        selected=manifest["selected"],
        shortfalls=manifest.get("shortfalls", ()),
        allowances=tuple(from_plain(entry, Allowance) for entry in manifest.get("allowances", ())),
        stopped=str(manifest.get("stopped", "")),
        pictures=store_of(directory, manifest) / FOLDER,
        origins=origins if fingerprints else manifest,
        tests=planned_tests(directory),
        repeatability=repeatability,
        spending=tuple(from_plain(entry, Spending) for entry in manifest.get("spending", {}).values()),
        warnings=(*warnings, *([UNREADABLE] if damage else [])),
        gates=tuple(from_plain(entry, GateCount) for entry in manifest.get("gates", ())),
        directory=str(directory),
        command=Command.read(manifest.get("command")),
    )


def _fingerprints(directory: Path) -> tuple[Mapping[str, Any], str]:
    """Returns the fingerprint of each model, which identifies weights without a revision, and why the evidence cannot be read."""
    if not (directory / EVIDENCE).is_file():
        return {}, ""
    try:
        with Evidence.open(directory, read_only=True) as evidence:
            return evidence.models(), ""
    except StoreError as error:
        return {}, str(error)


def ranked(run: RunFiles) -> RunFiles:
    """Returns a run with a ranking of its models, or a warning that says why there is none, as its report has it."""
    if len(run.facts.models) < 2:
        return run
    reference = str(run.manifest.get("settings", {}).get("vlm_reference", ""))
    try:
        with Evidence.open(run.directory, read_only=True) as evidence:
            ranking = rank_run(evidence, str(run.manifest.get("run", "")), "" if reference == NO_IMAGE_NAME else reference)
        return replace(run, facts=run.facts.with_ranking(*ranking))
    except StoreError as error:
        problem = "the models of the run are not ranked: its answers cannot be read"
        return replace(run, facts=run.facts.with_ranking(None, problem), damage=str(error))


# GitHub Actions: the job summary, and annotations at the lines of thresholds files.


_ANNOTATIONS = 10
"""The most annotations of a kind that GitHub shows per step."""
_PLACE = re.compile(r"\(rule [^,()]+, (?P<file>[^()]+):(?P<line>\d+)\)")


def annotation_lines(view: RunView, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Returns workflow commands that annotate the decision and the worst tests; empty outside GitHub Actions."""
    if environment.get("GITHUB_ACTIONS") != "true":
        return []
    kind = {Decision.GO: "notice", Decision.INCONCLUSIVE: "warning"}.get(view.decision, "error")
    lines = [_annotation(kind, view.word, view.sentence, {})]
    loud = [test.record for test in view.explained]
    for name, outcomes in {
        "error": (Outcome.FAIL, Outcome.ERROR),
        "warning": (Outcome.INCONCLUSIVE, Outcome.NOT_APPLICABLE),
    }.items():
        room = _ANNOTATIONS - (name == kind)
        for record in [record for record in loud if record.outcome in outcomes][:room]:
            place = _PLACE.search(record.reason)
            lines.append(_annotation(name, f"{record.outcome} {record.id}", record.reason, place.groupdict() if place else {}))
    return lines


def _annotation(kind: str, title: str, text: str, place: Mapping[str, str]) -> str:
    values = {**place, "title": title}
    attributes = ",".join(f"{name}={_github(value).replace(':', '%3A').replace(',', '%2C')}" for name, value in values.items())
    return f"::{kind} {attributes}::{_github(text)}"


def _github(text: str) -> str:
    """Returns text for a workflow command: on one line, with escaped percent signs."""
    return on_one_line(text).replace("%", "%25")


VARIABLE = "GITHUB_STEP_SUMMARY"


def add_step_summary(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Appends Markdown to the file that ``$GITHUB_STEP_SUMMARY`` names; without it, nothing happens.

    Returns: Why it could not be written, or an empty string: that a page shows no summary is no verdict on a model.
    """
    named = environment.get(VARIABLE, "")
    if not named:
        return ""
    try:
        with Path(named).open("a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(f"{text}\n")
    except OSError as error:
        return f"${VARIABLE} {named!r}: the summary could not be added: {error.strerror}"
    return ""
