"""Every reader of what somebody else wrote, a valid input of each, and how inputs are changed.

    python -m tests.fuzz.readers --seconds 60           # of processor time for each reader
    python -m tests.fuzz.readers --only bundle --seed 1

A reader may return, or raise an error of the project, within a second of processor time. Anything else is a failure, and is
printed with the number of the input that led to it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import os
import random
import resource
import sqlite3
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.errors import VlmRobustError
from tests.contract.test_yaml_formats import FORMATS, VALID
from tests.hostile_values import VALUES

Read = Callable[[Path], object]
Change = Callable[[bytes, random.Random], bytes]
LONGEST_SECONDS = 1.0
"""Processor time that an input may take."""
LARGEST_GROWTH = 200
"""MiB by which the memory of the process may grow over all inputs of a reader."""
TOKENS = (
    *(value.encode("utf-8", "surrogatepass") for value in VALUES),
    *(b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\r", b"\n\n", b"\t", b'"', b"'", b"{", b"}", b"[", b"]", b",", b":", b"\\"),
    *(b"NaN", b"Infinity", b"-0", b"1e400", b"null", b"true", b"../../x.png", b"/etc/passwd", b"A" * 5000, b"[" * 5000),
    *(text.encode() for text in ("\U0001f986", "\u202e", "\u0000", "\u0130", "\ufb01", "\uff11", "\u0663", "\u22121", "\xbd")),
)


@dataclass(frozen=True)
class Reader:
    """What reads one kind of input."""

    name: str
    valid: Callable[[], bytes]
    read: Read
    """Is handed the file that holds an input."""
    change: Change
    file: str
    """What that file is called."""

    def try_input(self, content: bytes) -> tuple[str, float]:
        """Returns how reading an input ended, ``read`` or ``refused`` or what went wrong, and the processor time of it."""
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            path = Path(folder) / self.file
            path.write_bytes(content)
            started = time.process_time()
            try:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    self.read(path)
                ended = "read"
            except VlmRobustError as error:
                ended = "refused" if str(error) else "an error without a word"
            except Exception:  # noqa: BLE001 - that is what is looked for
                ended = traceback.format_exc()
            seconds = time.process_time() - started
        return (ended if seconds < LONGEST_SECONDS else f"took {seconds:.1f} s, and then: {ended}"), seconds


# How inputs are changed.


def spliced(content: bytes, rng: random.Random) -> bytes:
    """Puts bytes and hostile texts into an input, takes parts out and repeats them, one to four times."""
    for _ in range(rng.randint(1, 4)):
        start = rng.randint(0, len(content))
        end = min(len(content), start + int(2 ** rng.uniform(0, 8)) - 1)
        kind, noise = rng.randrange(4), b""
        if kind == 0:
            noise = rng.randbytes(rng.randint(0, 20))
        elif kind == 1:
            noise = rng.choice(TOKENS)
        elif kind == 3:
            noise = content[start:end] * rng.randint(2, 5)
        content = content[:start] + noise + content[end if rng.random() < 0.7 else start :]
    return content


def of_json(content: bytes, rng: random.Random) -> bytes:
    """Puts another value in some place of a document, or of one of several that are a line each, or changes bytes."""
    if rng.random() < 0.4:
        return spliced(content, rng)
    lines = [content] if content.startswith(b"{\n") else content.splitlines()
    number = rng.randrange(len(lines))
    try:
        value = json.loads(lines[number])
    except ValueError:  # an earlier change to the same database broke it
        return spliced(content, rng)
    for _ in range(rng.randint(1, 3)):
        value = _changed_somewhere(value, rng)
    lines[number] = json.dumps(value).encode()
    return b"\n".join(lines) + b"\n"


def _changed_somewhere(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice([*value])
        kept = {name: inner for name, inner in value.items() if name != key or rng.random() < 0.9}
        return {name: _changed_somewhere(inner, rng) if name == key else inner for name, inner in kept.items()}
    if isinstance(value, list) and value and rng.random() < 0.85:
        place = rng.randrange(len(value))
        return [_changed_somewhere(inner, rng) if number == place else inner for number, inner in enumerate(value)]
    return rng.choice(
        [
            *(
                None,
                True,
                False,
                0,
                -1,
                1.5,
                1e308,
                10**30,
                float("nan"),
                float("inf"),
                "",
                " ",
                "x",
                "\x00",
                "\ud800",
                "A" * 3000,
            ),
            *([], {}, [[]], {"": None}, [None] * 50, "../x.png", "2027-13-45", "fog:high", "no_image", "m", "d"),
            nested(rng.randint(2, 300)),
        ]
    )


def nested(depth: int) -> Any:
    """Returns lists inside each other."""
    return json.loads("[" * depth + "0" + "]" * depth)


def of_database(content: bytes, rng: random.Random) -> bytes:
    """Changes values, rows, tables and layouts of a database, or bytes of its file."""
    if rng.random() < 0.3:
        return spliced(content, rng)
    if rng.random() < 0.2:
        changed = bytearray(content)
        for _ in range(rng.choice([1, 3, 30])):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        return bytes(changed)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / "changed.sqlite"
        path.write_bytes(content)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            tables = [row[0] for row in connection.execute("select name from sqlite_master where type = 'table'")]
            for _ in range(rng.randint(1, 3)):
                with contextlib.suppress(sqlite3.Error, UnicodeEncodeError):  # it may be lost since
                    _change_table(connection, rng.choice(tables), rng)
        return path.read_bytes()


def _change_table(connection: sqlite3.Connection, table: str, rng: random.Random) -> None:
    columns = [row[1] for row in connection.execute(f"pragma table_info({table})")]
    column = rng.choice(columns or ["rowid"])
    value = rng.choice(
        [None, 0, -1, 2**62, 1e308, "", "x", "{", "[]", "null", b"\xff\x00", "A" * 3000, "\x00", "7", "clean", 1e-300]
    )
    condition = f"rowid % {rng.randint(1, 7)} = 0"
    choice = rng.random()
    if choice < 0.55:
        connection.execute("pragma ignore_check_constraints = on")
        connection.execute(f"update or replace {table} set {column} = ? where {condition}", (value,))
    elif choice < 0.7:
        (text,) = connection.execute(f"select {column} from {table} where typeof({column}) = 'text' limit 1").fetchone() or (
            "{}",
        )
        changed = of_json(text.encode(), rng) if text.startswith(("[", "{")) else spliced(text.encode(), rng)
        connection.execute(f"update or replace {table} set {column} = ? where {condition}", (changed.decode("utf-8", "replace"),))
    elif choice < 0.8:
        connection.execute(f"delete from {table} where {condition}")
    else:
        connection.execute(
            rng.choice(
                [
                    f"alter table {table} rename to other",
                    f"alter table {table} add column more",
                    f"alter table {table} rename column {column} to other",
                    f"drop table {table}",
                    f"create view v as select * from {table}",
                    f"create trigger t after insert on {table} begin delete from {table}; end",
                    "pragma user_version = 9",
                    "pragma application_id = 9",
                    "pragma encoding = 'UTF-16'",
                ]
            )
        )


def of_bundle(content: bytes, rng: random.Random) -> bytes:
    """Changes one or two files in a bundle and sums them up again, or changes bytes of the bundle."""
    if rng.random() < 0.2:
        return spliced(content, rng)
    import hashlib

    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    for name in rng.sample([*files], rng.randint(1, 2)):
        of_kind = of_database if name.endswith(".sqlite") else of_json if name.endswith((".json", ".jsonl")) else spliced
        try:
            files[name] = of_kind(files[name], rng)
        except ValueError:  # a page of JSON over several lines
            files[name] = spliced(files[name], rng)
        if rng.random() < 0.05:
            del files[name]
    if "SHA256SUMS" in files and rng.random() < 0.9:
        sums = (f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files) if name != "SHA256SUMS")
        files["SHA256SUMS"] = "".join(sums).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", rng.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])) as archive:
        for name, each in files.items():
            archive.writestr(name, each)
    return buffer.getvalue()


# What is read.


def _read_dataset(path: Path) -> None:
    from pytest_vlmrobust import datasets

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in datasets.resolve(str(path)).samples():
            for image in sample.images:
                image.identity()
                image.load()


def _read_store(path: Path) -> None:
    from pytest_vlmrobust.store import Store

    with Store.open(path.parent, read_only=True) as store:
        len(store)
        store.get_many(KEYS)
        store.get_digests({"recipe"})
        store.get_notes({"recipe"})


KEYS = tuple(f"{number:064x}" for number in range(20))


def _valid_store() -> bytes:
    from pytest_vlmrobust.core.prediction import Prediction
    from pytest_vlmrobust.store import Store

    with tempfile.TemporaryDirectory() as folder:
        with Store.open(Path(folder)) as store:
            answer = Prediction("A", "letter_logits", logprobs={"A": -0.1, "B": -2.0}, details={"visual_tokens": 4})
            store.put_many(dict.fromkeys(KEYS, answer), context={"model": "m", "dataset": "d", "setting": "clean"})
        return _database(Path(folder) / "predictions.sqlite")


def _database(path: Path) -> bytes:
    """Returns a database as one file."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma journal_mode = delete")
    return path.read_bytes()


