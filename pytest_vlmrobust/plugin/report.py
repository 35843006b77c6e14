"""What pytest says about a run: the header, the plan, the page at the end, the files, and the exit code."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING

import pytest

from pytest_vlmrobust.core.decision import EXIT_CODES, Decision, any_failed_outside, records_explain
from pytest_vlmrobust.core.errors import StoreError, VlmRobustError
from pytest_vlmrobust.core.words import first_few, on_one_line, quantity

from .outcome import or_exit
from .run import RUN, Run
from .workers import tell_controller

if TYPE_CHECKING:
    from pytest_vlmrobust.reporting import RunFacts

_MOST = 5
"""Names in a line; the summary of pytest has them all."""
_SHOWING = ("collectonly", "setupplan", "showfixtures", "show_fixtures_per_test", "cacheshow")
"""Options with which pytest runs no test, for it shows something else."""
_LIMITS = {"maxfail": "stopping after", "stepwise": "Test failed, continuing"}
"""Options that end pytest at a failure, with its message; under xdist, and with ``--sw``, pytest exits as interrupted."""
_FILLED: pytest.StashKey[bool] = pytest.StashKey()
"""Whether the store has every answer that a run was to fill in."""
_UNWRITTEN: pytest.StashKey[list[str]] = pytest.StashKey()
"""The reasons why files could not be written."""


# Before any test.


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Says what is gated, by which policy, from which store."""
    run = config.stash[RUN]
    if not run.settings.vlm or _only_shows(config):
        return []
    lines = [", ".join(f"{name} ({ref.location})" for name, ref in run.models.items())]
    data = f"datasets {', '.join(run.data.typed.values())}, seed {run.settings.vlm_seed}, store {run.directories.store}"
    lines.append(f"{data}{', offline' if run.settings.vlm_offline else ''}")
    for name, policy in run.policies.items():
        files = ", ".join(file.name for file in policy.files)
        lines.append(f"policy of {name}: {files} (sha256 {policy.sha256[:12]}), {quantity(len(policy.waivers), 'waiver')}")
        lines += [f"policy of {name}: {change}" for change in policy.replaced if not change.only_tightens]
    lines += [] if run.only_plans else [run.directories.notice]
    lines += [str(run.rerun)] if run.rerun else []
    return [on_one_line(f"vlm: {line}", None) for line in lines if line]  # names of files may hold anything


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Warns about rules that the samples of this run can hardly decide, before anything is inferred."""
    run = config.stash[RUN]
    judges = run.selection.plan and run.controls and run.selection.refusal is None and not run.only_fills
    if not judges or _only_shows(config):
        return []
    warnings = [on_one_line(f"vlm: warning: {warning}", None) for warning in run.sample_warnings(run.tests.judged_by_model())]
    writer = config.get_terminal_writer()
    if not warnings or not writer.hasmarkup:
        return warnings
    from pytest_vlmrobust.reporting.writing import render_sentences

    return render_sentences(warnings, width=max(80, writer.fullwidth), color=True).splitlines()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Prints the plan instead of running tests, if ``--vlm-plan`` was given; with ``--vlm-fill`` asks what they need."""
    run = session.config.stash[RUN]
    if session.testsfailed or _only_shows(session.config):
        return None
    if run.only_fills:
        if run.selection.selected:  # else pytest says that nothing was selected
            session.config.stash[_FILLED] = _fill(session.config, run)
        return True
    if not run.only_plans:
        return None
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.section("plan of the vision-language model gate", "=")
        writer = session.config.get_terminal_writer()
        width = writer.fullwidth if writer.hasmarkup else max(160, writer.fullwidth)
        reporter.write(_plan(run, width=width, color=writer.hasmarkup))
    return True


