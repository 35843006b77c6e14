"""Quarantine: a command that reads runs of others works in a limited child process.

A file may make its reader compute without end, take all memory, fill the disk or crash a library. Then only the child fails,
and the command ends with one error. The child returns only its output and an exit code.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from pytest_vlmrobust.core.errors import StoreError, UsageError

from .run_directory import BASELINE, POLICIES

SECONDS = 3600.0
"""How long a command may take. Judging 10^7 answers again takes 11 minutes."""
VARIABLE = "VLMROBUST_SECONDS"
"""The environment variable with another number of seconds."""
LARGEST_FILE = 8 * 2**30
"""Bytes of a file that a command may write, temporary files included."""
_SHARE = 0.5
"""The share of the machine's memory that a command may take."""
_PASSED_ON = tuple(signal.Signals[name] for name in ("SIGHUP", "SIGTERM") if hasattr(signal, name))  # Windows has no SIGHUP
"""Signals to the parent that the child gets, and that end the parent after it."""
_GIVEN = 0.5
"""Seconds that a child has to end by itself after Ctrl-C: a terminal tells it, too, but ``kill -INT`` does not."""


def enter(*, seconds: float | None = SECONDS, largest_file: int | None = LARGEST_FILE) -> int | None:
    """Returns ``None`` in the limited child; the parent waits for it, and returns its exit code.

    ``None`` as a limit is none. Where processes cannot be forked (Windows), or signals not be handled (in a thread), it returns
    ``None`` in this process, without limits.

    Raises:
        StoreError: in the parent: the child was ended by a limit, or crashed.
    """
    if not hasattr(os, "fork") or threading.current_thread() is not threading.main_thread():
        return None
    seconds = _chosen(seconds)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)  # one that comes before their handlers waits for these
    scratch = _scratch_folder()  # the parent removes what a killed child leaves
    lives, parent_lives = os.pipe()
    gc.freeze()  # else collecting garbage writes to, and so copies, the memory that both processes share
    child = os.fork()
    if not child:
        os.close(parent_lives)
        _end_with_parent(lives)
        tempfile.tempdir = scratch
        _limit(largest_file)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return None
    os.close(lives)
    try:
        status, is_late = _wait(child, seconds, mask)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    if (number := signal.Signals(os.WTERMSIG(status))) in _PASSED_ON:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    raise refusal(f"took more than {seconds:g} s. Set {VARIABLE} to more" if is_late else _words(status))


def refusal(problem: str) -> StoreError:
    """Returns the error of a command that met a limit."""
    return StoreError(
        f"{shlex.join(sys.argv[1:])} {problem} if its files are that large. Else they may have been made to do this"
    )


def out_of_memory() -> StoreError:
    """Returns the error of a command that met the limit of memory."""
    return refusal(f"needs more than {_SHARE:.0%} of this machine's memory. Use a machine with more")


def refuse_endless(place: Path) -> None:
    """Refuses a run or a file with a pipe or a device in it, before a reader waits for the end of it."""
    for path in (place, *place.glob("*"), *place.glob(f"{POLICIES}/*"), *place.glob(f"{BASELINE}/*")):
        if path.exists() and not path.is_file() and not path.is_dir():
            raise StoreError(f"{path}: is a pipe or a device, and reading it might never end. Expected a file")


def _chosen(seconds: float | None, environment: Mapping[str, str] = os.environ) -> float | None:
    text = environment.get(VARIABLE, "")
    if seconds is None or not text:
        return seconds
    with contextlib.suppress(ValueError):
        if 0 < float(text) < threading.TIMEOUT_MAX:
            return float(text)
    raise UsageError(f"${VARIABLE} is {text!r:.100}. Expected a number of seconds, such as {SECONDS:g}")


_PREFIX, _LOCK = "vlmrobust-", ".lock-of-quarantine"


def _scratch_folder() -> str:
    """Returns a new temporary folder, and removes those of commands that were killed: nobody holds the lock of one any more."""
    import fcntl

    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError), open(lock, opener=_at_once) as stream:
            if os.fstat(stream.fileno()).st_uid == os.geteuid():
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent)
    folder = tempfile.mkdtemp(prefix=_PREFIX)
    held = os.open(Path(folder, "unlocked"), os.O_CREAT)  # open until the parent and the child have ended
    fcntl.flock(held, fcntl.LOCK_EX)
    Path(folder, "unlocked").rename(Path(folder, _LOCK))
    return folder


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)  # anybody may put a pipe there


def _end_with_parent(lives: int) -> None:
    """Has SIGIO end this process when the pipe closes, however the parent ended: a thread that waits would slow all others."""
    import fcntl

    fcntl.fcntl(lives, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lives, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):  # the pipe is open
        os.read(lives, 1)
        os.kill(os.getpid(), signal.SIGIO)


def _limit(largest_file: int | None) -> None:
    """Limits this process. Linux counts all memory as data; macOS cannot limit memory."""
    import resource

    memory = int(_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_DATA: memory, resource.RLIMIT_FSIZE: largest_file}
    for what, most in limits.items():
        hard = resource.getrlimit(what)[1]
        if most is not None and (hard == resource.RLIM_INFINITY or most < hard):
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(what, (most, hard))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # else each writer meets its own error


def _wait(child: int, seconds: float | None, mask: Iterable[int]) -> tuple[int, bool]:
    """Returns the status of a child that ended, and whether it was late; ``mask`` blocks signals as before they were held."""
    is_late = False

    def pass_on(number: int, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(child, number)

    def send(number: signal.Signals, after: float) -> None:
        def on_alarm(*_: object) -> None:
            nonlocal is_late
            is_late = number == signal.SIGKILL
            pass_on(number)

        signal.signal(signal.SIGALRM, on_alarm)
        signal.setitimer(signal.ITIMER_REAL, after)

    for number in _PASSED_ON:
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores it
            signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    send(signal.SIGKILL, seconds or 0.0)  # 0 is never
    try:
        while True:
            try:
                return os.waitpid(child, 0)[1], is_late
            except KeyboardInterrupt:
                send(signal.SIGINT, _GIVEN)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def _words(status: int) -> str:
    """Returns how a signal ended a command, and what to do."""
    number = os.WTERMSIG(status)
    if number == signal.SIGXFSZ:
        return f"was about to write a file of more than {LARGEST_FILE // 2**30} GiB. Read fewer runs"
    how = "was killed, as Linux does when memory runs out" if number == signal.SIGKILL else "crashed in a library"
    return f"{how} ({signal.Signals(number).name}). Use a machine with more memory"
