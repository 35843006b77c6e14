from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.prediction import Request
from pytest_vlmrobust.evaluation.run import asking, leases
from pytest_vlmrobust.evaluation.run.leases import (
    LEASE_SECONDS,
    NOTICE_SECONDS,
    RENEWAL_SECONDS,
    Owner,
    Renewal,
    Wait,
    is_gone,
    owner_name,
)
from pytest_vlmrobust.store import Store
from tests.unit.evaluation.conftest import World, cell, present

ELSEWHERE = "another-host:4242:77:5c1a.4026531836"
linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells about processes in /proc")


class Clock:
    """A time that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextlib.contextmanager
def process(program: str = "input()") -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        yield running


def name_of(pid: int) -> str:
    _, started = leases._state_and_start(pid) or ("", "")
    return str(dataclasses.replace(Owner.of_this_process(), pid=pid, started=started))


def dead_process() -> str:
    with process("") as ended:
        ended.wait()
    return str(dataclasses.replace(Owner.of_this_process(), pid=ended.pid, started="1"))


def test_this_process_is_there() -> None:
    assert not is_gone(owner_name())
    owner = Owner.parse(owner_name())
    assert owner == Owner.of_this_process()
    assert owner is not None
    assert (owner.host, owner.pid) == (socket.gethostname(), os.getpid())


@linux
def test_the_name_of_an_owner_holds_boot_process_table_and_start() -> None:
    owner = Owner.of_this_process()
    boot, _, table = owner.system.partition(".")
    assert boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert table in str(Path("/proc/self/ns/pid").readlink())
    assert owner.started == Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]


def test_a_process_that_ended_is_gone() -> None:
    assert is_gone(dead_process())


@linux
def test_a_zombie_is_gone() -> None:
    with process() as child:
        name = name_of(child.pid)
        assert not is_gone(name)
        child.stdin.close()  # type: ignore[union-attr]
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has asked for its exit status
        os.kill(child.pid, 0)  # what alone would call it alive
        assert is_gone(name)


@linux
def test_another_process_under_the_same_number_is_not_the_owner() -> None:
    with process() as child:
        name = name_of(child.pid)
        assert not is_gone(name)
        earlier = present(Owner.parse(name))
        assert is_gone(str(dataclasses.replace(earlier, started=str(int(earlier.started) - 1))))


def test_nothing_is_assumed_about_other_process_tables_and_other_names() -> None:
    dead = present(Owner.parse(dead_process()))
    assert not is_gone(ELSEWHERE)
    assert not is_gone(str(dataclasses.replace(dead, system="another boot")))
    assert not is_gone("main")
    assert not is_gone("another-host.example:1")
    assert not is_gone(f"{socket.gethostname()}:gw0")
    assert not is_gone("host:not-a-number:1:boot")


def test_a_command_with_brackets_and_spaces_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "PROC", tmp_path)
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text(f"7 (a ) Z b) S {' '.join(str(field) for field in range(4, 53))}")
    assert leases._state_and_start(7) == ("S", "22")


@pytest.fixture
def no_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that tells nothing about processes but whether their numbers are in use."""
    monkeypatch.setattr(leases, "PROC", tmp_path / "absent")


@pytest.mark.usefixtures("no_proc")
def test_without_proc_a_process_that_ended_is_gone() -> None:
    assert Owner.of_this_process().system == ""
    dead = present(Owner.parse(dead_process()))
    assert is_gone(str(dead))
    assert not is_gone(str(dataclasses.replace(dead, host="another-host")))


@pytest.mark.usefixtures("no_proc")
def test_without_proc_a_number_in_use_is_left_to_the_lease() -> None:
    assert not is_gone(owner_name())
    assert not is_gone(ELSEWHERE)


def test_a_lease_leaves_room_for_missed_renewals() -> None:
    assert LEASE_SECONDS <= 60
    assert LEASE_SECONDS >= 4 * RENEWAL_SECONDS
    assert NOTICE_SECONDS < RENEWAL_SECONDS


@pytest.fixture
def said() -> list[str]:
    return []


