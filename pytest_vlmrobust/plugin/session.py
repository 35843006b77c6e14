"""Start and end of a run: inputs are checked at once, and opened things are freed."""

from __future__ import annotations

import atexit
import contextlib
import gc
import math
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from pytest_vlmrobust.core.decision import ENDINGS, EXIT_CODES, Decision
from pytest_vlmrobust.core.errors import ModelError, VlmRobustError, did_you_mean, typed_path
from pytest_vlmrobust.evaluation.run.selection import Selection

from .evaluation import Evaluation
from .inputs import MAIN, Inputs
from .options import SHOWING, Settings, only_describes, only_sets_up, only_shows
from .outcome import NO_FILES_LEFT, Collector, lacks_files
from .progress import ProgressDisplay
from .results import Results
from .run import RUN, Run
from .workers import end_with_controller

if TYPE_CHECKING:
    from pytest_vlmrobust.reporting import Command
    from pytest_vlmrobust.reporting.directory import ReportDirectory

MARKERS = (
    "vlm_settings(*names): settings, or sets of them such as robustbench, of a vlm_cell or vlm_sweep test",
    "vlm_metrics(*names): summary metrics of a vlm_sweep or vlm_family test",
    "vlm_splits(*names): settings, or sets of them, that each summary metric is taken over one by one",
    "vlm_tasks(*names): what is asked of collections of identities, in place of questions",
)


_FEWEST_FILES = 64
"""The smallest limit of open files: a small run needs two dozen; weights, servers and workers need more."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> Generator[None]:
    """Makes sure that a run can begin, before pytest captures its output: that needs files, and streams that are open."""
    if early_config.known_args_namespace.vlm or early_config.getini("vlm"):
        allowed = _files_allowed()
        if allowed < _FEWEST_FILES:
            raise pytest.UsageError(
                f"this process may open {allowed} files, and a run needs {_FEWEST_FILES}. Raise the limit (ulimit -n 1024)"
            )
        _open_closed_streams()
        options = early_config.known_args_namespace
        is_worker = (
            hasattr(early_config, "workerinput") or "PYTEST_XDIST_WORKER" in os.environ
        )  # only later xdist says so for sure
        if not is_worker and not any(getattr(options, name, False) for name in SHOWING):
            early_config.stash[_END_WITH] = _guard_exit(lambda text: _say_at_once(early_config, text))  # before any conftest
            _claim_report(early_config, lambda name: getattr(options, name) or early_config.getini(name))
    result = yield
    _refuse_misspelt(parser, args)  # only now is every option known that a conftest adds
    return result


def _refuse_misspelt(parser: pytest.Parser, args: list[str]) -> None:
    """Refuses a misspelt option with a did-you-mean; pytest would only say that it is unknown."""
    known, unknown = parser.parse_known_and_unknown_args(args)
    for option in (word.partition("=")[0] for word in unknown if word.startswith("--vlm")):
        names = [f"--{name.replace('_', '-')}" for name in vars(known) if name.startswith("vlm")]
        raise pytest.UsageError(
            f"{option}: there is no such option.{did_you_mean(option, names, most=2)} pytest --help lists all"
        )


def _files_allowed() -> float:
    """Returns the limit of open files of this process; Windows has none."""
    try:
        import resource
    except ModuleNotFoundError:
        return math.inf
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return math.inf if allowed == resource.RLIM_INFINITY else allowed


def _open_closed_streams() -> None:
    """Opens closed standard streams (``>&-``) on the null device.

    Otherwise pytest fails with the exit code of NO-GO, and output would go into the next opened file.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open until the process ends


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marks and reads the settings; if a model is named, all inputs are checked at once."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if only_describes(config):
        return
    run = _open_run(config)
    config.stash[RUN] = run
    if not run.inputs.settings.vlm:
        return
    if run.inputs.only_plans or run.inputs.only_fills or run.inputs.settings.vlm_engine == "ray":
        _work_in_one_process(config)
    # notes of a dataset must reach the reader, even if warnings are errors
    config.addinivalue_line("filterwarnings", "default::pytest_vlmrobust.datasets.files.DatasetWarning")
    if not only_shows(config):
        config.pluginmanager.register(Collector(run), "vlmrobust-collector")
    until_the_end = contextlib.ExitStack()
    config.add_cleanup(until_the_end.close)
    until_the_end.enter_context(_collecting_seldom())
    atexit.register(_leave)
    atexit.register(gc.freeze)  # else Python looks for cycles among all of torch and transformers once more: for about a second
    if run.inputs.controls:
        order = contextlib.ExitStack()
        run.hold_signals = order.enter_context(_ends_in_order())
        run.release_signals = order.close
        run.end_with = config.stash.get(_END_WITH, None) or _guard_exit(lambda text: _say_at_once(config, text))

        def end() -> None:
            if not _is_looked_at_again(config, run):
                run.close()
                order.close()

        config.add_cleanup(end)
    else:
        end_with_controller()
    _check(config, run)


