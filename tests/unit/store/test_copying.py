from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.store import Store, copying
from pytest_vlmrobust.store.copying import StoreCopy

CONTEXT = {"model": "m", "dataset": "d", "setting": "clean"}


def put(directory: Path, keys: Iterable[object]) -> None:
    with Store.open(directory) as store:
        store.put_many({f"k{key}": Prediction("A", "generate") for key in keys}, context=CONTEXT)


def count(directory: Path) -> int:
    with Store.open(directory, read_only=True) as store:
        return len(store)


@pytest.fixture
def copy(tmp_path: Path) -> StoreCopy:
    return StoreCopy(tmp_path / "work/store", tmp_path / "shared/parts/0")


def test_where_there_is_nothing_nothing_is_copied(copy: StoreCopy) -> None:
    assert copy.restore() == 0
    assert copy.update() == 0
    assert not list(copy.directory.iterdir())


def test_a_directory_that_cannot_take_a_copy_is_refused_at_the_start(copy: StoreCopy, tmp_path: Path) -> None:
    (tmp_path / "shared").write_text("a file")
    with pytest.raises(StoreError, match=r"shared/parts/0/predictions\.sqlite: cannot write the copy: .*Not a directory"):
        copy.restore()


def test_a_store_that_is_written_to_is_copied_whole(copy: StoreCopy) -> None:
    batch, written, enough = 50, 0, threading.Event()

    def write() -> None:
        nonlocal written
        with Store.open(copy.store) as store:
            while not enough.is_set():
                keys = range(written, written + batch)
                store.put_many({f"k{key}": Prediction("A", "generate") for key in keys}, context=CONTEXT)
                written += batch

    put(copy.store, [])
    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen: list[int] = []
        while len(seen) < 20:
            before = written
            seen.append(copy.update())
            assert before <= seen[-1] <= written + batch
            assert seen[-1] % batch == 0, "a batch is there as a whole or not at all"
            assert count(copy.directory) == seen[-1]
            assert [path.name for path in copy.directory.iterdir()] == ["predictions.sqlite"]
    finally:
        enough.set()
        writer.join()
    assert seen == sorted(seen)
    assert seen[-1] > seen[0]


