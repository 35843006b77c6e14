"""Rerun: the command that runs one test again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from pytest_vlmrobust.core.record import CHECK, FAMILY, Record

from ..wording import RunFacts


def commands(records: Sequence[Record], facts: RunFacts, manifest: Mapping[str, object]) -> dict[str, str]:
    """Returns, by key, the command line that runs a test again: as pytest was called, else with the manifest's options."""
    known = {record.key: facts.command.one(record) if facts.command else _command(record, manifest) for record in records}
    return {key: command for key, command in known.items() if command}


def whole(manifest: Mapping[str, object]) -> str:
    """Returns the command line of the run as far as the manifest has it; an empty string where it has not."""
    options = _options(manifest)
    return shlex.join(["pytest", *options]) if options else ""


def _command(record: Record, manifest: Mapping[str, object]) -> str:
    if not record.nodeid:
        return ""
    options = _options(manifest)
    if not options and record.test not in (CHECK, FAMILY):
        options = [f"--vlm={record.model}"]
    return shlex.join(["pytest", *options, record.nodeid])


def _options(manifest: Mapping[str, object]) -> list[str]:
    given = manifest.get("options")
    return [str(one) for one in given] if isinstance(given, list | tuple) else []
