"""pytest's output about a run: the header, the plan, the page at the end, the files, and the exit code."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vlmrobust.core.decision import EXIT_CODES, Decision
from pytest_vlmrobust.core.errors import StoreError, VlmRobustError
from pytest_vlmrobust.core.run_scope import any_failed_outside, records_explain
from pytest_vlmrobust.core.words import first_few, on_one_line, quantity

from .options import only_sets_up, only_shows, register_profiles
from .outcome import JUNIT, PRINTING, is_explained, or_exit, raised_in
from .run import RUN, Run
from .selection import CHECK_OF_A_METRIC
from .workers import tell_controller

if TYPE_CHECKING:
    from pytest_vlmrobust.reporting import RunFacts, RunView

_ROWS_OF_LOG = 80
"""Rows of the end page in a log."""
_STYLE = re.compile(r"\x1b\[[\d;]*m")
_MOST = 5
"""Names in a line; the summary of pytest has them all."""
_LIMITS = {"maxfail": "stopping after", "stepwise": "Test failed, continuing"}
"""Options that end pytest at a failure, with its message; under xdist, and with ``--sw``, pytest exits as interrupted."""
_FILLED: pytest.StashKey[bool] = pytest.StashKey()
"""Whether the store has every answer that a run was to fill in."""
_UNWRITTEN: pytest.StashKey[list[str]] = pytest.StashKey()
"""The reasons why files could not be written."""
_STREAMS: pytest.StashKey[bool] = pytest.StashKey()
"""Whether the JUnit file of pytest was a pipe or a device at the start."""
_PRINTED: pytest.StashKey[bool] = pytest.StashKey()
"""Whether the page of the gate was printed."""


_Report = pytest.TestReport | pytest.CollectReport


# Before any test.


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Prints the models, policy and store."""
    inputs = config.stash[RUN].inputs
    if not inputs.settings.vlm or only_shows(config):
        return []
    from pytest_vlmrobust.evaluation.judge.loopholes import warnings as loophole_warnings
    from pytest_vlmrobust.policies import Purpose

    lines = [", ".join(f"{name} ({ref.location})" for name, ref in inputs.models.items())]
    data = f"datasets {', '.join(inputs.data.typed.values())}, seed {inputs.settings.vlm_seed}, store {inputs.directories.store}"
    lines.append(f"{data}{', offline' if inputs.settings.vlm_offline else ''}")
    for name, policy in inputs.policies.items():
        files = ", ".join(file.name for file in policy.files)
        aim = "" if policy.purpose is Purpose.RELEASE else f", for a {policy.purpose}"
        waivers = quantity(len(policy.waivers), "waiver")
        lines.append(f"policy of {name}: {files} (sha256 {policy.sha256[:12]}), {waivers}{aim}")
        lines += [f"policy of {name}: {change}" for change in policy.replaced if not change.only_tightens]
    warnings = filter(None, [inputs.clock.behind, *loophole_warnings(inputs.policies.values(), inputs.clock.today)])
    lines += [f"warning: {warning}" for warning in warnings]
    lines += [] if inputs.only_plans else [inputs.directories.notice]
    lines += [str(inputs.rerun)] if inputs.rerun else []
    return [on_one_line(f"vlm: {line}", None) for line in lines if line]  # file names may contain anything


def pytest_report_collectionfinish(config: pytest.Config, items: Sequence[pytest.Item]) -> list[str]:
    """Warns, before the first inference, about rules that the samples can hardly decide, and about suites that are absent."""
    run = config.stash[RUN]
    inputs, evaluation = run.inputs, run.evaluation
    judges = evaluation.selection.plan and inputs.controls and evaluation.selection.refusal is None and not inputs.only_fills
    if not judges or only_shows(config):
        return []
    warnings = evaluation.suite_warnings(item.nodeid for item in items)
    warnings += evaluation.rule_warnings(evaluation.tests.judged_by_model())
    lines = [on_one_line(f"vlm: warning: {warning}", None) for warning in warnings]
    width = config.get_terminal_writer().fullwidth
    if not lines or not _is_screen(config):
        return lines
    from pytest_vlmrobust.reporting.writing import render_sentences

    return _as_shown(config, render_sentences(lines, width=max(80, width), color=True)).splitlines()