def _is_looked_at_again(config: pytest.Config, run: Run) -> bool:
    """Whether a run stays open until pytest is about to end, as a GO does that nobody took out of the configuration."""
    return run.results.decision is Decision.GO and config.stash.get(RUN, None) is run


def _check(config: pytest.Config, run: Run) -> None:
    """Checks the inputs of the user."""
    try:
        if run.inputs.controls and (only_sets_up(config) or not only_shows(config)):
            _claim_report(config, lambda name: getattr(run.inputs.settings, name))
            run.results.report = config.stash.get(_REPORT, None)
            _refuse_junit_in(run.results.report, config)
        run.inputs.settings.check()
        if run.inputs.controls and not only_shows(config):
            _refuse_workers(config, run)
        if run.inputs.only_fills:
            run.inputs.shard  # noqa: B018 - what is wrong with it is said now
        run.evaluation.check()
        run.inputs.choose_rerun(None if run.inputs.controls else config.workerinput["vlm_rerun"])  # type: ignore[attr-defined]  # xdist's
    except VlmRobustError as error:
        raise pytest.UsageError(str(error)) from None
    except OSError as error:
        if not lacks_files(error):
            raise
        raise pytest.UsageError(NO_FILES_LEFT) from None


def _refuse_workers(config: pytest.Config, run: Run) -> None:
    """Refuses xdist workers that would each start a server, or an engine that takes a whole GPU."""
    workers = getattr(config.option, "tx", None) or []
    if len(workers) < 2 and not any("*" in worker for worker in workers):  # --tx 2*popen
        return
    for name, ref in run.inputs.models.items():
        if ref.serve or ref.backend == "vllm":
            does = "start a server of its own" if ref.serve else "load the model into vLLM"
            raise ModelError(
                f"model {name!r}: each process of -n would {does}. Run without -n: one process asks many questions at a time"
            )


@pytest.hookimpl(wrapper=True)
def pytest_unconfigure(config: pytest.Config) -> Iterator[None]:
    """Frees everything; for a GO, which is checked again, only when pytest is about to end."""
    run = config.stash.get(RUN, None)
    if run is not None and not _is_looked_at_again(config, run):
        run.close()
        if run.inputs.settings.vlm:
            _end_in_time(config)
    yield
    if run is not None and run.inputs.settings.vlm:
        gc.freeze()  # pytest just collected garbage and would do it again, which takes .3 s with torch and transformers


def _end_in_time(config: pytest.Config) -> None:
    """Makes this process end a few seconds after its last line if a thread hangs in a backend.

    Pool threads of the backend may wait for such a thread, and Python waits for them at exit. The exit code is
    then that of the run, but never 0, because unfinished work is possible. The same holds if Python gets further: a
    thread inside torch during interpreter shutdown may abort the process.
    """
    from pytest_vlmrobust.backends.contract import END_SECONDS, left_behind

    at_exit: Callable[[Callable[[], object]], None] | None = getattr(threading, "_register_atexit", None)
    if at_exit is None or not left_behind():
        return
    session = config.pluginmanager.get_plugin("session")
    code = int(getattr(session, "exitstatus", 0)) or EXIT_CODES[Decision.INCOMPLETE]
    ending = threading.Event()

    def leave() -> None:
        ending.wait()
        time.sleep(END_SECONDS)
        os._exit(code)

    _left_with.append(code)
    threading.Thread(target=leave, name="vlm-end", daemon=True).start()
    at_exit(ending.set)  # before the threads of pools are waited for, which ordinary exit handlers are not


_left_with: list[int] = []
"""The exit code of a run that ended while a thread hung in a backend."""


