"""What is promised on a bad day, and how often it was kept: inputs tried, mutants found.

    python studies/reliability/reliability.py                            # what has no row yet, for this commit and seed
    python studies/reliability/reliability.py --only inputs --rounds 10  # ten rounds of a minute for each reader
    python studies/reliability/reliability.py --only inputs --rounds 0 --markdown studies/reliability/README.md  # the page only

The whole takes hours. A row of a few inputs or mutants is kept in ``reliability.jsonl`` as soon as it is measured, and is
not measured again, so that it may be stopped at any time. The same seed draws the same inputs and mutants: what is
measured at a later commit takes the place of the same row of an earlier one.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]  # the fuzzed readers are in tests/, the mutants in benchmarks/

import mutants  # noqa: E402

ROWS = Path(__file__).with_suffix(".jsonl")
AT_ONCE = 25
"""Mutants of a row."""
Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Piece:
    """What a row is about, and how it is measured."""

    part: str
    name: str
    """Of a reader or a module."""
    seed: int
    first: int
    """The number of its first mutant."""
    measure: Callable[[], Row]

    @property
    def key(self) -> Row:
        """What a row says of it."""
        return {"part": self.part, "name": self.name, "seed": self.seed, "first": self.first}


def inputs(options: argparse.Namespace) -> Iterator[Piece]:
    """Yields a round of each reader, and then the next: the seed of a round is its number."""
    from tests.fuzz import readers

    for seed in range(options.seed, options.seed + options.rounds):
        for name in readers.READERS:

            def measure(name: str = name, seed: int = seed) -> Row:
                try:  # a process for each, so that the memory of one reader is not hidden by what another took
                    with ProcessPoolExecutor(1, get_context("fork")) as pool:
                        row = dataclasses.asdict(pool.submit(_fuzz, name, options.seconds, seed).result())
                except BrokenProcessPool:
                    row = {"tried": 0, "failures": [f"{name}, seed {seed}: its process died"]}
                return {**{name: value for name, value in row.items() if name != "reader"}, "seconds": options.seconds}

            yield Piece("inputs", name, seed, 0, measure)


def _fuzz(name: str, seconds: float, seed: int) -> Any:
    from tests.fuzz import readers

    return readers.fuzz(readers.READERS[name], seconds, seed)


def table_of_inputs(rows: Sequence[Row]) -> list[str]:
    """Returns the table of the inputs that readers were given."""
    from tests.fuzz import readers

    lines = [readers.HEADER.replace("inputs |", "processor time | inputs |", 1).replace("|--:|", "|--:|--:|", 1)]
    tried = 0
    failures: list[str] = []
    for name, group in grouped(rows).items():
        of = readers.Row(name, *(sum(row.get(field, 0) for row in group) for field in ("tried", "read")))
        of.slowest = max(row.get("slowest", 0.0) for row in group)
        of.growth = max(row.get("growth", 0) for row in group)
        of.failures = [failure for row in group for failure in row["failures"]]
        tried, failures = tried + of.tried, failures + of.failures
        seconds = sum(row["seconds"] for row in group)
        lines.append(str(of).replace(f"| {name} |", f"| {name} | {seconds:g} s |", 1))
    lines.append(f"| **all** | | **{tried:,}** | | | | **{len(failures)}** |")
    return [*lines, *(f"\n{failure}" for failure in failures)]


def mistakes(options: argparse.Namespace) -> Iterator[Piece]:
    """Yields some mutants of each module at a time, in the order of its lines."""
    mutants.prepare()
    for module in mutants.TESTS:
        every = mutants.drawn(module, 0, options.seed)
        for first in range(0, len(every), AT_ONCE):
            chosen = every[first : first + AT_ONCE]

            def measure(module: str = module, chosen: Sequence[mutants.Mutant] = chosen, count: int = len(every)) -> Row:
                left = mutants.survivors(module, chosen)
                return {"mutants": count, "tried": len(chosen), "survivors": [str(mutant) for mutant in left]}

            yield Piece("mutants", module, 0, first, measure)


def table_of_mistakes(rows: Sequence[Row]) -> list[str]:
    """Returns the table of the mutants that tests were tried on; of each module at the last commit alone."""
    lines, total, caught = ["| module | mutants | tried | found |\n|---|--:|--:|--:|"], 0, 0
    for module, group in grouped(rows).items():
        last = [row for row in group if row["commit"] == group[-1]["commit"]]
        tried, left = sum(row["tried"] for row in last), sum(len(row["survivors"]) for row in last)
        lines.append(f"| `{module}` | {last[0]['mutants']} | {tried} | {tried - left} |")
        total, caught = total + tried, caught + tried - left
    return [*lines, f"| **all** | | **{total}** | **{caught}** ({caught / max(1, total):.0%}) |"]


PARTS: Mapping[str, tuple[Callable[[argparse.Namespace], Iterator[Piece]], Callable[[Sequence[Row]], list[str]]]] = {
    "inputs": (inputs, table_of_inputs),
    "mutants": (mistakes, table_of_mistakes),
}


def grouped(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Returns rows by the reader or module that they are about."""
    names = dict.fromkeys(row["name"] for row in rows)
    return {name: [row for row in rows if row["name"] == name] for name in names}