def test_what_a_killed_process_left_in_the_log_is_copied(copy: StoreCopy) -> None:
    code = (
        "import os, sys; from pathlib import Path; from tests.unit.store.test_copying import CONTEXT, Prediction, Store\n"
        "store = Store.open(Path(sys.argv[1])); store.put_many({'k': Prediction('A', 'generate')}, context=CONTEXT); os._exit(9)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code, str(copy.store)], check=False, env=environment)
    assert done.returncode == 9
    assert (copy.store / "predictions.sqlite-wal").stat().st_size
    assert copy.update() == 1
    assert count(copy.directory) == 1


def test_the_next_process_goes_on_from_the_copy_without_its_leases(copy: StoreCopy, tmp_path: Path) -> None:
    put(copy.store, [1, 2])
    with Store.open(copy.store) as store:
        store.claim(["k3"], "a process on another machine", 1e9)
    (copy.store / "servers").mkdir()
    (copy.store / "servers/m.json").write_text("{}")
    (copy.store / "servers/.m.json.half").write_text("{")
    copy.update()
    following = StoreCopy(tmp_path / "other/store", copy.directory)
    assert following.restore() == count(following.store) == 2
    assert [path.name for path in (following.store / "servers").iterdir()] == ["m.json"]
    with Store.open(following.store) as store:
        assert store.claim(["k3"], "this process", 60.0) == {"k3"}
    put(following.store, [3])
    assert following.update() == 3


def test_answers_of_two_processes_are_both_in_the_copy(copy: StoreCopy, tmp_path: Path) -> None:
    """Such as a job that SLURM believed to be dead, or another gate."""
    put(copy.store, [1])
    assert copy.update() == 1
    other = StoreCopy(tmp_path / "other/store", copy.directory)
    put(other.store, [1, 2, 3])
    assert other.update() == 3
    put(copy.store, [2])
    assert copy.update() == count(copy.directory) == 3
    put(copy.store, [4, 5])
    assert copy.update() == count(copy.directory) == 5
    before = (copy.directory / "predictions.sqlite").stat().st_ino
    assert copy.update() == 5
    assert (copy.directory / "predictions.sqlite").stat().st_ino == before, "where nothing is new nothing is written"
    put(other.store, [6])
    assert other.update() == count(copy.directory) == 6
    assert StoreCopy(tmp_path / "next/store", copy.directory).restore() == 6


def test_two_processes_at_the_same_time_lose_no_answer(copy: StoreCopy, tmp_path: Path) -> None:
    copies = [StoreCopy(tmp_path / f"work{number}/store", copy.directory) for number in range(3)]

    def fill(number: int) -> None:
        copies[number].restore()
        for turn in range(6):
            put(copies[number].store, [f"{number}.{turn}"])
            copies[number].update()

    threads = [threading.Thread(target=fill, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count(copy.directory) == 3 * 6
    assert [path.name for path in copy.directory.iterdir()] == ["predictions.sqlite"]


def test_stores_that_contradict_each_other_leave_the_earlier_copy(copy: StoreCopy, tmp_path: Path) -> None:
    put(copy.store, [1])
    copy.update()
    other = StoreCopy(tmp_path / "other/store", copy.directory)
    with Store.open(other.store) as store:
        store.put_many({"k1": Prediction("B", "generate"), "k2": Prediction("B", "generate")}, context=CONTEXT)
    with pytest.raises(StoreError, match=r"another process copies a store there that does not go together .*with --copy-to"):
        other.update()
    assert count(copy.directory) == 1


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_kill_while_it_copies_leaves_the_earlier_copy(copy: StoreCopy, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(copy.store, [1])
    copy.update()
    put(copy.store, [2])
    code = (
        "import os, sys; from pathlib import Path; from pytest_vlmrobust.store.copying import StoreCopy\n"
        "from pytest_vlmrobust.store import run_directory\n"
        "def die(*_): os._exit(9)\n"
        "copied = run_directory.replace_file\n"
        "def replace_file(path, content):\n"
        f"    {'os.fsync' if moment == 'fsync' else 'Path.replace'} = die\n"
        "    copied(path, content)\n"
        "import pytest_vlmrobust.store.copying as copying; copying.replace_file = replace_file\n"
        "StoreCopy(Path(sys.argv[1]), Path(sys.argv[2])).update()"
    )
    done = subprocess.run([sys.executable, "-c", code, str(copy.store), str(copy.directory)], check=False)
    assert done.returncode == 9
    assert len(list(copy.directory.iterdir())) == 2, "the file that was being written lies there"
    assert count(copy.directory) == 1
    following = StoreCopy(copy.store.parent / "next", copy.directory)
    assert following.restore() == 1
    assert [path.name for path in copy.directory.iterdir()] == ["predictions.sqlite"]


def test_a_store_that_is_damaged_does_not_replace_its_copy(copy: StoreCopy) -> None:
    put(copy.store, range(2_000))
    copy.update()
    file = copy.store / "predictions.sqlite"
    with sqlite3.connect(file) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    content = bytearray(file.read_bytes())
    content[4096 * 4 : 4096 * 20] = b"\xff" * (4096 * 16)
    file.write_bytes(content)
    with pytest.raises(StoreError, match=r"cannot (read|open|write) the store"):
        copy.update()
    assert count(copy.directory) == 2_000


def test_a_copy_that_cannot_be_read_is_not_replaced(copy: StoreCopy) -> None:
    copy.directory.mkdir(parents=True)
    (copy.directory / "predictions.sqlite").write_text("something else entirely, and long enough to be looked at by SQLite" * 9)
    with pytest.raises(StoreError, match=r"parts/0/predictions\.sqlite: cannot open the copy"):
        copy.restore()
    put(copy.store, [1])
    with pytest.raises(StoreError, match=r"parts/0/predictions\.sqlite: cannot open the copy"):
        copy.update()


def test_a_disk_that_is_full_leaves_the_earlier_copy(copy: StoreCopy, monkeypatch: pytest.MonkeyPatch) -> None:
    put(copy.store, [1])
    copy.update()
    put(copy.store, [2])

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(copying, "replace_file", fail)
        with pytest.raises(StoreError, match=r"cannot write the copy: .*No space left on device"):
            copy.update()
    assert count(copy.directory) == 1
    assert copy.update() == 2
