"""A campaign of faults: gates that are killed, starved, deceived and damaged, and what became of their verdicts.

    python -m tests.faults.campaign                      # every fault once
    python -m tests.faults.campaign --trials 20 --seed 1 --only killed

Each trial runs the gate of ``gate.py`` under one fault, and then once more without it. It is survived where the first run ended
with the right verdict, or without any and said so in words, the second one ended with the right verdict, and nothing of ours
printed a traceback. Moments, sizes and places are drawn from the seed. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import math
import os
import random
import resource
import shutil
import signal
import socket
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pytest_vlmrobust.evaluation.run import clock
from pytest_vlmrobust.reporting.directory import NAMES
from tests.faults import gate

RIGHT = {"GO": 0, "NO-GO": 1}
WITHOUT_VERDICT = (2, 4, 11)
"""Exit codes of a run that says nothing about the model: interrupted, refused, INCOMPLETE."""
UNDECIDED, BEHIND = 10, "the clock of the run is behind "
"""Exit code of a run whose clock is behind where waivers would decide, and what it says."""
IN_WORDS = ("INCOMPLETE", "ERROR: ")
OURS = ("INTERNALERROR", "Traceback (most recent call last)", "this should not happen")
NOBODY = 65534
SLOW = (("GATE_SECONDS", "0.02"),)
"""Makes a run last long enough to be hit in its middle."""


@dataclass
class Trial:
    """One gate under one fault, and what went wrong with it."""

    fault: str
    number: int
    directory: Path
    rng: random.Random
    verdict: str
    ended: str = ""
    """How the run with the fault ended, in a word."""
    problems: list[str] = field(default_factory=list)

    def check(self, code: int, text: str, what: str) -> None:
        """Notes what is wrong with how a run ended that may have met the fault."""
        words = {RIGHT[self.verdict]: "right verdict", 2: "interrupted", 4: "refused", UNDECIDED: "undecided"}
        self.ended = "killed" if code < 0 else words.get(code, "incomplete")
        self.look_for_tracebacks(text, what)
        if code < 0 or code == RIGHT[self.verdict] or (code == UNDECIDED and BEHIND in text):
            return
        if code not in WITHOUT_VERDICT:
            self.problems.append(f"{what} ended with {code}, and {self.verdict} is right: {text[-1500:]}")
        elif not any(word in text for word in IN_WORDS):
            self.problems.append(f"{what} ended with {code} and without a word: {text[-300:]}")

    def check_again(self, *arguments: str) -> None:
        """Runs the gate once more, without the fault, and notes where its verdict is another."""
        code, text = gate.run(self.directory, *arguments)
        self.look_for_tracebacks(text, "the run after it")
        if code != RIGHT[self.verdict]:
            self.problems.append(f"the run after it ended with {code}, and {self.verdict} is right: {text[-600:]}")

    def look_for_tracebacks(self, text: str, what: str) -> None:
        """Notes what of ours fell out."""
        self.problems += [f"{what} printed {sign!r}: {_about(text, sign)}" for sign in OURS if sign in text]

    @property
    def store(self) -> Path:
        """The store of its gate."""
        return self.directory / ".vlmrobust"


def _about(text: str, sign: str) -> str:
    start = text.index(sign)
    return text[max(0, start - 100) : start + 1500]


Fault = Callable[[Trial], None]


# A process is ended.


@functools.cache
def _seconds_of_a_run() -> float:
    """Measures how long a run takes that nothing happens to, so that moments are drawn from all of it on any machine."""
    gate.load()
    with tempfile.TemporaryDirectory(prefix="gate-") as folder:
        started = time.monotonic()
        gate.start(gate.write(Path(folder)), environment=SLOW).wait()
        return time.monotonic() - started


def _wait(trial: Trial, share: float) -> None:
    """Waits for a random part of this share of a run."""
    time.sleep(trial.rng.uniform(0.0, share) * _seconds_of_a_run())


def _hit(trial: Trial, process: gate.Process, number: int) -> None:
    """Sends a signal at a random moment of a run."""
    _wait(trial, 1.1)
    os.kill(process.pid, number)  # it is not waited for yet, so that the id is still its own


def killed(trial: Trial) -> None:
    """Is killed (-9) at a random moment; how much it had stored by then is part of how it ended."""
    process = gate.start(trial.directory, environment=SLOW)
    _hit(trial, process, signal.SIGKILL)
    trial.check(process.wait(), process.text, "the run")
    stored = _answers(trial.store)
    trial.check_again()
    if trial.ended == "killed":
        every = _answers(trial.store)
        trial.ended += " before its answers" if stored == 0 else " after its answers" if stored == every else " between answers"


def _answers(store: Path) -> int:
    """Counts the answers in a store, in a copy of it: who opens a store may mend it."""
    with tempfile.TemporaryDirectory(prefix="store-") as folder:
        for path in (store / "predictions.sqlite", store / "predictions.sqlite-wal"):
            if path.exists():
                shutil.copy(path, folder)
        with closing(sqlite3.connect(Path(folder) / "predictions.sqlite")) as connection:
            if not connection.execute("select 1 from sqlite_master where name = 'predictions'").fetchone():
                return 0
            return int(connection.execute("select count(*) from predictions").fetchone()[0])


def signalled(trial: Trial) -> None:
    """Is sent SIGTERM, SIGHUP or SIGINT at a random moment."""
    process = gate.start(trial.directory, environment=SLOW)
    _hit(trial, process, trial.rng.choice([signal.SIGTERM, signal.SIGHUP, signal.SIGINT]))
    code = process.wait()
    began = (trial.store / "runs").exists()
    trial.check(code, process.text if began else f"{process.text} INCOMPLETE", "the run")
    trial.check_again()


def worker_killed(trial: Trial) -> None:
    """Has one of two workers of xdist killed (-9) at a random moment."""
    process = gate.start(trial.directory, "-p", "xdist", "-n2", environment=SLOW)
    workers = _workers(process)
    _wait(trial, 2.5)
    if workers:
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.kill(trial.rng.choice(workers), signal.SIGKILL)
    trial.check(process.wait(), process.text, "the run")
    trial.check_again()


def controller_killed(trial: Trial) -> None:
    """Has the controller of two workers killed (-9) while their models answer; they must end with it."""
    process = gate.start(trial.directory, "-p", "xdist", "-n2", environment=(("GATE_SECONDS", "60"),))
    workers = _workers(process)
    if len(workers) < 2:
        trial.problems.append(f"it had no workers: {process.text}")
    deadline = time.monotonic() + 60
    while not (trial.store / "predictions.sqlite").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(trial.rng.uniform(0.0, 1.0))
    os.kill(process.pid, signal.SIGKILL)
    trial.check(process.wait(), process.text, "the run")
    deadline = time.monotonic() + 4  # execnet ends them after 5 s where nothing else does
    while any(map(_is_alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for worker in filter(_is_alive, workers):
        trial.problems.append("a worker outlived its controller by 4 s")
        os.kill(worker, signal.SIGKILL)
    trial.check_again()


def server_killed(trial: Trial) -> None:
    """Has the server of its model killed (-9) at a random moment, and started again at once, a second later, or after the run."""
    try:
        import openai  # noqa: F401 - so that no gate has to
    except ModuleNotFoundError:
        raise NotImplementedError("openai is not installed") from None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    served = f"{{backend: openai, url: 'http://127.0.0.1:{port}/v1', model: m, revision: '1', time_limit: 10}}"
    (trial.directory / "models.yaml").write_text(f"models: {{m: {served}}}", encoding="utf-8")
    server = gate.serve(port, trial.verdict)
    try:
        process = gate.start(trial.directory)
        _wait(trial, 1.5)
        _end(server)
        pause = trial.rng.choice([0.0, 1.0, math.inf])
        if math.isfinite(pause):
            time.sleep(pause)
            server = gate.serve(port, trial.verdict)
        trial.check(process.wait(), process.text, "the run")
        if math.isinf(pause):
            server = gate.serve(port, trial.verdict)
        trial.check_again()
    finally:
        _end(server)


def _end(child: int) -> None:
    """Kills a child that is not waited for yet."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _workers(process: gate.Process) -> list[int]:
    """Waits for the two workers of a gate, and returns their process ids; fewer if it ends before."""
    deadline = time.monotonic() + 60
    numbers: list[int] = []
    while len(numbers) < 2 and time.monotonic() < deadline and _is_alive(process.pid):
        time.sleep(0.05)
        numbers = [int(each.name) for each in Path("/proc").glob("[0-9]*") if _parent(int(each.name)) == process.pid]
    return numbers


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


