"""The SQLite files: opening, layout, and the meaning of failures for a user."""

from __future__ import annotations

import _thread
import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from pytest_vlmrobust.core.errors import StoreError

from .gates import TABLES as GATES
from .run_directory import file_identity, replacement

FILE_NAME = "predictions.sqlite"
BUSY_SECONDS = 60.0
"""How long a writer waits for another writer."""
_IMPATIENT_SECONDS = 0.1
"""The wait for a lock after a first timeout: otherwise each test of a run would wait that long."""
LONGEST_VALUE = 32 * 2**20
"""Bytes of a value in a row: twice the size of the longest accepted prediction, escaped."""
STATEMENT_SECONDS = 120.0
"""Time limit of a statement without waiting: the pages of a forged file may lead in circles."""
_STEPS = 100_000
"""Steps of SQLite's machine between two looks at the clock: some milliseconds."""

_STORE = (
    """
    create table contexts (
        id integer primary key,
        content text not null unique
    )
    """,
    """
    create table predictions (
        key text primary key,
        answer text not null,
        context integer not null references contexts (id)
    ) without rowid
    """,
    """
    create table claims (
        key text primary key,
        owner text not null,
        expires real not null
    ) without rowid
    """,
    """
    create table views (
        recipe text primary key,
        digests text not null
    ) without rowid
    """,
    """
    create table notes (
        recipe text primary key,
        notes text not null
    ) without rowid
    """,
    *GATES,
)


@dataclass(frozen=True, slots=True)
class DatabaseSchema:
    """A kind of database: its tables, its version, and the mark that distinguishes it from foreign SQLite files."""

    application_id: int
    version: int
    tables: tuple[str, ...]
    called: str = "store"
    """Its name in messages."""
    damaged: str = "The file is damaged: move it away, and its predictions are made again"
    """The advice for a damaged file."""
    absent: str = "Run without --vlm-offline, or name its directory with --vlm-store"
    """The advice for a missing or empty file."""
    elsewhere: str = "name another directory with --vlm-store"
    """The advice for choosing another one."""


STORE = DatabaseSchema(0x564C4D52, 1, _STORE)  # "VLMR"


class Database:
    """An open database; its file may be shared by any number of threads and processes of a machine."""

    schema: ClassVar[DatabaseSchema] = STORE

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.identity = file_identity(path)
        """The identity of the opened file."""
        self._connection = connection
        self._lock = TimedLock()
        self._lock.watch(connection)

    def close(self) -> None:
        """Closes it; closing twice is fine."""
        with self._lock:
            self._connection.close()

    def copy_to(self, directory: Path) -> Path:
        """Writes a complete copy into another directory, replacing an earlier copy; returns its path."""
        target = directory / FILE_NAME
        partial = target.with_name(f".{FILE_NAME}.part")
        with self._lock, explain_errors(target, "write", self.schema):
            directory.mkdir(parents=True, exist_ok=True)
            partial.unlink(missing_ok=True)
            copy = sqlite3.connect(partial)
            try:
                self._connection.backup(copy)
                copy.execute("pragma journal_mode = delete")  # a single file can be moved, hashed and read from a read-only disk
            finally:
                copy.close()
            partial.replace(target)
        return target

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._reading():
            return self._connection.execute(query, values).fetchall()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock, explain_errors(self.path, "read", self.schema):
            yield

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock, explain_errors(self.path, "write", self.schema), transaction(self._connection):
            yield

    def replacement(self) -> str:
        """Returns a sentence if its path no longer leads to the opened file; else an empty text."""
        return replacement(self.path, self.identity)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


MOUNTS = Path("/proc/self/mounts")
"""Linux's list of mounts; on other systems file systems are unknown."""
_NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "9p", "ceph", "lustre", "gpfs", "beegfs", "wekafs"),
        *("orangefs", "pvfs2", "ocfs2", "gfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.beegfs", "fuse.juicefs"),
        *("fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.davfs", "fuse.cvmfs2", "fuse.moosefs", "fuse.lizardfs", "davfs"),
        *("fuse.goofys", "fuse.geesefs", "fuse.blobfuse", "fuse.blobfuse2", "fuse.mount-s3", "fuse.mountpoint-s3", "fuse.mfs"),
        *("fuse.seaweedfs", "fuse.quobyte", "fuse.objectivefs", "fuse.alluxio-fuse", "fuse.fuse_dfs", "fuse.dfuse"),
        *("panfs", "cvfs", "fhgfs", "coda", "fuse.curlftpfs"),
        *("virtiofs", "vboxsf", "vmhgfs", "fuse.vmhgfs-fuse", "prl_fs", "fuse.grpcfuse", "fuse.osxfs", "drvfs"),
    }
)
"""File systems shared between machines, or between a machine and its host, by their Linux names."""
_ESCAPED = re.compile(r"\\([0-7]{3})")


