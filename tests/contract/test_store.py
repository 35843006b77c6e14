"""What every user of the store relies on: nothing torn, nothing doubled, nothing lost."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.store import Store

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
CONTEXT = {"model": "tiny", "dataset": "shapes", "setting": "fog:mid"}
ANSWER = Prediction("A", "generate")


class Clock:
    """A time that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    with Store.open(tmp_path, clock=clock) as opened:
        yield opened


HEADER = """
import json, os, signal, sys, time
from pathlib import Path
from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.store import Store
print("ready", flush=True)
sys.stdin.readline()
store = Store.open(Path(sys.argv[1]))
name = sys.argv[2]
"""


def run_together(program: str, directory: Path, *names: str) -> list[tuple[int, str]]:
    """Runs the program once for each name, all begun at the same moment; returns exit codes and outputs."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", HEADER + program, str(directory), name],
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    return [(process.returncode, output) for process, output in zip(processes, outputs, strict=True)]


@pytest.mark.parametrize(
    "prediction",
    [
        Prediction("B", "generate"),
        Prediction("", "generate", "length"),
        Prediction("größe 图 🦆 \x00 \x1b[31m \u2028 'quoted' \"twice\" \n\t", "sample", "length"),
        Prediction("half of a pair \ud83e", "generate"),
        Prediction("A", "letter_logits", "stop", {"A": -0.25, "B": -math.inf, "C": -1e-300, "D": 0.1 + 0.2}),
        Prediction("A", "generate", details={"visual_tokens": 256, "scale": 0.5, "processor": "Qwen2VLImageProcessor"}),
        Prediction("x" * 100_000, "generate"),
    ],
    ids=["plain", "empty", "unicode", "surrogate", "logprobs", "details", "long"],
)
def test_what_is_stored_comes_back(tmp_path: Path, prediction: Prediction) -> None:
    with Store.open(tmp_path) as store:
        store.put_many({"key": prediction}, context=CONTEXT)
    with Store.open(tmp_path) as again:
        assert again.get_many(["key"]) == {"key": prediction}


def test_a_nan_comes_back(store: Store) -> None:
    store.put_many({"key": Prediction("A", "letter_logits", logprobs={"A": math.nan})}, context={})
    assert math.isnan(store.get_many(["key"])["key"].logprobs["A"])


@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 2345])
def test_any_number_of_keys_is_found(store: Store, count: int) -> None:
    keys = [f"{number:064x}" for number in range(count)]
    assert store.put_many(dict.fromkeys(keys, ANSWER), context=CONTEXT) == count
    assert store.get_many([*keys, "absent"]) == dict.fromkeys(keys, ANSWER)
    assert len(store) == count


def test_keys_are_found_as_written(store: Store) -> None:
    store.put_many({"KEY": ANSWER, "kéy": ANSWER, "": ANSWER, "a'b": ANSWER}, context={})
    assert set(store.get_many(["key", "KEY", "kéy", "key ", "", "a'b"])) == {"KEY", "kéy", "", "a'b"}


def test_the_first_answer_stays(tmp_path: Path, store: Store) -> None:
    with Store.open(tmp_path) as other:
        assert store.put_many({"key": Prediction("first", "sample")}, context=CONTEXT) == 1
        assert other.put_many({"key": Prediction("second", "sample"), "new": ANSWER}, context={"setting": "clean"}) == 1
    assert store.get_many(["key"])["key"].text == "first"
    assert store.context("key") == CONTEXT
    assert store.context("new") == {"setting": "clean"}
    assert store.context("absent") is None


def test_a_failed_inference_is_no_answer(store: Store) -> None:
    failed = Prediction("", "generate", "error", error="out of memory")
    store.claim(["bad", "good"], "me", 60)
    assert store.put_many({"bad": failed, "good": ANSWER}, context=CONTEXT) == 1
    assert store.put_many({"bad": failed}, context=CONTEXT) == 0
    assert set(store.get_many(["bad", "good"])) == {"good"}
    store.release(["bad"], "me")
    assert store.claim(["bad"], "a later run", 60) == {"bad"}


def test_a_batch_that_cannot_be_written_leaves_nothing(store: Store) -> None:
    unspeakable = Prediction("A", "generate", details={"tokens": object()})  # type: ignore[dict-item]  # that is the point
    with pytest.raises(TypeError):
        store.put_many({"good": ANSWER, "bad": unspeakable}, context=CONTEXT)
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.put_many({"good": ANSWER}, context={"value": math.nan})
    assert len(store) == 0


DIE_IN_A_BATCH = """
def batch(kind):
    return {f"{kind}{number}": Prediction("A" * 2000, "generate") for number in range(200)}

def die_at_row_150(statement):
    rows.append("into predictions" in statement)
    if sum(rows) == 150:
        os.kill(os.getpid(), signal.SIGKILL)

rows = []
store.put_many(batch("whole"), context={})
store._connection.execute("pragma cache_size = 1")  # so that half a batch reaches the disk
store._connection.set_trace_callback(die_at_row_150)
store.put_many(batch("torn"), context={})
"""


def test_kill_nine_in_a_batch_loses_that_batch_only(tmp_path: Path, store: Store) -> None:
    ((code, _),) = run_together(DIE_IN_A_BATCH, tmp_path, "only")
    assert code == -signal.SIGKILL
    whole = {f"whole{number}" for number in range(200)}
    assert set(store.get_many(whole)) == whole
    assert len(store) == 200
    assert store.put_many({"torn0": ANSWER}, context={}) == 1


WRITE_THE_SAME = """
for start in range(0, 300, 10):
    keys = [str(number) for number in range(start, start + 10)]
    store.put_many({key: Prediction(name, "sample") for key in keys}, context={})
    print([prediction.text for _, prediction in sorted(store.get_many(keys).items())])