# The machine fails.


def disk_full(trial: Trial) -> None:
    """May write no file beyond a random size, as where a disk is full."""
    most = int(2 ** trial.rng.uniform(0, 18))
    process = gate.start(trial.directory, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)))
    trial.check(process.wait(), process.text, "the run")
    trial.check_again()


def clock_moved(trial: Trial) -> None:
    """Sees the clock jump at a random moment, back or ahead."""
    jump = trial.rng.choice([-86400.0, -3600.0, -1.0, 3600.0, 10 * 365 * 86400.0, -50 * 365 * 86400.0])
    after = trial.rng.choice([-1, trial.rng.randrange(400)])

    def deceive() -> None:
        calls, true = iter(range(sys.maxsize)), time.time
        time.time = lambda: true() + (jump if next(calls) > after else 0.0)
        vars(clock)["datetime"] = type("Moved", (datetime,), {"now": lambda zone: datetime.fromtimestamp(time.time(), zone)})

    process = gate.start(trial.directory, before=deceive)
    trial.check(process.wait(), process.text, "the run")
    trial.check_again()


def clock_set(trial: Trial) -> None:
    """Finds all clocks of its machine set at a random moment, the steady one too; alone or with two workers (libfaketime)."""
    _libfaketime()
    clock = trial.directory / "clock"
    clock.write_text("+0", encoding="utf-8")
    workers = ["-p", "xdist", "-n2"] if trial.rng.random() < 0.5 else []
    environment = [*SLOW, ("LD_PRELOAD", _libfaketime()), ("FAKETIME_TIMESTAMP_FILE", str(clock)), ("FAKETIME_NO_CACHE", "1")]
    process = gate.start_python(trial.directory, *workers, environment=environment)
    deadline = time.monotonic() + 60
    while not (trial.store / "predictions.sqlite").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    _wait(trial, 1.0)
    clock.write_text(trial.rng.choice(["-1d", "-1h", "-2", "+1h", "+10y", "-30y"]), encoding="utf-8")
    trial.check(process.wait(), process.text, "the run")
    trial.check_again()


