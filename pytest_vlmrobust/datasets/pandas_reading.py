r"""What VLMEvalKit's prompt shows for a column, where that differs from what the file says.

It reads files with ``pandas.read_csv(sep="\t")``, which guesses the type of each column. Two things follow: an option text
such as ``None``, ``NA``, ``null`` or ``N/A`` becomes a missing value, and the option vanishes from the prompt; and a column
of integers with any cell missing becomes one of floats, so that ``12`` is shown as ``12.0``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

# the default na_values of pandas.read_csv
# fmt: off
MISSING = frozenset([
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>",
    "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
])
# fmt: on
_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")
_FLOAT = re.compile(r"\s*[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?)\s*", re.IGNORECASE)
_TRUTH = {"true": "True", "false": "False"}
_INT64 = range(-(2**63), 2**63)


def as_vlmevalkit_shows(cells: Sequence[str]) -> list[str | None]:
    """Returns the text VLMEvalKit's prompt shows for each cell of a column; None where it shows nothing.

    The column as a whole decides: all integers, all numbers, all truth values, or text. (pandas may decide per block of a
    very large file, and may differ in the last digit of a float; neither is imitated, nor integers beyond 64 bits.)
    """
    present = [cell for cell in cells if cell not in MISSING]
    spell = _speller(present, some_missing=len(present) < len(cells))
    return [None if cell in MISSING else spell(cell) for cell in cells]


def _speller(present: Sequence[str], *, some_missing: bool) -> Callable[[str], str]:
    if all(_INTEGER.fullmatch(cell) for cell in present):
        if not all(int(cell) in _INT64 for cell in present):
            return str
        return (lambda cell: str(float(cell))) if some_missing else (lambda cell: str(int(cell)))
    if all(_FLOAT.fullmatch(cell) for cell in present):
        return lambda cell: str(float(cell))
    if all(cell.lower() in _TRUTH for cell in present):
        return lambda cell: _TRUTH[cell.lower()]
    return str