def _read_evidence(path: Path) -> None:
    from pytest_vlmrobust.core.prediction import ModelRef
    from pytest_vlmrobust.evaluation.judge.stored_answers import StoredAnswers
    from pytest_vlmrobust.store import Evidence

    with Evidence.open(path.parent, read_only=True) as evidence:
        answers = StoredAnswers(evidence, {"m": ModelRef("m", "scripted", "")})
        evidence.models()
        evidence.datasets()
        evidence.foreign()
        for cell in evidence.cells():
            answers.pictures(cell.dataset)
            assert answers.partial(cell).values is not None


@functools.cache
def _valid_bundle() -> bytes:
    from pytest_vlmrobust.cli import main
    from tests.faults import gate

    with tempfile.TemporaryDirectory() as folder:
        directory = gate.write(Path(folder), "NO-GO")
        gate.run(directory)
        (run,) = (directory / ".vlmrobust" / "runs").iterdir()
        with contextlib.redirect_stdout(io.StringIO()):
            main(["bundle", str(run), "--out", str(directory / "b.zip")])
        return (directory / "b.zip").read_bytes()


def _part_of_bundle(name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(_valid_bundle())) as archive:
        return archive.read(name)


def _read_bundle(path: Path) -> None:
    """Verifies it. Exit code 4 is for what cannot be read, and what should not happen is raised."""
    from pytest_vlmrobust.cli import TRACEBACK, main

    os.environ[TRACEBACK] = "1"
    code = main(["verify", str(path)])
    if code not in (0, 1, 4):
        raise AssertionError(f"verify ended with {code}")
    if code == 4:
        raise VlmRobustError("refused")