def _fill(config: pytest.Config, run: Run) -> bool:
    """Asks what the selected tests need, and prints what came of it; returns whether the store now has every answer."""
    from pytest_vlmrobust.evaluation.run.filling import Filling

    shard, variable = run.shard
    filling = Filling(shard)
    problems: list[str] = []
    try:
        cells = run.tests.required_cells()
        filling.fill(run.evaluator, cells, run.data.tasks)
        problems += [*run.model_changes(), *filter(None, (one.damage() for one in run.open_databases))]
    except VlmRobustError as error:
        problems.append(str(error))
    if run.display is not None:
        run.display.clear()
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.section("answers for the vision-language model gate", "=")
        source = [f"part {shard}, as {variable} says"] if variable else []
        unasked = [f"nothing is asked: {why}" for why in run.data.lacking_of(run.selection.datasets).values()]
        spent = [str(spent) for spent in run.spending if spent.tokens]
        for line in [
            *source,
            *filling.lines(),
            *spent,
            *problems,
            *unasked,
            f"store {run.directories.store}; nothing was judged",
        ]:
            reporter.write_line(on_one_line(line, None))
    return not filling.lacking and not problems


def _plan(run: Run, *, width: int, color: bool) -> str:
    """Returns the plan of the selected tests: a line for each model and dataset, then what stands behind it."""
    from pytest_vlmrobust.evaluation.run.planning import HEADER, NAMES, RunForecast
    from pytest_vlmrobust.reporting.writing import render_sentences, render_table

    directories, selection = run.directories, run.selection
    try:
        forecast = RunForecast.of(run.evaluator, run.tests.required_cells(), directories.earlier, directories.store)
    except VlmRobustError as error:
        return f"cannot be planned: {error}\n"
    table = render_table(HEADER, forecast.rows, names=NAMES, width=width, color=color) if forecast.rows else ""
    lines = forecast.lines
    if any(cell.dataset in run.data.tasks for cell in forecast.found):
        lines.append("fewer passes where a model is not shown to do a task on the original pictures: its settings are not asked")
    lines += [f"nothing is asked: {why}" for why in run.data.lacking_of(selection.datasets).values()]
    lines += [f"warning: {note}" for note in selection.notes]
    if run.settings.vlm_patch_stop:
        lines.append("fewer passes of patches, for --vlm-patch-stop ends a sample at its first right one")
    lines.append(forecast.disk)
    counts = f"{selection.selected} of {selection.planned} gated tests"
    lines.append(f"{counts}; nothing was asked, and a plan is never GO: exit code 5")
    return table + render_sentences(lines, width=width, color=color)


