"""Verification: every record of a run computed again from its evidence, offline, and compared with what the run wrote."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.cell import Cell, FamilyMetric
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import UsageError, VlmRobustError
from pytest_vlmrobust.core.record import CHECK, Record
from pytest_vlmrobust.core.words import first_few, quantity, without_halves
from pytest_vlmrobust.evaluation.judge.baseline import Baseline
from pytest_vlmrobust.evaluation.judge.docket import Docket, DocketTest, StoredTasks, changed_policies
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.judge.replay import Replay, Rescored
from pytest_vlmrobust.evaluation.run.families import families
from pytest_vlmrobust.policies.policy import policy_content
from pytest_vlmrobust.store import Evidence, read_journal
from pytest_vlmrobust.store.database import FILE_NAME as EVIDENCE
from pytest_vlmrobust.store.journal import FILE_NAME as JOURNAL
from pytest_vlmrobust.store.run_directory import BASELINE
from pytest_vlmrobust.store.run_directory import DOCKET_FILE as DOCKET
from pytest_vlmrobust.store.run_directory import MANIFEST_FILE as MANIFEST

# Consistency: what the files of a run say of the same thing, held against each other.


_ORIGIN = ("backend", "location", "revision", "prompt_mode")
"""What the manifest and the docket both say of a model."""
_BLIND = "no_image"
"""How the settings name the absence of a reference model."""


def contradictions(run: Path, manifest: Mapping[str, Any]) -> list[str]:
    """Returns, a sentence for each, what the manifest of a run says and its docket and policies do not give.

    Raises:
        StoreError: the docket cannot be read.
        PolicyError: a policy that cannot be honoured.
    """
    docket = Docket.read(run)
    models = {name: {part: asdict(ref)[part] for part in _ORIGIN} for name, ref in docket.models.items()}
    policies = {name: policy_content(docket.policies[name]) for name in docket.models if name in docket.policies}
    settings = manifest.get("settings")
    reference = settings.get("vlm_reference") if isinstance(settings, dict) else None
    return [
        *_unlike("date", manifest.get("date"), docket.today.isoformat(), DOCKET),
        *_unlike("settings.vlm_reference", reference, docket.reference or _BLIND, DOCKET),
        *_unlike("models", manifest.get("models"), models, DOCKET),
        *_unlike("policies", manifest.get("policies"), policies, "the files in policies"),
    ]


def strangers(evidence: Evidence, docket: Docket) -> list[str]:
    """Returns, a sentence for each, what the evidence of a run holds and the run cannot have put there.

    Raises:
        StoreError: the evidence cannot be read.
    """
    asked = {cell.model for cell in evidence.cells()}
    known, fingerprinted, datasets = set(docket.models), set(evidence.models()), set(evidence.datasets())
    unknown = sorted({cell.dataset for cell in evidence.cells()} - datasets)
    return [
        *(f"{EVIDENCE}: holds {name!r}, which no run makes" for name in evidence.foreign()),
        *(f"{EVIDENCE}: is about the model {name!r}, and {DOCKET} is not" for name in sorted((asked | fingerprinted) - known)),
        *(f"{EVIDENCE}: has answers of the model {name!r} and not its fingerprint" for name in sorted(asked - fingerprinted)),
        *(f"{EVIDENCE}: has answers about the data set {name!r} and not its digest" for name in unknown),
    ]


def repeated(run: Path) -> tuple[list[str], list[str]]:
    """Returns what is wrong with tests that have several records, and a note about those that may be right: they ran again.

    Raises:
        StoreError: the records cannot be read.
    """
    records = read_journal(run)
    lines = Counter((record.key, record.to_json()) for record in records if record.seconds)
    wrong = [f"{key}: its record stands in {JOURNAL} {count} times" for (key, _), count in lines.items() if count > 1]
    more = [key for key, count in Counter(record.key for record in records).items() if count > 1]
    text = f"ran again, of which the last record was compared: {first_few(more)}"
    return wrong, [f"{quantity(len(more), 'test')} {text}"] if len(more) > len(wrong) else []


def _unlike(name: str, written: Any, derived: Any, source: str) -> Iterable[str]:
    """Says where two JSON values part, as deep as both are objects."""
    again = json.loads(without_halves(json.dumps(derived, ensure_ascii=False)))
    if isinstance(written, dict) and isinstance(again, dict):
        for key in dict.fromkeys((*written, *again)):
            yield from _unlike(f"{name}.{key}", written.get(key), again.get(key), source)
    elif written != again:
        yield f"{MANIFEST}: {name} is not what {source} {'give' if source.startswith('the') else 'gives'}"


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
    problems = changed_policies(run)
    docket = Docket.read(run)
    problems += [
        f"policy of {name}: the files mean {docket.policies[name].sha256}, and the run applied {claimed}"
        for name, claimed in docket.applied.items()
        if docket.policies[name].sha256 != claimed
    ]
    baseline = Baseline.open(run / BASELINE, trusting=True) if docket.baseline else None
    try:
        with Evidence.open(run, read_only=True) as evidence:
            problems += strangers(evidence, docket)
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
            problems += unreadable + _rescored(replay.rescored) + differences
            problems += _of_baseline(baseline) if baseline is not None else []
    finally:
        if baseline is not None:
            baseline.close()
    hashes = {name: policy.sha256 for name, policy in docket.policies.items()}
    return Verification(tuple(problems), tuple(notes), answers, count, hashes)


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
    return [f"{BASELINE}: {problem}" for problem in problems + _rescored(baseline.rescored)]


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
    problems = [f"{record.key}: a record of a test that the run did not plan" for record in stray]
    notes = [(record.id, f"not computed again: {record.reason}") for record in records if record.test == CHECK]
    if len(missing) > unrecorded:
        problems += [f"{nodeid}: its record is missing" for nodeid in missing]
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
        problems += _compared(judge, test, record)
    return problems, _grouped(notes), count


def _grouped(notes: Sequence[tuple[str, str]]) -> list[str]:
    """Returns a line for each thing that is said, with the first of the tests that it is said of."""
    having: dict[str, list[str]] = {}
    for test, note in notes:
        having.setdefault(note, []).append(test)
    return [f"{of[0]}: {note}" if len(of) == 1 else f"{len(of)} tests: {note}: {first_few(of)}" for note, of in having.items()]


def _compared(judge: Judge, test: DocketTest, record: Record) -> list[str]:
    try:
        again = _again(judge, test)
    except VlmRobustError as error:
        return [f"{record.key}: cannot be computed again: {error}"]
    return [f"{record.key}: {difference}" for difference in differences(record, again)]


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
    bare = tuple(dataclasses.replace(example, pictures=()) for example in record.examples)
    content: dict[str, Any] = json.loads(dataclasses.replace(record, examples=bare).to_json())
    content["measures"] = _named(content["measures"], "metric", "category")
    content["examples"] = _named(content["examples"], "kind", "sample")
    return {name: value for name, value in content.items() if name not in _CIRCUMSTANCES}


def _named(things: Sequence[dict[str, Any]], *keys: str) -> dict[str, dict[str, Any]]:
    """Returns the things by what tells them apart; of equals, the later ones with a number."""
    by_name: dict[str, dict[str, Any]] = {}
    for thing in things:
        name = " ".join(str(thing[key]) for key in keys if thing[key])
        number = sum(other == name or other.startswith(f"{name} #") for other in by_name)
        by_name[f"{name} #{number + 1}" if number else name] = thing
    return by_name


def _unequal(name: str, written: Any, again: Any) -> Iterable[str]:
    if isinstance(written, dict) and isinstance(again, dict):
        for key in dict.fromkeys((*written, *again)):
            yield from _unequal(f"{name}.{key}" if name else key, written.get(key), again.get(key))
    elif isinstance(written, list) and isinstance(again, list) and len(written) == len(again):
        for index, (first, second) in enumerate(zip(written, again, strict=True)):
            yield from _unequal(f"{name}[{index}]", first, second)
    elif not _same(written, again):
        yield f"{name} is {_shown(written)}, and computed again {_shown(again)}"


def _same(written: Any, again: Any) -> bool:
    if isinstance(written, float | int) and isinstance(again, float | int):
        return math.isclose(written, again, rel_tol=_SAME, abs_tol=_SAME)
    return bool(written == again)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:200]}…"
