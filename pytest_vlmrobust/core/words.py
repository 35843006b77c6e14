"""Words that all messages and reports share: counts, lists, numbers, and text of models and data as it may be shown."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from decimal import Decimal

# Counts and lists.


def quantity(count: int, singular: str, plural: str = "") -> str:
    """Returns a count with its noun, and its verb if given.

    ``plural`` follows any other count; by default ``singular`` with an ``s``.

    >>> quantity(1, "test"), quantity(0, "test"), quantity(2, "test is open", "tests are open")
    ('1 test', '0 tests', '2 tests are open')
    """
    return f"{count} {singular if count == 1 else plural or f'{singular}s'}"


def question_count(count: int, images: int = 0) -> str:
    """Returns a count of questions, and of their images if there are fewer.

    >>> question_count(40), question_count(60, 10)
    ('40 questions', '60 questions (10 images)')
    """
    about = f" ({images:,} image{'s' * (images != 1)})" if 0 < images < count else ""
    return f"{count:,} question{'s' * (count != 1)}{about}"


def first_few(names: Iterable[str], most: int = 5) -> str:
    """Returns the first names, and the number of the others.

    >>> first_few("abcd", 2), first_few("ab", 2), first_few([], 2)
    ('a, b and 2 more', 'a, b', '')
    """
    every = list(names)
    rest = len(every) - most
    return ", ".join(every[:most]) + (f" and {rest} more" if rest > 0 else "")


def all_of(names: Sequence[str]) -> str:
    """Returns names, or points, as one phrase.

    >>> all_of(["a"]), all_of(["a", "b"]), all_of(["a", "b", "c"]), all_of([])
    ('a', 'a and b', 'a, b and c', '')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


# Numbers.


def number(value: float, unit: str = "", digits: int | None = None) -> str:
    """Returns a number in the unit of a policy's author; ``undefined`` for NaN.

    ``value`` is a fraction where the unit is ``pp`` or ``%``. ``digits`` are decimals; by default 3 of a plain number, else 1.

    >>> number(0.1234), number(0.445, "pp"), number(math.nan)
    ('0.123', '44.5 pp', 'undefined')
    """
    if not math.isfinite(value):
        return {math.inf: "infinity", -math.inf: "-infinity"}.get(value, "undefined")
    return f"{_scaled(value, unit, digits)} {unit}".rstrip()


def interval(low: float, high: float, unit: str = "", digits: int | None = None) -> str:
    """Returns an interval after a number of the same unit; empty without an interval.

    >>> interval(0.01, 0.25), interval(0.01, 0.25, "pp"), interval(math.nan, math.nan)
    ('[0.010, 0.250]', '[1.0, 25.0]', '')
    """
    missing = math.isnan(low) or math.isnan(high)
    return "" if missing else f"[{_scaled(low, unit, digits)}, {_scaled(high, unit, digits)}]"


def _scaled(value: float, unit: str, digits: int | None) -> str:
    return f"{100 * value if unit else value:z.{(1 if unit else 3) if digits is None else digits}f}"


def plain_decimal(value: float) -> str:
    """Returns a number as dashboards read it: no exponent, no digits that say nothing.

    >>> plain_decimal(0.05), plain_decimal(1e-7)
    ('0.05', '0.0000001')
    """
    return format(Decimal(repr(value)), "f").removesuffix(".0")


def points(fraction: float) -> str:
    """Returns a fraction in percentage points.

    >>> points(0.263)
    '26.3 pp'
    """
    return number(fraction, "pp")


def percent(fraction: float, digits: int | None = None) -> str:
    """Returns a fraction in percent.

    >>> percent(0.263), percent(0.9, 0)
    ('26.3 %', '90 %')
    """
    return number(fraction, "%", digits)


# Text of models, data and endpoints, as it may be shown on a terminal, in a report or in a log.


LONGEST = 2000
"""Characters shown of a foreign text."""
_BREAKS = re.compile(r"[\t\r\n]+")


