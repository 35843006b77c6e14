"""Tests of commands in a limited child process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.store.quarantine import refuse_endless

from .conftest import forge

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no limits where processes cannot be forked"),
]
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits memory")
BEGIN = """
import os, signal, sys, tempfile, time
from pathlib import Path
from pytest_vlmrobust.cli import main
from pytest_vlmrobust.core.errors import VlmRobustError
from pytest_vlmrobust.store import Evidence, quarantine
signal.signal(signal.SIGINT, signal.default_int_handler)  # nohup, and a shell's &, have these ignored
signal.signal(signal.SIGHUP, signal.SIG_DFL)
quarantine._SHARE = 500 * 2**20 / (os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
"""
ENTER = """
try:
    ended = quarantine.enter({limits})
except VlmRobustError as error:
    sys.exit(str(error))
if ended is not None:
    sys.exit(ended)
"""


def command(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", BEGIN + code, *map(str, arguments)]


def run(code: str, *arguments: object, limits: str = "") -> subprocess.CompletedProcess[str]:
    """Runs code in the child, with arguments that stand for those of a command."""
    return called(ENTER.format(limits=limits) + code, *arguments)


def called(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(code, *arguments), capture_output=True, text=True, check=False, timeout=120)


def main_of(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs a command of vlmrobust as a user does, with 500 MiB of memory."""
    return called("sys.exit(main())", *arguments)


@pytest.mark.parametrize("code", [0, 1, 10])
def test_output_and_exit_code_are_those_of_the_child(code: int) -> None:
    done = run(f"print('said'); print('complained', file=sys.stderr); sys.exit({code})")
    assert (done.stdout, done.stderr, done.returncode) == ("said\n", "complained\n", code)


def test_thread_gets_no_child_as_it_handles_no_signals() -> None:
    done = called(
        "import threading\nthread = threading.Thread(target=lambda: print(quarantine.enter()))\nthread.start()\nthread.join()"
    )
    assert (done.stdout, done.stderr) == ("None\n", "")


@pytest.mark.parametrize(
    ("code", "limits", "said"),
    [
        ("time.sleep(60)", "seconds=0.3", "took more than 0.3 s. Set VLMROBUST_SECONDS to more"),
        ("while True: pass", "seconds=0.3", "took more than 0.3 s. Set VLMROBUST_SECONDS to more"),
        ("Path('large').write_bytes(bytes(2**21))", "largest_file=2**20", "was about to write a file of more than 8 GiB. "),
        ("os.kill(os.getpid(), signal.SIGKILL)", "", "was killed, as Linux does when memory runs out (SIGKILL). Use a machine"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "", "crashed in a library (SIGSEGV). "),
    ],
)
def test_limit_or_crash_is_one_error_that_names_the_command(tmp_path: Path, code: str, limits: str, said: str) -> None:
    done = run(f"os.chdir({str(tmp_path)!r})\n{code}", "verify", "a b.zip", limits=limits)
    assert done.stderr.startswith(f"verify 'a b.zip' {said}")
    assert done.stderr.endswith("if its files are that large. Else they may have been made to do this\n")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@ON_LINUX
def test_child_that_takes_too_much_memory_gets_a_memory_error() -> None:
    done = run("try:\n    bytearray(2**30)\nexcept MemoryError:\n    print(quarantine.out_of_memory())", "report", "run")
    assert done.stdout.startswith("report run needs more than ")
    assert "of this machine's memory. Use a machine with more if its files are that large" in done.stdout


def test_temporary_files_of_a_killed_child_are_removed() -> None:
    said = run("print(tempfile.mkdtemp(prefix='unpacked'), flush=True); os.kill(os.getpid(), signal.SIGKILL)").stdout.strip()
    assert "unpacked" in said
    assert not Path(said).parent.exists()


def test_child_ends_when_its_parent_is_killed_and_the_next_command_removes_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "vlmrobust-fill").mkdir()  # not of a quarantine
    (tmp_path / "vlmrobust-pipe").mkdir()
    os.mkfifo(tmp_path / "vlmrobust-pipe" / ".lock-of-quarantine")  # reading it would never end
    code = ENTER.format(limits="") + "print(os.getpid(), flush=True); time.sleep(60)"
    with subprocess.Popen(command(code), stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert int(parent.stdout.readline()) != parent.pid
        (scratch,) = tmp_path.glob("vlmrobust-*/.lock-of-quarantine")
        assert run("").returncode == 0
        assert scratch.exists(), "its command still runs"
        started = time.monotonic()
        parent.kill()
        assert parent.stdout.read() == ""  # ends when the child does
    assert time.monotonic() - started < 30
    assert scratch.exists()
    assert run("print(*os.listdir(os.environ['TMPDIR']))").stdout.split().count("vlmrobust-fill") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["vlmrobust-fill"]


def test_interrupt_of_the_parent_alone_reaches_the_child() -> None:
    code = "print('begun', flush=True)\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    sys.exit(130)"
    started = command(ENTER.format(limits="") + code)
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        parent.send_signal(signal.SIGINT)
        _, said = parent.communicate(timeout=60)
    assert (parent.returncode, said) == (130, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_to_the_parent_ends_both_and_leaves_no_files(number: signal.Signals) -> None:
    code = ENTER.format(limits="") + "print(tempfile.mkdtemp(), flush=True); time.sleep(60)"
    with subprocess.Popen(command(code), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        folder = Path(parent.stdout.readline().strip())
        assert folder.is_dir()
        parent.send_signal(number)
        _, said = parent.communicate(timeout=60)
    assert (parent.returncode, said) == (-number, "")
    assert not folder.parent.exists()


HIT_AT_FORK = """
fork = os.fork
def hit():
    if child := fork():
        os.kill(os.getpid(), {number})
    time.sleep(0.3)
    return child
os.fork = hit
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_before_the_parent_waits_ends_both_and_leaves_no_files(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = called(HIT_AT_FORK.format(number=int(number)) + ENTER.format(limits="") + "time.sleep(60)")
    assert (done.returncode, done.stderr) == (-number, "")
    assert list(tmp_path.iterdir()) == []


def test_child_ends_if_its_parent_was_killed_before_the_child_could_watch_it() -> None:
    started = time.monotonic()
    done = called(HIT_AT_FORK.format(number=int(signal.SIGKILL)) + ENTER.format(limits="") + "time.sleep(60)")  # until both end
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("value", ["x", "0", "-1", "nan", "inf"])
def test_variable_that_is_no_number_of_seconds_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLMROBUST_SECONDS", value)
    done = run("")
    assert done.stderr == f"$VLMROBUST_SECONDS is {value!r}. Expected a number of seconds, such as 3600\n"


def test_variable_sets_the_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLMROBUST_SECONDS", "0.2")
    assert "took more than 0.2 s" in run("time.sleep(60)").stderr
    assert run("time.sleep(0.5)", limits="seconds=None").stderr == ""


# Hostile files.


@ON_LINUX
@pytest.mark.parametrize("file", ["records.jsonl", "manifest.json"])
def test_run_with_a_file_of_gigabytes_of_zeros_is_refused(tmp_path: Path, file: str) -> None:
    (tmp_path / "records.jsonl").touch()
    (tmp_path / file).touch()
    os.truncate(tmp_path / file, 10 * 2**30)
    done = main_of("report", tmp_path)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith(f"vlmrobust: report {tmp_path} needs more than ")


def test_json_of_a_hundred_thousand_levels_is_refused(tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").touch()
    (tmp_path / "manifest.json").write_text("[" * 100_000)
    done = main_of("report", tmp_path)
    assert (done.returncode, done.stdout) == (4, "")
    assert "more than 100 lists and objects stand inside each other" in done.stderr


@pytest.mark.parametrize("file", ["manifest.json", "predictions.sqlite", "policies/p.yaml", "baseline/predictions.sqlite"])
def test_pipe_in_a_run_is_refused_at_once(tmp_path: Path, file: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    os.mkfifo(tmp_path / file)
    with pytest.raises(StoreError, match=rf"{file}: is a pipe or a device, and reading it might never end\. Expected a file"):
        refuse_endless(tmp_path)
    (tmp_path / file).unlink()
    (tmp_path / file).symlink_to("/dev/zero")
    with pytest.raises(StoreError, match="is a pipe or a device"):
        refuse_endless(tmp_path)


@pytest.mark.parametrize("limits", ["seconds=2.0", pytest.param("", marks=ON_LINUX)])
def test_table_whose_pages_lead_in_circles_ends(tmp_path: Path, limits: str) -> None:
    """Its few pages are met in 30^9 ways: by the number of its rows it is larger than any disk."""
    forge(tmp_path)
    query = "select count(*) from answers" if limits else "select * from answers"
    read = f"sqlite3.connect({str(tmp_path / 'predictions.sqlite')!r}).execute('{query}').fetchall()"
    code = f"import sqlite3\ntry:\n    {read}\n"
    done = run(code + "except MemoryError:\n    sys.exit(str(quarantine.out_of_memory()))", limits=limits)
    assert ("took more than 2 s" if limits else "of this machine's memory") in done.stderr