def _libfaketime() -> str:
    libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not libraries:
        raise NotImplementedError("libfaketime is not installed (apt-get install faketime)")
    return str(libraries[0])


def clock_back(trial: Trial) -> None:
    """Runs once, and again with all clocks set back to a day on which its waivers still held (libfaketime)."""
    days = trial.rng.choice([gate.EXPIRED + 1, 7, 400, 40 * 365])
    back = [("LD_PRELOAD", _libfaketime()), ("FAKETIME", f"-{days}d"), ("NO_FAKE_STAT", "1")]
    trial.check_again()
    process = gate.start_python(trial.directory, environment=back)
    trial.check(process.wait(), process.text, "the run")
    trial.check_again()


def shared(trial: Trial) -> None:
    """Is one of two gates that start on one store a moment apart; one of them may be killed."""
    first = gate.start(trial.directory, environment=SLOW)
    _wait(trial, 0.7)
    second = gate.start(trial.directory, environment=SLOW)
    if trial.rng.random() < 0.5:
        _hit(trial, first, signal.SIGKILL)
    trial.check(first.wait(), first.text, "the first run")
    code = second.wait()
    if code != RIGHT[trial.verdict]:
        trial.problems.append(f"the second run ended with {code}, and {trial.verdict} is right: {second.text[-600:]}")
    trial.look_for_tracebacks(second.text, "the second run")
    trial.check_again()


