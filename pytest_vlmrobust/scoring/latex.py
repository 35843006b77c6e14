r"""Numbers in LaTeX. Known commands become plain text; anything else is masked, so that no number inside it is read.

In ``\frac{1}{2}`` the 2 is no answer, and ``2\sqrt{3}`` is neither 2 nor 3. With the extra ``maths``, math-verify
decides whether such an expression equals the target, in a separate process with a time limit. Without it, it is unreadable.
"""

from __future__ import annotations

import atexit
import importlib.metadata
import json
import queue
import re
import subprocess
import sys
import threading
from fractions import Fraction
from functools import cache, lru_cache
from typing import Final

UNREAD: Final = "latex"
"""The rule of an answer that is mathematics in LaTeX, and not understood."""
SECONDS: Final = 10.0
"""Time limit of math-verify for an answer, including its start."""
LONGEST: Final = 400
"""Characters of an expression that are read."""

_FIRST_MARK, _MOST = 0xE000, 1000
MARKS: Final = re.compile("[\ue000-\ue3e7]")
"""Private-use characters that replace unknown expressions; ordinary text does not contain them."""

_SPACES = re.compile(r"\\[,;:!>]|\\ |\\q?quad\b|~|\\(?:left|right|displaystyle|big|Big)(?![A-Za-z])|\\limits\b")
DEGREES = re.compile(r"\s?\^\s?(?:\{\s?\\circ\s?\}|\\circ(?![A-Za-z]))|\s?\\degree(?:s)?(?![A-Za-z])|\\textdegree")
_WORDS = re.compile(
    r"\\(?:text|mathrm|mathbf|mathsf|textbf|textrm|mbox|operatorname|mathit|rm)\s?\{([^{}]*)\}(?:\s?\^\s?\{?([23])\}?)?"
)
_SIGNS: Final = {r"\%": "%", r"\$": "$", r"\&": "&", r"\#": "#", r"\pm": "±", r"\cdot": "·", r"\times": "\u00d7", r"\div": "÷"}
_RAISED: Final = {"2": "²", "3": "³"}
_THOUSANDS = re.compile(r"(?<=\d)(?:\{,\}|\\,|\\!|,\\!|\{\\,\})\s?(?=\d{3}(?!\d))")
_NUMBER = r"\d{1,40}(?:\.\d{1,40})?"
_FRACTION = re.compile(
    rf"(?P<sign>-\s?)?(?:(?P<whole>\d{{1,20}})\s?)?\\[dtc]?frac\s?"
    rf"(?:\{{\s?(?P<above>-?\s?{_NUMBER})\s?\}}|(?P<digit>\d))\s?(?:\{{\s?(?P<below>{_NUMBER})\s?\}}|(?P<digit_below>\d))"
)
_POWER_OF_TEN = re.compile(rf"(?P<number>{_NUMBER})\s?[\u00d7·]\s?10\s?\^\s?(?:\{{\s?(?P<power>-?\d{{1,2}})\s?\}}|(?P<digit>\d))")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_SURROUNDS = frozenset({"boxed", "fbox", "text", "mathrm", "mathbf", "textbf", "begin", "end"})
_REGION = re.compile(
    r"(?<!\\)\$\$(.{1,400}?)\$\$|(?<!\\)\$([^$\n]{1,400}?)(?<!\\)\$|\\\(((?:(?!\\\().){1,400}?)\\\)|\\\[((?:(?!\\\[).){1,400}?)\\\]",
    re.DOTALL,
)
_BOX = re.compile(r"\\(?:boxed|fbox)\s?\{")
_RUN = re.compile(r"[^\s$]{0,200}\\(?!(?:boxed|fbox)\b)[A-Za-z]+[^\s$]{0,400}")


class Plain(str):
    """A text without LaTeX; each unknown expression is a character of ``MARKS``, listed in ``expressions``."""

    __slots__ = ("expressions",)
    expressions: dict[str, str]


def plain_numbers(text: str) -> Plain:
    r"""Returns ``text`` with its numbers in LaTeX written plainly.

    >>> plain_numbers(r"It is $\frac{3}{4}$, or \boxed{1{,}040}, at $30^\circ$")
    'It is 3/4, or \\boxed{1,040}, at 30°'
    """
    expressions: dict[str, str] = {}
    text = _POWER.sub(_raised, text) if "^" in text else text
    if "\\" in text or "{,}" in text:
        text = _REGION.sub(lambda match: _region(match, expressions), text)
        text = _in_boxes(text, expressions)
        text = _RUN.sub(lambda match: _or_mark(match[0], expressions), _convert(text))
    plain = Plain(text)
    plain.expressions = expressions
    return plain


def _region(match: re.Match[str], expressions: dict[str, str]) -> str:
    content = next(group for group in match.groups() if group is not None)
    if "\\" not in content or _BOX.search(content):
        return content if _BOX.search(content) else match[0]
    return _or_mark(content, expressions)


def _in_boxes(text: str, expressions: dict[str, str]) -> str:
    r"""Returns ``text`` with the content of every ``\boxed{…}`` read as an expression."""
    parts: list[str] = []
    position = 0
    while match := _BOX.search(text, position):
        end = _closing(text, match.end())
        parts += [text[position : match.end()], _or_mark(text[match.end() : end], expressions)]
        position = end
    return "".join([*parts, text[position:]])


def _closing(text: str, start: int) -> int:
    depth = 0
    for position in range(start, min(len(text), start + LONGEST)):
        depth += (text[position] == "{") - (text[position] == "}")
        if depth < 0:
            return position
    return len(text)