"""


def test_processes_that_write_the_same_keys_agree(tmp_path: Path, store: Store) -> None:
    left, right = run_together(WRITE_THE_SAME, tmp_path, "left", "right")
    assert (left[0], right[0]) == (0, 0)
    assert left[1] == right[1]  # whoever came second read back what the first had stored
    assert len(store) == 300


SHARE = """
done = []
for start in range(0, 400, 4):
    mine = store.claim([str(number) for number in range(start, start + 4)], name, 60)
    store.put_many({key: Prediction(name, "generate") for key in mine}, context={})
    done += sorted(mine)
print(json.dumps(done))
"""


def test_processes_share_work_without_doubling_it(tmp_path: Path, store: Store) -> None:
    results = run_together(SHARE, tmp_path, "left", "right", "third")
    done = {name: json.loads(output) for name, (_, output) in zip(("left", "right", "third"), results, strict=True)}
    together = [key for keys in done.values() for key in keys]
    assert sorted(together, key=int) == [str(number) for number in range(400)]
    answers = store.get_many(together)
    assert all(answers[key].text == name for name, keys in done.items() for key in keys)


def test_processes_may_create_a_store_at_once(tmp_path: Path) -> None:
    program = "store.put_many({name: Prediction('A', 'generate')}, context={})"
    names = [str(number) for number in range(6)]
    assert [code for code, _ in run_together(program, tmp_path / "new", *names)] == [0] * 6
    with Store.open(tmp_path / "new") as store:
        assert set(store.get_many(names)) == set(names)


def test_a_lease_keeps_others_away_until_it_is_given_back(store: Store) -> None:
    assert store.claim(["a", "b"], "left", 60) == {"a", "b"}
    assert store.claim(["b", "c"], "right", 60) == {"c"}
    store.release(["b", "c"], "left")  # c is not left's to give back
    assert store.claim(["b", "c"], "right", 60) == {"b", "c"}
    assert store.claim(["c"], "left", 60) == set()


def test_a_lease_that_ran_out_is_taken_over(store: Store, clock: Clock) -> None:
    store.claim(["a", "b"], "left", 60)
    clock.now += 50
    assert store.claim(["a"], "left", 60) == {"a"}
    clock.now += 10
    assert store.claim(["a", "b"], "right", 60) == {"b"}
    assert store.claim(["b"], "left", 60) == set()
    clock.now += 50
    assert store.claim(["a"], "right", 60) == {"a"}


def test_a_renewal_lets_own_leases_run_longer_and_takes_nothing(store: Store, clock: Clock) -> None:
    store.claim(["a", "b", "c"], "left", 60)
    store.put_many({"c": ANSWER}, context=CONTEXT)
    clock.now += 61
    assert store.claim(["b"], "right", 60) == {"b"}  # left came too late for it
    store.renew(["a", "b", "c", "never"], "left", 60)
    assert store.holders(["a"]) == {"left": clock.now + 60}
    assert store.holders(["b", "c", "never"]) == {"right": clock.now + 60}
    assert store.claim(["a"], "right", 60) == set()


def test_holders_are_told_with_the_end_of_their_last_lease(store: Store, clock: Clock) -> None:
    store.claim(["a"], "left", 60)
    store.claim(["b"], "left", 70)
    store.claim(["c"], "right", 5)
    assert store.holders(["a", "b", "c", "d"]) == {"left": clock.now + 70, "right": clock.now + 5}


def test_what_is_answered_is_not_claimed_and_its_lease_ends(store: Store) -> None:
    store.claim(["a", "b"], "left", 60)
    store.put_many({"a": ANSWER}, context=CONTEXT)
    assert store.claim(["a", "b"], "left", 60) == {"b"}
    rows = store._connection.execute("select key from claims").fetchall()
    assert rows == [("b",)]


def test_a_killed_worker_frees_its_work_when_its_lease_ends(tmp_path: Path, store: Store, clock: Clock) -> None:
    die_with_a_lease = "store.claim(['a'], name, 30)\nprint(time.time(), flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    ((code, output),) = run_together(die_with_a_lease, tmp_path, "dead")
    assert code == -signal.SIGKILL
    clock.now = float(output)
    assert store.claim(["a"], "alive", 60) == set()
    clock.now += 31
    assert store.claim(["a"], "alive", 60) == {"a"}


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads take turns so often that they meet inside a transaction."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("eager_threads")
def test_threads_share_one_store(store: Store) -> None:
    keys = [str(number) for number in range(400)]
    together = threading.Barrier(6)

    def work(owner: str) -> list[str]:
        together.wait(timeout=30)
        claimed: list[str] = []
        for start in range(0, 400, 5):
            mine = store.claim(keys[start : start + 5], owner, 60)
            store.put_many(dict.fromkeys(mine, ANSWER), context={"owner": owner})
            assert set(store.get_many(mine)) == mine
            claimed += mine
        return claimed

    with ThreadPoolExecutor(6) as pool:
        claimed = [key for done in pool.map(work, [f"thread-{number}" for number in range(6)]) for key in done]
    assert sorted(claimed, key=int) == keys


def test_the_pixels_of_a_recipe_are_remembered(store: Store) -> None:
    store.put_digests({"one": ["a" * 64], "two": ["b" * 64, "c" * 64], "none": []})
    store.put_digests({"one": ["d" * 64]})
    store.put_digests({})
    assert store.get_digests(["one", "two", "none", "absent"]) == {"one": ("a" * 64,), "two": ("b" * 64, "c" * 64), "none": ()}


def test_closing_twice_is_fine(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.close()
    store.close()