def of_another_user(trial: Trial) -> None:
    """Finds a store that belongs to another user, whole or cut short, and may only read it; a whole one has all answers."""
    if os.geteuid() != 0:
        raise NotImplementedError("only root can give a store to another user")
    process = gate.start(trial.directory, environment=SLOW)
    if partial := trial.rng.random() < 0.5:
        _hit(trial, process, signal.SIGKILL)
    process.wait()
    if not trial.store.exists():
        trial.store.mkdir()
    for path in (trial.store, *trial.store.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    reader = gate.start(trial.directory, *([] if partial else ["--vlm-offline"]), before=_without_privilege)
    code = reader.wait()
    trial.check(code, reader.text, "the run of another user")
    if not partial and code != RIGHT[trial.verdict]:
        trial.problems.append(f"it has all answers, and ended with {code}: {reader.text[-600:]}")
    trial.check_again()


def _without_privilege() -> None:
    """Makes permissions hold for root: what belongs to others can only be read then."""
    overrides = 0b1110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets) == 0:
        for place in range(3):
            sets[place] &= ~overrides
        if libc.capset(header, sets) == 0:
            return
    raise OSError(ctypes.get_errno(), "capabilities cannot be dropped")


# The store is damaged.


def _sql(*statements: str) -> Callable[[Path, random.Random], None]:
    def damage(path: Path, _: random.Random) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    return damage


def _cut(share: float) -> Callable[[Path, random.Random], None]:
    return lambda path, _: os.truncate(path, int(path.stat().st_size * share))


def _flip(count: int, before: float = 1.0) -> Callable[[Path, random.Random], None]:
    def damage(path: Path, rng: random.Random) -> None:
        content = bytearray(path.read_bytes())
        for _ in range(count):
            content[rng.randrange(max(1, int(len(content) * before)))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)

    return damage


def _replace(make: Callable[[Path], object]) -> Callable[[Path, random.Random], None]:
    def damage(path: Path, _: random.Random) -> None:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        make(path)

    return damage


def _beside(suffix: str, content: bytes) -> Callable[[Path, random.Random], None]:
    return lambda path, _: (path.with_name(path.name + suffix).write_bytes(content), None)[1]


DAMAGES: Mapping[str, Callable[[Path, random.Random], None]] = {
    "emptied": _cut(0.0),
    "cut to a half": _cut(0.5),
    "cut to nine tenths": _cut(0.9),
    "cut to its header": lambda path, _: os.truncate(path, 100),
    "one bit turned": _flip(1),
    "a bit of its header turned": _flip(1, 100 / 30_000),
    "100 bits turned": _flip(100),
    "deleted": _replace(lambda _: None),
    "a directory": _replace(Path.mkdir),
    "a link to nowhere": _replace(lambda path: path.symlink_to("nowhere")),
    "a link to itself": _replace(lambda path: path.symlink_to(path.name)),
    "a text": _replace(lambda path: path.write_text("not a database, but long enough to be looked at " * 40)),
    "zeros": _replace(lambda path: path.write_bytes(bytes(30_000))),
    "of another version": _sql("pragma user_version = 99"),
    "of another program": _sql("pragma application_id = 7"),
    "with a table renamed": _sql("alter table predictions rename to other"),
    "with a column added": _sql("alter table predictions add column more"),
    "with a view": _sql("create view mine as select 1"),
    "with a trigger": _sql("create trigger t after insert on predictions begin delete from predictions; end"),
    "with rows lost": _sql("delete from predictions where rowid % 3 = 0"),
    "with answers of no form": _sql("update predictions set prediction = '{' where rowid % 5 = 0"),
    "with answers that are numbers": _sql("update predictions set prediction = 7 where rowid % 5 = 0"),
    "with answers that are blobs": _sql("update predictions set prediction = x'ff00' where rowid % 5 = 0"),
    "with digests lost": _sql("delete from recipes"),
    "beside a foreign log": _beside("-wal", b"x" * 5000),
    "beside a foreign index of its log": _beside("-shm", b"\xff" * 32768),
}
"""What is done to the store between two runs."""
ELSEWHERE: Mapping[str, Callable[[Path, random.Random], None]] = {
    "all of the store a file": _replace(lambda path: path.write_text("x")),
    "all of the store gone": _replace(lambda _: None),
}
FOLDERS: Mapping[str, Callable[[Path, random.Random], None]] = {
    "the runs a file": _replace(lambda path: path.write_text("x")),
    "the runs gone": _replace(lambda _: None),
}


