from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, Prediction
from pytest_vlmrobust.store import Store, merging
from pytest_vlmrobust.store.merging import Merge, StoreCopy, merge_stores


def letter(name: str, *logprobs: float) -> Prediction:
    return Prediction(name, LETTER_LOGITS, logprobs=dict(zip("AB", logprobs, strict=True)))


def filled(
    directory: Path,
    answers: Mapping[str, Prediction],
    setting: str,
    digests: Mapping[str, list[str]] | None = None,
    **about: str,
) -> Path:
    with Store.open(directory) as store:
        store.put_many(answers, context={"model": "m", "dataset": "d", "setting": setting, **about})
        store.put_digests(digests or {}, {recipe: [f"note of {recipe}"] for recipe in digests or {}})
    return directory


def test_a_merge_holds_what_the_stores_hold(tmp_path: Path) -> None:
    fog = filled(tmp_path / "fog", {"k1": letter("A", -0.1, -2.0), "k2": Prediction("B", "generate")}, "fog:low", {"r1": ["p"]})
    rain = filled(
        tmp_path / "rain", {"k2": Prediction("B", "generate"), "k3": Prediction("C", "generate")}, "rain:low", {"r2": []}
    )
    merge = merge_stores([rain, fog], tmp_path / "all")
    assert merge == Merge(3, ((rain, 2), (fog, 1)))
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["predictions.sqlite"]
    with Store.open(tmp_path / "all") as store, Store.open(fog) as first:
        assert store.get_many(["k1", "k2", "k3"]) == {**first.get_many(["k1", "k2"]), "k3": Prediction("C", "generate")}
        assert [store.context(key) for key in ("k1", "k3")] == [
            {"model": "m", "dataset": "d", "setting": f"{name}:low"} for name in ("fog", "rain")
        ]
        assert store.get_digests(["r1", "r2"]) == {"r1": ("p",), "r2": ()}
        assert store.get_notes(["r1", "r2"]) == {"r1": ("note of r1",), "r2": ("note of r2",)}


def test_leases_of_a_part_stay_behind(tmp_path: Path) -> None:
    part = filled(tmp_path / "part", {"k1": Prediction("A", "generate")}, "clean")
    with Store.open(part) as store:
        store.claim(["k2"], "somebody", 1e9)
    merge_stores([part], tmp_path / "all")
    with Store.open(tmp_path / "all") as store:
        assert store.claim(["k2"], "another", 60.0) == {"k2"}


def test_log_probabilities_that_rounding_changed_are_one_answer(tmp_path: Path) -> None:
    first = filled(tmp_path / "one", {"k": letter("A", -0.101, -2.31)}, "clean")
    second = filled(tmp_path / "two", {"k": letter("A", -0.102, -2.30)}, "clean")
    assert merge_stores([first, second], tmp_path / "all").answers == 1
    with Store.open(tmp_path / "all") as store:
        assert store.get_many(["k"])["k"].logprobs == {"A": -0.101, "B": -2.31}


