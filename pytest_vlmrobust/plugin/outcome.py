"""From a test's end to its Record on the controller."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Generator, Iterator
from traceback import walk_tb
from typing import TYPE_CHECKING

import pytest

from pytest_vlmrobust.core.cell import Cell, FamilyMetric
from pytest_vlmrobust.core.decision import ENDS_AS_FAILURE, EXIT_CODES, Decision, NotDecided, Outcome, ThresholdExceeded
from pytest_vlmrobust.core.errors import StoreError, VlmRobustError
from pytest_vlmrobust.core.record import CHECK, FAMILY, Record
from pytest_vlmrobust.core.words import on_one_line

from .run import RUN, Run
from .selection import about_of, is_gated

if TYPE_CHECKING:
    from pytest_vlmrobust.core.cell import Planned

_ATTRIBUTE = "vlm_record"
"""Extra attributes of a report travel from xdist's workers to its controller."""
_EXPLAINED = "vlm_explained"
"""Attribute of a report: whether the record fully explains the failure."""
_PLANNED = "vlm_planned"
"""Attribute of a worker's first report: the answers in its plan."""
_PHASES = ("setup", "call", "teardown")
_OURS = (VlmRobustError, ThresholdExceeded, NotDecided)
_LONGEST = 500
"""Characters of an exception's message in the reason of a record."""
RECORD: pytest.StashKey[Record] = pytest.StashKey()
"""The stash key of a test's record."""


