"""Verification: every record of a run computed again from its evidence, offline, and compared with what the run wrote."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.cell import Cell, FamilyMetric
from pytest_vlmrobust.core.errors import UsageError, VlmRobustError
from pytest_vlmrobust.core.record import CHECK, Record
from pytest_vlmrobust.core.verdict import Outcome
from pytest_vlmrobust.core.words import quantity
from pytest_vlmrobust.store import Evidence
from pytest_vlmrobust.store.run_directory import BASELINE

from .baseline import Baseline
from .consistency import named, strangers
from .docket import Docket, DocketTest, StoredTasks, changed_policies
from .families import families
from .judging import Judge
from .replay import Replay, Rescored

_SAME = 1e-12
"""Numbers closer than this are equal: another processor may add in another order."""
_CIRCUMSTANCES = {"nodeid", "seconds", "n_inferred", "n_recalled"}
"""What a record says about the run, and not about the model."""
_MOST = 20
"""Answers that are named one by one."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What was computed again, and what differs."""

    differences: tuple[str, ...] = ()
    """A sentence each: what the run wrote is not what its evidence gives."""
    notes: tuple[str, ...] = ()
    """What could not be compared, and why that is no difference."""
    answers: int = 0
    """Answers that were scored again."""
    records: int = 0
    """Records that were computed again."""
    policies: Mapping[str, str] = field(default_factory=dict)
    """Model to the SHA-256 of what its policy means, computed from the files that were applied."""


def verify(run: Path, records: Sequence[Record], *, unrecorded: int = 0) -> Verification:
    """Scores every answer of a run again, judges every test again, and says what differs from its records.

    Args:
        run: a directory with the docket, the policies and the evidence of a run.
        records: what the run wrote, one record a test.
        unrecorded: how many tests the run itself says left no record.

    Raises:
        StoreError: docket or evidence are absent or cannot be read.
        PolicyError: a policy that cannot be honoured.
    """
    found = changed_policies(run)
    docket = Docket.read(run)
    found += [
        f"policy of {name}: the files mean {docket.policies[name].sha256}, and the run applied {claimed}"
        for name, claimed in docket.applied.items()
        if docket.policies[name].sha256 != claimed
    ]
    baseline = Baseline.open(run / BASELINE, trusting=True) if docket.baseline else None
    try:
        with Evidence.open(run, read_only=True) as evidence:
            found += strangers(evidence, docket)
            replay = Replay(evidence, docket.models)
            for name in evidence.datasets():
                replay.samples(name)  # what cannot be read is no difference: it ends here
            answers, unreadable = _answers(replay)
            judge = Judge(
                replay,
                docket.policies,
                docket.today,
                docket.reference,
                data=StoredTasks(docket.tasks, docket.lacking),
                families=families(docket.models),
                baseline=baseline,
                attempts=docket.attempts,
            )
            differences, notes, count = _judged(judge, docket, records, unrecorded)
            found += unreadable + _rescored(replay.rescored) + differences
            found += _of_baseline(baseline) if baseline is not None else []
    finally:
        if baseline is not None:
            baseline.close()
    hashes = {name: policy.sha256 for name, policy in docket.policies.items()}
    return Verification(tuple(found), tuple(notes), answers, count, hashes)


def _answers(replay: Replay) -> tuple[int, list[str]]:
    """Scores the answers of all cells, also of those that no record is about; returns how many, and what cannot be scored here.

    Raises:
        StoreError: answers cannot be read, which is no difference: it ends here.
    """
    count, problems = 0, []
    for cell in replay.evidence.cells():
        try:
            count += len(replay.result(cell).scores)
        except UsageError as error:
            problems.append(f"{cell}: its answers cannot be scored again: {error}")
    return count, problems


def _of_baseline(baseline: Baseline) -> list[str]:
    """Scores all answers of the run that was compared with, and says what differs or cannot be scored."""
    problems = []
    for cell in baseline.evidence.cells():
        try:
            baseline.own_scores(cell)
        except UsageError as error:
            problems.append(f"{cell}: its answers cannot be scored again: {error}")
    return [f"{BASELINE}: {said}" for said in problems + _rescored(baseline.rescored)]


def _rescored(differing: Sequence[Rescored]) -> list[str]:
    more = len(differing) - _MOST
    return [
        *map(str, differing[:_MOST]),
        *(
            [quantity(more, "more answer has another letter or score", "more answers have another letter or score")]
            if more > 0
            else []
        ),
    ]


