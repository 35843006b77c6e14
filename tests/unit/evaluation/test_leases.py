from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

from pytest_vlmrobust.evaluation.leases import LEASE_SECONDS, is_gone, owner_name
from pytest_vlmrobust.store import Store

from .conftest import World, cell


def dead_process() -> str:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return f"{socket.gethostname()}:{ended.pid}"


def test_this_process_is_there() -> None:
    assert owner_name() == f"{socket.gethostname()}:{os.getpid()}"
    assert not is_gone(owner_name())


def test_a_process_that_ended_is_gone() -> None:
    assert is_gone(dead_process())


def test_nothing_is_assumed_about_other_machines_and_other_names() -> None:
    assert not is_gone("another-host.example:1")
    assert not is_gone("main")
    assert not is_gone(f"{socket.gethostname()}:gw0")


def test_the_lease_of_a_dead_worker_is_taken_over_at_once(world: World) -> None:
    evaluator = world.evaluator(owner="me")
    dead = dead_process()
    claimed: list[str] = []
    claim = Store.claim

    def claim_for_the_dead_first(store: Store, keys: list[str], owner: str, seconds: float) -> set[str]:
        if not claimed:
            claimed.extend(claim(store, keys, dead, LEASE_SECONDS))
        return claim(store, keys, owner, seconds)

    evaluator.store.claim = claim_for_the_dead_first.__get__(evaluator.store)  # type: ignore[method-assign]
    started = time.monotonic()
    assert evaluator.result(cell("clean")).n_inferred == 6
    assert claimed
    assert time.monotonic() - started < 5
