"""Rerun: the command that runs one test again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from pytest_vlmrobust.core.record import CHECK, FAMILY, Record


def commands(records: Sequence[Record], manifest: Mapping[str, object]) -> dict[str, str]:
    """Returns, by key, the command line that runs a test again: the run's own options, and the test's node id."""
    return {record.key: command for record in records if (command := _command(record, manifest))}


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
