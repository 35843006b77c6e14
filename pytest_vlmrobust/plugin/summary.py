"""The header, the table at the end, the files, and the exit code."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pytest_vlmrobust.core.decision import EXIT_CODES, Decision
from pytest_vlmrobust.core.errors import StoreError, VlmRobustError
from pytest_vlmrobust.core.record import CHECK
from pytest_vlmrobust.core.words import on_one_line, quantity

from .conditions import policy_warnings
from .ending import gate_decides, only_shows, status_of
from .junit import add_suite_properties
from .origins import model_origin, origins
from .places import kept_elsewhere
from .ranking import with_ranking
from .repeating import repeat
from .stash import GATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_vlmrobust.core.prediction import ModelRef
    from pytest_vlmrobust.policies import JudgedTest

    from .gate import Gate

_MOST = 5
"""Names in a line; the summary of pytest has them all."""


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Says what is gated, by which policy, from which store."""
    gate = config.stash[GATE]
    if not gate.settings.vlm or only_shows(config):
        return []
    lines = [f"vlm: {', '.join(f'{name} ({ref.location})' for name, ref in gate.models.items())}"]
    data = f"datasets {', '.join(gate.datasets.values())}, seed {gate.settings.vlm_seed}, store {gate.store_directory}"
    lines.append(f"vlm: {data}{', offline' if gate.settings.vlm_offline else ''}")
    for name, policy in gate.policies.items():
        files = ", ".join(file.name for file in policy.files)
        lines.append(f"vlm: policy of {name}: {files} (sha256 {policy.sha256[:12]}), {quantity(len(policy.waivers), 'waiver')}")
        lines += [f"vlm: policy of {name}: {one}" for one in policy.replaced if not one.only_tightens]
    said = [*lines, *(f"vlm: {said}" for said in (kept_elsewhere(gate), gate.rerun) if said)]
    return [on_one_line(line, None) for line in said]  # names of files may hold anything


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Says which rules the samples of this run hardly decide, before anything is inferred."""
    gate = config.stash[GATE]
    if not gate.plan or not gate.controls or gate.refused is not None or only_shows(config):
        return []
    planned: dict[str, list[JudgedTest]] = {}
    for one in gate.plan:
        planned.setdefault(one.model, []).extend(gate.judged(one))
    return too_few_samples(gate, planned)


def too_few_samples(gate: Gate, planned: Mapping[str, Iterable[JudgedTest]]) -> list[str]:
    """Returns warnings of the rules that too few samples are there for, a line for each.

    Args:
        gate: of the run.
        planned: model to what it will be judged by.
    """
    from pytest_vlmrobust.evaluation.power.sample_size import sentences, undecidable

    counts = gate.sizes(test.dataset for tests in planned.values() for test in tests)
    sizes = {dataset: pictures for dataset, (pictures, _) in counts.items()}
    questions = {dataset: asked for dataset, (_, asked) in counts.items()}
    models: dict[str, list[str]] = {}
    for name, tests in planned.items():
        for _, sentence in sentences(undecidable(gate.policies[name], tests, sizes, today=gate.today, questions=questions)):
            models.setdefault(sentence, []).append(name)
    return [on_one_line(f"vlm: warning: {', '.join(names)}: {sentence}", None) for sentence, names in models.items()]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Turns the records into the exit code and the files; on the controller only."""
    gate = session.config.stash[GATE]
    if gate.display is not None:
        gate.display.clear()
    if not gate.controls:
        session.config.workeroutput.update(  # type: ignore[attr-defined]  # xdist's
            vlm_counts=(gate.planned, gate.selected),
            vlm_narrowed=gate.narrowed,
            vlm_refused=str(gate.refused or ""),
            vlm_notes=gate.data_notes,
        )
        return
    if gate.refused is not None:
        session.exitstatus = pytest.ExitCode.USAGE_ERROR
    elif gate.only_plans:
        # a plan is no GO: whoever leaves the option in a pipeline must not get 0
        session.exitstatus = exitstatus if session.testsfailed else pytest.ExitCode.NO_TESTS_COLLECTED
    elif gate.records:
        _conclude(session, gate, exitstatus)
    elif exitstatus == pytest.ExitCode.OK and measured_nothing(session.config):
        session.exitstatus = EXIT_CODES[Decision.INCONCLUSIVE]


