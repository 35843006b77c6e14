"""Sweeps in parts: `vlmrobust fill` fills a store and copies it to a shared disk, `merge` joins parts, `submit` writes jobs."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, BadParameter, Option

from pytest_vlmrobust.commands.arguments import PytestOptions, in_quarantine, number, path, say
from pytest_vlmrobust.core.decision import ENDINGS
from pytest_vlmrobust.core.errors import StoreError, UsageError, typed_path
from pytest_vlmrobust.core.words import quantity

if TYPE_CHECKING:
    from pytest_vlmrobust.store.merging import StoreCopy


_EVERY = 300
"""Seconds between two copies."""
_LARGEST_SHARE = 0.1
"""Maximum share of the time spent on copying, for a store of any size."""
_UNTIL_TRIED_AGAIN = 2.0
_UNTIL_FORWARDED = 5.0
"""Seconds until a signal is forwarded: SLURM signals all processes of a job, and for pytest a second signal means to end at
once. Kubernetes signals only the first process."""


def fill(
    options: PytestOptions,
    *,
    copy_to: Annotated[
        Path, path("where to copy it; goes on from an earlier copy there, and keeps answers of other gates", "DIR")
    ],
    every: Annotated[int, number("seconds", "how often to copy", "SECONDS")] = _EVERY,
) -> int:
    """Run pytest with --vlm-fill and a store on a local disk, and copy the store every few minutes.

    Examples:
        vlmrobust fill --copy-to /shared/gate/parts/1 -- --vlm=./my-checkpoint suites/
    """
    from pytest_vlmrobust.store.database import FILE_NAME
    from pytest_vlmrobust.store.merging import StoreCopy

    for given in options:
        if (name := given.partition("=")[0]) in ("--vlm-store", "--vlm-fill"):
            raise UsageError(f"{given}: vlmrobust fill sets {name} itself. Leave it out")
    with _noting_signals() as noted:
        work = Path(tempfile.mkdtemp(prefix="vlmrobust-"))  # a local disk: SQLite's locks do not hold on network file systems
        copy = StoreCopy(work / "store", copy_to)
        try:
            if kept := copy.restore():
                _say(f"{copy.directory}: goes on from {quantity(kept, 'answer')}")
        except BaseException:
            shutil.rmtree(work)
            raise
        command = [sys.executable, "-m", "pytest", *options, "--vlm-fill", f"--vlm-store={copy.store}"]
        status = _run(command, copy, kept, every, noted)
        try:
            kept = _last_copy(copy)
        except (StoreError, OSError) as error:
            raise StoreError(
                f"{error}. The last copy failed twice, and the earlier one stays. All answers are in {copy.store} on "
                f"{socket.gethostname()}: copy {FILE_NAME} from there"
            ) from error
        _say(f"{copy.directory}: has {quantity(kept, 'answer')}")
        shutil.rmtree(work)
    return status if status >= 0 else 128 - status


def _last_copy(copy: StoreCopy) -> int:
    """Copies the store a last time, with a second try: a file system may fail only for a moment."""
    try:
        return copy.update()
    except (StoreError, OSError) as error:
        _say(f"{error}. It is tried once more")
        time.sleep(_UNTIL_TRIED_AGAIN)
        return copy.update()


def _run(command: list[str], copy: StoreCopy, kept: int, every: float, noted: list[int]) -> int:
    """Runs pytest to its end and returns its exit code; copies the store regularly, and at once on a signal."""
    process = subprocess.Popen(command)  # noqa: S603 - the command is pytest
    next_copy, forward = time.monotonic() + every, 0.0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(0.5)
        if noted and not forward:
            next_copy = time.monotonic()
            forward = next_copy + _UNTIL_FORWARDED
        if time.monotonic() >= next_copy:
            began = time.monotonic()
            try:
                before, kept = kept, copy.update()
                text = f"{copy.directory}: has {quantity(kept, 'answer')}" if kept > before else ""
            except (StoreError, OSError) as error:
                text = f"{error}. The earlier copy stays, and the next one follows"
            if text:
                _say(text)
            ended = time.monotonic()
            next_copy = ended + max(every, (ended - began) / _LARGEST_SHARE)
        if forward and time.monotonic() >= forward:
            process.terminate()
            forward = float("inf")


@contextlib.contextmanager
def _noting_signals() -> Iterator[list[int]]:
    """Records the signals that end a job instead of ending: pytest ends on them, and then the store is copied.

    A signal that is ignored, as under ``nohup``, stays ignored.
    """
    noted: list[int] = []
    before = {}
    for name in ("SIGINT", *ENDINGS):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, lambda came, _frame: noted.append(came))
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(text: str) -> None:
    """Prints a line; copying goes on where a log is full, or nobody reads it any more."""
    with contextlib.suppress(OSError, SystemExit):
        say(text)


# `vlmrobust merge`.


SERVERS = "servers"
"""The folder of a store that remembers served models."""


@in_quarantine(largest_file=None)  # stores of any size become one
def merge(
    stores: Annotated[list[Path], Argument(metavar="STORE", parser=typed_path, help="a store: the directory after --vlm-store")],
    *,
    out: Annotated[Path, path("the directory of the new store", "STORE")],
) -> int:
    """Join the answers of several stores, such as those of --vlm-shard, in a new one.

    Examples:
        vlmrobust merge part-1 part-2 --out whole
    """
    from pytest_vlmrobust.backends.served import merge_memories
    from pytest_vlmrobust.store.database import network_file_system
    from pytest_vlmrobust.store.merging import merge_stores

    if kind := network_file_system(out):
        raise UsageError(
            f"--out {str(out)!r} is on a network file system ({kind}), where the log of SQLite does not hold. "
            "Name a directory on a local disk, and copy it afterwards"
        )
    servers = [store / SERVERS for store in stores]
    with tempfile.TemporaryDirectory(prefix="vlmrobust-") as folder:
        merge_memories(servers, Path(folder))  # raises if they contradict each other, before anything is written
    merged = merge_stores(stores, out)
    merge_memories(servers, out / SERVERS)
    for store, new in merged.by_source:
        say(f"{store}: {quantity(new, 'new answer')}")
    say(f"{out}: {quantity(merged.answers, 'answer')}. Judge them with the options of the parts, and instead of")
    say(f"--vlm-fill and --vlm-shard: --vlm-store {out} --vlm-offline")
    return 0


SET_BY_SCRIPTS = ("--vlm-store", "--vlm-fill", "--vlm-shard", "--vlm-offline", "--vlm-report")
"""Options of pytest set by the files."""
_ASKS_NOTHING = (
    *("--vlm-plan", "--collect-only", "--co", "--setup-plan", "--setup-only", "--fixtures", "--markers", "-h", "--help"),
    *("-V", "--version"),
)
_LONGEST_NAME = 50
"""In characters: Kubernetes allows 63 in the names of pods, including suffixes that it and these files add."""
_NAME = re.compile(rf"[a-z](?:[a-z0-9-]{{0,{_LONGEST_NAME - 2}}}[a-z0-9])?")
_CLAIM = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LONGEST_CLAIM = 253
_ASKED = {"kubernetes": "node selector, tolerations", "slurm": "partition, account, time"}
"""By scheduler, what a cluster may ask for."""


def _job_name(text: str) -> str:
    """Reads the prefix of the names of jobs, in Kubernetes' form, which is stricter than that of SLURM."""
    if not _NAME.fullmatch(text):
        raise BadParameter(
            f"{text!r} is not a name of jobs. Expected up to {_LONGEST_NAME} small letters, digits and '-', a letter first and "
            "no '-' last, such as mmbench-weekly"
        )
    return text


