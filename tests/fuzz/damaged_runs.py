"""Every command that reads the directory of a run, and directories that somebody damaged.

    python -m tests.fuzz.damaged_runs --seconds 60      # of processor time
    python -m tests.fuzz.damaged_runs --seed 1 --only 17

A command may do what it is for, or end with exit code 4 and a sentence, within a second of processor time. Anything else is a
failure, and is printed with the number of the damage that led to it. A few gates read the same directories, each in a process.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import itertools
import json
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.faults import gate

from .readers import LONGEST_SECONDS, nested, of_database, of_json, spliced

STORE = ".vlmrobust"
EARLIER, LATER = "20260101-000000-a", "20260102-000000-b"
"""The two runs: the second one was compared with the first one, and asked everything twice."""
REFUSED = 4
COMMANDS: Mapping[str, tuple[Sequence[str], frozenset[int]]] = {
    "runs": (["runs"], frozenset({0})),
    "history": (["history", "--metric", "worst_case_drop"], frozenset({0})),
    "compare": (["compare", EARLIER, LATER, "--out", "compared"], frozenset({0})),
    "compare back": (["compare", LATER, EARLIER], frozenset({0})),
    "comment": (["comment", LATER, "--against", EARLIER], frozenset({0})),
    "comment on": (["comment", LATER], frozenset({0})),
    "rank": (["rank", f"a={EARLIER}", f"b={LATER}"], frozenset({0})),
    "report": (["report", LATER, "--out", "reported"], frozenset({0, 1, 10, 11})),
    "junit": (["junit", LATER, "--out", "junit.xml"], frozenset({0})),
    "bundle": (["bundle", LATER, "--out", "bundle.zip"], frozenset({0})),
    "verify": (["verify", "bundle.zip"], frozenset({0, 1})),
    "export sarif": (["export", "sarif", LATER, "--out", "run.sarif"], frozenset({0})),
    "export nel": (["export", "nel", LATER, "--out", "nel"], frozenset({0})),
    "check": (["check", "policy.yaml", "--noise", LATER], frozenset({0})),
}
"""What is called, and the exit codes that it may end with beside 4."""
ADDRESSES: Sequence[Mapping[str, str]] = (
    {},
    {"run": LATER, "state": "right"},
    {"run": LATER, "data": "data", "id": "q1", "under": "invert"},
)
GATES = (["--vlm-baseline=" + EARLIER], ["--vlm-rerun=failed"], ["--vlm-rerun=errors", "--vlm-baseline=" + LATER], ["--vlm-plan"])
GATES_END = frozenset({0, 1, 4, 5, 10, 11})


@functools.cache
def valid() -> Path:
    """Returns a directory with a gate and a store of two runs that every command reads; it is made once."""
    directory = gate.write(Path(tempfile.mkdtemp(prefix="damaged-runs-")), "NO-GO")
    before = {STORE, *(path.name for path in directory.iterdir())}
    for name, options in {EARLIER: (), LATER: (f"--vlm-baseline={EARLIER}", "--vlm-aa")}.items():
        known = {*(directory / STORE).glob("runs/*")}
        code, said = gate.run(directory, *options)
        (made,) = {*(directory / STORE).glob("runs/*")} - known
        if code != 1:
            raise AssertionError(said)
        made.rename(made.with_name(name))
    with contextlib.chdir(directory), contextlib.redirect_stdout(io.StringIO()):
        for words, codes in COMMANDS.values():  # this imports what they need, too, which is no part of their time
            if (code := _command(words)) not in codes:
                raise AssertionError(f"{words} ended with {code}")
        _shown(directory / STORE)
    for path in directory.iterdir():
        if path.name not in before:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return directory


# How a run is damaged.


def damage(store: Path, rng: random.Random) -> None:
    """Changes, empties, takes away or replaces one to three files of the runs in a store."""
    for _ in range(rng.randint(1, 3)):
        files = sorted(path for path in store.glob("runs/**/*") if path.is_file() and not path.is_symlink())
        path = rng.choices(files, [5 if path.suffix == ".json" else 1 for path in files])[0]
        if rng.random() < 0.75:
            path.write_bytes(_changed(path.read_bytes(), path.suffix, rng))
        else:
            rng.choice([_empty, _cut, _deleted, _folder, _dangling, _loop, _elsewhere, _deep, _digits, _marked, _utf16])(path)


def _changed(content: bytes, suffix: str, rng: random.Random) -> bytes:
    of_kind = {".sqlite": of_database, ".json": of_json, ".jsonl": of_json}.get(suffix, spliced)
    try:
        return of_kind(content, rng)
    except (ValueError, IndexError, RuntimeError):  # it was changed before, and is no JSON any more
        return spliced(content, rng)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def _deleted(path: Path) -> None:
    path.unlink()


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _elsewhere(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/null")


def _deep(path: Path) -> None:
    path.write_text(json.dumps(nested(300))[:-300] + "[" * 100_000)


def _digits(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b": 1", b": " + b"9" * 5000, 1).replace(b": 7", b": 1e999"))


def _marked(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())


def _utf16(path: Path) -> None:
    path.write_bytes(path.read_bytes().decode("utf-8", "replace").encode("utf-16"))


# What reads them.


def ended(read: Callable[[], int], codes: frozenset[int] = frozenset({0})) -> str:
    """Reads runs; returns what is wrong with how that ended, or an empty string."""
    from pytest_vlmrobust.cli import TRACEBACK

    os.environ[TRACEBACK] = "1"
    said = io.StringIO()
    started = time.process_time()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            code = read()
    except Exception:  # noqa: BLE001 - that is what is looked for
        return traceback.format_exc()
    text = said.getvalue()
    if (seconds := time.process_time() - started) > LONGEST_SECONDS:
        return f"took {seconds:.1f} s of processor time, and ended with {code}: {text}"
    if code not in {*codes, REFUSED} or (code == REFUSED and not text.strip()) or "[Errno" in text or "\n\n" in text:
        return f"ended with {code}: {text}"
    return ""


def _command(words: Sequence[str]) -> int:
    from pytest_vlmrobust.cli import main

    return main(words)


def _shown(store: Path) -> int:
    """Makes pages of the viewer; what one refuses stands on it."""
    from pytest_vlmrobust.core.errors import VlmRobustError
    from pytest_vlmrobust.evaluation.after.pictures import RunPictures
    from pytest_vlmrobust.reporting.viewer.address import Address
    from pytest_vlmrobust.reporting.viewer.page import Pages
    from pytest_vlmrobust.reporting.viewer.runs import Runs

    directories = [store / "runs" / name for name in (LATER, EARLIER)]
    with contextlib.closing(Runs(lambda: directories, lambda run: RunPictures(run, None), together=True)) as runs:
        pages = Pages(runs)
        made: Sequence[Callable[[Address], object]] = (
            *(pages.overview, pages.answers, pages.samples, pages.sample, pages.live),
            *(functools.partial(pages.picture, small=small) for small in (True, False)),
        )
        for make, pairs in itertools.product(made, ADDRESSES):
            with contextlib.suppress(VlmRobustError):
                make(Address.read(pairs.items()))
    return 0


def _profile(run: Path) -> int:
    """Takes a run for the profile of a model, as ``vlmrobust power`` does."""
    from pytest_vlmrobust.core.errors import VlmRobustError
    from pytest_vlmrobust.evaluation.power.recorded import recorded_models

    with contextlib.suppress(VlmRobustError):
        recorded_models(run)
    return 0


def gated(directory: Path, options: Sequence[str]) -> str:
    """Runs a gate that reads the runs of its store; returns what is wrong with how that ended, or an empty string."""
    code, said = gate.run(directory, *options)
    crashed = any(word in said for word in ("Traceback", "INTERNALERROR", "[Errno", "this should not happen"))
    return f"ended with {code}:\n{said}" if crashed or code not in GATES_END else ""


def failures(seed: int, number: int, *, gates: bool = False) -> list[str]:
    """Damages a copy of the runs, has everything read it, and returns what failed.

    Args:
        seed: of what is drawn.
        number: which of the damages.
        gates: whether gates read it, too.
    """
    texts: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="damaged-") as folder:
        directory = Path(folder) / "gate"
        shutil.copytree(valid(), directory, symlinks=True)
        damage(directory / STORE, random.Random(f"{seed} {number}"))
        with contextlib.chdir(directory):
            for name, (words, codes) in COMMANDS.items():
                texts[name] = ended(functools.partial(_command, words), codes)
            texts["view"] = ended(functools.partial(_shown, directory / STORE))
            texts["power"] = ended(functools.partial(_profile, directory / STORE / "runs" / LATER))
            for options in GATES if gates else ():
                texts[f"pytest {' '.join(options)}"] = gated(directory, options)
    return [f"seed {seed}, damage {number}, {name}: {text}" for name, text in texts.items() if text]


def main() -> int:
    """Damages runs, and prints what failed; of equal failures the first. Returns 1 where there was one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="processor time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="N", help="the damage of this number alone")
    parser.add_argument("--most", type=int, default=sys.maxsize, metavar="N", help="how many damages at most")
    parser.add_argument("--gates", type=int, default=20, metavar="N", help="every N-th damage is read by gates, too")
    options = parser.parse_args()
    valid()
    seen, started, number = set[str](), time.process_time(), 0
    for number in itertools.count() if options.only is None else [options.only]:
        if time.process_time() - started > options.seconds or number == options.most:
            break
        for text in failures(options.seed, number, gates=number % options.gates == 0 or options.only is not None):
            if (about := " ".join(text.strip().splitlines()[-3:])[-120:]) not in seen:
                seen.add(about)
                print(text, flush=True)
    print(f"{number} damages, {len(seen)} failures")
    return int(bool(seen))


if __name__ == "__main__":
    sys.exit(main())