def _conclude(session: pytest.Session, gate: Gate, exitstatus: int) -> None:
    from pytest_vlmrobust.reporting.files import add_step_summary, summary

    status = status_of(session, gate, exitstatus)
    ours = gate_decides(session, gate, status)
    if gate.settings.vlm_aa and status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        gate.repeatability = repeat(gate)
    decision = _note_down(gate)
    session.exitstatus = EXIT_CODES[decision] if ours else status
    unwritten = _report(gate, decision)
    if gate.stopped:  # an error of this program, for one: it is no verdict, and no GO either
        decision = _note_down(gate)
        session.exitstatus = EXIT_CODES[decision] if ours else status
    add_suite_properties(session.config, suite_facts(gate))
    page = add_step_summary(summary(gate.records, gate.facts(policy_warnings(gate))))
    gate.unwritten = "\n".join(filter(None, (unwritten, page)))


def _note_down(gate: Gate) -> Decision:
    """Writes the decision into the directory of the run, and returns it."""
    facts = gate.facts(policy_warnings(gate))
    decision = facts.decision(gate.records)
    try:
        gate.describe(facts.shortfalls, missing=facts.missing(gate.records), decision=str(decision))
    except StoreError as error:
        pytest.exit(str(error), returncode=EXIT_CODES[Decision.INCOMPLETE])
    return decision


def _report(gate: Gate, decision: Decision) -> str:
    """Writes the report, and of a GO the baseline, where they are asked for; returns why it could not be, or an empty string.

    A run whose evidence is not where somebody asked for it is no GO: what comes next would take it from there.
    """
    asked = {
        "report": _write_report if gate.settings.vlm_report else None,
        "baseline": _update_baseline if gate.settings.vlm_update_baseline and decision is Decision.GO else None,
    }
    failed = [_failure(gate, what, write) for what, write in asked.items() if write is not None]
    gate.stopped = "; ".join(filter(None, (gate.stopped, *failed)))
    return "\n".join(filter(None, failed))


def _failure(gate: Gate, what: str, write: Callable[[Gate], None]) -> str:
    """Writes the report or the baseline, and returns why it could not be written; an empty string where it was."""
    try:
        write(gate)
    except (OSError, VlmRobustError) as error:
        return f"the {what} could not be written: {on_one_line(str(error), None)}"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is said, and must not hide what was decided
        return f"writing the {what} ended in {type(error).__name__}: {on_one_line(str(error), None)}"
    return ""


def _write_report(gate: Gate) -> None:
    from pytest_vlmrobust.reporting import write_report

    directory = gate.invocation / gate.settings.vlm_report
    write_report(directory, gate.records, with_ranking(gate, gate.facts(policy_warnings(gate))), manifest(gate))
    gate.evidence.copy_to(directory)


def _update_baseline(gate: Gate) -> None:
    """Puts what this run rests on where later runs look for their baseline."""
    from pytest_vlmrobust.reporting import write_report

    directory = gate.invocation / gate.settings.vlm_baseline
    if gate.baseline is not None:
        gate.baseline.close()
    gate.evidence.copy_to(directory)
    write_report(directory, gate.records, gate.facts(), manifest(gate))


def measured_nothing(config: pytest.Config) -> bool:
    """Whether a gate was asked for and nothing of it ran: a model on the command line, or gated tests that were all left out."""
    gate = config.stash[GATE]
    asked = bool(gate.settings.vlm) and (gate.planned > 0 or bool(config.getoption("vlm")))
    return asked and not gate.records and not only_shows(config)


