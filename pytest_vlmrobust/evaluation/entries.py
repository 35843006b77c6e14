"""Entries: runs that are opened side by side, and whether they asked the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.errors import DatasetError, StoreError
from pytest_vlmrobust.store import Evidence, read_manifest

from .baseline import Baseline

_MOST = 3
"""Names in a message."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A run whose models are ranked."""

    where: str
    """What messages call it."""
    run: Baseline
    name: str = ""
    """What stands before the names of its models, where several runs have a model of one name."""

    @classmethod
    def open(cls, directory: Path, name: str = "") -> Entry:
        """Opens the evidence of a run.

        Raises:
            UsageError: there is none, or nothing in it.
        """
        return cls(str(directory), Baseline.open(directory), name)

    @classmethod
    def of(cls, evidence: Evidence, where: str) -> Entry:
        """Returns the entry of evidence that is open already, and stays so."""
        return cls(where, Baseline(evidence))


def places(first: Entry, entry: Entry, dataset: str) -> list[int]:
    """Returns where a run has each sample of the first run.

    Raises:
        DatasetError: it asked other samples, or showed other pictures.
    """
    ours = first.run.samples(dataset)
    if entry is first:
        return list(range(len(ours)))
    theirs = entry.run.samples(dataset)
    before, after = {one.id: one.asked for one in ours}, {one.id: one.asked for one in theirs}
    shown, own = first.run.pictures(dataset), entry.run.pictures(dataset)
    common = before.keys() & after.keys()
    differ = {
        f"are not in {entry.where!r}": before.keys() - common,
        f"are only in {entry.where!r}": after.keys() - common,
        "ask something else": {name for name in common if before[name] != after[name]},
        "show other pictures": {name for name in common & shown.keys() & own.keys() if not shown[name].same_as(own[name])},
    }
    if said := [f"{len(ids)} {what} ({listed(sorted(ids))})" for what, ids in differ.items() if ids]:
        raise DatasetError(
            f"{dataset} is not the same in {first.where!r} and {entry.where!r}: of {len(ours)} samples, {'; '.join(said)}. "
            "Models are ranked on the same samples only: run them all with the same data set and the same --vlm-sample"
        )
    place = {sample.id: index for index, sample in enumerate(theirs)}
    return [place[sample.id] for sample in ours]


def not_the_same(entries: Sequence[Entry], datasets: Iterable[str]) -> list[str]:
    """Returns what of several runs is not the same, or is not known to be."""
    if len(entries) < 2:
        return []
    lacking = {one.where: sorted({*datasets}.intersection(one.run.without_pictures)) for one in entries}
    said = [
        f"{where} does not say which pictures of {', '.join(names)} it showed: they were not compared"
        for where, names in lacking.items()
        if names
    ]
    made = {one.where: _manifest(one) for one in entries}
    for what, values in {
        "seeds of perturbations": {where: found.get("settings", {}).get("vlm_seed") for where, found in made.items()},
        "releases of pytest-vlmrobust": {where: found.get("version") for where, found in made.items()},
    }.items():
        known = {where: value for where, value in values.items() if value is not None}
        if len(set(known.values())) > 1:
            each = ", ".join(f"{value} in {where}" for where, value in known.items())
            said.append(f"the runs have different {what} ({each}): perturbed pictures may differ")
    return said


def listed(names: Sequence[str]) -> str:
    """Returns the first names, and how many more there are."""
    rest = len(names) - _MOST
    return ", ".join(names[:_MOST]) + (f" and {rest} more" if rest > 0 else "")


def _manifest(entry: Entry) -> Mapping[str, Any]:
    """Returns the manifest of a run; nothing where there is none, as beside evidence that was copied alone."""
    try:
        return read_manifest(entry.run.evidence.path.parent)
    except StoreError:
        return {}