def damaged(trial: Trial) -> None:
    """Finds its store damaged, after a whole run or one that was killed."""
    process = gate.start(trial.directory, environment=SLOW)
    if trial.rng.random() < 0.5:
        _hit(trial, process, signal.SIGKILL)
    process.wait()
    every = {**DAMAGES, **ELSEWHERE, **FOLDERS}
    name = [*every][trial.number % len(every)]
    path = trial.store if name in ELSEWHERE else trial.store / ("runs" if name in FOLDERS else "predictions.sqlite")
    if path.exists():
        try:
            every[name](path, trial.rng)
        except sqlite3.Error:
            trial.ended = "nothing to damage"
    trial.fault = f"damaged: {name}"
    code, text = gate.run(trial.directory)
    trial.check(code, text, "the run")
    if trial.store.is_dir():
        shutil.rmtree(trial.store)
    else:
        trial.store.unlink(missing_ok=True)
    trial.check_again()


# What is meant to be harmless: policies, report directories, options, and ways out of a process.


def vacuous(trial: Trial) -> None:
    """Is given a policy in which a rule cannot fail."""
    policy = trial.directory / "policy.yaml"
    kept = policy.read_text(encoding="utf-8")
    rules = ["accuracy_drop, max: 100pp", "worst_case_drop, max: 1.0", "clean_accuracy, min: 0%", "visual_gain, min: -100pp"]
    loose = f"  - {{id: loose, metric: {trial.rng.choice(rules)}, judge: {trial.rng.choice(['point', 'interval'])}}}\n"
    policy.write_text(kept.replace("rules:\n", f"rules:\n{loose}"), encoding="utf-8")
    code, text = gate.run(trial.directory)
    trial.check(code, text, "the run")
    if trial.ended != "refused":
        trial.problems.append(f"it was not refused: {text[-600:]}")
    policy.write_text(kept, encoding="utf-8")
    trial.check_again()


NOTHING_RAN = 5
OLD = "an earlier run: GO"
DEATHS = (
    "killed",
    "disk full",
    "--vlm-thresholds=none.yaml",
    "--vlm-dataset=none.jsonl",
    "--vlm=none",
    "--vlm-moed=full",
    "--vlm-plan",
)


def report_directory(trial: Trial) -> None:
    """Dies in one of many ways, with a report directory that an earlier GO left full."""
    report = trial.directory / "report"
    report.mkdir()
    for name in (*NAMES, "manifest.json"):
        (report / name).write_text(OLD, encoding="utf-8")
    death = DEATHS[trial.number % len(DEATHS)]
    most = int(2 ** trial.rng.uniform(9, 17)) if death == "disk full" else resource.RLIM_INFINITY
    options = [death] if death.startswith("--") else []
    limits = (most, most)
    process = gate.start(
        trial.directory,
        "--vlm-report=report",
        *options,
        before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits),
        environment=SLOW,
    )
    if death == "killed":
        _wait(trial, 0.2)
        deadline = time.monotonic() + 60
        while (report / "summary.md").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        _hit(trial, process, signal.SIGKILL)
    code = process.wait()
    if death == "--vlm-plan":
        trial.ended = "planned"
    else:
        trial.check(code, process.text, "the run")
    left = {path.name: path.read_bytes() for path in report.iterdir() if path.name in (*NAMES, "manifest.json")}
    trial.problems += [f"{name} is of the earlier run" for name, content in left.items() if content == OLD.encode()]
    signs = (b'"decision": "GO"', b"<title>GO", b"# GO")
    if code != 0 and trial.verdict != "GO":  # of a GO that was killed after it was decided, the report says what was decided
        trial.problems += [f"{name} says GO" for name, content in left.items() if any(sign in content for sign in signs)]
    trial.check_again("--vlm-report=report")