def data_of_one_kind(gate: Gate) -> str:
    """Returns which tests have nothing to ask about where all data that are named are of one kind; else an empty string."""
    if not gate.settings.vlm_dataset or (gate.data.questions and gate.data.collections):
        return ""
    if gate.data.questions:
        return (
            ". --vlm-dataset names data sets of questions alone: tests of tasks, such as test_observatory.py, ask about "
            "collections of identities, such as --vlm-dataset=faces_160"
        )
    return (
        ". --vlm-dataset names collections of identities alone: only tests of tasks, such as test_observatory.py, ask about "
        "them, and others need a data set of questions, such as --vlm-dataset=shapes"
    )


def suite_facts(gate: Gate) -> dict[str, str]:
    """Returns what the JUnit suite element says about the whole run."""
    from pytest_vlmrobust.reporting.junit import suite_properties

    return suite_properties(origins(gate), gate.records, gate.facts())


def manifest(gate: Gate) -> dict[str, object]:
    """Returns what determined this run, JSON-safe; what cannot be had any more is said in its place."""
    return {
        **origins(gate),
        "models": {name: model_facts(gate, ref) for name, ref in gate.models.items()},
        "datasets": {name: attempt(partial(digest_of, gate, name)) for name in measured_datasets(gate)},
        "outcomes": dict(Counter(str(record.outcome) for record in gate.records)),
        "decision": str(gate.decision),
    }


def measured_datasets(gate: Gate) -> list[str]:
    """Returns the data sets that records are about, in their order."""
    return [name for name in dict.fromkeys(record.dataset for record in gate.records) if name]


def digest_of(gate: Gate, name: str) -> str:
    """Returns the digest of the data set that stands as ``name`` in test ids."""
    return gate.data.open(name).digest


def model_facts(gate: Gate, ref: ModelRef) -> dict[str, object]:
    """Returns what the manifest says about a model: where it is from, how it was asked, what determines its answers."""
    return {**model_origin(ref), "fingerprint": attempt(lambda: dict(gate.open_backend(ref).fingerprint()))}


def attempt(get: Callable[[], object]) -> object:
    """Returns what ``get`` returns, or says in its place why it could not."""
    try:
        return get()
    except VlmRobustError as error:
        return {"error": str(error)}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints the table: the decision, what breaks it, worst first."""
    gate = config.stash[GATE]
    if not gate.controls:
        return
    if gate.refused is not None:
        if not gate.refused_here:  # pytest says it, but for what workers refuse
            terminalreporter.write_line(f"ERROR: {gate.refused}", red=True)
    elif gate.records:
        from pytest_vlmrobust.reporting import render_terminal

        writer = config.get_terminal_writer()
        facts = gate.facts(policy_warnings(gate))
        width = writer.fullwidth if writer.hasmarkup else max(120, writer.fullwidth)  # a log has no right edge
        text = render_terminal(gate.records, facts, width=width, color=writer.hasmarkup)
        terminalreporter.section("vision-language model robustness", "=")
        terminalreporter.write(text)
        if gate.unwritten:
            terminalreporter.write_line(gate.unwritten, yellow=True)
        if others := failed_beside(gate):
            terminalreporter.write_line(others, red=True)
    elif gate.only_plans:
        pass  # said in place of the tests
    elif gate.rerun is not None:
        terminalreporter.write_line(f"{gate.rerun}: no such test was collected", yellow=True)
    elif measured_nothing(config):
        said = "INCONCLUSIVE: --vlm names a model, and no gated test ran: nothing was measured"
        terminalreporter.write_line(f"{said}{data_of_one_kind(gate)}", yellow=True)


def failed_beside(gate: Gate) -> str:
    """Returns what the run says about tests beside the gate that failed; an empty string without any."""
    names = [record.id for record in gate.records if record.test == CHECK]
    if not names:
        return ""
    shown = ", ".join(names[:_MOST]) + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "")
    return f"FAILED  whatever the gate decides the run fails, for what failed beside it: {shown}"
