"""Verification: computes every record of a run again from its evidence, offline, and compares it with the written one."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.cell import PROBES
from pytest_vlmrobust.core.conversion import from_plain, to_plain
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import UsageError, VlmRobustError
from pytest_vlmrobust.core.estimate import ROUNDING
from pytest_vlmrobust.core.record import BUDGET, CHECK, Record
from pytest_vlmrobust.core.words import first_few, quantity, without_halves
from pytest_vlmrobust.evaluation.judge.baseline import Baseline
from pytest_vlmrobust.evaluation.judge.canaries import NOT_PROBED, SAMPLED
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.judge.judge_inputs import JudgeInputs, applied_policies, changed_policies
from pytest_vlmrobust.evaluation.judge.stored_answers import Rescored, StoredAnswers
from pytest_vlmrobust.evaluation.run.manifest import model_origin
from pytest_vlmrobust.evaluation.run.selection import SelectedTest
from pytest_vlmrobust.policies import Mode
from pytest_vlmrobust.policies.policy import policy_content
from pytest_vlmrobust.store import Evidence, read_journal
from pytest_vlmrobust.store.database import FILE_NAME as EVIDENCE
from pytest_vlmrobust.store.gates import GateCount, count_of, set_digest
from pytest_vlmrobust.store.journal import FILE_NAME as JOURNAL
from pytest_vlmrobust.store.run_directory import BASELINE, POLICIES
from pytest_vlmrobust.store.run_directory import DOCKET_FILE as DOCKET
from pytest_vlmrobust.store.run_directory import MANIFEST_FILE as MANIFEST
from pytest_vlmrobust.store.spending import BUDGET_SPENT

# Consistency: statements about the same thing in different files of a run.


_BLIND = "no_image"
"""The value of the setting if there is no reference model."""


def manifest_contradictions(run: Path, manifest: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for each statement of the manifest that ``docket.json`` or the policies contradict."""
    inputs = JudgeInputs.read(run)
    models = {name: model_origin(ref) for name, ref in inputs.models.items()}
    policies = {name: policy_content(inputs.policies[name]) for name in inputs.models if name in inputs.policies}
    settings = manifest.get("settings")
    reference = settings.get("vlm_reference") if isinstance(settings, dict) else None
    return [
        *_manifest_differences("date", manifest.get("date"), inputs.today.isoformat(), DOCKET),
        *_manifest_differences("settings.vlm_reference", reference, inputs.reference or _BLIND, DOCKET),
        *_manifest_differences("models", _without_fingerprints(manifest.get("models")), models, DOCKET),
        *_manifest_differences("policies", manifest.get("policies"), policies, "the files in policies"),
    ]


