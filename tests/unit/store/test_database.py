"""Opening the file: what is refused, in which words, and what is left untouched."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.prediction import LONGEST_TEXT, Prediction
from pytest_vlmrobust.store import Store, database
from pytest_vlmrobust.store.database import Database, TimedLock, connect, explain_errors, network_file_system, transaction

from .conftest import Execute

ANSWER = Prediction("A", "generate")


def file_of(directory: Path) -> Path:
    return directory / "predictions.sqlite"


def test_the_directory_is_created(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a" / "b") as store:
        assert store.path == file_of(tmp_path / "a" / "b")
        assert len(store) == 0


def test_it_is_a_write_ahead_log_with_versions(tmp_path: Path) -> None:
    Store.open(tmp_path).close()
    connection = sqlite3.connect(file_of(tmp_path))
    names = ("journal_mode", "user_version", "application_id")
    values = [connection.execute(f"pragma {name}").fetchone()[0] for name in names]
    connection.close()
    assert values == ["wal", 1, 0x564C4D52]


def test_a_directory_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("")
    with pytest.raises(
        StoreError, match=r"store/predictions\.sqlite: cannot open the store: .*File exists.* or name another directory"
    ):
        Store.open(tmp_path / "store")


def test_a_file_that_is_a_directory_is_named(tmp_path: Path) -> None:
    file_of(tmp_path).mkdir()
    with pytest.raises(
        StoreError, match=r"cannot open the store: unable to open database file\. Check that the directory exists"
    ):
        Store.open(tmp_path)


WITHOUT_PERMISSION = """
import os, sys
from pathlib import Path
from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.store import Store

if os.geteuid() == 0:  # root may write everywhere
    os.setuid(65534)
try:
    Store.open(Path(sys.argv[1]) / "store")
except StoreError as error:
    print(error)