def _is_screen(config: pytest.Config) -> bool:
    """Whether pytest writes for a terminal, also for one without colours; a log has no right edge."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return config.get_terminal_writer().hasmarkup or getattr(reporter, "isatty", False)


def _as_shown(config: pytest.Config, text: str) -> str:
    """Returns text for a terminal, without its colours where pytest shows none, as under ``NO_COLOR``."""
    return text if config.get_terminal_writer().hasmarkup else _STYLE.sub("", text)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """With ``--vlm-plan``, prints the plan instead of running tests; with ``--vlm-fill``, fills the store with their answers."""
    run = session.config.stash[RUN]
    if session.testsfailed or only_shows(session.config):
        return None
    if run.inputs.only_fills:
        if run.evaluation.selection.selected:  # else pytest says that nothing was selected
            session.config.stash[_FILLED] = _fill(session.config, run)
        return True
    if not run.inputs.only_plans:
        return None
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.section("plan of the vision-language model gate", "=")
        width, screen = session.config.get_terminal_writer().fullwidth, _is_screen(session.config)
        reporter.write(_as_shown(session.config, _plan(run, width=width if screen else max(160, width), color=screen)))
    return True


def _fill(config: pytest.Config, run: Run) -> bool:
    """Fills the store for the selected tests and prints the result; returns whether every answer is stored."""
    from pytest_vlmrobust.evaluation.run.filling import Filling
    from pytest_vlmrobust.evaluation.run.views import view_count

    evaluation, display = run.evaluation, run.evaluation.display
    shard, variable = run.inputs.shard
    filling = Filling(shard)
    problems: list[str] = []
    try:
        places = filling.plan(evaluation.evaluator, evaluation.tests.required_cells(), run.inputs.data.tasks)
        if display is not None:
            display.plan({str(cell): len(chosen) * view_count(cell.setting) for cell, chosen in places.items()})
        for cell in filling.fill(evaluation.evaluator, places):
            if display is not None:
                display.show_filled(str(cell))
        problems += [*run.results.model_changes(), *filter(None, (database.damage() for database in evaluation.open_databases))]
    except VlmRobustError as error:
        problems.append(str(error))
    if display is not None:
        display.clear()
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.section("answers for the vision-language model gate", "=")
        source = [f"part {shard}, as {variable} says"] if variable else []
        unasked = [f"nothing is asked: {why}" for why in run.inputs.data.lacking_of(evaluation.selection.datasets).values()]
        spent = [str(spent) for spent in evaluation.spending if spent.tokens]
        for line in [
            *source,
            *filling.lines(),
            *spent,
            *problems,
            *unasked,
            f"store {run.inputs.directories.store}; nothing was judged",
        ]:
            reporter.write_line(on_one_line(line, None))
    return not filling.lacking and not problems


def _plan(run: Run, *, width: int, color: bool) -> str:
    """Returns the plan of the selected tests: a line for each model and dataset, then the details."""
    from pytest_vlmrobust.evaluation.run.forecast import NAMES, RunForecast
    from pytest_vlmrobust.reporting.writing import render_sentences, render_table

    directories, selection = run.inputs.directories, run.evaluation.selection
    try:
        cells = run.evaluation.tests.required_cells()
        forecast = RunForecast.of(run.evaluation.evaluator, cells, directories.earlier, directories.store)
    except VlmRobustError as error:
        return f"cannot be planned: {error}\n"
    header, *rows = forecast.table
    table = render_table(header, rows, names=NAMES, width=width, color=color) if rows else ""
    lines = forecast.lines
    if any(cell.dataset in run.inputs.data.tasks for cell in forecast.rows):
        lines.append("fewer inferences if a model cannot do a task on the original images: its settings are skipped")
    lines += [f"nothing is asked: {why}" for why in run.inputs.data.lacking_of(selection.datasets).values()]
    lines += [f"warning: {note}" for note in selection.notes]
    if run.inputs.settings.vlm_patch_stop:
        lines.append("fewer inferences of patches: --vlm-patch-stop ends a question at its first right patch")
    lines.append(forecast.disk)
    counts = f"{selection.selected} of {selection.planned} gated tests"
    lines.append(f"{counts}; no model was called, and a plan is never GO: exit code 5")
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
        if run.evaluation.display is not None:  # until now it may show how far a repetition is
            run.evaluation.display.stop()


def _finish(session: pytest.Session, run: Run, exitstatus: int) -> None:
    """Concludes the run, or sets the exit code of a run that only planned, filled a store or measured nothing."""
    if not run.inputs.controls:
        tell_controller(session.config)
    elif run.evaluation.selection.refusal is not None:
        session.exitstatus = pytest.ExitCode.USAGE_ERROR
    elif run.inputs.only_plans or (only_sets_up(session.config) and _names_gate(session.config)):
        # a plan is no GO: with the option left in a pipeline, the exit code must not be 0
        session.exitstatus = exitstatus if session.testsfailed else pytest.ExitCode.NO_TESTS_COLLECTED
    elif run.inputs.only_fills and _FILLED in session.config.stash:
        filled = session.config.stash[_FILLED]
        session.exitstatus = pytest.ExitCode.OK if filled else EXIT_CODES[Decision.INCOMPLETE]
    elif run.results.records or run.results.has_begun:
        with or_exit():
            _conclude(session, run, exitstatus)
    elif exitstatus == pytest.ExitCode.OK and _measured_nothing(session.config):
        session.exitstatus = EXIT_CODES[Decision.INCONCLUSIVE]
        _add_to_junit(session.config, run.results.view)


def _conclude(session: pytest.Session, run: Run, exitstatus: int) -> None:
    """Decides, writes the files, and sets the exit code: the gate's if only verdicts made tests fail, else pytest's."""
    from pytest_vlmrobust.reporting.files import add_step_summary
    from pytest_vlmrobust.reporting.markdown import summary

    results = run.results
    if not run.inputs.settings.vlm_aa:  # which may take minutes
        run.hold_signals()
    status, stopped = _how_pytest_ended(session, run, exitstatus)
    changes = [] if stopped else results.model_changes()
    try:
        results.journal.sync()
    except StoreError as error:
        changes.append(str(error))
    lost = results.losses()
    changes = list(dict.fromkeys([*changes, *lost]))
    results.stopped = "; ".join([*filter(None, [stopped]), *changes])
    by_verdicts = (
        status == pytest.ExitCode.TESTS_FAILED
        and records_explain(results.records, session.testsfailed)
        and not any_failed_outside(results.records)
    )
    if run.inputs.settings.vlm_aa and not lost and status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        results.repeat()
    if not results.stopped:  # otherwise the user waits for the end, and a batch may still be computed
        run.evaluation.free()
    run.hold_signals()
    if not lost:
        results.judge_budgets()
    decision = results.conclude()
    unwritten = _write_files(run, decision)
    if unwritten:
        # the evidence is not where the user wants it, and later steps would read it there: never GO
        results.stopped = "; ".join(filter(None, (results.stopped, *unwritten)))
    if results.stopped:
        decision = results.conclude()
    if unwritten:
        with _note_failure(unwritten, "report"):  # the written files say GO
            _write_report(run, evidence=False)
    session.exitstatus = EXIT_CODES[decision] if status == pytest.ExitCode.OK or by_verdicts else status
    _add_to_junit(session.config, results.view)
    page = add_step_summary(summary(results.view))
    session.config.stash[_UNWRITTEN] = [*unwritten, *filter(None, [page])]


def _how_pytest_ended(session: pytest.Session, run: Run, exitstatus: int) -> tuple[int, str]:
    """Returns the exit code of pytest, and why it ended if no record says so; a report then never says GO.

    If a maximum number of failures ended pytest, the exit code is the same as without xdist: tests failed.
    """
    limits = [reason for option, reason in _LIMITS.items() if session.config.getoption(option, default=False)]
    stopped = run.results.stopped
    if exitstatus == pytest.ExitCode.INTERRUPTED and session.testsfailed and any(reason in stopped for reason in limits):
        return pytest.ExitCode.TESTS_FAILED, ""  # the failure has a record, and the tests that are missing are counted
    explained = exitstatus == pytest.ExitCode.TESTS_FAILED and records_explain(run.results.records, session.testsfailed)
    if stopped or exitstatus == pytest.ExitCode.OK or explained:
        return exitstatus, stopped
    return exitstatus, f"pytest ended with exit code {int(exitstatus)}, and no test says why"


def _write_files(run: Run, decision: Decision) -> list[str]:
    """Writes the report and, after a GO, the baseline, if requested; returns the reasons for failed writes."""
    problems: list[str] = []
    files: list[Path] = []
    with _note_failure(problems, "report"):
        files += _write_report(run)
    if run.inputs.settings.vlm_update_baseline and decision is Decision.GO:
        with _note_failure(problems, "baseline"):
            files += _update_baseline(run)
    if decision is Decision.GO:
        with _note_failure(problems, "run"):
            run.results.keep_sums(files)
    return problems


@contextlib.contextmanager
def _note_failure(problems: list[str], what: str) -> Iterator[None]:
    """Adds to ``problems`` why something could not be written."""
    try:
        yield
    except (OSError, VlmRobustError) as error:
        problems.append(f"the {what} could not be written: {on_one_line(str(error), None)}")
    except Exception as error:  # noqa: BLE001 - reported, and must not hide the verdicts
        problems.append(f"writing the {what} ended in {type(error).__name__}: {on_one_line(str(error), None)}")


def _write_report(run: Run, *, evidence: bool = True) -> list[Path]:
    """Writes the report, if requested, and the evidence next to it; returns the files."""
    from pytest_vlmrobust.reporting import RunView, write_report

    results = run.results
    if results.report is None:
        return []
    view, manifest = (
        RunView(results.records, _with_ranking(run, results.conclusion)),
        results.manifest(run.inputs.directories.report),
    )

    def write(folder: Path) -> list[Path]:
        written = write_report(folder, view, manifest)
        return [*written, *results.copy_to(folder)] if evidence else written

    return results.report.put(write, as_far_as_written=results.decision is not Decision.GO)


def _with_ranking(run: Run, facts: RunFacts) -> RunFacts:
    """Returns the facts of a run, with a ranking if it has several models; a failed ranking is a warning."""
    if len(run.inputs.models) < 2:
        return facts
    from pytest_vlmrobust.evaluation.after.ranking import rank_run

    return facts.with_ranking(*rank_run(run.evaluation.evidence, run.inputs.run_id, run.inputs.reference or ""))


def _update_baseline(run: Run) -> list[Path]:
    """Copies the evidence of this run to the baseline directory; returns the files."""
    from pytest_vlmrobust.reporting import write_report

    directory = run.inputs.directories.baseline
    if run.inputs.baseline is not None:
        run.inputs.baseline.close()
    copied = run.results.copy_to(directory)
    return [*copied, *write_report(directory, run.results.view, run.results.manifest(directory))]


def _add_to_junit(config: pytest.Config, view: RunView) -> None:
    """Adds properties of the run to pytest's JUnit file, and a test case with the decision about each model.

    pytest's fixture for properties of the suite does not work under xdist (pytest issue 7767).
    """
    from pytest_vlmrobust.reporting.junit import decision_cases, suite_properties

    for plugin in config.pluginmanager.get_plugins():
        if not callable(getattr(plugin, "add_global_property", None)):
            continue
        for name, value in suite_properties(view).items():
            plugin.add_global_property(name, value)
        for case in decision_cases(view):
            node = plugin.node_reporter(f"{case.get('classname')}::{case.get('name')}")
            for name in ("classname", "name"):
                node.add_attribute(name, case.get(name))
            for part in case:
                node.append(part)  # it counts failures, errors and skips
            if case.find("system-out") is not None:
                node.add_stats("passed")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> Generator[None]:
    """Prints the end page below pytest's output, so that the decision is the last thing on the screen."""
    with _printed_once(terminalreporter, config):
        yield
    if only_shows(config):
        if _names_gate(config) and (config.option.collectonly or only_sets_up(config)):
            text = "vlm: nothing was asked and nothing decided: pytest only lists tests, or what they set up"
            terminalreporter.write_line(text)
        return
    with or_exit():
        _print_end(terminalreporter, config, config.stash[RUN])