def _judged(judge: Judge, docket: Docket, records: Sequence[Record], unrecorded: int) -> tuple[list[str], list[str], int]:
    """Returns what differs, what could not be compared, and how many records were computed again."""
    by_key = {record.key: record for record in records}
    planned = {test.nodeid for test in docket.tests}
    missing = [test.nodeid for test in docket.tests if test.nodeid not in by_key]
    stray = [record for record in records if record.key not in planned and record.test != CHECK]
    found = [f"{record.key}: a record of a test that the run did not plan" for record in stray]
    notes = [(record.id, f"not computed again: {record.reason}") for record in records if record.test == CHECK]
    if len(missing) > unrecorded:
        found += [f"{nodeid}: its record is missing" for nodeid in missing]
    else:
        notes += [(nodeid, "the run left no verdict") for nodeid in missing]
    count = 0
    for test in docket.tests:
        record = by_key.get(test.nodeid)
        if record is None:
            continue
        if record.outcome is Outcome.ERROR and not record.measures:
            notes.append((record.key, f"not computed again, for nothing was measured: {record.reason}"))
            continue
        count += 1
        found += _compared(judge, test, record)
    return found, _grouped(notes), count


def _grouped(notes: Sequence[tuple[str, str]]) -> list[str]:
    """Returns a line for each thing that is said, with the first of the tests that it is said of."""
    having: dict[str, list[str]] = {}
    for test, said in notes:
        having.setdefault(said, []).append(test)
    return [f"{of[0]}: {said}" if len(of) == 1 else f"{len(of)} tests: {said}: {named(of)}" for said, of in having.items()]


def _compared(judge: Judge, test: DocketTest, record: Record) -> list[str]:
    try:
        again = _again(judge, test)
    except VlmRobustError as error:
        return [f"{record.key}: cannot be computed again: {error}"]
    return [f"{record.key}: {said}" for said in differences(record, again)]


def _again(judge: Judge, test: DocketTest) -> Record:
    if isinstance(test.about, Cell):
        return judge.cell(test.about)
    if isinstance(test.about, FamilyMetric):
        return judge.family(test.about, test.settings)
    return judge.sweep(test.about, test.settings)


def differences(written: Record, again: Record) -> list[str]:
    """Returns what differs between two records of a test, a sentence for each number or text.

    How long it took, where answers came from, and which thumbnails there are say nothing about the model and are left out.
    """
    return list(_unequal("", _content(written), _content(again)))


def _content(record: Record) -> dict[str, Any]:
    bare = tuple(dataclasses.replace(one, pictures=()) for one in record.examples)
    content: dict[str, Any] = json.loads(dataclasses.replace(record, examples=bare).to_json())
    content["measures"] = _named(content["measures"], "metric", "category")
    content["examples"] = _named(content["examples"], "kind", "sample")
    return {name: value for name, value in content.items() if name not in _CIRCUMSTANCES}


def _named(things: Sequence[dict[str, Any]], *keys: str) -> dict[str, dict[str, Any]]:
    """Returns the things by what tells them apart; of equals, the later ones with a number."""
    found: dict[str, dict[str, Any]] = {}
    for thing in things:
        name = " ".join(str(thing[key]) for key in keys if thing[key])
        number = sum(other == name or other.startswith(f"{name} #") for other in found)
        found[f"{name} #{number + 1}" if number else name] = thing
    return found


def _unequal(name: str, written: Any, again: Any) -> Iterable[str]:
    if isinstance(written, dict) and isinstance(again, dict):
        for key in dict.fromkeys((*written, *again)):
            yield from _unequal(f"{name}.{key}" if name else key, written.get(key), again.get(key))
    elif isinstance(written, list) and isinstance(again, list) and len(written) == len(again):
        for index, (one, other) in enumerate(zip(written, again, strict=True)):
            yield from _unequal(f"{name}[{index}]", one, other)
    elif not _same(written, again):
        yield f"{name} is {_shown(written)}, and computed again {_shown(again)}"


def _same(written: Any, again: Any) -> bool:
    if isinstance(written, float | int) and isinstance(again, float | int):
        return math.isclose(written, again, rel_tol=_SAME, abs_tol=_SAME)
    return bool(written == again)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:200]}…"