"""


def test_a_directory_without_permission_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", WITHOUT_PERMISSION, str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert "store/predictions.sqlite: cannot open the store: [Errno 13] Permission denied: " in done.stdout
    assert "Check that the directory exists and is writable, or name another directory with --vlm-store" in done.stdout


def test_rubbish_is_named_and_kept(tmp_path: Path) -> None:
    file_of(tmp_path).write_bytes(b"this is not a database, and somebody may want it back" * 100)
    before = file_of(tmp_path).read_bytes()
    for read_only in (False, True):
        with pytest.raises(StoreError, match=r"file is not a database\. The file is damaged: move it away, and its predictions"):
            Store.open(tmp_path, read_only=read_only)
    assert file_of(tmp_path).read_bytes() == before


def test_damage_in_the_middle_is_named(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        store.put_many({f"{number:064}": Prediction("A" * 400, "generate") for number in range(200)}, context={})
    content = bytearray(file_of(tmp_path).read_bytes())
    content[4096 * 2 :] = b"\x55" * (len(content) - 4096 * 2)
    file_of(tmp_path).write_bytes(content)
    with pytest.raises(StoreError, match=r"(read|open) the store: database disk image is malformed\. The file is damaged"):  # noqa: SIM117
        with Store.open(tmp_path) as store:
            store.get_many(f"{number:064}" for number in range(200))


def test_a_newer_schema_is_named_and_kept(tmp_path: Path, execute: Execute) -> None:
    Store.open(tmp_path).close()
    execute("pragma user_version = 3")
    with pytest.raises(StoreError, match=r"the store has schema 3, and this release reads schema 1\. Use the release of"):
        Store.open(tmp_path)


def test_the_database_of_another_program_is_left_alone(tmp_path: Path, execute: Execute) -> None:
    execute("create table bookmarks (url text)")
    before = file_of(tmp_path).read_bytes()
    with pytest.raises(StoreError, match=r"a database of another program, no store: name another directory with --vlm-store"):
        Store.open(tmp_path)
    assert file_of(tmp_path).read_bytes() == before


def test_an_empty_file_is_a_new_store(tmp_path: Path) -> None:
    file_of(tmp_path).touch()
    with Store.open(tmp_path) as store:
        assert store.put_many({"k": ANSWER}, context={}) == 1


@pytest.mark.parametrize("empty_file", [True, False])
def test_reading_only_needs_a_store(tmp_path: Path, empty_file: bool) -> None:
    if empty_file:
        file_of(tmp_path).touch()
    with pytest.raises(StoreError, match=r"there is no store to read\. Run without --vlm-offline, or name its directory"):
        Store.open(tmp_path, read_only=True)
    assert file_of(tmp_path).exists() is empty_file


def test_a_read_only_store_reads_and_refuses_to_write(tmp_path: Path) -> None:
    with Store.open(tmp_path) as writer:
        writer.put_many({"k": ANSWER}, context={})
        with Store.open(tmp_path, read_only=True) as reader:
            writer.put_many({"later": ANSWER}, context={})
            assert reader.get_many(["k", "later"]) == {"k": ANSWER, "later": ANSWER}
            for write in (
                lambda: reader.put_many({"x": ANSWER}, context={}),
                lambda: reader.claim(["x"], "me", 1),
                lambda: reader.release(["x"], "me"),
            ):
                with pytest.raises(StoreError, match="the store was opened for reading only"):
                    write()


def test_a_read_only_directory_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(tmp_path) as store:
        store.put_many({"k": ANSWER}, context={})
    monkeypatch.setattr("os.access", lambda *_: False)
    with Store.open(tmp_path, read_only=True) as reader:
        assert reader.get_many(["k"]) == {"k": ANSWER}
    assert [path.name for path in tmp_path.iterdir()] == ["predictions.sqlite"]


def test_unmerged_writes_are_never_overlooked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(tmp_path) as store:
        store.put_many({"k": ANSWER}, context={})
        monkeypatch.setattr("os.access", lambda *_: False)
        with pytest.raises(StoreError, match=r"unmerged writes in predictions\.sqlite-wal, and its directory is read-only"):
            Store.open(tmp_path, read_only=True)


def test_a_full_disk_stores_nothing_of_the_batch(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        store.put_many({"first": ANSWER}, context={})
        (pages,) = store._connection.execute("pragma page_count").fetchone()
        store._connection.execute(f"pragma max_page_count = {pages + 2}")
        batch = {f"{number:064}": Prediction("A" * 1000, "generate") for number in range(200)}
        with pytest.raises(StoreError, match=r"cannot write the store: database or disk is full\. Make room on the disk"):
            store.put_many(batch, context={})
        store._connection.execute("pragma max_page_count = 100000")
        assert len(store) == 1
        assert store.put_many(batch, context={}) == 200


def test_a_store_that_is_held_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_vlmrobust.store.database.BUSY_SECONDS", 0.05)
    with Store.open(tmp_path) as store, Store.open(tmp_path) as other:
        other._connection.execute("begin immediate")
        with pytest.raises(StoreError, match=r"database is locked\. Another process has held it for 0\.05 s: end that process"):
            store.put_many({"k": ANSWER}, context={})
        other._connection.execute("rollback")
        assert store.put_many({"k": ANSWER}, context={}) == 1


def test_who_waited_in_vain_does_not_wait_as_long_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_vlmrobust.store.database.BUSY_SECONDS", 0.3)

    def patience(store: Store) -> int:
        (milliseconds,) = store._connection.execute("pragma busy_timeout").fetchone()
        return int(milliseconds)

    with Store.open(tmp_path) as store, Store.open(tmp_path) as other:
        assert patience(store) == 300
        other._connection.execute("begin immediate")
        for _ in range(2):
            with pytest.raises(StoreError, match="database is locked"):
                store.put_many({"k": ANSWER}, context={})
            assert patience(store) == 100
        other._connection.execute("rollback")
        assert store.put_many({"k": ANSWER}, context={}) == 1
        assert patience(store) == 300


@pytest.mark.parametrize("change", ["'{'", "cast(answer as blob)", "answer || answer", "7 || answer", "'[]'"])
def test_a_row_that_cannot_be_read_is_named(tmp_path: Path, change: str) -> None:
    with Store.open(tmp_path) as store:
        store.put_many({"k": ANSWER}, context={})
        store._connection.execute(f"update predictions set answer = {change}")  # noqa: S608 - from the list above
        with pytest.raises(StoreError, match="the prediction 'k' cannot be read: "):
            store.get_many(["k"])


@pytest.mark.parametrize("lock", ["immediate", "exclusive"])
def test_opening_waits_for_another_process_that_creates_the_store(tmp_path: Path, lock: str) -> None:
    other = sqlite3.connect(file_of(tmp_path), isolation_level=None, check_same_thread=False)
    other.execute(f"begin {lock}")
    timer = threading.Timer(0.1, other.execute, ["rollback"])
    timer.start()
    with Store.open(tmp_path) as store:
        assert store.put_many({"k": ANSWER}, context={}) == 1
    timer.join()
    other.close()


def test_which_keys_have_an_answer_and_what_was_answered_about_a_data_set(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        for dataset in ("shapes", "words"):
            for setting in ("clean", "flip_v"):
                key, context = f"{dataset} {setting}", {"model": "m", "dataset": dataset, "setting": setting}
                store.put_many({key: Prediction(key, "generate")}, context=context)
        assert store.has(["shapes clean", "unheard of"]) == {"shapes clean"}
        assert sorted(prediction.text for prediction in store.examples("m", "shapes", 9)) == ["shapes clean", "shapes flip_v"]
        assert len(store.examples("m", "shapes", 1)) == 1
        assert store.examples("other", "shapes", 9) == []


RECURSIVE = (
    "with recursive n(x) as (select 1 union all select x + 1 from n) select 'k' as key, '{}' as answer, x as context from n"
)


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (
            ("drop table predictions", f"create view predictions as {RECURSIVE}"),
            "holds a view in place of the table 'predictions' that a run makes",
        ),
        (
            ("drop table claims", "create table claims (key, owner, expires)"),
            "holds another layout of the table 'claims' that a run makes",
        ),
        (
            ("create trigger t after insert on predictions begin delete from views; end",),
            "holds the trigger 't' on the table 'predictions', which no run makes",
        ),
        (("create index i on predictions (context)",), "holds the index 'i' on the table 'predictions'"),
        (("drop table views",), "lacks the table 'views'"),
    ],
)
@pytest.mark.parametrize("read_only", [False, True])
def test_tables_that_no_run_makes_are_refused(
    tmp_path: Path, execute: Execute, statements: tuple[str, ...], said: str, read_only: bool
) -> None:
    Store.open(tmp_path).close()
    execute(*statements)
    with pytest.raises(StoreError, match=re.escape(said)):
        Store.open(tmp_path, read_only=read_only)


def test_a_value_larger_than_any_run_writes_is_refused(tmp_path: Path, execute: Execute) -> None:
    Store.open(tmp_path).close()
    execute("insert into contexts values (1, '{}')", "insert into predictions values ('k', zeroblob(50000000), 1)")
    with Store.open(tmp_path, read_only=True) as store, pytest.raises(StoreError, match="values of more than 32 MiB"):
        store.get_many(["k"])


def test_a_statement_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(tmp_path) as store:
        monkeypatch.setattr(store._lock, "seconds", 0.05)
        with pytest.raises(StoreError, match="interrupted"), store._lock, explain_errors(store.path, "read"):
            store._connection.execute(f"select count(*) from ({RECURSIVE})").fetchone()  # noqa: S608 - the test's own


def test_a_prediction_longer_than_any_that_is_taken_is_refused(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        store.put_many({"k": Prediction("A" * (LONGEST_TEXT + 1), "generate")}, context={})
        with pytest.raises(StoreError, match="the prediction 'k' has more than 500000 characters"):
            store.get_many(["k"])


RARER = ("panfs", "vboxsf", "fuse.goofys", "fuse.vmhgfs-fuse", "fuse.blobfuse2")
MOUNTS = (
    "/dev/sda1 / ext4 rw 0 0\nserver:/home /home nfs4 rw 0 0\n/dev/sdb1 /home/me/scratch xfs rw 0 0\n"
    "me@there: /data/with\\040blank fuse.sshfs rw 0 0\n/dev/sdc1 /covered ext4 rw 0 0\n//x/y /covered cifs rw 0 0\n"
    "fs1 /gpfs gpfs rw 0 0\nmalformed\n"
)


@pytest.mark.cases(
    ("mounts", "path", "kind"),
    [
        (MOUNTS, "/home/me/store", "nfs4"),
        (MOUNTS, "/home/me/scratch/store", ""),
        (MOUNTS, "/home", "nfs4"),
        (MOUNTS, "/homes/store", ""),
        (MOUNTS, "/data/with blank/store", "fuse.sshfs"),
        (MOUNTS, "/covered/store", "cifs"),
        (MOUNTS, "/gpfs/a/b/c/not/there", "gpfs"),
        *((f"{MOUNTS}there /here {kind} rw 0 0\n", "/here/store", kind) for kind in RARER),
        *((f"{MOUNTS}none /mnt/c {kind} rw 0 0\n", "/mnt/c/store", kind) for kind in ("9p", "virtiofs")),
        *((f"{MOUNTS}none / {kind} rw 0 0\n", "/mnt/c/store", "") for kind in ("9p", "virtiofs")),  # the root of a sandbox
    ],
)
def test_a_network_file_system_is_known_by_the_table_of_mounts(tmp_path: Path, mounts: str, path: str, kind: str) -> None:
    table = tmp_path / "mounts"
    table.write_text(mounts)
    assert network_file_system(Path(path), table) == kind


def test_without_a_table_of_mounts_nothing_is_known(tmp_path: Path) -> None:
    assert network_file_system(tmp_path, tmp_path / "none") == ""
    assert network_file_system(tmp_path) == "", "tests run on a local disk"


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="nothing interrupts here at a moment of its own choice")
def test_no_interrupt_leaves_a_lock_held() -> None:
    class Interrupt(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupt

    came, draws, before = 0, random.Random(0), signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(3000):
            lock = TimedLock()
            with contextlib.suppress(Interrupt):
                try:
                    signal.setitimer(signal.ITIMER_REAL, draws.uniform(1e-6, 5e-5))
                    for _ in range(200):
                        with lock:
                            pass
                except Interrupt:
                    came += 1
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            with pytest.raises(RuntimeError, match="un-acquired"):
                lock.release()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert came > 0


def test_only_a_database_has_a_clock_so_that_a_merge_takes_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = connect(tmp_path / "answers.sqlite", read_only=False)
    began = time.monotonic()
    monkeypatch.setattr(database, "time", SimpleNamespace(monotonic=lambda: began + 10 * database.STATEMENT_SECONDS))
    count = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 200000) select max(i) from n"
    assert connection.execute(count).fetchone() == (200000,)
    opened = Database(tmp_path / "answers.sqlite", connection)
    monkeypatch.setattr(database, "time", SimpleNamespace(monotonic=lambda: began + 20 * database.STATEMENT_SECONDS))
    with pytest.raises(sqlite3.OperationalError, match="interrupted"):
        connection.execute(count)
    opened.close()


def test_an_interrupt_that_comes_with_the_lock_leaves_no_transaction_open(tmp_path: Path) -> None:
    class Interrupted(sqlite3.Connection):
        def execute(self, sql: str, *_values: object) -> sqlite3.Cursor:
            cursor = super().execute(sql)
            if sql.startswith("begin"):
                raise KeyboardInterrupt
            return cursor

    connection = sqlite3.connect(tmp_path / "answers.sqlite", isolation_level=None, factory=Interrupted)
    with pytest.raises(KeyboardInterrupt), transaction(connection):
        pass
    assert not connection.in_transaction
    connection.close()