def pytest_report_teststatus(report: _Report, config: pytest.Config) -> tuple[str, str, str] | None:
    """Prints no letter for a passed or skipped metric check: a line at the end counts them."""
    if config.get_verbosity() > 0 or not _is_check_of_a_metric(report):
        return None
    counts = report.skipped or (report.passed and report.when == "call")
    return (report.outcome, "", report.outcome.upper()) if counts else None


def _is_check_of_a_metric(report: _Report) -> bool:
    return CHECK_OF_A_METRIC in getattr(report, "keywords", ())


@contextlib.contextmanager
def _printed_once(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> Iterator[None]:
    """Keeps pytest from repeating the end page; with ``-v`` both are printed."""
    stats: dict[str, list[Any]] = terminalreporter.stats
    known = {str(kind): stats[kind] for kind in ("failed", "error") if kind in stats}
    if config.get_verbosity() <= 0:
        for kind, reports in known.items():
            stats[kind] = [report for report in reports if not is_explained(report)]
    try:
        yield
    finally:
        stats.update(known)


def _print_end(terminalreporter: pytest.TerminalReporter, config: pytest.Config, run: Run) -> None:
    """Prints the end page, or why there is none."""
    results = run.results
    refusal = run.evaluation.selection.refusal
    if not run.inputs.controls or run.inputs.only_plans:
        return  # a plan was printed in place of the tests
    if refusal is not None:
        if run.evaluation.selection.refused_at_worker:  # else pytest says it
            terminalreporter.write_line(f"ERROR: {refusal}", red=True)
    elif results.records:
        _print_page(terminalreporter, config, run)
    elif results.has_begun:
        text = f"{Decision.INCOMPLETE}: {results.stopped}, before any verdict: this says nothing about the model"
        terminalreporter.write_line(text, red=True)
    elif results.stopped and run.inputs.only_fills:
        answers = quantity(len(run.evaluation.evaluator.store), "answer") if run.evaluation.is_open else ""
        kept = f"the store has {answers}" if answers else "no question was sent yet"
        text = f"{results.stopped}: {kept}. The next start with this store asks only for what is missing"
        terminalreporter.write_line(text, yellow=True)
    elif results.stopped:
        terminalreporter.write_line(f"{results.stopped}, before any gated test ran: nothing was measured", yellow=True)
    elif run.inputs.rerun is not None:
        terminalreporter.write_line(f"{run.inputs.rerun}: no such test was collected", yellow=True)
    elif _measured_nothing(config):
        text = "INCONCLUSIVE: --vlm names a model, and no gated test ran: nothing was measured"
        terminalreporter.write_line(f"{text}{_why_nothing_ran(run)}", yellow=True)


def _print_page(terminalreporter: pytest.TerminalReporter, config: pytest.Config, run: Run) -> None:
    from pytest_vlmrobust.reporting import render_terminal
    from pytest_vlmrobust.reporting.files import annotation_lines

    width, screen = config.get_terminal_writer().fullwidth, _is_screen(config)
    full = config.get_verbosity() > 0
    room = {} if screen else {"rows": _ROWS_OF_LOG}
    view = run.results.view
    page = render_terminal(view, width=width if screen else max(120, width), color=screen, full=full, **room)
    terminalreporter.section("vision-language model robustness", "=")
    passed, skipped = (sum(map(_is_check_of_a_metric, terminalreporter.stats.get(kind, ()))) for kind in ("passed", "skipped"))
    if passed or skipped:
        terminalreporter.write_line(
            f"metrics: {quantity(passed, 'check')} of this installation passed, {skipped} passed before or make no claim"
        )
    terminalreporter.write(_as_shown(config, page))
    for problem in config.stash.get(_UNWRITTEN, []):
        terminalreporter.write_line(problem, yellow=True)
    for line in annotation_lines(view):
        terminalreporter.write_line(line)
    if names := [record.id for record in run.results.records if record.failed_outside]:
        text = f"FAILED  other tests failed, so the run fails whatever the gate decides: {first_few(names, _MOST)}"
        terminalreporter.write_line(text, red=True)
    config.stash[_PRINTED] = True


# When pytest is about to end.


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, int | None, int | None]:
    """Confirms a GO with exit code 0 after all other hooks, ``pytest_unconfigure`` and cleanups included."""
    register_profiles(config)
    config.stash[_STREAMS] = _is_stream(_junit_path(config))
    shows = only_shows(config)  # asked now: a hook may change options
    try:
        status = yield
    except BaseException as error:
        status = None if shows else _look_again(config, None, error)
        if status is None:
            raise
    else:
        status = status if shows else _look_again(config, status)
    if run := config.stash.get(RUN, None):
        run.end_with(status)
        if run.results.report is not None:
            run.results.report.release()
    return status