def exit_code_0(trial: Trial) -> None:
    """Imports a module that leaves the process by ``os._exit(0)`` when Python ends, or is given an option that runs no test."""
    way = trial.number % 4
    if way == 0:
        suite = trial.directory / "suite" / "test_suite.py"
        kept = suite.read_text(encoding="utf-8")
        suite.write_text(f"import atexit, os\n\natexit.register(os._exit, 0)\n{kept}", encoding="utf-8")
        process = gate.start_python(trial.directory)
        trial.check(process.wait(), process.text, "the run")
        suite.write_text(kept, encoding="utf-8")
    else:
        option = ("--setup-plan", "--setup-only", "--vlm-plan")[way - 1]
        code, text = gate.run(trial.directory, option)
        trial.ended = "nothing decided"
        trial.look_for_tracebacks(text, "the run")
        if code != NOTHING_RAN or not ("nothing decided" in text or "nothing was asked" in text):
            trial.problems.append(f"{option} ended with {code}, and {NOTHING_RAN} is right: {text[-600:]}")
    trial.check_again()


FAULTS: Mapping[str, Fault] = {
    "killed": killed,
    "signalled": signalled,
    "disk full": disk_full,
    "clock moved": clock_moved,
    "clock set": clock_set,
    "clock back": clock_back,
    "two gates on one store": shared,
    "store of another user": of_another_user,
    "store damaged": damaged,
    "worker killed": worker_killed,
    "controller killed": controller_killed,
    "server killed": server_killed,
    "vacuous policy": vacuous,
    "report directory": report_directory,
    "exit code 0": exit_code_0,
}
FEW = ("clock set", "worker killed", "controller killed", "server killed")
"""Faults of which a quarter of the trials are made: they take longer."""


def run_trial(fault: str, number: int, seed: int) -> Trial:
    """Runs one trial in a directory that is deleted afterwards.

    Raises:
        NotImplementedError: this machine cannot do that.
    """
    rng = random.Random(f"{seed} {fault} {number}")
    verdict = rng.choice([*RIGHT])
    with tempfile.TemporaryDirectory(prefix="gate-") as folder:
        trial = Trial(fault, number, gate.write(Path(folder), verdict), rng, verdict)
        try:
            FAULTS[fault](trial)
        except TimeoutError as error:
            trial.problems.append(str(error))
    return trial


@dataclass(frozen=True)
class Row:
    """What became of the trials of one fault."""

    fault: str
    trials: int
    survived: int
    ended: Mapping[str, int]
    problems: Sequence[str]

    def __str__(self) -> str:
        ended = ", ".join(f"{how} {count}" for how, count in sorted(self.ended.items()))
        return f"| {self.fault} | {self.survived} of {self.trials} | {ended} |"


HEADER = "| fault | survived | how the runs that met it ended |\n|---|--:|---|"


def run_trials(fault: str, numbers: Iterable[int], seed: int) -> Row:
    """Runs some trials of a fault.

    Raises:
        NotImplementedError: this machine cannot do that.
    """
    _seconds_of_a_run.cache_clear()  # a busy machine is slower than it was
    done = [run_trial(fault, number, seed) for number in numbers]
    problems = [f"{trial.fault}, seed {seed}, trial {trial.number}: {each}" for trial in done for each in trial.problems]
    return Row(fault, len(done), sum(not trial.problems for trial in done), Counter(t.ended for t in done), problems)


def main() -> int:
    """Runs the campaign and prints what became of it; returns 1 where a trial was not survived."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=1, help="of each fault")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=[*FAULTS], help="a fault; default: all of them")
    options = parser.parse_args()
    print(HEADER)
    problems: list[str] = []
    for fault in options.only or FAULTS:
        count = max(1, options.trials // 4) if fault in FEW else options.trials
        try:
            row = run_trials(fault, range(count), options.seed)
        except NotImplementedError as error:
            print(f"{fault}: left out: {error}", file=sys.stderr)
            continue
        print(row, flush=True)
        problems += row.problems
    print(*problems, sep="\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
