"""What is promised on a bad day, and how often it was kept: faults survived, inputs tried, mutants found.

    python benchmarks/reliability.py                                # all three, on the terminal
    python benchmarks/reliability.py --markdown docs/reliability.md   # and into the page

The parts are independent of each other: ``--only faults`` measures one, and replaces its table in the page alone.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import mutants

Row = TypeVar("Row")
ROOT = Path(__file__).resolve().parent.parent


def shown(row: Row) -> Row:
    """Returns a row of a table, and says it at once: the whole takes hours."""
    print(row, file=sys.stderr, flush=True)
    return row


def faults(options: argparse.Namespace) -> list[str]:
    """Returns the table of the faults that gates met."""
    from tests.faults import campaign

    rows = [shown(row) for row in campaign.run_campaign([*campaign.FAULTS], options.trials, options.seed)]
    total, survived = sum(row.trials for row in rows), sum(row.survived for row in rows)
    lines = [campaign.HEADER, *map(str, rows), f"| **all** | **{survived} of {total}** | |"]
    return [*lines, *(f"\n{problem}" for row in rows for problem in row.problems)]


def inputs(options: argparse.Namespace) -> list[str]:
    """Returns the table of the inputs that readers were given."""
    from tests.fuzz import readers

    rows = [shown(readers.fuzz(reader, options.seconds, options.seed)) for reader in readers.READERS.values()]
    tried, failed = sum(row.tried for row in rows), sum(len(row.failures) for row in rows)
    lines = [readers.HEADER, *map(str, rows), f"| **all** | **{tried:,}** | | | | **{failed}** |"]
    return [*lines, *(f"\n{failure}" for row in rows for failure in row.failures)]


def mistakes(options: argparse.Namespace) -> list[str]:
    """Returns the table of the mutants that tests were tried on."""
    lines, total, found, left = ["| module | mutants | tried | found |\n|---|--:|--:|--:|"], 0, 0, []
    for module, count, tried, survivors in mutants.measure([*mutants.TESTS], options.sample, options.seed):
        lines.append(f"| `{module}` | {count} | {len(tried)} | {len(tried) - len(survivors)} |")
        total, found = total + len(tried), found + len(tried) - len(survivors)
        left += survivors
        print(lines[-1], *survivors, sep="\n", file=sys.stderr, flush=True)
    return [*lines, f"| **all** | | **{total}** | **{found}** ({found / total:.0%}) |"]


PARTS: Mapping[str, Callable[[argparse.Namespace], list[str]]] = {"faults": faults, "inputs": inputs, "mutants": mistakes}


def main() -> None:
    """Measures, prints, and writes the tables between their marks in a page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=[*PARTS], action="append")
    parser.add_argument("--trials", type=int, default=28, help="of each fault")
    parser.add_argument("--seconds", type=float, default=60.0, help="processor time for each reader")
    parser.add_argument("--sample", type=int, default=25, help="mutants of each module")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    options = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    for name in options.only or PARTS:
        table = "\n".join(PARTS[name](options))
        print(table, flush=True)
        if options.markdown:
            page = options.markdown.read_text(encoding="utf-8")
            start, end = f"<!-- {name} -->\n\n", f"\n\n<!-- end of {name} -->"
            before, _, rest = page.partition(start)
            options.markdown.write_text(f"{before}{start}{table}{end}{rest.partition(end)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