def test_who_is_waited_for_is_said_once_and_after_a_while(said: list[str]) -> None:
    clock = Clock()
    wait = Wait(said.append, clock)
    assert wait.lapsed({ELSEWHERE: 1.0}, 3) == []
    clock.now += NOTICE_SECONDS - 0.1
    assert wait.lapsed({ELSEWHERE: 1.0}, 3) == []
    assert said == []
    clock.now += 0.2
    for _ in range(3):
        assert wait.lapsed({ELSEWHERE: 1.0}, 3) == []
    assert said == [
        "waiting for 3 answers that process 4242 of another-host is working on; taken over 60 s after its last sign of life"
    ]
    wait.lapsed({ELSEWHERE: 1.0, "gw7": 2.0}, 1)
    assert [line.partition(";")[0] for line in said[1:]] == ["waiting for 1 answer that gw7 is working on"]


def test_a_lease_of_another_machine_is_waited_for_as_long_as_it_is_renewed(said: list[str]) -> None:
    clock = Clock()
    wait = Wait(said.append, clock)
    a_clock_far_ahead = 1e9
    for renewal in range(10):
        assert wait.lapsed({ELSEWHERE: a_clock_far_ahead + renewal}, 1) == []
        clock.now += RENEWAL_SECONDS
    assert wait.lapsed({ELSEWHERE: a_clock_far_ahead + 10}, 1) == []
    clock.now += LEASE_SECONDS - 0.1
    assert wait.lapsed({ELSEWHERE: a_clock_far_ahead + 10}, 1) == []
    clock.now += 0.2
    assert wait.lapsed({ELSEWHERE: a_clock_far_ahead + 10, "new": 1.0}, 1) == [ELSEWHERE]


def held_by(world: World, owner: str) -> list[str]:
    """Lets ``owner`` hold the lease on whatever is claimed first; returns the keys, once there are any."""
    held: list[str] = []
    claim = Store.claim

    def claim_for_the_other_first(store: Store, keys: list[str], claimant: str, seconds: float) -> set[str]:
        if not held:
            held.extend(claim(store, keys, owner, LEASE_SECONDS))
        return claim(store, keys, claimant, seconds)

    store = world.opened[-1].store
    store.claim = claim_for_the_other_first.__get__(store)  # type: ignore[method-assign]
    return held


def test_the_lease_of_a_dead_worker_is_taken_over_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = world.evaluator(owner="me")
    held = held_by(world, dead_process())
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waited for the dead"))
    assert evaluator.result(cell("clean")).n_inferred == 6
    assert held


def test_a_lease_that_nobody_renews_is_taken_over_and_said(
    world: World, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    clock = Clock()
    evaluator = world.evaluator(owner="me")
    evaluator.notice = said.append
    held = held_by(world, ELSEWHERE)
    monkeypatch.setattr(asking, "Wait", lambda say: Wait(say, clock))

    def sleep(seconds: float) -> None:
        clock.now += seconds
        assert clock.now <= 1000 + LEASE_SECONDS + 1

    monkeypatch.setattr(time, "sleep", sleep)
    assert evaluator.result(cell("clean")).n_inferred == 6
    assert held
    assert clock.now >= 1000 + LEASE_SECONDS
    assert len(said) == 1


def test_leases_are_renewed_while_the_model_works(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEWAL_SECONDS", 0.001)
    evaluator, before = world.evaluator(owner="me"), threading.enumerate()
    renewals, enough = [], threading.Event()
    renew = Store.renew

    def counted(store: Store, keys: list[str], owner: str, seconds: float) -> None:
        renew(store, keys, owner, seconds)
        renewals.append((set(keys), owner, seconds))
        if len(renewals) == 2:
            enough.set()
        if len(renewals) == 3:
            raise StoreError("the disk is full for a moment")

    evaluator.store.renew = counted.__get__(evaluator.store)  # type: ignore[method-assign]
    first: list[Request] = []

    def slow(request: Request) -> str:
        first.append(request)
        assert enough.wait(60)
        return "B"

    world.model.answer = slow
    assert evaluator.result(cell("clean")).n_inferred == 6
    assert {owner for _, owner, _ in renewals} == {"me"}
    assert {seconds for _, _, seconds in renewals} == {LEASE_SECONDS}
    assert first[0].key in renewals[0][0]
    assert evaluator.store.holders([request.key for request in first]) == {}
    evaluator.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "vlm-leases" and thread not in before]


def test_a_thread_that_an_interrupt_kept_from_starting_is_not_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    renewal = Renewal(Store.open(world.directory), "me")
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), renewal.during(["key"]):
        pass
    renewal.close()