def _read_journal(path: Path) -> None:
    from pytest_vlmrobust.store import read_journal

    for record in read_journal(path.parent):
        record.to_json()


def _read_results(path: Path) -> None:
    from pytest_vlmrobust.core.record import Record
    from pytest_vlmrobust.reporting import RunFacts, RunView
    from pytest_vlmrobust.reporting.results import results_json, same_json

    record = Record("cell", "m-d-clean", "m", "d", "clean")
    if not same_json(path.read_bytes(), results_json(RunView([record], RunFacts()))):
        raise VlmRobustError("it holds something else")


def _valid_results() -> bytes:
    from pytest_vlmrobust.core.record import Record
    from pytest_vlmrobust.reporting import RunFacts, RunView
    from pytest_vlmrobust.reporting.results import results_json

    view = RunView([Record("cell", "m-d-clean", "m", "d", "clean")], RunFacts())
    return json.dumps(json.loads(results_json(view))).encode()


def _read_answer(path: Path) -> None:
    """Reads a text as the answer to one question of each kind; whatever it is, it has a score."""
    from pytest_vlmrobust.core.prediction import Prediction
    from pytest_vlmrobust.scoring import score

    text = path.read_bytes().decode("utf-8", "surrogateescape")
    for sample in _questions():
        value = score(sample, Prediction(text, "generate")).value
        if not 0.0 <= value <= 1.0:
            raise AssertionError(f"{sample.task}: {value}")


@functools.cache
def _questions() -> Sequence[Any]:
    from pytest_vlmrobust.core.boxes import Localisation
    from pytest_vlmrobust.core.sample import Sample

    where = Localisation((200, 100), {"left_eye": (10, 20, 30, 40), "nose": (60, 40, 80, 60)})
    return (
        Sample("1", (), "Which?", "B", "choice", {"A": "a cat", "B": "two dogs", "C": "3"}),
        Sample("2", (), "Is it?", "yes", "yes_no"),
        Sample("3", (), "How many?", ("3", "three"), "open", scorer="exact"),
        Sample("4", (), "Where?", "", "boxes", localisation=where),
    )