# After the last test.


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Turns the records into the exit code and the files; on the controller only."""
    run = session.config.stash[RUN]
    try:
        _finish(session, run, exitstatus)
    except SystemExit as error:
        if error.code:
            raise
        said = f"{Decision.INCOMPLETE}: something raised SystemExit before the run was over"  # else it ends with exit code 0
        pytest.exit(said, returncode=EXIT_CODES[Decision.INCOMPLETE])
    finally:
        if run.display is not None:  # until now it may show how far a repetition is
            run.display.stop()


def _finish(session: pytest.Session, run: Run, exitstatus: int) -> None:
    """Concludes the run, or sets the exit code of one that only planned, filled a store or measured nothing."""
    if not run.controls:
        tell_controller(session.config)
    elif run.selection.refusal is not None:
        session.exitstatus = pytest.ExitCode.USAGE_ERROR
    elif run.only_plans:
        # a plan is no GO: whoever leaves the option in a pipeline must not get 0
        session.exitstatus = exitstatus if session.testsfailed else pytest.ExitCode.NO_TESTS_COLLECTED
    elif run.only_fills and _FILLED in session.config.stash:
        filled = session.config.stash[_FILLED]
        session.exitstatus = pytest.ExitCode.OK if filled else EXIT_CODES[Decision.INCOMPLETE]
    elif run.records or (run.has_begun and not _only_shows(session.config)):
        with or_exit():
            _conclude(session, run, exitstatus)
    elif exitstatus == pytest.ExitCode.OK and _measured_nothing(session.config):
        session.exitstatus = EXIT_CODES[Decision.INCONCLUSIVE]


def _conclude(session: pytest.Session, run: Run, exitstatus: int) -> None:
    """Decides, writes the files, and sets the exit code: the gate's if only verdicts made tests fail, else pytest's."""
    from pytest_vlmrobust.reporting.files import add_step_summary, summary
    from pytest_vlmrobust.reporting.junit import suite_properties

    if not run.settings.vlm_aa:  # which may take minutes
        run.hold_signals()
    status, stopped = _how_pytest_ended(session, run, exitstatus)
    changes = [] if stopped else run.model_changes()
    try:
        run.journal.sync()
    except StoreError as error:
        changes.append(str(error))
    lost = run.losses()
    changes = list(dict.fromkeys([*changes, *lost]))
    run.stop("; ".join([*filter(None, [stopped]), *changes]))
    by_verdicts = (
        status == pytest.ExitCode.TESTS_FAILED
        and records_explain(run.records, session.testsfailed)
        and not any_failed_outside(run.records)
    )
    if run.settings.vlm_aa and not lost and status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        run.repeat()
    if not run.stopped:  # else somebody waits for the end, and a batch may still be computed
        run.free()
    run.hold_signals()
    decision = _note_decision(run)
    unwritten = _write_files(run, decision)
    if unwritten:
        # the evidence is not where somebody asked for it, and what comes next would take it from there: never GO
        run.stop("; ".join(filter(None, (run.stopped, *unwritten))))
    if run.stopped:
        decision = _note_decision(run)
    session.exitstatus = EXIT_CODES[decision] if status == pytest.ExitCode.OK or by_verdicts else status
    facts = run.facts()
    _add_suite_properties(session.config, suite_properties(run.origins(), run.records, facts))
    page = add_step_summary(summary(run.records, facts))
    session.config.stash[_UNWRITTEN] = [*unwritten, *filter(None, [page])]


def _how_pytest_ended(session: pytest.Session, run: Run, exitstatus: int) -> tuple[int, str]:
    """Returns the exit code of pytest, and what ended it if no record says so; a report then never says GO.

    The exit code is as it is without xdist where a number of failures ended pytest: tests failed.
    """
    limits = [reason for option, reason in _LIMITS.items() if session.config.getoption(option, default=False)]
    if exitstatus == pytest.ExitCode.INTERRUPTED and session.testsfailed and any(reason in run.stopped for reason in limits):
        return pytest.ExitCode.TESTS_FAILED, ""  # the failure has a record, and the tests that are missing are counted
    explained = exitstatus == pytest.ExitCode.TESTS_FAILED and records_explain(run.records, session.testsfailed)
    if run.stopped or exitstatus == pytest.ExitCode.OK or explained:
        return exitstatus, run.stopped
    return exitstatus, f"pytest ended with exit code {int(exitstatus)}, and no test says why"


def _note_decision(run: Run) -> Decision:
    """Writes the decision into the directory of the run, and returns it."""
    facts = run.facts()
    decision = facts.decision(run.records)
    missing = facts.missing(run.records)
    run.describe(facts.shortfalls, missing=missing, decision=str(decision), warnings=list(facts.warnings))
    return decision


def _write_files(run: Run, decision: Decision) -> list[str]:
    """Writes the report and, after a GO, the baseline, as requested; returns the reasons for failed writes."""
    problems: list[str] = []
    if run.settings.vlm_report:
        with _note_failure(problems, "report"):
            _write_report(run)
    if run.settings.vlm_update_baseline and decision is Decision.GO:
        with _note_failure(problems, "baseline"):
            _update_baseline(run)
    return problems


@contextlib.contextmanager
def _note_failure(problems: list[str], what: str) -> Iterator[None]:
    """Adds to ``problems`` why something could not be written."""
    try:
        yield
    except (OSError, VlmRobustError) as error:
        problems.append(f"the {what} could not be written: {on_one_line(str(error), None)}")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is reported, and must not hide what was decided
        problems.append(f"writing the {what} ended in {type(error).__name__}: {on_one_line(str(error), None)}")


def _write_report(run: Run) -> None:
    from pytest_vlmrobust.reporting import write_report

    write_report(run.directories.report, run.records, _with_ranking(run, run.facts()), run.manifest())
    run.evidence.copy_to(run.directories.report)


def _with_ranking(run: Run, facts: RunFacts) -> RunFacts:
    """Returns the facts of a run with a ranking of its models, if it has several; failure to rank is a warning."""
    if len(run.models) < 2:
        return facts
    from pytest_vlmrobust.evaluation.after.ranking import rank_run

    return facts.with_ranking(*rank_run(run.evidence, run.run_id, run.reference or ""))


def _update_baseline(run: Run) -> None:
    """Copies the evidence of this run to where later runs look for their baseline."""
    from pytest_vlmrobust.reporting import write_report

    directory = run.directories.baseline
    if run.baseline is not None:
        run.baseline.close()
    run.evidence.copy_to(directory)
    write_report(directory, run.records, run.facts(), run.manifest())


def _add_suite_properties(config: pytest.Config, facts: dict[str, str]) -> None:
    """Writes properties on pytest's JUnit suite element; pytest's own fixture for it is lost under xdist (pytest issue 7767)."""
    for plugin in config.pluginmanager.get_plugins():
        add: Callable[[str, str], None] | None = getattr(plugin, "add_global_property", None)
        if callable(add):
            for name, value in facts.items():
                add(name, value)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> Generator[None]:
    """Prints the page of the gate below all that pytest prints, so that the decision stands where a reader looks."""
    yield
    with or_exit():
        _print_end(terminalreporter, config, config.stash[RUN])


def _print_end(terminalreporter: pytest.TerminalReporter, config: pytest.Config, run: Run) -> None:
    """Prints what came of the run: its page, or why there is none."""
    refusal = run.selection.refusal
    if not run.controls or run.only_plans:
        return  # a plan was printed in place of the tests
    if refusal is not None:
        if run.selection.refused_at_worker:  # else pytest says it
            terminalreporter.write_line(f"ERROR: {refusal}", red=True)
    elif run.records:
        _print_page(terminalreporter, config, run)
    elif run.has_begun and not _only_shows(config):
        text = f"{Decision.INCOMPLETE}: {run.stopped}, and no test had left a verdict by then: this says nothing about the model"
        terminalreporter.write_line(text, red=True)
    elif run.stopped:
        terminalreporter.write_line(f"{run.stopped}, before any gated test ran: nothing was measured", yellow=True)
    elif run.rerun is not None:
        terminalreporter.write_line(f"{run.rerun}: no such test was collected", yellow=True)
    elif _measured_nothing(config):
        text = "INCONCLUSIVE: --vlm names a model, and no gated test ran: nothing was measured"
        terminalreporter.write_line(f"{text}{_data_of_one_kind(run)}", yellow=True)


def _print_page(terminalreporter: pytest.TerminalReporter, config: pytest.Config, run: Run) -> None:
    from pytest_vlmrobust.reporting import render_terminal
    from pytest_vlmrobust.reporting.files import annotation_lines

    writer = config.get_terminal_writer()
    width = writer.fullwidth if writer.hasmarkup else max(120, writer.fullwidth)  # a log has no right edge
    facts = run.facts()
    terminalreporter.section("vision-language model robustness", "=")
    terminalreporter.write(render_terminal(run.records, facts, width=width, color=writer.hasmarkup))
    for problem in config.stash.get(_UNWRITTEN, []):
        terminalreporter.write_line(problem, yellow=True)
    for line in annotation_lines(run.records, facts):
        terminalreporter.write_line(line)
    if names := [record.id for record in run.records if not record.is_gated]:
        text = f"FAILED  non-gate tests failed, so that the run fails whatever the gate decides: {first_few(names, _MOST)}"
        terminalreporter.write_line(text, red=True)


def _only_shows(config: pytest.Config) -> bool:
    """Whether pytest only lists things, such as fixtures, so that nothing is gated."""
    return any(config.getoption(name, default=False) for name in _SHOWING)


def _measured_nothing(config: pytest.Config) -> bool:
    """Whether a gate was requested (by a model, or by gated tests) but no gated test ran."""
    run = config.stash[RUN]
    asked = bool(run.settings.vlm) and (run.selection.planned > 0 or bool(config.getoption("vlm")))
    return asked and not run.records and not _only_shows(config) and _FILLED not in config.stash


def _data_of_one_kind(run: Run) -> str:
    """Returns which tests have no data, because all named datasets are of one kind; else an empty string."""
    if not run.settings.vlm_dataset or (run.data.questions and run.data.collections):
        return ""
    if run.data.questions:
        return (
            ". --vlm-dataset names datasets of questions alone: tests of tasks, such as test_observatory.py, ask about "
            "collections of identities, such as --vlm-dataset=faces_160"
        )
    return (
        ". --vlm-dataset names collections of identities alone: only tests of tasks, such as test_observatory.py, ask about "
        "them, and others need a dataset of questions, such as --vlm-dataset=shapes"
    )
