r"""Which option did the model choose?

Four steps. First the answer part of the text (``text``). Then explicit statements: an answer tag, JSON, a box, the line
``Answer: B``. Then a bare answer: only a letter or an option's text. Else every mention of an option, by letter or in
words, is read with the words around it (``words``, ``mentions``), which announce it, deny it, or call it right.
Two different answers are ambiguous, and a denied mention does not count. Nothing is guessed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

from .json_answers import Document, final_answer, lesser_answer, read_json
from .latex import DEGREES
from .mentions import Mention, choose, find_mentions
from .numbers import concluded_number, is_same, number_of
from .options import Options
from .text import (
    WORD,
    Extraction,
    Outcome,
    Stop,
    answer_tag,
    boxed_content,
    final_words,
    first_outcome,
    fold_case,
    is_refusal,
    last_box,
    only_answer,
    plain_text,
    shortened,
    straighten,
    strip_ends,
)
from .words import tokens
from .yes_no import extract_yes_no

DEEPEST_TAG = 4
"""Tags inside each other that are read: ``<answer>\\boxed{B}</answer>``."""
MOST_WORDS = 40
"""A longer text is a discussion: the words of an option in it are not an answer."""
_LONGEST_PHRASE = 240

CHOICE_RULES: Final[Mapping[str, str]] = {
    "json": '``{"reasoning": …, "answer": "B"}``, ``final_answer``, ``choice``: the content of the last one, readable or not.',
    "answer_tag": "``<answer>B</answer>``, ``<response>``, ``[answer]``: what the last one holds, readable or not.",
    "boxed": r"``\boxed{B}``, ``<|begin_of_box|>B<|end_of_box|>``: the last one; a line ``Answer: B`` behind it counts more.",
    "marked": '``{"A": false, "B": true}``, ``[x] B``, ``A ❌ B ✅``, ``A: 10%, B: 80%``: the only option that is marked.',
    "letter": "``B``, ``(b)``, ``<B>``: the letter alone.",
    "text": "``Dog.``, ``a dog``: an option's text alone.",
    "line": "``Answer: the dog``: the last such line without a letter; where it is no option, nothing else counts.",
    "statement": "``Answer: B``, ``The answer is (B) dog``, ``I choose B``, ``答案是B``.",
    "verdict": "``B is correct``, ``option B fits best``, ``B正确``.",
    "leading_letter": "``B. dog``, ``B because …``: the letter that begins the text or its last line.",
    "conclusion": "``… so B``, ``it is a dog``, ``→ B``, ``not A but B``.",
    "closing_letter": "``A is wrong. B.``: the letter or text set off at the end, where nothing else is meant before it.",
    "marked_letter": '``option B``, ``(B)``, ``"B"``, ``B. dog``: the only letter that is marked as one, and not denied.',
    "yes_no": "``No, there is none.`` where the options are Yes and No, and no letter is mentioned.",
    "option_text": "``A dog is running in the park``: a short text with the words or number of one option, whole, not denied.",
}
"""The rules and what they read, most certain first."""


def extract_choice(text: str, options: Mapping[str, str]) -> Extraction:
    """Returns the option that ``text`` answers with; never raises.

    ``text`` is the model's whole output, thinking included; ``options`` are texts by upper-case letters.

    >>> extract_choice("The answer is **B**.", {"A": "cat", "B": "dog"})
    Extraction(answer='B', rule='statement')
    >>> extract_choice("A or B", {"A": "cat", "B": "dog"})
    Extraction(answer=None, rule='ambiguous')
    """
    reply = final_words(text)
    return Extraction(None, reply.value) if isinstance(reply, Stop) else _read(reply, Options.of(options), 0)


def _read(reply: str, options: Options, within: int) -> Extraction:
    """Reads a reply, or the content of a tag nested in ``within`` others."""
    letter = _letter_alone(reply, options) if len(reply) < 6 and "[ " not in reply else None
    if letter:
        return Extraction(letter, "letter")
    reply = _without_markup(options.spelled(shortened(reply)))
    shown = plain_text(reply)
    if not shown:
        return Extraction(None, "empty")
    return first_outcome(_outcomes(reply, shown, options, within))


def _outcomes(reply: str, shown: str, options: Options, within: int) -> Iterator[tuple[str, Outcome]]:
    document = read_json(straighten(reply)) if "{" in reply or "[" in reply else Document()
    yield "json", _in_json(reply, document, options, within)
    yield "answer_tag", _in_tag(reply, options, within)
    yield "boxed", _in_box(reply, options, within)
    yield "marked", marked_in_json(document, options) or marked_in_text(shown, options)
    text = _with_capital_letters(_ordinals_as_letters(_without_dollars(shown), options))
    yield "letter", _letter_alone(text, options)
    yield "text", options.exact(shown) or (options.exact(text) if text != shown else None)
    mentions = find_mentions(text, options)
    yield "line", _in_line(text, mentions, options, within)
    rule, outcome = choose(mentions, text, options.letters)
    counted = None if rule in ("statement", "verdict") and outcome else _counted(text, mentions, options)
    yield (rule if counted == outcome else "option_text"), counted
    yield rule, outcome
    yield "refusal", _refusal(text, options)
    yield "yes_no", _yes_no(text, mentions, options)
    said = [each for each in mentions if each.in_words]
    said = [each for each in said if each.held or _is_beside(each, text)] if any(each.held for each in said) else []
    alone = [each for each in mentions if each.held and not each.in_words and each.before.kind == "start" and each.after.ends]
    meant = {letter for each in (*said, *(alone if said else ())) for letter in each.letters}
    doubtful = _is_part_of_another(meant, text, options)
    yield "option_text", (Stop.AMBIGUOUS if doubtful else only_answer(meant)) if text.count(" ") < MOST_WORDS else None
    yield "recital", Stop.AMBIGUOUS if any(each.recited for each in mentions) else None


_COMPARED = re.compile(r"(?<!rather )(?<!other )\bthan (?:the |an? )?$", re.IGNORECASE)


def _is_beside(mention: Mention, text: str) -> bool:
    """Whether an option is only mentioned next to another one: "while the truck is green", "larger than the cat"."""
    compared = _COMPARED.search(text, max(0, mention.start - 10), mention.start)
    return bool(compared) or (mention.before.void and not mention.denied and not mention.questioned)


def _is_part_of_another(meant: set[str], text: str, options: Options) -> bool:
    """Whether the words of a longer option stand in the text, apart from each other: "a light shade of red" for "light red"."""
    said, words = set(tokens(text.lower())), {letter: set(option.split()) for letter, option in options.lowered.items()}
    return any(words[letter] < words[other] <= said for letter in meant & options.letters for other in options.letters - meant)


_SUMMED = re.compile(
    r"(?:=|\b(?:total|altogether|in all|overall|sum|makes?|so|therefore|thus|hence|equals)\b)(?!.*(?:[.!?]\s|\n)\s*\S)",
    re.IGNORECASE | re.DOTALL,
)
"""The last sentence says what the numbers before it come to."""


def _counted(text: str, mentions: list[Mention], options: Options) -> Outcome:
    """Returns the option that is the number which a short text ends in, where all options are numbers."""
    if text.count(" ") >= MOST_WORDS or any(not each.in_words or len(each.letters) > 1 for each in mentions):
        return None
    values = {letter: number_of(words) for letter, words in options.raw.items()}
    said = concluded_number(text) if all(values.values()) else None
    same = [letter for letter, value in values.items() if said and value and is_same(said, value)]
    others = any(each.held and not each.letters & {*same} for each in mentions)
    held = [each.held for each in mentions if each.letters & {*same}]
    doubtful = (held and not any(held)) or (others and not _SUMMED.search(text)) or _refusal(text, options)
    return same[0] if len(same) == 1 and not doubtful else None


# The text as the other steps expect it.


_DISPLAYED = re.compile(r"\\[()\[\]]|\$\$")
_STRUCK = re.compile(r"~~[^~\n]{1,200}~~")
_HTML = re.compile(r"<(b|i|u|em|strong|p|span|div|li|code|box|option|choice|letter)>([^<>]{0,400})</\1>")
_STRAY_TAG = re.compile(r"</\w{1,20}>$")
_EMPHASISED = re.compile(r"(\*\*|__)\(?([A-Z])(?:\)?[.:]?|\)?)\1")
_DOLLARS = re.compile(r"\$LETTER\b\s*=?\s*|\$(?=\(?[A-Za-z](?![A-Za-z]))|(?<=[A-Z])\$")
_ORDINAL = re.compile(
    r"(?<!my )(?<!your )\b(?:the )?(?:(first|1st)|(second|2nd)|(third|3rd)|(fourth|4th)|(fifth|5th)) (?:answer )?"
    r"(?:option|choice)\b(?! (?:is|would be) \W?[A-Z]\b)",
    re.IGNORECASE,
)
_NOUN = r"option|choice|letter|answer|answer'?s|ans|letra|opción|opção|réponse|respuesta|resposta|antwort|risposta|alternativa"
_REASON = r"(?:because|since|as|for|and|or|but|not|is (?:the |my )?(?:correct|right|answer|best))\b"
_APART = rf"(?=[\"')\]]?(?:[).:,;!\n\"]|\s*$|,? {_REASON}| - ))"
_SMALL = re.compile(
    rf"\A\W*(?P<first>a)(?=,? {_REASON})|(?:答案|答|정답은?|답은?|答え|正解)[是为は]?\s?:?\s?(?P<joined>[a-z])(?![a-z'])"
    rf"|(?:\b(?:{_NOUN}|choose|pick|go with|答案)(?: is)? ?[:=>是]? ?[\"'(]?|(?:^|\n)\W*(?=[a-z][).:])|\()(?P<any>[a-z]){_APART}"
    rf"|(?:(?:^|\n)\W*|\b(?:is|it's|think|guess|so|probably|be|with) )(?P<other>[b-hj-z]){_APART}",
    re.IGNORECASE,
)


_CYRILLIC = re.compile(r"(?<!\w)[АС](?=\W*\Z)")  # noqa: RUF001
"""Cyrillic letters that look like Latin A and C; not the third letter of that alphabet, which looks like B."""


def _without_markup(reply: str) -> str:
    """Returns the reply without HTML and struck-out text, with degree signs and with emphasised letters in brackets."""
    if "\\" in reply or "$$" in reply:
        reply = DEGREES.sub("°", _DISPLAYED.sub(" ", reply))
    if "~~" in reply:
        reply = _STRUCK.sub(" ", reply)
    if "**" in reply or "__" in reply:
        reply = _EMPHASISED.sub(r"(\2)", reply)
    return _STRAY_TAG.sub("", _HTML.sub(r"\2", reply)) if "</" in reply else reply


def _without_dollars(text: str) -> str:
    """Returns ``text`` without remains of the prompt's ``$LETTER``: "Answer: $B"."""
    return _DOLLARS.sub("", text) if "$" in text else text