def _look_again(config: pytest.Config, status: int | None, error: BaseException | None = None) -> int | None:
    """Returns the final exit code instead of ``status``; ``None`` if an error ends pytest."""
    run = config.stash.get(RUN, None)
    if run is None and status == 0 and config.getoption("vlm"):
        _say(config, [f"{Decision.INCOMPLETE}: --vlm names a model, and something ended pytest before it was asked"], aloud=True)
        return EXIT_CODES[Decision.INCOMPLETE]
    if run is None or not run.inputs.controls or not _is_asked(config, run, error):
        return status
    decided = run.results.decision
    try:
        return _status_of(config, run, status, error)
    finally:
        if decided is Decision.GO:
            run.close()
            run.release_signals()


def _status_of(config: pytest.Config, run: Run, status: int | None, error: BaseException | None) -> int | None:
    """Takes a GO back if its evidence is gone, and returns the exit code: 0 only for a GO."""
    unread, unwritten = _unread(config, run, error), raised_in(error, JUNIT)
    junit = None if unwritten else _junit_file(config)
    ends_well = status == 0 or (isinstance(error, SystemExit) and not error.code)
    reasons = [unread] if unread else []
    if unwritten:
        advice = "Name a file in a directory that is writable and has room"
        reasons.append(f"--junitxml {config.getoption('xmlpath')}: cannot be written: {error}. {advice}")
    elif error is not None and not unread:
        what = f"{type(error).__name__}{f' ({error})' if str(error) else ''}"
        reasons.append(f"pytest was ended by {what} after the gate was decided")
    decision = run.results.decision
    if decision is Decision.GO:
        reasons += _lost(run, junit)
        if not reasons and _PRINTED not in config.stash and config.pluginmanager.has_plugin("terminalreporter"):
            reasons.append("something ended pytest before it printed the result of the gate")
        reason = _in_short(reasons)
        lines = [f"GO is taken back: {reason}", *_take_back(run, junit, reason)] if reasons else []
    elif ends_well:
        what = f"decided {decision}" if decision else "decided nothing: what it does at the end of a run was skipped"
        lines = [f"pytest was about to end with exit code 0, and the gate {what}. Find the plugin or the hook that changes it"]
    else:
        lines = reasons if unread or unwritten else []
    if not lines:
        return status
    decision = run.results.decision or Decision.INCOMPLETE  # which a GO that was taken back is
    _say(config, [f"{decision}: {line}" for line in lines], aloud=not unread)
    if status and not unread:
        return status
    return EXIT_CODES[decision] if error is None or unread or unwritten or ends_well else None