def _or_mark(expression: str, expressions: dict[str, str]) -> str:
    """Returns an expression plainly, the value behind its last equals sign, or a mark."""
    if "\\" not in expression:
        return _THOUSANDS.sub(",", expression)
    for part in (expression, expression.rpartition("=")[2]):
        plain = _convert(part)
        if not any(match[0][1:] not in _SURROUNDS for match in _COMMAND.finditer(plain)):
            return plain
    mark = chr(_FIRST_MARK + min(len(expressions), _MOST - 1))
    expressions[mark] = expression[:LONGEST]
    return mark


def _convert(expression: str) -> str:
    text = _SPACES.sub(" ", _THOUSANDS.sub(",", DEGREES.sub("°", expression)))
    text = _WORDS.sub(lambda match: f" {match[1].strip()}{_RAISED.get(match[2], '')} ", text)
    for command, sign in _SIGNS.items():
        if command in text:
            text = re.sub(rf"{re.escape(command)}(?![A-Za-z])", sign, text)
    text = _POWER_OF_TEN.sub(_shifted, _FRACTION.sub(_ratio, text))
    return _BLANKS.sub(" ", text).strip(" ")


_POWER = re.compile(
    r"(?P<times>(?:\\times|\\cdot|[\u00d7·*]|(?<=\d) ?x)\s?)?(?<![\w.^])(?P<base>\d{1,9})\s?\^\s?"
    r"(?:\{\s?(?P<power>\d{1,2})\s?\}|(?P<digit>\d)(?!\d))(?![\w^]|\.\d)"
)
_LONGEST_POWER = 40
"""Digits of a power that is worked out."""


def _raised(match: re.Match[str]) -> str:
    """Evaluates a power of whole numbers; a power of ten after a times sign stays, because the product is the number."""
    value = int(match["base"]) ** int(match["power"] or match["digit"])
    scales = match["times"] and match["base"] == "10"
    return match[0] if scales or value >= 10**_LONGEST_POWER else f"{match['times'] or ''}{value}"


_BLANKS = re.compile(" {2,}")


def _ratio(match: re.Match[str]) -> str:
    above = Fraction((match["above"] or match["digit"]).replace(" ", ""))
    below = Fraction(match["below"] or match["digit_below"])
    if not below:
        return match[0]
    value = (above / below + int(match["whole"] or 0)) * (-1 if match["sign"] else 1)
    return f"{value.numerator}/{value.denominator}" if value.denominator > 1 else str(value.numerator)


def _shifted(match: re.Match[str]) -> str:
    value = Fraction(match["number"]) * Fraction(10) ** int(match["power"] or match["digit"])
    if value.denominator == 1:
        return str(value.numerator)
    whole, rest = divmod(value, 1)
    digits = format(float(rest), ".40f")[2:42].rstrip("0")
    return f"{whole}.{digits}" if Fraction(f"0.{digits}") == rest else f"{value.numerator}/{value.denominator}"


def same_spelling(expression: str, target: str) -> bool:
    """Whether two expressions are spelled alike, ignoring blanks, dollars and the two spellings of roots and pi."""
    return _spelling(expression) == _spelling(target)


def _spelling(expression: str) -> str:
    text = _ROOT.sub(r"√\1", _SPACES.sub("", expression)).replace(r"\pi", "π").replace(r"\dfrac", r"\frac")
    return "".join(text.replace("$", "").split())


_ROOT = re.compile(r"\\sqrt\s?\{\s?(\w{1,40})\s?\}")

# math-verify in a separate process: an expression can make a computer algebra system run forever.


_WORKER = """
import json, sys
from math_verify import parse, verify
for line in sys.stdin:
    answer, target = json.loads(line)
    try:
        said, wanted = parse(f"${answer}$", parsing_timeout=None), parse(f"${target}$", parsing_timeout=None)
        equal = bool(verify(wanted, said, timeout_seconds=None)) if said and wanted else None
    except Exception:
        equal = None
    print(json.dumps(equal), flush=True)
"""


def math_verify_version() -> str | None:
    """Returns the version of math-verify; None without the extra ``maths``."""
    try:
        return importlib.metadata.version("math-verify")
    except importlib.metadata.PackageNotFoundError:
        return None


@lru_cache(maxsize=4096)
def equals(expression: str, target: str) -> bool | None:
    """Whether two expressions are equal; None if math-verify is absent, cannot read one, or takes too long."""
    if math_verify_version() is None:
        return None
    return _worker().ask(expression, target)


class _Worker:
    """A process that compares expressions; it is ended, and started again, when an answer takes too long."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._lock = threading.Lock()

    def ask(self, expression: str, target: str) -> bool | None:
        """Whether both are equal; None if that is not known within ``SECONDS``."""
        with self._lock:
            process = self._process
            if process is None or process.poll() is not None:
                process = self._start()
            try:
                assert process.stdin is not None
                process.stdin.write(json.dumps([expression, target]) + "\n")
                process.stdin.flush()
                line = self._lines.get(timeout=SECONDS)
            except (OSError, queue.Empty):
                self.close()
                return None
        return {"true": True, "false": False}.get(line.strip())

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", _WORKER]
        process = subprocess.Popen(  # noqa: S603 - this Python, and the program above
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._process, self._lines = process, queue.SimpleQueue()
        threading.Thread(target=_forward, args=(process, self._lines), daemon=True).start()
        return process


def _forward(process: subprocess.Popen[str], lines: queue.SimpleQueue[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)


@cache
def _worker() -> _Worker:
    worker = _Worker()
    atexit.register(worker.close)
    return worker