def _ordinals_as_letters(text: str, options: Options) -> str:
    """Returns ``text`` with "the second option" as "option B"."""
    letters = dict(enumerate(sorted(options.letters), 1))
    if "option" not in text and "choice" not in text:
        return text
    return _ORDINAL.sub(
        lambda match: f"option {letters[place]}" if (place := match.lastindex or 0) in letters else match[0], text
    )


def _with_capital_letters(text: str) -> str:
    """Returns ``text`` with lower-case option letters capitalised: "b) dog", "the answer is b"."""
    text = text if text.isascii() else _CYRILLIC.sub(lambda match: "AC"["АС".index(match[0])], text)  # noqa: RUF001
    said = text.split()
    if (
        text.isascii()
        and "a" not in (*said[:1], *said[-1:])
        and not any(map(_is_small, {word for word in said if len(word) < 5}))
    ):
        return text  # most texts, and this is quick
    return _SMALL.sub(lambda match: match[0][:-1] + match[0][-1].upper(), text)


def _is_small(word: str) -> bool:
    """Whether a word is a lower-case letter that may mean an option: ``b``, ``(b)``, ``a.``."""
    letter = word.strip("()[].,:;!?\"'>")
    return len(letter) == 1 and letter.islower() and word not in ("a", "i")


# Stated answers.


