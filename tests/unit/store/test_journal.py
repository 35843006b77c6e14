from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.store import Journal, last_records, read_journal
from pytest_vlmrobust.store.journal import JournalReader

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}


def record(name: str = "tiny-shapes-fog:mid") -> Record:
    measure = Measure("accuracy_drop", 0.1, 0.05, 0.2, 100, "0.05", Outcome.FAIL, "größer als \u2028 erlaubt\n")
    return Record("cell", name, "tiny", "shapes", "fog:mid", measures=(measure,), categories={"Art": 0.5}, worst=("1", "2"))


def test_records_come_back_in_order(tmp_path: Path) -> None:
    written = [record("a"), record("b"), record("a")]
    with Journal(tmp_path / "run") as journal:
        for entry in written:
            journal.append(entry)
        assert journal.path.name == "records.jsonl"
        assert read_journal(tmp_path / "run")[0].id == "a"  # readable while it is written
    assert [(entry.id, entry.measures[0].reason) for entry in read_journal(tmp_path / "run")] == [
        (entry.id, entry.measures[0].reason) for entry in written
    ]
    assert read_journal(tmp_path / "run")[0] == written[0]


def test_of_a_test_that_ran_again_the_last_record_counts(tmp_path: Path) -> None:
    first, other, last = record("a"), record("b"), replace(record("a"), n=7)
    with Journal(tmp_path) as journal:
        for entry in (first, other, last):
            journal.append(entry)
    assert last_records(tmp_path) == [last, other]
    with pytest.raises(StoreError, match=r"records\.jsonl: cannot read the journal"):
        last_records(tmp_path / "nowhere")


def test_an_undefined_value_comes_back_undefined(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.append(Record("sweep", "x", "m", "d", measures=(Measure("pcri", math.nan),)))
    assert math.isnan(read_journal(tmp_path)[0].measures[0].value)


@pytest.mark.parametrize("torn", [1, 30, -1])
def test_a_torn_last_line_is_not_read_and_is_cut_off(tmp_path: Path, torn: int) -> None:
    with Journal(tmp_path) as journal:
        journal.append(record("whole"))
    line = record("torn").to_json().encode()
    with (tmp_path / "records.jsonl").open("ab") as stream:
        stream.write(line[:torn])
    assert [entry.id for entry in read_journal(tmp_path)] == ["whole"]
    with Journal(tmp_path) as journal:
        journal.append(record("next"))
    assert [entry.id for entry in read_journal(tmp_path)] == ["whole", "next"]


def test_a_record_survives_kill_nine(tmp_path: Path) -> None:
    program = """
import os, signal, sys
from pathlib import Path
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.store import Journal
journal = Journal(Path(sys.argv[1]))
journal.append(Record("cell", "first", "m", "d"))
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, env=ENVIRONMENT)
    assert done.returncode == -signal.SIGKILL
    assert [entry.id for entry in read_journal(tmp_path)] == ["first"]


def test_threads_do_not_mix_lines(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        threads = [threading.Thread(target=journal.append, args=(record(str(number)),)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(int(entry.id) for entry in read_journal(tmp_path)) == list(range(16))


@pytest.mark.parametrize("line", [b"{}", b"[]", b"not json", b"\xff\xfe", b'{"measures": [{}]}', b""])
def test_a_whole_line_that_is_no_record_is_named(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "records.jsonl").write_bytes(record().to_json().encode() + b"\n" + line + b"\n")
    with pytest.raises(StoreError, match=r"records\.jsonl:2: not a record of this release: .*\. Read it with the release that"):
        read_journal(tmp_path)


def test_a_record_of_a_newer_release_is_named(tmp_path: Path) -> None:
    newer = record().to_json().replace('"family"', '"new_field": 1, "family"')
    (tmp_path / "records.jsonl").write_text(newer + "\n")
    with pytest.raises(StoreError, match=r"records\.jsonl:1: not a record of this release: .*new_field"):
        read_journal(tmp_path)


def test_an_absent_journal_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"records\.jsonl: cannot read the journal: No such file .*\. Expected the directory of"):
        read_journal(tmp_path)


def test_a_directory_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(StoreError, match=r"run/records\.jsonl: cannot open the journal: File exists\. Check that"):
        Journal(tmp_path / "run")


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(_: int) -> None:
        raise OSError(28, "No space left on device")

    with Journal(tmp_path) as journal:
        monkeypatch.setattr("os.fsync", no_room)
        journal.append(record())
        with pytest.raises(StoreError, match=r"cannot write the journal: No space left on device"):
            journal.sync()


def test_records_wait_for_the_disk_once_a_second_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", synced.append)
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with Journal(tmp_path) as journal:
        for seconds in (0.0, 0.9, 0.2, 0.5, 0.6):
            now[0] += seconds
            journal.append(record())
            assert len(read_journal(tmp_path)) >= 1  # with the system at once
        assert len(synced) == 2
        journal.sync()
    assert len(synced) == 3
    assert len(read_journal(tmp_path)) == 5


def test_closing_twice_is_fine(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.close()
    journal.close()


def test_a_reader_reads_what_is_new_and_leaves_a_torn_line(tmp_path: Path) -> None:
    reader = JournalReader(tmp_path)
    with pytest.raises(StoreError, match="cannot read the journal"):
        reader.records()
    with Journal(tmp_path) as journal:
        assert reader.records() == []
        journal.append(record("a"))
        assert [each.id for each in reader.records()] == ["a"]
        journal.append(record("b"))
        journal.append(record("a"))
        assert [each.id for each in reader.records()] == ["b", "a"]  # the newest last, each test once
    with (tmp_path / "records.jsonl").open("ab") as stream:
        stream.write(record("c").to_json().encode())
        stream.flush()
        assert len(reader.records()) == 2
        stream.write(b"\n{}\n")
    for _ in range(2):
        with pytest.raises(StoreError, match=r"records\.jsonl:5: not a record"):
            reader.records()


def test_a_reader_notices_that_the_journal_was_replaced(tmp_path: Path) -> None:
    reader = JournalReader(tmp_path)
    with Journal(tmp_path) as journal:
        journal.append(record("a"))
        journal.append(record("b"))
    assert len(reader.records()) == 2
    (tmp_path / "records.jsonl").write_text(record("c").to_json() + "\n", encoding="utf-8")
    assert [each.id for each in reader.records()] == ["c"]