@pytest.mark.parametrize(
    ("other", "shown"),
    [
        (letter("B", -2.3, -0.1), r"'A', 'B'"),
        (letter("A", -0.001, -7.0), r"'A', 'A'"),
        (Prediction("A", "generate"), r"'A', 'A'"),
        (Prediction("A", LETTER_LOGITS, logprobs={"A": -0.1}), r"'A', 'A'"),
    ],
)
def test_answers_that_contradict_each_other_are_refused(tmp_path: Path, other: Prediction, shown: str) -> None:
    first = filled(tmp_path / "one", {"k" * 64: letter("A", -0.1, -2.3)}, "clean")
    second = filled(tmp_path / "two", {"k" * 64: other}, "clean")
    with pytest.raises(StoreError, match=rf"two/predictions\.sqlite: 1 answer differ.* such as k{{12}} of m-d-clean \({shown}\)"):
        merge_stores([first, second], tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_pictures_that_came_out_otherwise_are_refused(tmp_path: Path) -> None:
    parts = [filled(tmp_path / name, {}, "clean", {"r": [name]}) for name in ("one", "two")]
    (tmp_path / "mine").mkdir()
    for out in (tmp_path / "new" / "all", tmp_path / "mine"):
        with pytest.raises(StoreError, match=r"two/predictions\.sqlite: 1 image came out otherwise"):
            merge_stores(parts, out)
    assert not (tmp_path / "new").exists()
    assert list((tmp_path / "mine").iterdir()) == [], "a directory that was there before is left"


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    part = filled(tmp_path / "part", {}, "clean")
    with pytest.raises(StoreError, match=r"nothing: there is no store to read\. Name the directory that holds"):
        merge_stores([part, tmp_path / "nothing"], tmp_path / "all")
    with pytest.raises(StoreError, match="are one store"):
        merge_stores([part, tmp_path / "x" / ".." / "part"], tmp_path / "all")
    with pytest.raises(StoreError, match="there is a store already"):
        merge_stores([part], part)
    (tmp_path / "folder" / "predictions.sqlite").mkdir(parents=True)
    with pytest.raises(StoreError, match="folder: there is no store to read"):
        merge_stores([part, tmp_path / "folder"], tmp_path / "all")
    (tmp_path / "blank").mkdir()
    (tmp_path / "blank" / "predictions.sqlite").touch()
    with pytest.raises(
        StoreError, match=r"blank/predictions\.sqlite: there is no store to read\. A run that fills it writes one"
    ):
        merge_stores([part, tmp_path / "blank"], tmp_path / "all")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot open the store: .*file.*name another directory with --out"):
        merge_stores([part], tmp_path / "file")


@pytest.mark.parametrize(("column", "value"), [("answer", "not JSON"), ("answer", "{}"), ("context", "not JSON")])
def test_damage_that_a_merge_meets_is_named(tmp_path: Path, column: str, value: str) -> None:
    first, second = (filled(tmp_path / name, {"k": Prediction(name, "generate")}, "clean") for name in ("A", "B"))
    damages = {"answer": "update predictions set answer = ?", "context": "update contexts set content = ?"}
    with sqlite3.connect(second / "predictions.sqlite") as connection:
        connection.execute(damages[column], (value,))
    connection.close()
    with pytest.raises(StoreError, match=r"B/predictions\.sqlite: (the prediction 'k' cannot be read|1 answer differ)"):
        merge_stores([first, second], tmp_path / "all")


def test_a_store_of_another_schema_is_refused(tmp_path: Path) -> None:
    part = filled(tmp_path / "part", {}, "clean")
    with sqlite3.connect(part / "predictions.sqlite") as connection:
        connection.execute("pragma user_version = 0")
    connection.close()
    with pytest.raises(StoreError, match=r"has schema 0, and this release reads schema 1\. Use the release of"):
        merge_stores([part], tmp_path / "all")


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_merge_is_the_same_in_parts_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr("pytest_vlmrobust.store.merging._ROWS", rows)
    answers = {f"k{number}": Prediction(str(number), "generate") for number in range(5)}
    first = filled(tmp_path / "one", {key: answers[key] for key in ("k0", "k2", "k4")}, "clean", {"r1": ["p"], "r3": ["q"]})
    second = filled(tmp_path / "two", answers, "fog", {"r1": ["p"], "r2": ["s"], "r3": ["q"]})
    assert merge_stores([first, second], tmp_path / "all") == Merge(5, ((first, 3), (second, 2)))
    with Store.open(tmp_path / "all") as store:
        assert store.get_many(answers) == answers
        assert store.get_digests(["r1", "r2", "r3"]) == {"r1": ("p",), "r2": ("s",), "r3": ("q",)}
        assert store.get_notes(["r2"]) == {"r2": ("note of r2",)}
    wrong = filled(tmp_path / "wrong", {key: Prediction("x", "generate") for key in answers}, "clean")
    with pytest.raises(StoreError, match=r"5 answers differ .* such as (k\d of m-d-clean \('\d', 'x'\)(; )?){3}\. One"):
        merge_stores([first, second, wrong], tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_answers_of_another_model_by_the_same_name_are_refused(tmp_path: Path) -> None:
    answer = {"k1": Prediction("A", "generate")}
    old = filled(tmp_path / "old", {"k0": Prediction("A", "generate")}, "clean")
    first = filled(tmp_path / "one", answer, "clean", fingerprint="1234")
    second = filled(tmp_path / "two", {"k2": Prediction("A", "generate")}, "fog", fingerprint="5678")
    both = filled(tmp_path / "both", {"k3": Prediction("A", "generate")}, "clean", fingerprint="5678")
    filled(both, answer, "clean", fingerprint="1234")
    assert merge_stores([first, both, second, old], tmp_path / "all").answers == 4
    with pytest.raises(
        StoreError, match=r"two/predictions\.sqlite: its answers of 'm' have the fingerprint 5678, and .* 1234: other"
    ):
        merge_stores([old, first, second], tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_part_in_a_directory_that_can_only_be_read_is_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = filled(tmp_path / "part", {"k": Prediction("A", "generate")}, "clean")
    monkeypatch.setattr("pytest_vlmrobust.store.database.os.access", lambda *_: False)  # who runs the tests may write anywhere
    assert merge_stores([part], tmp_path / "all").answers == 1
    assert [path.name for path in part.iterdir()] == ["predictions.sqlite"], "not even the files of a log beside it"


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
        "import os, sys; from pathlib import Path; from tests.unit.store.test_merging import CONTEXT, Prediction, Store\n"
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
        "import os, sys; from pathlib import Path; from pytest_vlmrobust.store.merging import StoreCopy\n"
        "from pytest_vlmrobust.store import run_directory\n"
        "def die(*_): os._exit(9)\n"
        "copied = run_directory.replace_file\n"
        "def replace_file(path, content):\n"
        f"    {'os.fsync' if moment == 'fsync' else 'Path.replace'} = die\n"
        "    copied(path, content)\n"
        "import pytest_vlmrobust.store.merging as merging; merging.replace_file = replace_file\n"
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
        patched.setattr(merging, "replace_file", fail)
        with pytest.raises(StoreError, match=r"cannot write the copy: .*No space left on device"):
            copy.update()
    assert count(copy.directory) == 1
    assert copy.update() == 2