_TWO_BOXES = re.compile(r"\\boxed\{([^{}]*)\}\$?\s*(?:or|and|,|/|&)\s*\$?\\boxed\{([^{}]*)\}")
_TAG = re.compile(r"</?\w{1,20}>|\[/\w{1,20}\]")
_ANSWER_LINE = re.compile(
    r"^\W*(?:(?:the|my|final|correct) )*answer\W{0,2}[:=]\s*(?P<said>\S[^\n]*)$", re.IGNORECASE | re.MULTILINE
)


def _content(said: str, options: Options, within: int) -> Outcome:
    if within >= DEEPEST_TAG:
        return Stop.NONE
    content = _read(said, options, within + 1)
    return content.answer or next((stop for stop in Stop if stop.value == content.rule), Stop.NONE)


def _in_json(reply: str, document: Document, options: Options, within: int) -> Outcome:
    if not document.values and document.cut is None and "final" not in reply.lower():
        return None
    said = final_answer(straighten(reply), document)
    if said is None and document.values:
        said = lesser_answer(document)
        if said is Stop.AMBIGUOUS:
            return marked_in_json(document, options) or said
    return said if said is None or isinstance(said, Stop) else _content(said[:_LONGEST_PHRASE], options, within)


def _in_tag(reply: str, options: Options, within: int) -> Outcome:
    said = answer_tag(reply)
    if said is None:
        return None
    outcome = _content(said, options, within)
    later = _stated_in(reply.rpartition(said)[2] if said else "", options)
    return Stop.AMBIGUOUS if isinstance(outcome, str) and later not in (None, outcome) else outcome