_ANSWERS = (
    b"<think>It may be A, or B.</think> The answer is (B) two dogs, not A. Yes: **Answer: B**. \\boxed{3} there are three of them"
)
_BOXES = b'```json\n[{"bbox_2d": [60, 40, 80, 60], "label": "nose"}, {"left_eye": [10.5, 20, 30, 40]}]\n``` (60,40),(80,60)'


def _rows() -> Iterator[dict[str, Any]]:
    picture = _picture()
    for number in range(3):
        more = {"category": "c", "hint": "look", "group": "g"}
        yield {"id": f"q{number}", "image": picture, "question": "What?", "options": ["cat", "dog"], "answer": "B", **more}


def _picture() -> str:
    import base64

    import numpy as np
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.zeros((4, 6, 3), np.uint8)).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def _tsv() -> bytes:
    head = "index\timage\tquestion\tA\tB\tanswer\tcategory\thint\n"
    return (head + "".join(f'{n}\t{_picture()}\t"What ""is"" it?"\tcat\tdog\tB\tc\tlook\n' for n in range(3))).encode()


def _lines(rows: Iterator[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


EVERY = (
    *(Reader(name, VALID[name].encode, FORMATS[name], spliced, name) for name in FORMATS),
    Reader("JSONL", lambda: _lines(_rows()), _read_dataset, of_json, "data.jsonl"),
    Reader("TSV", _tsv, _read_dataset, spliced, "data.tsv"),
    Reader("answers", lambda: _ANSWERS, _read_answer, spliced, "answer.txt"),
    Reader("boxes", lambda: _BOXES, _read_answer, spliced, "answer.txt"),
    Reader("store", _valid_store, _read_store, of_database, "predictions.sqlite"),
    Reader("evidence", lambda: _part_of_bundle("predictions.sqlite"), _read_evidence, of_database, "predictions.sqlite"),
    Reader("journal", lambda: _part_of_bundle("records.jsonl"), _read_journal, of_json, "records.jsonl"),
    Reader("results", _valid_results, _read_results, of_json, "results.json"),
    Reader("bundle", _valid_bundle, _read_bundle, of_bundle, "bundle.zip"),
)
READERS: Mapping[str, Reader] = {reader.name: reader for reader in EVERY}


# The campaign.


@dataclass
class Row:
    """What became of the inputs of one reader."""

    reader: str
    tried: int = 0
    read: int = 0
    slowest: float = 0.0
    slowest_input: int = 0
    growth: int = 0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        share = f"{self.read / self.tried:.0%}" if self.tried else ""
        return f"| {self.reader} | {self.tried:,} | {share} | {self.slowest:.2f} s | {self.growth} MiB | {len(self.failures)} |"


HEADER = "| reader | inputs | of these read | slowest | memory grew by | failures |\n|---|--:|--:|--:|--:|--:|"


def fuzz(reader: Reader, seconds: float, seed: int, most: int = sys.maxsize) -> Row:
    """Tries inputs of a reader for a processor time; of equal failures the first is kept.

    Args:
        reader: what reads them.
        seconds: of processor time.
        seed: of what is drawn.
        most: how many inputs at most.
    """
    row, seen = Row(reader.name), set[str]()
    valid = reader.valid()
    ended, _ = reader.try_input(valid)
    if ended != "read":
        row.failures.append(f"{reader.name}: the valid input is not read: {ended}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    while row.tried < most and time.process_time() - started < seconds:
        content = reader.change(valid, random.Random(f"{seed} {reader.name} {row.tried}"))
        ended, took = reader.try_input(content)
        if ended not in {"read", "refused"} and (about := ended.strip().splitlines()[-1][:60]) not in seen:
            seen.add(about)
            row.failures.append(f"{reader.name}, seed {seed}, input {row.tried}: {ended}")
        row.tried += 1
        row.read += ended == "read"
        if took > row.slowest:
            row.slowest, row.slowest_input = took, row.tried
    row.growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    if row.growth > LARGEST_GROWTH:
        row.failures.append(f"{reader.name}: memory grew by {row.growth} MiB over {row.tried} inputs")
    return row


def main() -> int:
    """Tries inputs of each reader, and prints what became of them; returns 1 where one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="processor time for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=[*READERS])
    options = parser.parse_args()
    print(HEADER)
    failures: list[str] = []
    for name in options.only or READERS:
        row = fuzz(READERS[name], options.seconds, options.seed)
        print(row, flush=True)
        failures += row.failures
    print(*failures, sep="\n")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