def printable(text: str, most: int | None = None, *, kept: str = "") -> str:
    r"""Returns text with every invisible character escaped as in Python source.

    A terminal obeys control characters, direction marks make a reader see other words, and an unpaired surrogate
    cannot be written. Blanks of all widths stay. At most ``most`` characters stay (all by default), followed by the number
    of the others. Characters in ``kept``, such as line breaks, stay although they are invisible.

    >>> printable("a\x1b[2Jb\u202ec"), printable("abcdef", 2)
    ('a\\x1b[2Jb\\u202ec', 'ab … (4 more characters)')
    """
    rest = 0 if most is None else len(text) - most
    cut = text if rest <= 0 else text[:most]
    if not cut.isprintable():
        cut = "".join(char if char in kept or _visible(char) else _escape_char(char) for char in cut)
    return f"{cut} … ({rest} more characters)" if rest > 0 else cut


def on_one_line(text: str, most: int | None = LONGEST) -> str:
    r"""Returns text as :func:`printable` does, with a blank in place of line breaks and tabs.

    >>> on_one_line("down:\r\n\tat 3\x00\n")
    'down: at 3\\x00'
    """
    return printable(_BREAKS.sub(" ", text.strip("\t\r\n")).rstrip(), most)


def kind_and_reason(error: Exception) -> str:
    r"""Returns the kind of a library's error and the first line of its message.

    >>> kind_and_reason(ValueError("no such layer\n  in layer 3"))
    'ValueError: no such layer'
    """
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['(no message)'])[0]}"


_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Invisible characters outside Unicode's category of format characters."""
_ALIKE = ("LATIN", "GREEK", "CYRILLIC")
"""Scripts that have letters in common by their looks."""


_JOINED = re.compile(r"(?<=[^\x00-\u058f])[\u200c\u200d\ufe0f](?=[^\x00-\u058f]|$|\s)")
"""Valid joiners: between letters of Persian or Hindi, in and after emoji."""


def same_looks(text: str) -> str:
    r"""Returns a text in the form for comparison: NFKC, without joiners.

    >>> same_looks("q\uff11"), same_looks("\u0645\u0647\u200c\u0631") == same_looks("\u0645\u0647\u0631")
    ('q1', True)
    """
    return text if text.isascii() else unicodedata.normalize("NFKC", _JOINED.sub("", text))


def invisible(text: str) -> str:
    r"""Returns the first invisible character that makes it another text; empty if none.

    >>> invisible("q\u200b0"), invisible("q0")
    ('U+200B ZERO WIDTH SPACE', '')
    """
    if text.isascii():
        return ""
    plain = _JOINED.sub("", text)
    hidden = (char for char in plain if unicodedata.category(char) == "Cf" or _BLANK.match(char))
    return next((_called(char) for char in hidden), "")


def mixed_scripts(text: str) -> str:
    r"""Returns the first letter from another script than the letters before it in its word that may look like them.

    >>> mixed_scripts("j\u0430ne"), mixed_scripts("jane \u0430"), mixed_scripts("\u65e5\u672c a")
    ('U+0430 CYRILLIC SMALL LETTER A', '', '')
    """
    for word in [] if text.isascii() else re.findall(r"[^\W\d_]+", text):
        named = [(char, script) for char in word if (script := unicodedata.name(char, "").partition(" ")[0]) in _ALIKE]
        for char, script in named:
            if script != named[0][1]:
                return _called(char)
    return ""


def _called(char: str) -> str:
    return f"U+{ord(char):04X} {unicodedata.name(char, '')}".rstrip()


def without_halves(text: str) -> str:
    r"""Returns text with each half of a surrogate pair, which no file in UTF-8 can hold, spelled out; all else stays.

    In JSON that is the half itself.

    >>> without_halves("\udfff \x1b")
    '\\udfff \x1b'
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _visible(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) == "Zs"


def _escape_char(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