def _in_box(reply: str, options: Options, within: int) -> Outcome:
    box = last_box(reply)
    if box is None:
        return None
    both = _TWO_BOXES.search(reply)
    if both and both[1].strip() != both[2].strip():
        return Stop.AMBIGUOUS
    outer = last_box(reply[: box[0] - len("boxed{")])
    if outer and outer[1] == box[0] - len("boxed{"):  # a box in a box
        box = (outer[0], len(reply))
    said = _content(reply[slice(*box)].replace("\\boxed{", " "), options, within)
    later = _stated_in(reply[box[1] + 1 :], options)
    if later is None or later == said or said is Stop.AMBIGUOUS:
        return said
    return later if not isinstance(said, str) or "\n" in reply[box[1] : box[1] + 80] else Stop.AMBIGUOUS


def _stated_in(text: str, options: Options) -> Outcome:
    box = boxed_content(text)
    shown = plain_text(_without_markup(_TAG.sub(" ", text.strip(" $\n.") if box is None else box)))
    later = _with_capital_letters(_without_dollars(shown))
    mentions = find_mentions(later, options) if later else []
    stated = [
        each for each in mentions if each.held and each.before.kind in ("line", "statement", "conclusion") and not each.in_words
    ]
    return _letter_alone(later, options) or only_answer({letter for each in stated for letter in each.letters & options.letters})


def _in_line(text: str, mentions: list[Mention], options: Options, within: int) -> Outcome:
    last = deque(_ANSWER_LINE.finditer(text), maxlen=1)
    if not last or within >= DEEPEST_TAG or any(each.end > last[0].start("said") for each in mentions):
        return None
    return _content(last[0]["said"], options, within)


# Bare answers, and rules that need the whole text.


def _letter_alone(phrase: str, options: Options) -> str | None:
    letter = strip_ends(phrase)
    return letter.upper() if len(letter) == 1 and f"{letter}#" not in phrase and letter.upper() in options.letters else None


def _refusal(text: str, options: Options) -> Outcome:
    """Returns a stop for a refusal, unless an option says so itself."""
    return Stop.REFUSAL if is_refusal(text.lower()) and not any(map(is_refusal, options.lowered.values())) else None