def failed_record(about: Planned, reason: str, nodeid: str, outcome: Outcome = Outcome.ERROR) -> Record:
    """Returns the record of a test that could not measure."""
    return Record(
        test="cell" if isinstance(about, Cell) else FAMILY if isinstance(about, FamilyMetric) else "sweep",
        id=str(about),
        model=about.model,
        dataset=about.dataset,
        setting=str(getattr(about, "setting", "")),
        metric=getattr(about, "metric", ""),
        split=getattr(about, "split", ""),
        outcome=outcome,
        reason=reason,
        nodeid=nodeid,
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attaches the record to the report, and replaces our own tracebacks by their message."""
    ours = is_gated(item) and call.excinfo is not None and isinstance(call.excinfo.value, _OURS)
    with _without_traceback(item.config) if ours else contextlib.nullcontext():
        report = yield
    if is_gated(item):
        if call.excinfo is not None and ours:
            _in_our_words(report, call.excinfo)
        with or_exit():
            _attach_record(item, report, ours)
    return report


def _attach_record(item: pytest.Item, report: pytest.TestReport, ours: bool) -> None:
    """Attaches to a report the record of its test, or that there is none."""
    final = report.when == "call" or (report.when == "setup" and not report.passed)
    if final:
        measured = item.stash.get(RECORD, None)
        record = measured or failed_record(about_of(item), _reason(report, ours), item.nodeid)
        setattr(report, _ATTRIBUTE, record.to_json())
        setattr(report, _EXPLAINED, measured is None or (ours and record.outcome in ENDS_AS_FAILURE))
        run = item.config.stash[RUN]
        if not run.inputs.controls and "planned_answers" not in vars(run.evaluation):
            setattr(report, _PLANNED, run.evaluation.planned_answers)


@contextlib.contextmanager
def _without_traceback(config: pytest.Config) -> Iterator[None]:
    """Keeps pytest from spelling out a traceback, a tenth of a second for each error, which is then replaced."""
    style = config.getoption("tbstyle", default="auto")  # the option needs pytest's terminal plugin
    config.option.tbstyle = "value"
    try:
        yield
    finally:
        config.option.tbstyle = style


def _in_our_words(report: pytest.TestReport, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Replaces a traceback by its message, and by the first line where only one line fits.

    One line fits in pytest's summary, which prints whole messages in CI, and in the ``message`` of a JUnit failure.
    """
    report.longrepr = excinfo.getrepr(style="value")
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        crash.message = crash.message.partition("\n")[0]


def _reason(report: pytest.TestReport, ours: bool) -> str:
    """Returns why a test measured nothing: our message, or which exception of other code ended it and where."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if ours or crash is None:
        return _last_line(report)
    where, _, kind = _last_line(report).rpartition(": ")
    message = on_one_line(str(crash.message), _LONGEST)
    return (f"{message} ({where})" if where and message.startswith(kind) else message) or _last_line(report)


def _last_line(report: pytest.TestReport | pytest.CollectReport) -> str:
    line = report.longreprtext.strip().rpartition("\n")[2]
    return line.removeprefix("E  ").strip() or "the test ended before anything was measured"


def is_explained(report: object) -> bool:
    """Whether the record of a test says all of its failure."""
    return bool(getattr(report, _EXPLAINED, False))


class Collector:
    """Collects the records of finished tests; registered as a plugin because the hook has no config."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._uncollected: list[Record] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Records collection errors: the tests of such a file are unknown, and pytest may go on without them."""
        if report.failed:
            self._uncollected.append(_outside_failure_record(report, "cannot be collected"))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """Starts the run with its first test; a run that ends during collection leaves no files.

        Before a test without inferences, such as a property of a metric, the model gets work for coming tests.
        """
        with or_exit():
            self._run.results.begin()
            self._run.evaluation.ask_ahead()
        display = self._run.evaluation.display
        if (
            display is not None and not display.notices_only and self._run.evaluation.selection.tests
        ):  # xdist's controller runs none
            display.plan(self._run.evaluation.planned_answers, self._run.evaluation.selection.selected)
        while self._uncollected:
            self._take(self._uncollected.pop(0))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes the record from a report; under xdist this happens in the controller."""
        if self._run.evaluation.display is not None:
            self._run.evaluation.display.plan(getattr(report, _PLANNED, {}), self._run.evaluation.selection.selected)
        line = getattr(report, _ATTRIBUTE, None)
        if line is not None:
            self._take(Record.from_json(line))
        if report.failed and report.when not in _PHASES:
            self._take(_lost_record(report))
        elif report.failed and not is_explained(report):
            failed = _outside_failure_record(report, "a non-gate test failed")
            if failed.key not in self._run.results.by_test:  # of a test that fails twice, the first reason
                self._take(failed)

    @pytest.hookimpl(tryfirst=True)  # before pytest prepares its own words, which may take seconds
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Notes that pytest was ended: by a person, by ``pytest.exit``, or by a number of failures."""
        self._run.results.stopped = f"pytest was interrupted ({_first_line(excinfo.value)})"
        if self._run.evaluation.is_open:
            self._run.evaluation.evaluator.interrupt()

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Notes that pytest itself failed, and whether that was because it could not print."""
        if raised_in(excinfo.value, PRINTING):
            self._run.results.unprinted = str(excinfo.value)
        self._run.results.stopped = f"pytest met an internal error ({_first_line(excinfo.value)})"

    def _take(self, record: Record) -> None:
        with or_exit():
            self._run.results.finish_test(record)


@contextlib.contextmanager
def or_exit() -> Iterator[None]:
    """Ends pytest if the run cannot write its records, or open the files that it needs for that."""
    try:
        yield
    except StoreError as error:
        said = str(error)
    except OSError as error:
        if not lacks_files(error):
            raise
        said = NO_FILES_LEFT
    else:
        return
    pytest.exit(f"{Decision.INCOMPLETE}: {said}", returncode=EXIT_CODES[Decision.INCOMPLETE])


NO_FILES_LEFT = "too many files are open: this process may open no more. Raise the limit (ulimit -n 1024), or close some"
"""The message when no file can be opened any more: even an import opens a file."""


def lacks_files(error: OSError) -> bool:
    """Returns whether the process, or the machine, may open no more files."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


PRINTING, JUNIT = "_pytest._io.terminalwriter", "_pytest.junitxml"
"""The modules of pytest that write output."""


def raised_in(error: BaseException | None, module: str) -> bool:
    """Returns whether something that a module of pytest's did could not be done by the system, as on a full disk."""
    frames = walk_tb(error.__traceback__) if isinstance(error, OSError) else ()
    return any(frame.f_globals.get("__name__") == module for frame, _ in frames)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _lost_record(report: pytest.TestReport) -> Record:
    """Returns the record of a test whose worker died: xdist reports it in a separate phase, without its measurement."""
    about = report.nodeid.rpartition("[")[2].rstrip("]")
    reason = f"the worker that ran it died: {_last_line(report)}"
    return Record(test="cell", id=about, model="", dataset="", outcome=Outcome.ERROR, reason=reason, nodeid=report.nodeid)


def _outside_failure_record(report: pytest.TestReport | pytest.CollectReport, what: str) -> Record:
    """Returns the record of a failure that is not a verdict; with such a record the run is never GO.

    Such as a test of a metric's property, or a teardown of a gated test.
    """
    crash = getattr(report.longrepr, "reprcrash", None)
    message = str(getattr(crash, "message", "") or _last_line(report)).partition("\n")[0]
    reason = f"{what}: {message}"
    return Record(test=CHECK, id=report.nodeid, model="", dataset="", outcome=Outcome.ERROR, reason=reason, nodeid=report.nodeid)