def read(path: Path) -> list[Row]:
    """Returns the rows that were kept; of what was measured at several commits, the last."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows: dict[tuple[Any, ...], Row] = {}
    for row in map(json.loads, lines):
        key = tuple(row[name] for name in ("part", "name", "seed", "first"))
        rows.pop(key, None)
        rows[key] = row
    return [*rows.values()]


def where_from(rows: Sequence[Row]) -> str:
    """Returns a sentence with the commits and seeds of rows."""
    seeds: dict[str, set[int]] = {}
    for row in rows:
        seeds.setdefault(row["commit"], set()).add(row["seed"])
    commits = [f"`{commit}` (seed {', '.join(map(str, sorted(of)))})" for commit, of in seeds.items()]
    return f"\nMeasured at {', '.join(commits)}."


def write(page: Path, part: str, table: str) -> None:
    """Puts a table between its marks in a page."""
    text = page.read_text(encoding="utf-8")
    start, end = f"<!-- {part} -->\n\n", f"\n\n<!-- end of {part} -->"
    before, _, rest = text.partition(start)
    page.write_text(f"{before}{start}{table}{end}{rest.partition(end)[2]}", encoding="utf-8")


def main() -> None:
    """Measures what is missing, prints the tables, and writes them into a page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=[*PARTS], action="append")
    parser.add_argument("--name", action="append", help="a reader or module; default: all of them")
    parser.add_argument("--seconds", type=float, default=60.0, help="processor time of a round, for each reader")
    parser.add_argument("--rounds", type=int, default=1, help="of inputs, each with a seed of its own")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=float, default=math.inf, help="rows to measure; 0 to make tables of what there is")
    parser.add_argument("--rows", type=Path, default=ROWS, metavar="FILE", help="where rows are kept")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    options = parser.parse_args()
    rows_file, page = options.rows.resolve(), options.markdown and options.markdown.resolve()
    os.chdir(ROOT)
    described = ["git", "describe", "--always", "--exclude=*", "--abbrev=10", "--dirty=-changed"]
    commit = subprocess.run(described, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    measured = 0
    for part in options.only or PARTS:
        pieces, table = PARTS[part]
        done = [row for row in read(rows_file) if row["commit"] == commit]
        for piece in pieces(options) if measured < options.most else ():
            if measured >= options.most:
                break
            if piece.name not in (options.name or [piece.name]) or any(piece.key.items() <= row.items() for row in done):
                continue
            try:
                row = {**piece.key, "commit": commit, **piece.measure()}
            except NotImplementedError as error:
                print(f"{piece.name}: left out: {error}", file=sys.stderr, flush=True)
                continue
            with rows_file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")
            measured += 1
            print(row, file=sys.stderr, flush=True)
        if rows := [row for row in read(rows_file) if row["part"] == part]:
            text = "\n".join([*table(rows), where_from(rows)])
            print(text, flush=True)
            if page:
                write(page, part, text)


if __name__ == "__main__":
    main()