def _leave() -> None:
    """Ends this process if a thread still hangs in a backend; all exit handlers have run by then."""
    if not _left_with:
        return  # as nearly always: nothing is imported for it
    from pytest_vlmrobust.backends.contract import left_behind

    if left_behind():
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(_left_with[-1])


_YOUNG = 20_000
"""Threshold of new objects for garbage collection; the default is some hundreds."""


@contextlib.contextmanager
def _collecting_seldom() -> Iterator[None]:
    """Makes garbage collection rarer: answers and scores are many small objects that live until the run ends.

    A higher or disabled threshold is kept.
    """
    (young, *older), frozen = gc.get_threshold(), gc.get_freeze_count()
    if young:
        gc.set_threshold(max(young, _YOUNG), *older)
    try:
        yield
    finally:
        gc.set_threshold(young, *older)
        if not frozen:
            gc.unfreeze()  # objects frozen when the session ended


@contextlib.contextmanager
def _ends_in_order() -> Iterator[Callable[[], None]]:
    """Makes a run that is ended from outside still end with a decision.

    Signals that are already handled or ignored, as under ``nohup``, are left alone. Yields a function to call once the run is
    concluded: afterwards signals and Ctrl-C no longer prevent the writing of its files.
    """
    main = threading.current_thread() is threading.main_thread()  # no other thread may set handlers
    numbers = [getattr(signal, name) for name in ENDINGS if main and hasattr(signal, name)]
    handled: dict[int, Any] = {number: signal.signal(number, _interrupt) for number in numbers if _is_unhandled(number)}

    def hold() -> None:
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            handled[signal.SIGINT] = signal.default_int_handler
        for number in handled:
            if signal.getsignal(number) in (_interrupt, signal.default_int_handler):  # otherwise it has another handler by now
                signal.signal(number, _wait_for_the_end)

    try:
        yield hold
    finally:
        for number, before in handled.items():
            if signal.getsignal(number) in (_interrupt, _wait_for_the_end, signal.SIG_DFL):
                signal.signal(number, before)


def _is_unhandled(number: int) -> bool:
    """Returns whether a signal would end this process; ``faulthandler`` handles some signals in C only."""
    import ctypes

    handler = ctypes.pythonapi.PyOS_getsig
    handler.restype = ctypes.c_void_p
    return handler(ctypes.c_int(number)) is None


_GUARDED = "vlm_guarded"
"""The attribute of an ``os._exit`` guard with the guarded function: a process may run several gates in sequence."""


def _guard_exit(say: Callable[[str], None]) -> Callable[[int | None], None]:
    """Prevents ``os._exit(0)`` from ending this process with the exit code of a GO.

    Returns a function to call with the exit code of pytest when it is about to end: only after 0 may the process end by
    ``os._exit(0)``.
    """
    leave: Callable[[int], NoReturn] = getattr(os._exit, _GUARDED, os._exit)
    process, ended = os.getpid(), 0

    def leave_loudly(status: int) -> NoReturn:
        if status == 0 and os.getpid() == process:  # a forked process may end like that
            when = f"after pytest ended with exit code {ended}, which stays" if ended else "before the run was over"
            status = ended or EXIT_CODES[Decision.INCOMPLETE]
            with contextlib.suppress(Exception):  # the exit code counts, whatever happened to the streams
                say(f"vlm: {'' if ended else 'INCOMPLETE: '}something called os._exit(0) {when}")
        leave(status)

    def end_with(status: int | None) -> None:
        nonlocal ended
        if status == 0:
            os._exit = leave  # type: ignore[assignment]  # its argument has no name
        else:
            ended = status or EXIT_CODES[Decision.INCOMPLETE]

    setattr(leave_loudly, _GUARDED, leave)
    os._exit = leave_loudly
    return end_with


def _say_at_once(config: pytest.Config, text: str) -> None:
    """Prints a line even while pytest captures output."""
    capture = config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture is not None else contextlib.nullcontext():
        config.get_terminal_writer().line(text, flush=True)


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    """Interrupts pytest like Ctrl-C; the same signal again ends it at once.

    SIGXCPU repeats every second: the run still ends in order.
    """
    signal.signal(number, signal.SIG_IGN if _is_repeated(number) else signal.SIG_DFL)
    raise KeyboardInterrupt(f"by {signal.Signals(number).name}")