def _is_asked(config: pytest.Config, run: Run, error: BaseException | None) -> bool:
    """Whether pytest is to end with the decision of a gate, as it is not where it plans or fills something.

    If even its first lines could not be printed, it is unknown whether there are gated tests.
    """
    inputs, selection = run.inputs, run.evaluation.selection
    gates = inputs.settings.vlm and not inputs.only_plans and not inputs.only_fills and selection.refusal is None
    if run.results.decision is None and not gates:
        return False
    tests = selection.planned or selection.selected or run.results.records
    return bool(tests or config.getoption("vlm") or run.results.unprinted or raised_in(error, PRINTING))


def _unread(config: pytest.Config, run: Run, error: BaseException | None) -> str:
    """Returns a sentence if the end page could not be printed; standard output then leads nowhere.

    Otherwise pytest would fail at its last line, and Python after it.
    """
    why = str(error) if raised_in(error, PRINTING) else run.results.unprinted
    for stream in filter(None, (config.pluginmanager.get_plugin("terminalreporter"), sys.stdout)):
        try:
            stream.flush()
        except OSError as unflushed:
            why = str(unflushed)
        except (ValueError, AttributeError):
            pass  # it was closed (its content is written) or replaced
    if not why:
        return ""
    with contextlib.suppress(OSError, ValueError, AttributeError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    advice = "Send it to a disk with room, or to a reader that reads all of it"
    return f"standard output could not be written ({why}), so the result of the gate was not shown. {advice}"


def _junit_path(config: pytest.Config) -> Path:
    given = config.getoption("xmlpath", default=None) or ""
    return config.invocation_params.dir / os.path.expanduser(os.path.expandvars(given))  # noqa: PTH111 - as pytest


def _is_stream(path: Path) -> bool:
    """Whether a path is a pipe or a device."""
    with contextlib.suppress(OSError, ValueError):  # there is none, or it may not be looked at
        mode = path.stat().st_mode
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
    return False


def _junit_file(config: pytest.Config) -> Path | None:
    """Returns the JUnit file of pytest; ``None`` without one, or if it is printed or went into a pipe: that is not read again."""
    path = _junit_path(config)
    for stream in (1, 2):
        with contextlib.suppress(OSError):  # there is no such file, or the stream is closed
            if os.path.samestat(path.stat(), os.fstat(stream)):
                return None
    excused = config.stash.get(_STREAMS, False) and _is_stream(path)
    return path if config.getoption("xmlpath", default=None) and not excused else None


def _lost(run: Run, junit: Path | None) -> list[str]:
    """Returns a sentence for each file behind a GO that changed since it was written."""
    from pytest_vlmrobust.reporting.junit import runs_in
    from pytest_vlmrobust.store.run_directory import LOST

    lost: list[str] = []
    try:
        runs = runs_in(junit) if junit and not _is_stream(junit) else ()
        if junit and _is_stream(junit):  # reading it may never end
            lost.append(f"--junitxml {junit}: was replaced by a pipe or a device. {LOST}")
        if runs and run.inputs.run_id not in runs:
            lost.append(f"--junitxml {junit}: is of another run. {LOST}")
    except (OSError, ValueError) as error:
        lost.append(f"--junitxml {junit}: expected what pytest wrote there: {getattr(error, 'strerror', '') or error}. {LOST}")
    try:
        return [*lost, *run.results.losses()]
    except Exception as error:  # noqa: BLE001 - any unreadable file is not what the run wrote
        return [*lost, f"{run.inputs.directories.run}: cannot be read any more: {type(error).__name__} ({error})"]


def _in_short(reasons: Sequence[str]) -> str:
    """Joins sentences into one that names a few of them and says once what to do."""
    from pytest_vlmrobust.store.run_directory import LOST

    short = [reason.removesuffix(f". {LOST}") for reason in reasons]
    more = [f"and {len(short) - _MOST} more"] if len(short) > _MOST else []
    advice = f". {LOST}" if any(reason.endswith(LOST) for reason in reasons) else ""
    return f"{'; '.join([*short[:_MOST], *more])}{advice}"


def _take_back(run: Run, junit: Path | None, reason: str) -> list[str]:
    """Replaces a GO by INCOMPLETE in all files except the baseline; returns the reasons for failed writes."""
    from pytest_vlmrobust.reporting.files import add_step_summary
    from pytest_vlmrobust.reporting.junit import correct
    from pytest_vlmrobust.reporting.markdown import summary

    problems: list[str] = []
    with _note_failure(problems, "manifest"):
        run.results.take_back(reason)
    with _note_failure(problems, "report"):
        if run.results.report is not None and run.results.report.path.is_dir():  # else it says GO nowhere
            _write_report(run, evidence=False)
    with _note_failure(problems, "JUnit file"), contextlib.suppress(ValueError):  # a file that is not XML says no GO
        if junit is not None and junit.is_file():
            correct(junit, run.results.view)
    with _note_failure(problems, "summary"):
        add_step_summary(summary(run.results.view))
    return problems


def _say(config: pytest.Config, lines: Sequence[str], *, aloud: bool) -> None:
    """Prints lines after all of pytest's output; on standard error if they would not be seen."""
    reporter = config.pluginmanager.get_plugin("terminalreporter") if aloud else None
    for line in (on_one_line(f"vlm: {line}", None) for line in lines):
        with contextlib.suppress(OSError, ValueError):
            if reporter is not None:
                reporter.write_line(line, red=True)
                reporter.flush()
            else:
                sys.stderr.write(f"{line}\n")
                sys.stderr.flush()


def _measured_nothing(config: pytest.Config) -> bool:
    """Whether a gate was requested but no gated test ran."""
    records = config.stash[RUN].results.records
    return _names_gate(config) and not records and not only_shows(config) and _FILLED not in config.stash


def _names_gate(config: pytest.Config) -> bool:
    """Whether this is to be a gate: the command line names a model, or an ini file does and there are gated tests."""
    run = config.stash[RUN]
    return bool(run.inputs.settings.vlm) and (run.evaluation.selection.planned > 0 or bool(config.getoption("vlm")))


def _why_nothing_ran(run: Run) -> str:
    """Returns that there are no gated tests, or which lack data because all named datasets are of one kind."""
    if not run.inputs.settings.vlm_dataset or (run.inputs.data.questions and run.inputs.data.collections):
        nothing = (
            ". No suite was found here. Write one: vlmrobust init --model MODEL --data QUESTIONS, or vlmrobust init "
            "for the demo. Or name the suites that exist"
        )
        return "" if run.evaluation.selection.planned else nothing
    if run.inputs.data.questions:
        return (
            ". --vlm-dataset names datasets of questions alone: tests of tasks, such as test_observatory.py, ask about "
            "collections of identities, such as --vlm-dataset=faces_160"
        )
    return (
        ". --vlm-dataset names collections of identities alone: only tests of tasks, such as test_observatory.py, ask about "
        "them, and others need a dataset of questions, such as --vlm-dataset=shapes"
    )