def network_file_system(path: Path, mounts: Path = MOUNTS) -> str:
    """Returns the name of the network file system of a path; empty for others and if unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        resolved = path.resolve()
    except (OSError, RuntimeError):
        return ""
    places = {resolved, *resolved.parents}
    longest, kind = -1, ""
    for fields in (line.split() for line in lines):
        if len(fields) < 3:
            continue
        place = Path(_ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[1]))
        if place in places and len(place.parts) >= longest:  # the later of two mounts at the same path hides the other
            longest, kind = len(place.parts), fields[2]
    if kind in ("9p", "virtiofs") and longest == 1:  # the root of a sandbox or small machine with a private kernel
        return ""
    return kind if kind in _NETWORK else ""


def connect(path: Path, *, read_only: bool, schema: DatabaseSchema = STORE) -> sqlite3.Connection:
    """Opens the database, and creates it unless ``read_only``.

    Local disks only: the write-ahead log does not work on network file systems.
    """
    with explain_errors(path, "open", schema):
        connection = _connect_read_only(path, schema) if read_only else _connect_writable(path)
    try:
        with explain_errors(path, "open", schema):
            connection.execute("pragma trusted_schema = off")  # a forged file runs no code
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
            TimedLock().watch(connection)
            _prepare(connection, path, schema, read_only=read_only)
            connection.set_progress_handler(None, 0)  # a merge of large stores takes its time; a Database sets its own clock
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def explain_errors(path: Path, doing: str, schema: DatabaseSchema = STORE) -> Iterator[None]:
    """Turns errors of SQLite and the file system into StoreError with the path and what to do."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{path}: cannot {doing} the {schema.called}: {error}. {_remedy(error, schema)}") from error
    except UnicodeDecodeError as error:  # SQLite quotes the unreadable content
        raise StoreError(f"{path}: cannot {doing} the {schema.called}: its file is damaged. {schema.damaged}") from error


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Runs a block as a transaction that takes the write lock at its start."""
    try:
        try:
            connection.execute("begin immediate")
        except sqlite3.OperationalError:
            _wait_up_to(connection, _IMPATIENT_SECONDS)
            raise
        _wait_up_to(connection, BUSY_SECONDS)
        yield
        connection.execute("commit")
    except BaseException:  # Ctrl-C may arrive together with the lock
        if connection.in_transaction:  # a full disk ends the transaction anyway
            connection.execute("rollback")
        raise


def _wait_up_to(connection: sqlite3.Connection, seconds: float) -> None:
    connection.execute(f"pragma busy_timeout = {int(seconds * 1000)}")


class TimedLock(_thread.RLock):  # type: ignore[misc]  # final only in the type stubs
    """A lock for statements, with a clock that makes SQLite abort endless statements.

    A gate reads the run of ``--vlm-baseline`` in its own process, without the quarantine of the commands.
    A KeyboardInterrupt never leaves this lock held: leaving is a single call of the C lock, and entering
    releases what it had acquired when interrupted.
    """

    def __init__(self, seconds: float = STATEMENT_SECONDS) -> None:
        self.seconds = seconds
        self._started = time.monotonic()

    def watch(self, connection: sqlite3.Connection) -> None:
        """Makes a connection ask the clock while it runs a statement."""
        connection.set_progress_handler(self.expired, _STEPS)

    def __enter__(self) -> None:  # type: ignore[override]  # nobody asks
        try:
            self.acquire()
            self._started = time.monotonic()
        except BaseException:
            with contextlib.suppress(RuntimeError):  # it was not taken yet
                self.release()
            raise

    def expired(self) -> bool:
        """Whether the statements of its holder take longer than any should."""
        return time.monotonic() - self._started > self.seconds


def _connect_writable(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    return sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def _connect_read_only(path: Path, schema: DatabaseSchema) -> sqlite3.Connection:
    return sqlite3.connect(
        read_only_uri(path, schema), uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )


def read_only_uri(path: Path, schema: DatabaseSchema = STORE) -> str:
    """Returns the URI by which SQLite opens a database that nothing is written to, also on a read-only disk."""
    if not path.exists():
        raise _nothing_to_read(path, schema)
    immutable = not os.access(path.parent, os.W_OK)  # SQLite then cannot create its lock files next to the database
    log = path.with_name(path.name + "-wal")
    if immutable and log.exists() and log.stat().st_size:
        raise StoreError(
            f"{path}: the {schema.called} has unmerged writes in {log.name}, and its directory is read-only. "
            f"Open it once where its directory is writable, or copy the directory to such a place"
        )
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if immutable else ''}"


def _switch_to_log(connection: sqlite3.Connection) -> None:
    """Turns the write-ahead log on; SQLite does not wait for other processes that do the same, so this does."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("pragma journal_mode = wal")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _prepare(connection: sqlite3.Connection, path: Path, schema: DatabaseSchema, *, read_only: bool) -> None:
    """Refuses foreign files before any change, and creates the tables of an empty file."""
    pages = 64_000 if schema is STORE else 16_000  # KiB: judging again looks up each key on another page
    connection.execute(f"pragma cache_size = -{pages}")
    if not _blank(connection):
        _check_version(connection, path, schema)
        _check_layout(connection, path, schema)
    elif read_only:
        raise _nothing_to_read(path, schema)
    if read_only:
        return
    _switch_to_log(connection)
    connection.execute("pragma synchronous = normal")
    with transaction(connection):
        if _blank(connection):  # still: another process may have been faster
            _create(connection, schema)


