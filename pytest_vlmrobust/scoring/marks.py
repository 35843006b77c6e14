"""Answers that mark every option: check boxes, true or false, probabilities; in JSON, in a list or in a line.

Exactly one marked option is the answer. Several are ambiguous, and so are numbers that need not be probabilities: of
``{"A": 1, "B": 2}`` nobody knows whether more is better.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from .json_answers import Document
from .options import Options
from .text import WORD, Outcome, Stop, fold_case, strip_ends

_TRUE: Final = frozenset(["true", "yes", "correct", "right", "selected", "chosen", "checked", "x", "match", "✓", "✔", "✅"])
_FALSE: Final = frozenset(
    ["false", "no", "incorrect", "wrong", "not selected", "unselected", "unchecked", "", "not correct", "✗", "❌"]
)
_ENOUGH = 0.5
"""A probability above this is the largest, whatever the others are."""
_ROUNDING = 0.05
"""How far probabilities may be from adding up to 1."""

Mark = bool | float | None
"""Whether an option is marked, its probability, or None for anything else."""


def marked_in_json(document: Document, options: Options) -> Outcome:
    """Returns the option that the last object or list of marks says is the answer, None where there is none."""
    for item in reversed(document.values):
        for table in _tables(item.value, options):
            return _marked(table, options)
    return None


def _tables(value: Any, options: Options) -> Iterator[Mapping[str, Any]]:
    """Yields every mapping from letters of several options to what an object or a list says of them, the outer ones first."""
    if isinstance(value, dict):
        named = {letter: member for key, member in value.items() if (letter := _option(key, options))}
        if len(named) > 1 or any(isinstance(member, bool) for member in named.values()):
            yield named
            return
    if isinstance(value, list):
        rows = [row for item in value if isinstance(item, dict) and (row := _row(item, options))]
        if len(rows) > 1 and len(dict(rows)) == len(rows) == len(value):
            yield dict(rows)
            return
    for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _tables(member, options)


def _row(item: Mapping[str, Any], options: Options) -> tuple[str, Any] | None:
    """Returns letter and mark of ``{"option": "B", "correct": true}``."""
    letters = {letter for member in item.values() if isinstance(member, str) and (letter := _option(member, options))}
    marks = [member for member in item.values() if isinstance(member, bool | int | float)]
    return (letters.pop(), marks[0]) if len(letters) == 1 and len(marks) == 1 else None


def _option(words: str, options: Options) -> str | None:
    """Returns the letter of the option that ``words`` is: "B", "(B)", "option B", "B. dog", "dog"."""
    match = _LABEL.fullmatch(words.strip())
    if match and match["letter"].upper() in options.letters and (match["letter"].isupper() or not match["text"]):
        letter = match["letter"].upper()
        if not strip_ends(match["text"]) or options.exact(match["text"]) == letter:
            return letter
    whole = options.exact(words)
    return whole if isinstance(whole, str) else None


_LABEL = re.compile(
    rf"(?:(?:[Oo]ption|[Cc]hoice|[Ii]s)[ _]|P)?[(\[\"']{{0,2}}(?P<letter>[A-Za-z])(?![{WORD}'])[)\]\"'.:]{{0,3}}"
    r"(?P<text>(?:\s.*)?)",
    re.DOTALL,
)


def _marked(table: Mapping[str, Any], options: Options) -> Outcome:
    if any(fold_case(str(said)) == fold_case(options.raw[letter]) for letter, said in table.items()):
        return Stop.AMBIGUOUS  # the options are repeated, not marked
    marks = {letter: _mark(said) for letter, said in table.items()}
    truths = [letter for letter, mark in marks.items() if mark is True]
    if all(isinstance(mark, bool) for mark in marks.values()):
        return truths[0] if len(truths) == 1 else Stop.AMBIGUOUS if truths else Stop.NONE
    return _most_probable({letter: mark for letter, mark in marks.items() if isinstance(mark, float)}, len(marks))


def _most_probable(shares: Mapping[str, float], expected: int) -> Outcome:
    """Returns the letter of the largest number, if all are probabilities, or all percentages."""
    if len(shares) < expected:
        return Stop.AMBIGUOUS
    for whole in (1.0, 100.0):
        largest = max(shares.values())
        are_shares = all(0 <= share <= whole for share in shares.values()) and (
            abs(sum(shares.values()) - whole) <= _ROUNDING * whole or (whole == 1.0 and largest > _ENOUGH)
        )
        best = [letter for letter, share in shares.items() if share == largest]
        if are_shares:
            return best[0] if len(best) == 1 else Stop.AMBIGUOUS
    return Stop.AMBIGUOUS


def _mark(said: Any) -> Mark:
    if isinstance(said, bool) or said is None:
        return bool(said)
    if isinstance(said, int | float):
        return float(said)
    if isinstance(said, dict):
        marks = [member for member in said.values() if isinstance(member, bool | int | float)]
        return _mark(marks[0]) if len(marks) == 1 else None
    if not isinstance(said, str):
        return None
    word = fold_case(said).strip(" .!")
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    number = _SHARE.fullmatch(word)
    return float(number[1]) / (100.0 if number[2] else 1.0) if number else None


_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,9})?|\.\d{1,9})\s?(%)?")


# In a text: glyphs before or behind each option, or a word or a number behind each.


_BOX = re.compile(r"[☑☒☐✅✓✔✗✘✕❌●◉○◯■□⬜]|\[\s?[xX✓✔✗✘]?\s?\]|\((?:\s|\s?[xX✓✔✗✘]\s?)?\)")
_MOST_BOXES = 100
_CHECKED: Final = frozenset("☑✅✓✔●◉■")
_CROSS: Final = frozenset("xX☒✗✘✕❌")
_BULLET = " \t-:;,|/•\u2013=."
_TRUTH = re.compile(r"[A-Z]\W{0,3}\s(?i:true|false|yes|no|correct|incorrect|\d+\s?%)")
_NUMBERED = re.compile(r"^\s*\d{1,2}[.)]\s*", re.MULTILINE)
_WORD_MARK = re.compile(
    rf"(?<![{WORD}])(?:P|[Oo]ption )?[(\[]?(?P<letter>[A-Z])(?![{WORD}'])[)\].]{{0,2}}"
    r"(?P<text>[^:=(\n]{0,80}?)\s*(?:[:=(→|]|->|\s-|\s)\s*"
    r"(?P<mark>(?i:true|false|(?:in|not )?correct|right|wrong|yes|no)|(?:\d{1,3}(?:\.\d{1,9})?|\.\d{1,9})\s?%?)\)?"
    r"(?=\s*(?:$|[,;.\n|]|\([A-Z]\)|[A-Z]\b))"
)
_BEFORE_MARKS = re.compile(r"[\W_]*+(?:\d{1,2}[.)])?[\W_]*+")
"""What may stand before the first letter of a text that is nothing but marks."""


def marked_in_text(text: str, options: Options) -> Outcome:
    """Returns the option that check boxes, ticks, or words and numbers behind the letters say is the answer."""
    text = text.replace("\ufe0f", "")  # the tick in colour is the same tick
    boxes = list(_BOX.finditer(text))[:_MOST_BOXES]
    if boxes and not any(strip_ends(box[0]) and strip_ends(box[0]).upper() in options.letters for box in boxes):
        starts, ends = [box.start() for box in boxes], [box.end() for box in boxes]
        behind = [text[end:start].partition("\n")[0] for end, start in zip(ends, [*starts[1:], len(text)], strict=True)]
        ahead = [text[end:start].strip().rpartition("\n")[2] for end, start in zip([0, *ends[:-1]], starts, strict=True)]
        for labels in (behind, ahead):
            named = [_option(label.strip(_BULLET), options) for label in labels]
            if all(named) and len(set(named)) == len(named):
                return _ticked(dict(zip(map(str, named), (box[0] for box in boxes), strict=True)))
    return _in_words(text, options)


def _ticked(boxes: Mapping[str, str]) -> Outcome:
    """Returns the only option with a tick; where nothing is ticked, a cross is one in brackets or among empty boxes."""
    glyphs = {letter: "".join(box.strip("[]() ").split()) or "☐" for letter, box in boxes.items()}
    ticked = [letter for letter, glyph in glyphs.items() if glyph in _CHECKED]
    if not ticked and any(glyph in "☐○◯□⬜xX" for glyph in glyphs.values()):
        ticked = [letter for letter, glyph in glyphs.items() if glyph in _CROSS]
    return ticked[0] if len(ticked) == 1 else Stop.AMBIGUOUS if ticked else Stop.NONE


def _in_words(text: str, options: Options) -> Outcome:
    """Reads "A: false, B: true" and "A: 10%, B: 80%", where nothing else is said."""
    begun = _BEFORE_MARKS.match(text)
    if not _WORD_MARK.match(text, begun.end() if begun else 0):  # most texts are no table, and this is quick
        return None
    if not any(sign in text for sign in ":=(-→|") and not _TRUTH.search(text):
        return None
    matches = list(_WORD_MARK.finditer(text))
    if not matches or strip_ends(_NUMBERED.sub("", _WORD_MARK.sub("", text))).strip(_BULLET + "\n,.;"):
        return None
    table: dict[str, Any] = {}
    for match in matches:
        letter, own = match["letter"], strip_ends(match["text"])
        if letter not in options.letters or letter in table or (own and options.exact(own) != letter):
            return None
        table[letter] = match["mark"]
    if len(table) == 1 and not isinstance(_mark(matches[0]["mark"]), bool):
        return None
    outcome = _marked(table, options)
    repeated = any(fold_case(said) == fold_case(options.raw[letter]) for letter, said in table.items())
    return None if repeated else outcome