def _yes_no(text: str, mentions: list[Mention], options: Options) -> Outcome:
    pair = next((pair for pair in (("yes", "no"), ("true", "false")) if set(pair) <= options.whole.keys()), None)
    if pair is None or any(not each.in_words for each in mentions):
        return None
    answer = extract_yes_no(text).answer
    return options.exact(pair[answer == "no"]) if answer else None


# Answers that mark every option: check boxes, true or false, probabilities; in JSON, in a list or in a line.
#
# The answer is the only marked option. Several are ambiguous, and so are numbers that may not be probabilities: for
# ``{"A": 1, "B": 2}`` it is unknown whether more is better.


_TRUE: Final = frozenset(["true", "yes", "correct", "right", "selected", "chosen", "checked", "x", "match", "✓", "✔", "✅"])
_FALSE: Final = frozenset(
    ["false", "no", "incorrect", "wrong", "not selected", "unselected", "unchecked", "", "not correct", "✗", "❌"]
)
_ENOUGH = 0.5
"""A probability above this is certainly the largest."""
_ROUNDING = 0.05
"""Tolerance for the sum of probabilities."""

Mark = bool | float | None
"""Whether an option is marked, its probability, or None for anything else."""


def marked_in_json(document: Document, options: Options) -> Outcome:
    """Returns the option marked in the last object or list of marks; None without one."""
    for item in reversed(document.values):
        for table in _tables(item.value, options):
            return _marked(table, options)
    return None


def _tables(value: Any, options: Options) -> Iterator[Mapping[str, Any]]:
    """Yields every mapping from several option letters to their marks in an object or list, outer ones first."""
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
    if any(fold_case(str(said)) in options.whole for said in table.values()):
        return Stop.AMBIGUOUS  # the options may be repeated, not marked
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
_HEAD_OF_TABLE = re.compile(r"\A\|[^\n]*\n\|[-:| ]+\n")
_WORD_MARK = re.compile(
    rf"(?<![{WORD}])(?:P|[Oo]ption )?[(\[]?(?P<letter>[A-Z])(?![{WORD}'])[)\].]{{0,2}}"
    r"(?P<text>[^:=(\n]{0,80}?)\s*(?:[:=(→|]|->|\s-|\s)\s*"
    r"(?P<mark>(?i:true|false|(?:in|not )?correct|right|wrong|yes|no)|(?:\d{1,3}(?:\.\d{1,9})?|\.\d{1,9})\s?%?)\)?"
    r"(?=\s*(?:$|[,;.\n|]|\([A-Z]\)|[A-Z]\b))"
)
_BEFORE_MARKS = re.compile(r"[\W_]*+(?:\d{1,2}[.)])?[\W_]*+")
"""The possible beginning of a text that consists of marks."""


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
    """Returns the only ticked option; without ticks, a cross in brackets or among empty boxes counts as a tick."""
    glyphs = {letter: "".join(box.strip("[]() ").split()) or "☐" for letter, box in boxes.items()}
    ticked = [letter for letter, glyph in glyphs.items() if glyph in _CHECKED]
    if not ticked and any(glyph in "☐○◯□⬜xX" for glyph in glyphs.values()):
        ticked = [letter for letter, glyph in glyphs.items() if glyph in _CROSS]
    return ticked[0] if len(ticked) == 1 else Stop.AMBIGUOUS if ticked else Stop.NONE


def _in_words(text: str, options: Options) -> Outcome:
    """Reads "A: false, B: true" and "A: 10%, B: 80%" without other text."""
    text = _HEAD_OF_TABLE.sub("", text)
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
        letter, rest = match["letter"], strip_ends(match["text"])
        if letter not in options.letters or letter in table or (rest and options.exact(rest) != letter):
            return None
        table[letter] = match["mark"]
    if len(table) == 1 and not isinstance(_mark(matches[0]["mark"]), bool):
        return None
    repeated = any(fold_case(said) == fold_case(options.raw[letter]) for letter, said in table.items())
    return None if repeated else _marked(table, options)