def _claim_name(text: str) -> str:
    """Reads the name of a volume claim in Kubernetes' form."""
    if not _CLAIM.fullmatch(text) or len(text) > _LONGEST_CLAIM:
        raise BadParameter(
            f"{text!r:.80} is not a name of a volume claim. Expected up to {_LONGEST_CLAIM} small letters, digits, "
            "'-' and '.', and a letter or digit at both ends of each part, such as gate-data"
        )
    return text


def submit(
    scheduler: Annotated[Literal["kubernetes", "slurm"], Argument(help="what runs the jobs")],
    options: PytestOptions,
    *,
    parts: Annotated[int, number("parts", "number of parts, each a job")],
    shared: Annotated[str, Option(metavar="DIR", help="a directory that all jobs see, for finished parts")],
    out: Annotated[Path, path("where to write the files; created if missing", "DIR")],
    name: Annotated[str, Option(parser=_job_name, help="name of the jobs")] = "vlmrobust",
    gpus: Annotated[int | None, number("GPUs", "GPUs of each part", default="none")] = None,
    hours: Annotated[int | None, number("hours", "most hours of each part", default="the cluster's")] = None,
    image: Annotated[str, Option(help="kubernetes: container with pytest, model files and data")] = "",
    claim: Annotated[
        str | None, Option(metavar="NAME", parser=_claim_name, help="kubernetes: volume claim to mount at --shared")
    ] = None,
) -> int:
    """Write job files for a cluster: the parts of a run, and the job that judges them.

    Examples:
        vlmrobust submit slurm --parts 8 --shared /shared/gate --out jobs -- --vlm=./my-checkpoint suites/
    """
    _check_options(options)
    needed = {"--image": image, "--claim": claim}
    lacking = [option for option, value in needed.items() if not value]
    if scheduler == "kubernetes" and lacking:
        raise UsageError(f"submit kubernetes needs {' and '.join(lacking)}: what jobs run in, and where they leave their parts")
    if scheduler != "kubernetes" and len(lacking) < len(needed):
        raise UsageError(f"{next(option for option in needed if option not in lacking)} is about kubernetes. Leave it out")
    if not shared.strip():
        raise UsageError("--shared is empty: name a directory that all jobs see")
    if scheduler == "kubernetes" and not shared.startswith("/"):
        raise UsageError(f"--shared {shared!r}: kubernetes mounts the volume there. Expected a path that begins with /")
    if unprintable := [text for text in (shared, image, *options) if not text.isprintable()]:
        raise UsageError(f"{unprintable[0]!r}: has a character that is not written into a job file. Leave it out")
    values = {"name": name, "parts": parts, "gpus": gpus, "hours": hours, "image": image, "claim": claim, "mount": shared}
    files = _render(scheduler, {**values, "shared": shlex.quote(shared), "options": shlex.join(options)})
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {str(out)!r} is a file. Expected a directory for {', '.join(files)}")
    out.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (out / file).write_text(text, encoding="utf-8")
    say(f"{out}: {', '.join(files)}. Look at them, add what your cluster asks for ({_ASKED[scheduler]}), and run")
    say(f"  bash {shlex.quote(str(out / 'submit.sh'))}")
    return 0


def _check_options(options: Sequence[str]) -> None:
    for given in options:
        if given.partition("=")[0] in SET_BY_SCRIPTS:
            raise UsageError(f"{given}: the job files say {', '.join(SET_BY_SCRIPTS)} themselves. Leave it out")
        if given.partition("=")[0] in _ASKS_NOTHING:
            raise UsageError(f"{given}: with it pytest asks no question and judges nothing, and so would the jobs. Leave it out")


def _render(scheduler: str, values: dict[str, object]) -> dict[str, str]:
    """Returns the job files by name, made of the recipes of a scheduler."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from pytest_vlmrobust.shipped import shipped

    folder = shipped("recipes") / "submit"
    recipes = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - shell and YAML: values are quoted for them
    )
    paths = sorted((folder / scheduler).iterdir())
    return {path.name: recipes.get_template(f"{scheduler}/{path.name}").render(values) for path in paths}