def _wait_for_the_end(number: int, _frame: FrameType | None) -> None:
    """Lets a run that is being concluded finish, which takes a moment; the same signal again interrupts it."""
    if not _is_repeated(number):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else _interrupt)


def _is_repeated(number: int) -> bool:
    return signal.Signals(number).name == "SIGXCPU"


def _open_run(config: pytest.Config) -> Run:
    """Returns the run of this process; an xdist worker gets its name and command line from its controller."""
    settings = Settings.from_config(config)
    sent = getattr(config, "workerinput", {})
    worker = str(sent.get("workerid", MAIN))
    gates = bool(settings.vlm)
    claimed = config.stash.get(_REPORT, None)
    inputs = Inputs(
        settings,
        config.invocation_params.dir,
        run_id=str(sent.get("vlm_run_id") or (claimed.run_id if claimed else _new_name())),
        days_of_controller=sent.get("vlm_days", ()),
        baseline_of_controller=str(sent.get("vlm_baseline", "")),
        worker=worker,
        workers=int(sent.get("workercount", 1)),
        started=float(sent.get("vlm_started") or time.time()),
        command=_command(config, sent) if gates else None,
    )
    display = ProgressDisplay.for_run(config, reports=worker == MAIN) if gates else None
    selection = Selection(narrowed="--lf" if config.getoption("lf", default=False) else "")
    evaluation = Evaluation(inputs, display, selection)
    if display is not None:
        display.answers = evaluation.count_answers
    return Run(inputs, evaluation, Results(inputs, evaluation))


def _command(config: pytest.Config, sent: Mapping[str, Any]) -> Command | None:
    from pytest_vlmrobust.reporting import Command

    if sent:
        return Command.read(sent["vlm_command"])
    called = config.invocation_params
    return Command.of(called.args, config.option.file_or_dir, config.rootpath, called.dir)


def _new_name() -> str:
    """Returns the name of a run: by UTC time, so that the newest sorts last.

    Names are unique, even for runs started in the same second in one process or in two containers.
    """
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:8]}"


def _work_in_one_process(config: pytest.Config) -> None:
    """Makes this process plan or ask without workers: each would do the same, and the controller of xdist knows no tests.

    On a Ray cluster actors work at the same time, and each worker would ask for all of them.
    """
    if hasattr(config.option, "tx"):
        config.option.dist, config.option.tx, config.option.numprocesses = "no", [], 0


_END_WITH: pytest.StashKey[Callable[[int | None], None]] = pytest.StashKey()
"""The function that gets the exit code when pytest is about to end."""
_REPORT: pytest.StashKey[ReportDirectory] = pytest.StashKey()
"""The directory of the report, once this process has taken it."""


def _claim_report(config: pytest.Config, given: Callable[[str], Any]) -> None:
    """Takes the directory of the report: from now on it says nothing of an earlier run, whatever ends this one.

    ``given`` returns the value of an option, or of its ini value.
    """
    if _REPORT in config.stash or not given("vlm_report"):
        return
    from pytest_vlmrobust.evaluation.run.directories import RunDirectories
    from pytest_vlmrobust.reporting.directory import ReportDirectory

    run_id, invocation = _new_name(), config.invocation_params.dir
    try:
        store = typed_path(given("vlm_store"), invocation, given_as="--vlm-store")
        directories = RunDirectories(
            run_id, invocation, store, report_given=given("vlm_report"), baseline_given=given("vlm_baseline")
        )
        directories.check_report()
        config.stash[_REPORT] = claimed = ReportDirectory.claim(directories.report, run_id)
    except VlmRobustError as error:
        raise pytest.UsageError(str(error)) from None

    def release() -> None:
        run = config.stash.get(RUN, None)
        if run is None or run.results.decision is not Decision.GO:  # a GO is checked again
            claimed.release()

    config.add_cleanup(release)


def _refuse_junit_in(report: ReportDirectory | None, config: pytest.Config) -> None:
    """Refuses a JUnit file of pytest where the report writes a file of that name."""
    from pytest_vlmrobust.reporting.directory import NAMES

    given = config.getoption("xmlpath", default=None)
    path = Path(given).absolute() if given else None
    if report and path and path.name in NAMES and path.parent.resolve() == report.path.resolve():
        raise pytest.UsageError(f"--junitxml {given}: --vlm-report writes its own {path.name} there. Name another file")