def gate_contradictions(run: Path, manifest: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for each count of gates that the evidence, the policies or its own numbers contradict."""
    inputs = JudgeInputs.read(run)
    problems: list[str] = []
    with Evidence.open(run, read_only=True) as evidence:
        for gate in [from_plain(entry, GateCount) for entry in manifest.get("gates", ())]:
            questions, _ = evidence.gate_members(gate.model, gate.dataset)
            policy = inputs.policies[gate.model]
            again = dataclasses.replace(
                gate,
                policy=policy.sha256,
                questions=set_digest(questions),
                n=count_of(questions),
                risk=policy.risk,
                number=gate.whole + gate.part + 1,
            )
            problems += _manifest_differences(f"gates of {gate.name}", to_plain(gate), to_plain(again), EVIDENCE)
    return problems


def _without_fingerprints(models: object) -> object:
    """Returns the models of a manifest without the fingerprints that a report adds, which a bundle cannot recompute."""
    if not isinstance(models, dict):
        return models
    return {
        name: {key: value for key, value in origin.items() if key != "fingerprint"} if isinstance(origin, dict) else origin
        for name, origin in models.items()
    }


def foreign_evidence(evidence: Evidence, inputs: JudgeInputs) -> list[str]:
    """Returns a sentence for each entry of the evidence that the run cannot have written."""
    cells = [*evidence.cells(), *evidence.probes()]
    models = {cell.model for cell in cells}
    known, fingerprinted, datasets = set(inputs.models), set(evidence.models()), set(evidence.datasets())
    unknown = sorted({cell.dataset for cell in cells} - datasets)
    return [
        *(f"{EVIDENCE}: holds {name!r}, which no run writes" for name in evidence.foreign()),
        *(f"{EVIDENCE}: is about the model {name!r}, which {DOCKET} lacks" for name in sorted((models | fingerprinted) - known)),
        *(f"{EVIDENCE}: has answers of the model {name!r} but not its fingerprint" for name in sorted(models - fingerprinted)),
        *(f"{EVIDENCE}: has answers about the dataset {name!r} but not its digest" for name in unknown),
    ]


def repeated_records(run: Path) -> tuple[list[str], list[str]]:
    """Returns errors about duplicate records, and a note about tests that ran again."""
    records = read_journal(run)
    lines = Counter((record.key, record.to_json()) for record in records if record.seconds)
    wrong = [f"{key}: its record is in {JOURNAL} {count} times" for (key, _), count in lines.items() if count > 1]
    more = [key for key, count in Counter(record.key for record in records).items() if count > 1]
    text = f"ran again, of which the last record was compared: {first_few(more)}"
    return wrong, [f"{quantity(len(more), 'test')} {text}"] if len(more) > len(wrong) else []


def _manifest_differences(name: str, written: Any, derived: Any, source: str) -> Iterable[str]:
    """Yields a sentence for each place where two JSON values differ; descends into objects."""
    again = json.loads(without_halves(json.dumps(derived, ensure_ascii=False)))
    if isinstance(written, dict) and isinstance(again, dict):
        for key in dict.fromkeys((*written, *again)):
            yield from _manifest_differences(f"{name}.{key}", written.get(key), again.get(key), source)
    elif written != again:
        yield f"{MANIFEST}: {name} is not what {source} {'give' if source.startswith('the') else 'gives'}"


_CIRCUMSTANCES = {"nodeid", "seconds", "n_inferred", "n_recalled"}
"""Fields of a record about the run rather than the model."""
_MOST = 20
"""How many answers are named individually."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The number of recomputed items, and the differences."""

    differences: tuple[str, ...] = ()
    """Sentences about records that differ from the evidence."""
    notes: tuple[str, ...] = ()
    """Sentences about items that could not be compared, and why that is not a difference."""
    answers: int = 0
    """Answers that were scored again."""
    records: int = 0
    """Records that were computed again."""
    policies: Mapping[str, str] = field(default_factory=dict)
    """Model to the SHA-256 of its policy, computed from the applied files."""


def verify(run: Path, records: Sequence[Record], *, unrecorded: int = 0) -> Verification:
    """Scores every answer and judges every test of a run again, and returns the differences from its records.

    Raises:
        StoreError: ``docket.json`` or the evidence is absent or cannot be read.
        PolicyError: a policy cannot be applied.
    """
    problems = changed_policies(run)
    others = {path.name for path in (run / POLICIES).glob("*")} - applied_policies(run).keys()
    problems += [f"{POLICIES}/{name} is no policy that the run applied" for name in sorted(others)]
    inputs = JudgeInputs.read(run)
    problems += [
        f"policy of {name}: the files mean {inputs.policies[name].sha256}, and the run applied {claimed}"
        for name, claimed in inputs.applied.items()
        if inputs.policies[name].sha256 != claimed
    ]
    baseline = Baseline.open(run / BASELINE, trusting=True, common=inputs.common) if inputs.baseline else None
    try:
        with Evidence.open(run, read_only=True) as evidence:
            problems += foreign_evidence(evidence, inputs)
            stored = StoredAnswers(evidence, inputs.models)
            for name in evidence.datasets():
                stored.samples(name)  # unreadable evidence is an error, not a difference
            answers, unreadable = _answers(stored, inputs)
            judge = inputs.judge(stored, baseline)
            differences, notes, count = _compare_records(judge, inputs, records, unrecorded)
            budgets = list(inputs.budget_records(stored))
            differences += _compare_budgets(budgets, records)
            count += len({record.key for record in budgets} & {record.key for record in records})
            problems += unreadable + _rescored_lines(stored.rescored) + differences
            problems += _of_baseline(baseline) if baseline is not None else []
    finally:
        if baseline is not None:
            baseline.close()
    hashes = {name: policy.sha256 for name, policy in inputs.policies.items()}
    return Verification(tuple(problems), tuple(notes), answers, count, hashes)


def _answers(stored: StoredAnswers, inputs: JudgeInputs) -> tuple[int, list[str]]:
    """Scores the answers of all cells again; returns their number, and the cells that cannot be scored.

    If tests may stop early, a cell may lack samples; judging again shows whether a verdict depends on one.
    """
    count, problems = 0, []
    for cell in [*stored.evidence.cells(), *stored.evidence.probes()]:
        try:
            policy = inputs.policies.get(cell.model)
            in_part = cell.setting in PROBES or (policy is not None and policy.mode is Mode.ADAPTIVE)
            count += len((stored.partial(cell) if in_part else stored.result(cell)).scores)
        except UsageError as error:
            problems.append(f"{cell}: its answers cannot be scored again: {error}")
    return count, problems


def _of_baseline(baseline: Baseline) -> list[str]:
    """Scores all answers of the baseline again; returns what differs or cannot be scored."""
    problems = []
    for cell in baseline.evidence.cells():
        try:
            baseline.checked(cell)
        except UsageError as error:
            problems.append(f"{cell}: its answers cannot be scored again: {error}")
    return [f"{BASELINE}: {problem}" for problem in problems + _rescored_lines(baseline.rescored)]


def _rescored_lines(differing: Sequence[Rescored]) -> list[str]:
    more = len(differing) - _MOST
    return [
        *map(str, differing[:_MOST]),
        *(
            [quantity(more, "more answer has another letter or score", "more answers have another letter or score")]
            if more > 0
            else []
        ),
    ]


def _compare_records(
    judge: Judge, inputs: JudgeInputs, records: Sequence[Record], unrecorded: int
) -> tuple[list[str], list[str], int]:
    """Returns the differences, the items that could not be compared, and the number of records computed again."""
    by_key = {record.key: record for record in records}
    planned = {test.nodeid for test in inputs.tests}
    missing = [test.nodeid for test in inputs.tests if test.nodeid not in by_key]
    stray = [record for record in records if record.key not in planned and record.is_gated]
    problems = [f"{record.key}: a record of a test that the run did not plan" for record in stray]
    notes = [(record.id, f"not computed again: {record.reason}") for record in records if record.test == CHECK]
    if len(missing) > unrecorded:
        problems += [f"{nodeid}: its record is missing" for nodeid in missing]
    else:
        notes += [(nodeid, "the run left no verdict") for nodeid in missing]
    count = 0
    for test in inputs.tests:
        record = by_key.get(test.nodeid)
        if record is None:
            continue
        cut = record.outcome is Outcome.INCONCLUSIVE and record.reason.startswith(BUDGET_SPENT)
        if (record.outcome is Outcome.ERROR or cut) and not record.measures:
            notes.append((record.key, f"not computed again because nothing was measured: {record.reason}"))
            continue
        count += 1
        problems += _compare_record(judge, test, record)
    return problems, _group_notes(notes), count


def _group_notes(notes: Sequence[tuple[str, str]]) -> list[str]:
    """Returns a line for each note, with the first tests that have it."""
    having: dict[str, list[str]] = {}
    for test, note in notes:
        having.setdefault(note, []).append(test)
    return [f"{of[0]}: {note}" if len(of) == 1 else f"{len(of)} tests: {note}: {first_few(of)}" for note, of in having.items()]


def _compare_record(judge: Judge, test: SelectedTest, record: Record) -> list[str]:
    try:
        again = judge.run(test.about, test.settings)
    except VlmRobustError as error:
        return [f"{record.key}: cannot be computed again: {error}"]
    return [f"{record.key}: {difference}" for difference in differences(record, again)]


def _compare_budgets(again: Iterable[Record], records: Iterable[Record]) -> list[str]:
    """Returns the differences between the budget records of a run and those computed from its evidence."""
    written = {record.key: record for record in records if record.test == BUDGET}
    computed = {record.key: record for record in again}
    return [
        *(f"{key}: {change}" for key in written.keys() & computed for change in differences(written[key], computed[key])),
        *(f"{key}: its record is missing" for key in computed if key not in written),
        *(f"{key}: a record of budgets that the evidence keeps" for key in written if key not in computed),
    ]


def differences(written: Record, again: Record) -> list[str]:
    """Returns the differences between two records of a test, a sentence for each number or text.

    Ignores durations, sources of answers, thumbnails, and the reason why questions were not repeated.
    """
    return list(_value_differences("", _content(written), _content(again)))


def _content(record: Record) -> dict[str, Any]:
    bare = tuple(dataclasses.replace(example, pictures=()) for example in record.examples)
    content: dict[str, Any] = json.loads(dataclasses.replace(record, examples=bare).to_json())
    for measure in content["measures"]:
        reason = measure.get("reason", "")
        if reason.startswith(NOT_PROBED):  # only the run knows the reason, except for what GO depends on
            measure["reason"] = f"{NOT_PROBED}{SAMPLED if SAMPLED in reason else ''}"
    content["measures"] = _by_name(content["measures"], "metric", "category")
    content["examples"] = _by_name(content["examples"], "kind", "sample")
    return {name: value for name, value in content.items() if name not in _CIRCUMSTANCES}


def _by_name(things: Sequence[dict[str, Any]], *keys: str) -> dict[str, dict[str, Any]]:
    """Returns the entries by the values of their keys; duplicates get a number."""
    by_name: dict[str, dict[str, Any]] = {}
    counts: Counter[str] = Counter()
    for thing in things:
        name = " ".join(str(thing[key]) for key in keys if thing[key])
        number = counts[name]
        while (numbered := f"{name} #{number + 1}" if number else name) in by_name:
            number += 1
        counts[name] = number + 1
        by_name[numbered] = thing
    return by_name


def _value_differences(name: str, written: Any, again: Any) -> Iterable[str]:
    if isinstance(written, dict) and isinstance(again, dict):
        for key in dict.fromkeys((*written, *again)):
            yield from _value_differences(f"{name}.{key}" if name else key, written.get(key), again.get(key))
    elif isinstance(written, list) and isinstance(again, list) and len(written) == len(again):
        for index, (first, second) in enumerate(zip(written, again, strict=True)):
            yield from _value_differences(f"{name}[{index}]", first, second)
    elif not _same(written, again):
        yield f"{name} is {_excerpt(written)}, and computed again {_excerpt(again)}"


def _same(written: Any, again: Any) -> bool:
    if isinstance(written, float | int) and isinstance(again, float | int):
        return math.isclose(written, again, rel_tol=ROUNDING, abs_tol=ROUNDING)
    return bool(written == again)


def _excerpt(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:200]}…"