def _blank(connection: sqlite3.Connection) -> bool:
    return connection.execute("select 1 from sqlite_master").fetchone() is None


def _create(connection: sqlite3.Connection, schema: DatabaseSchema) -> None:
    for statement in schema.tables:
        connection.execute(statement)
    connection.execute(f"pragma application_id = {schema.application_id}")
    connection.execute(f"pragma user_version = {schema.version}")


def _check_version(connection: sqlite3.Connection, path: Path, schema: DatabaseSchema) -> None:
    (application,) = connection.execute("pragma application_id").fetchone()
    (version,) = connection.execute("pragma user_version").fetchone()
    if application != schema.application_id:
        raise StoreError(f"{path}: the file is a database of another program, no {schema.called}: {schema.elsewhere}")
    if version != schema.version:
        raise StoreError(
            f"{path}: the {schema.called} has schema {version}, and this release reads schema {schema.version}. "
            f"Use the release of pytest-vlmrobust that wrote it, or {schema.elsewhere}"
        )


def _check_layout(connection: sqlite3.Connection, path: Path, schema: DatabaseSchema) -> None:
    """Refuses a file with other tables than a run creates: a view in place of a table could run arbitrary SQL."""
    expected = {_name_of(statement): _squeezed(statement) for statement in schema.tables}
    rows = connection.execute("select type, name, tbl_name, sql from sqlite_master").fetchall()
    for kind, name, table, sql in rows:
        if name in expected and (kind != "table" or _squeezed(str(sql)) != expected[name]):
            what = f"a {kind} in place of" if kind != "table" else "another layout of"
            raise StoreError(f"{path}: holds {what} the table {name!r} that a run makes. {schema.damaged}")
        if table in expected and kind != "table" and sql is not None:  # an index without SQL belongs to the table
            raise StoreError(
                f"{path}: holds the {kind} {str(name)[:100]!r} on the table {table!r}, which no run makes. {schema.damaged}"
            )
    lacking = sorted(set(expected) - {name for _, name, _, _ in rows})
    if lacking:
        raise StoreError(f"{path}: lacks the table {lacking[0]!r}. {schema.damaged}")


def _name_of(statement: str) -> str:
    return statement.split()[2]


def _squeezed(statement: str) -> str:
    return " ".join(statement.lower().split())  # SQLite keeps a statement with its first words in capitals


def _nothing_to_read(path: Path, schema: DatabaseSchema) -> StoreError:
    return StoreError(f"{path}: there is no {schema.called} to read. {schema.absent}")


def _remedy(error: sqlite3.Error | OSError, schema: DatabaseSchema) -> str:
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    is_no_text = primary is None and str(error).startswith("Could not decode to UTF-8")
    if is_no_text or primary in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return schema.damaged
    if primary in {sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_INTERRUPT}:
        most = f"{LONGEST_VALUE // 2**20} MiB"
        return f"No run writes values of more than {most}, or tables that take minutes to read. {schema.damaged}"
    if primary in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return f"Another process has held it for {BUSY_SECONDS:g} s: end that process, or {schema.elsewhere}"
    if primary == sqlite3.SQLITE_FULL:
        return "Make room on the disk: what was stored before is intact, and the run resumes there"
    return f"Check that the directory exists and is writable, or {schema.elsewhere}"
