r"""Which option did the model choose? Small rules are tried in order; the first that finds an answer decides.

Rules for explicit answers come first ("The answer is B", ``\boxed{B}``), rules that read an answer from a description come last
("A dog is running in the park"). A denied mention ("not A", "C and D are wrong") does not count as an answer, and two different
answers are ambiguous. The rules never guess. If an option's text is itself the letter of another option, the letter counts,
because the prompt asks for a letter.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from .announcements import (
    ANSWER,
    CHOSEN,
    CONCLUSION,
    LETTER,
    LONGEST_PHRASE,
    MOST_TRIED,
    bare_letter,
    leading_letter,
    read_announcement,
    read_phrase,
    several_letters,
    without_corrected,
)
from .assertions import CORRECTION, asserted, has_correction
from .extraction import (
    HEDGE,
    QUESTION,
    WORD,
    Extraction,
    Ladder,
    Outcome,
    Stop,
    any_of,
    apply_rules,
    is_negated,
    is_refusal,
    only_answer,
)
from .json_answers import Document, final_answer, lesser_answer, read_json
from .latex import DEGREES
from .marks import approved, marked_in_json, marked_in_text, remark_of
from .options import Options, contradicts, ends_here, with_cells, with_lettered_pictures
from .phrases import english, in_english
from .text import answer_tag, boxed_content, final_words, plain_text, straighten
from .yes_no import extract_yes_no

DEEPEST_TAG = 4
"""Tags inside each other that are read: ``<answer>\\boxed{B}</answer>``."""
MOST_WORDS = 40
"""A longer text is a discussion: the words of one option in it are not an answer."""

_IS = r"(?:is|was|would be|seems(?: to be)?|appears(?: to be)?|looks|must be|should be)"
_VERDICT = re.compile(
    rf"(?:{LETTER}|(?<![{WORD}'\"])(?P<small>[a-z])(?= is ))[\"')\]]*(?:\s*\([^()\n]{{0,80}}\))?\s*(?:"
    rf"{_IS}\s+(?:\w+\s+){{0,3}}?{any_of(*english('correct'))}\b"
    rf"|(?P<fits>{any_of(*english('fits'))}\b|is (?:the|what|my)? ?{any_of('one', 'only', 'answer', 'choice')}\b)"
    r"|it is(?=\s*(?:[.!\n]|$))|is(?=\s*[.!\n])|is left(?=\s*(?:[.,;!\n]|$)))"
)
_NEXT_QUESTION = re.compile(r"\n\W*(?:(?:[Nn]ext |[Nn]ew )?[Qq]uestion|[Uu]ser|[Hh]uman)\W{0,2}(?: ?\d+)?\W{0,2}:")
_SO_IS = re.compile(rf"\b(?:so (?:is|does|do|could|might|would)|(?:as well|along) (?:as|with)) (?:option )?{LETTER}")
_JOINT = re.compile(rf"{LETTER}\)?\s*(?:and|or|&|/)\s*(?:option )?\(?{LETTER}\)?\s*{_IS}")
_CONCEDED = re.compile(r"\b(?:while|although|though|whereas) (?:option )?\(?$", re.IGNORECASE)
_NOT_AN_OPTION = re.compile(r"\b(?:plan|vitamin|hepatitis|blood type|grade|group)\s$", re.IGNORECASE)
_QUESTION = re.compile(QUESTION)
_LONE_LETTER = re.compile(LETTER)
_END_OF_SENTENCE = re.compile(r"[.,;!?\n]")
_CLOSING = re.compile(r"(?:^|[.,;:!?\n-]|\bbut)\s*\(?([A-Z])\)?[\s.!]*$")
_BRACKETED = re.compile(r"[(\[\"']([A-Z])[)\]\"']")
_NAMED = re.compile(rf"{any_of('option', 'choice', '选项')}\s?:?\s?[(\"']?([a-z])(?![{WORD}'])|([a-z])(?<![{WORD}][a-z])\s?选项")
_GONE_THROUGH = re.compile(r"(?:^|[\n.;,] *)(?:[-*] *)?(?:[Oo]ption )?\(?([A-Z])(?:[:.)]|\)[:.]?) +(?=\w)")
"""A letter that begins a line or a sentence and is set off from the text about it."""
_BOLD = re.compile(r"\*\*([^*\n]{1,200})\*\*|__([^_\n]{1,200})__")
_LETTERED = re.compile(rf"(?<![{WORD}])\(?([A-Z])(?:\s*[.):]+|\s*\(|\s*[=-]\s)\s*")
_BETWEEN_ECHOES = re.compile(rf"[\s,;.|/)&-]*(?:\b(?:and|or)\b\s*)?(?:{HEDGE}\b\s*)?\(?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reading:
    """Input of the rules: the raw text, the text without markup, the same without a recital of the options, and its JSON."""

    raw: str
    shown: str
    text: str
    lowered: str
    options: Options
    document: Document
    within: int = 0
    """How many tags it stands in."""
    recited: bool = False


def extract_choice(text: str, options: Mapping[str, str]) -> Extraction:
    """Returns the option that ``text`` answers with; never raises.

    Args:
        text: what the model wrote, thinking included.
        options: upper-case letters to texts.

    >>> extract_choice("The answer is **B**.", {"A": "cat", "B": "dog"})
    Extraction(answer='B', rule='statement')
    >>> extract_choice("A or B", {"A": "cat", "B": "dog"})
    Extraction(answer=None, rule='ambiguous')
    """
    reply = final_words(text)
    if isinstance(reply, Stop):
        return Extraction(None, reply.value)
    prepared = Options.of(options)
    return _commonest(reply, prepared) or _read(reply, prepared, within=0)


_COMMONEST = re.compile(
    r"\**(?P<said>(?:[Tt]he )?(?:(?:correct|right|best|final) )?[Aa]nswer(?: is|:) ?)?\**"
    r"\(?(?P<letter>[A-Z])(?:\)?\.?|[.):] (?P<own>[\w ]+)\.?)\**",
    re.ASCII,
)


def _commonest(reply: str, options: Options) -> Extraction | None:
    """Returns what the ladder reads in the forms of most answers, at a tenth of its cost; None for any other.

    ``B``, ``(B).``, ``B. dog``, ``The answer is **B**.``, where no option has such words.
    """
    match = _COMMONEST.fullmatch(reply) if len(reply) <= LONGEST_PHRASE else None
    if match is None or match["letter"] not in options.letters or options.cells or options.pictures:
        return None
    if match["said"] and any("answer" in text for text in options.folded):
        return None
    if match["own"] and (len(match["own"]) == 1 or match["own"] != options.raw[match["letter"]]):
        return None
    return Extraction(match["letter"], "statement" if match["said"] else "leading_letter" if match["own"] else "letter")


def _read(reply: str, options: Options, *, within: int) -> Extraction:
    """Returns what the ladder reads in a reply, or in the content of a tag, which may have tags in it."""
    reply = _without_markup(_spell_like_options(reply, options))
    shown = _ordinals_as_letters(in_english(plain_text(reply), options.folded), options)
    if not shown:
        return Extraction(None, "empty")
    rest = _without_recital(shown, options)
    document = read_json(straighten(reply)) if "{" in reply or "[" in reply else Document()
    kept = without_corrected(asserted(_first_answer(rest), options), options)
    reading = Reading(reply, shown, kept, kept.lower(), options, document, within, recited=rest != shown)
    found = apply_rules(CHOICE_RULES, reading)
    if found.answer is not None and (
        (found.rule in _OVERRULED and _is_overruled(found.answer, reading)) or contradicts(shown, options)
    ):
        return Extraction(None, Stop.AMBIGUOUS.value)
    return found


def _first_answer(text: str) -> str:
    """Returns ``text`` up to a further question that the model asks itself after it has answered."""
    asked = _NEXT_QUESTION.search(text) if "uestion" in text or "ser:" in text or "uman:" in text else None
    return text[: asked.start()] if asked and ANSWER.search(text[: asked.start()].lower()) else text


def _is_overruled(letter: str, reading: Reading) -> bool:
    """Says whether the last letter that the text announces, outside of the text of this option, is another one."""
    own = reading.options.raw[letter]
    text = reading.text.replace(own, " ") if len(own) > 1 else reading.text
    if not any(other in text for other in reading.options.letters - {letter}):
        return False
    lowered = text.lower()
    last = (-1, letter)
    for pattern in (ANSWER, CHOSEN, CONCLUSION):
        for match in deque(pattern.finditer(lowered), maxlen=MOST_TRIED):
            said = _ANNOUNCED.match(text, match.end())
            if said and said[1] in reading.options.letters and not is_negated(text, *said.span(1)):
                last = max(last, (said.start(1), said[1]))
    for match in deque(_VERDICT.finditer(text), maxlen=MOST_TRIED):
        if judged := _judged(match, text):
            last = max(last, (match.start(), judged))
    return last[1] != letter


_TWO_BOXES = re.compile(r"\\boxed\{([^{}]*)\}\$?\s*(?:or|and|,|/|&)\s*\$?\\boxed\{([^{}]*)\}")
_DISPLAYED = re.compile(r"\\[()\[\]]|\$\$")
_STRUCK = re.compile(r"~~[^~\n]{1,200}~~")
_HTML = re.compile(r"<(b|i|u|em|strong|p|span|div|li|code|box|option|choice)>([^<>]{0,400})</\1>")


_ORDINAL = re.compile(
    r"\b(?:the )?(?:(first|1st)|(second|2nd)|(third|3rd)|(fourth|4th)|(fifth|5th)) (?:answer )?(?:option|choice)\b", re.IGNORECASE
)


def _ordinals_as_letters(text: str, options: Options) -> str:
    """Returns ``text`` with "the second option" as "option B"."""
    letters = sorted(options.letters)

    def name(match: re.Match[str]) -> str:
        place = (match.lastindex or 1) - 1
        return f"option {letters[place]}" if place < len(letters) else match[0]

    return _ORDINAL.sub(name, text) if "option" in text or "choice" in text else text


def _without_markup(reply: str) -> str:
    """Returns the reply without tags of HTML, without what is struck out, and with degrees as a sign."""
    if "\\" in reply or "$$" in reply:
        reply = DEGREES.sub("°", _DISPLAYED.sub(" ", reply))
    if "~~" in reply:
        reply = _STRUCK.sub(" ", reply)
    return _HTML.sub(r"\2", reply) if "</" in reply else reply


def _spell_like_options(reply: str, options: Options) -> str:
    """Returns the reply with cells and pictures named as in the options."""
    if options.cells:
        return with_cells(reply)
    return with_lettered_pictures(reply) if options.pictures else reply


def _final_answer(reading: Reading) -> Outcome:
    """``{"reasoning": …, "final_answer": "B"}``: the content of the last one is the answer, readable or not."""
    return _in_json(final_answer(straighten(reading.raw), reading.document), reading.options)


def _json(reading: Reading) -> Outcome:
    """``{"reasoning": …, "answer": "B"}``, ``choice`` or ``option``: the last object with further members, readable or not."""
    if not reading.document.values:
        return None
    outcome = _in_json(lesser_answer(reading.document), reading.options)
    return marked_in_json(reading.document, reading.options) or outcome if outcome is Stop.AMBIGUOUS else outcome


def _in_json(phrase: str | Stop | None, options: Options) -> Outcome:
    if phrase is None or isinstance(phrase, Stop):
        return phrase
    words = plain_text(phrase)[:LONGEST_PHRASE]
    return read_phrase(words, options) or only_answer(options.meant_in(words)) or Stop.NONE


def _answer_tag(reading: Reading) -> Outcome:
    """``<answer>B</answer>``, ``<final_answer>``, ``<conclusion>``, ``[answer]``: what the last one holds, readable or not."""
    return _only(answer_tag(reading.raw), reading)


def _boxed_answer(reading: Reading) -> Outcome:
    r"""``\boxed{B}``, ``\fbox{B}``, ``<|begin_of_box|>B<|end_of_box|>``: what the last one holds, readable or not."""
    both = _TWO_BOXES.search(reading.raw)
    if both and both[1].strip() != both[2].strip():
        return Stop.AMBIGUOUS
    return _only(boxed_content(reading.raw), reading)


def _only(content: str | None, reading: Reading) -> Outcome:
    """Returns what all rules read in the content of a tag."""
    if content is None:
        return None
    if reading.within >= DEEPEST_TAG:
        return Stop.NONE
    found = _read(content, reading.options, within=reading.within + 1)
    if found.answer is None and found.rule in _STOPS:
        return _STOPS[found.rule]
    return found.answer or read_phrase(in_english(plain_text(content), reading.options.folded), reading.options) or Stop.NONE


_STOPS: Final = {stop.value: stop for stop in Stop if stop is not Stop.NONE}


def _marked(reading: Reading) -> Outcome:
    """``{"A": false, "B": true}``, ``[x] B``, ``A ❌ B ✅``, ``A: 10%, B: 80%``: the only option that is marked."""
    outcome = marked_in_json(reading.document, reading.options)
    return outcome or marked_in_text(reading.shown, reading.options)


def _letter(reading: Reading) -> Outcome:
    """``B``, ``(b)``, ``<B>``: the letter alone."""
    return bare_letter(reading.text, reading.options)


def _text(reading: Reading) -> Outcome:
    """``Dog.``, ``a dog``: an option's text alone."""
    return reading.options.exact(reading.text)


def _last_line(reading: Reading) -> Outcome:
    """A letter alone on the last of several lines; none when another stands alone on the first."""
    first, _, rest = reading.text.partition("\n")
    last = bare_letter(rest.rpartition("\n")[2], reading.options)
    also = bare_letter(first, reading.options)
    return Stop.AMBIGUOUS if last and also and last != also else last


def _correction(reading: Reading) -> Outcome:
    """``The answer is A. Actually, it is B.``: the letter behind the last words that correct what was said before."""
    last = deque(CORRECTION.finditer(reading.lowered), maxlen=1) if has_correction(reading.lowered) else None
    if not last or not last[0].start():
        return None
    tail = reading.text[last[0].end() :]
    found = apply_rules(_EXPLICIT, replace(reading, raw=tail, shown=tail, text=tail, lowered=tail.lower(), document=Document()))
    if found.answer is None:
        return Stop.AMBIGUOUS if found.rule == Stop.AMBIGUOUS.value else None
    return found.answer if re.search(rf"(?<![{WORD}]){found.answer}(?![{WORD}'])", tail) else None


def _statement(reading: Reading) -> Outcome:
    """``The answer is B``, ``Answer: (B) dog``, ``答案是B``: the last one that can be read."""
    return read_announcement(ANSWER, reading.text, reading.lowered, reading.options, expected=True)


def _chosen(reading: Reading) -> Outcome:
    """``I choose (B)``, ``I'd go with the dog``, ``选B``: the last one that can be read."""
    return read_announcement(CHOSEN, reading.text, reading.lowered, reading.options, expected=True)


def _verdict(reading: Reading) -> Outcome:
    """``B is correct``, ``option B is the best answer``: the only such letter."""
    letters = {letter for match in _VERDICT.finditer(reading.text) if (letter := _judged(match, reading.text))}
    if letters:
        letters |= {match[1] for match in _SO_IS.finditer(reading.text)}
        letters |= {match[1] for match in _JOINT.finditer(reading.text) if not is_negated(reading.text, *match.span(1))}
    return only_answer(letters & reading.options.letters)


def _judged(match: re.Match[str], text: str) -> str | None:
    """Returns the letter that a verdict is about, None where it denies."""
    letter = match["small"] or match[1]
    start = match.start("small") if match["small"] else match.start(1)
    before = text[max(0, start - 24) : start]
    if is_negated(text, start, start + 1) or _NOT_AN_OPTION.search(before) or _CONCEDED.search(before):
        return None
    if match["fits"] and is_negated(_END_OF_SENTENCE.split(text[match.end() : match.end() + LONGEST_PHRASE])[0] + " x", 0, 0):
        return None
    return letter.upper()


_HEADED = re.compile(r"^\W*(?:[Oo]ption )?([A-Z])[).:]", re.MULTILINE)
"""A line that begins with a letter: of several such lines, one with a remark about its option chooses nothing."""


def _remarks(reading: Reading) -> Outcome:
    """``A. cat: not seen. B. dog: yes, it fits.``: of lines with a remark about each option, the only one that approves."""
    if "\n" not in reading.shown or _goes_on_after_remarks(reading):
        return None
    return approved(reading.shown, reading.options)


def _goes_on_after_remarks(reading: Reading) -> bool:
    """Says whether a text about the options ends with something else, which other rules read."""
    last = reading.shown.rpartition("\n")[2]
    return not remark_of(last, reading.options)


def _leading_letter(reading: Reading) -> Outcome:
    """``B. dog``, ``B because …``: the letter that begins the first or the last line; the two must not differ.

    Not where the text goes through the options one by one (``A: glasses. B: none.``): the first letter is not an answer then.
    """
    if _goes_through(reading.text, reading.options):
        return None
    first, _, _ = reading.text.partition("\n")
    _, _, last = reading.text.rpartition("\n")
    headed = {match[1] for match in _HEADED.finditer(reading.text) if match[1] in reading.options.letters}
    lines = [line for line in dict.fromkeys((first, last)) if len(headed) < 2 or _is_whole(line, reading.options)]
    outcomes = [leading_letter(line, reading.options) for line in lines]
    if Stop.AMBIGUOUS in outcomes:
        return Stop.AMBIGUOUS
    return only_answer({outcome for outcome in outcomes if isinstance(outcome, str)})


def _is_whole(line: str, options: Options) -> bool:
    """Says whether a line is a letter with its own text or without, and no remark about it."""
    match = _HEADED.match(line)
    if not match or match[1] not in options.letters:
        return True
    tail = line[match.end() :]
    return not tail.strip() or options.exact(tail) == match[1]


def _goes_through(text: str, options: Options) -> bool:
    """Says whether ``text`` goes through the options from the first one, in other words than theirs."""
    headed = [match for match in _GONE_THROUGH.finditer(text) if match[1] in options.letters]
    letters = list(dict.fromkeys(match[1] for match in headed))
    if len(letters) < 2 or letters != sorted(letters) or letters[0] != min(options.letters) or headed[0].start() > 0:
        return False
    return not options.begins(text[headed[0].end() :], letters[0])


def _conclusion(reading: Reading) -> Outcome:
    """``… so B``, ``it is a dog``, ``→ B``: the last one that can be read."""
    return read_announcement(CONCLUSION, reading.text, reading.lowered, reading.options, expected=False)


def _bold(reading: Reading) -> Outcome:
    """``**B. dog**`` in a longer text: the only option set in bold type."""
    spans = ("".join(groups) for groups in _BOLD.findall(reading.raw)) if "**" in reading.raw or "__" in reading.raw else ()
    shown = (in_english(plain_text(span), reading.options.folded) for span in spans)
    outcomes = {read_phrase(span, reading.options) for span in shown if _is_kept(span, reading)}
    return only_answer({outcome for outcome in outcomes if isinstance(outcome, str)})


def _is_kept(span: str, reading: Reading) -> bool:
    """Says whether the text asserts what it sets in bold type, at least once, or recites it among the options."""
    return reading.recited or any(
        not is_negated(reading.text, match.start(), match.end())
        for match in re.finditer(rf"(?<![{WORD}]){re.escape(span.strip())}(?![{WORD}])", reading.text)
    )


def _marked_letter(reading: Reading) -> Outcome:
    """``option B``, ``(B)``, ``"B"``: the only letter that is marked as one, and not denied."""
    if several_letters(reading.text, reading.options):
        return Stop.AMBIGUOUS
    spans = [
        match.span(match.lastindex or 1)
        for pattern, text in ((_BRACKETED, reading.text), (_NAMED, reading.lowered))
        for match in pattern.finditer(text)
    ]
    letters: set[str] = set()
    for start, end in spans:
        letter = reading.text[start:end].upper()
        if letter in letters or letter not in reading.options.letters or is_negated(reading.text, start, end):
            continue
        if reading.text[start].isupper() or _SET_OFF.match(reading.text, end):
            letters.add(letter)
    return only_answer(letters)


_SET_OFF = re.compile(r"\)?\s*(?:[.,;:!?\n]|$)")


def _closing_letter(reading: Reading) -> Outcome:
    """``A is wrong. B.``, ``Hmm, B``: the letter set off at the end, where no other letter or option is meant before it."""
    match = _CLOSING.search(reading.text)
    if not match or match[1] not in reading.options.letters or is_negated(reading.text, *match.span(1)):
        return None
    before = reading.text[: match.start(1)]
    others = {other[1] for other in _LONE_LETTER.finditer(before) if not is_negated(before, *other.span(1))}
    return only_answer({match[1]} | others & reading.options.letters | reading.options.meant_in(before))


def _refusal(reading: Reading) -> Outcome:
    """``I cannot tell …``: no answer, unless an option says so itself."""
    if not is_refusal(reading.lowered) or any(is_refusal(text.lower()) for text in reading.options.raw.values()):
        return None
    return Stop.REFUSAL


def _yes_no(reading: Reading) -> Outcome:
    """``No, there is none.`` where the options are Yes and No."""
    if not {"yes", "no"} <= reading.options.whole.keys():
        return None
    answer = extract_yes_no(reading.text).answer
    return reading.options.exact(answer) if answer else None


def _option_text(reading: Reading) -> Outcome:
    """``A dog is running in the park``: a short text with the words of one option, whole and not denied."""
    if reading.text.count(" ") >= MOST_WORDS or _QUESTION.fullmatch(reading.lowered):
        return None
    return only_answer(reading.options.meant_in(reading.text))


def _recital(reading: Reading) -> Outcome:
    """The options were recited, and nothing else could be read."""
    return Stop.AMBIGUOUS if reading.recited else None


CHOICE_RULES: Final[Ladder[Reading]] = {
    "final_answer": _final_answer,
    "json": _json,
    "answer_tag": _answer_tag,
    "boxed": _boxed_answer,
    "marked": _marked,
    "letter": _letter,
    "text": _text,
    "last_line": _last_line,
    "correction": _correction,
    "statement": _statement,
    "verdict": _verdict,
    "remarks": _remarks,
    "leading_letter": _leading_letter,
    "chosen": _chosen,
    "conclusion": _conclusion,
    "bold": _bold,
    "marked_letter": _marked_letter,
    "closing_letter": _closing_letter,
    "refusal": _refusal,
    "yes_no": _yes_no,
    "option_text": _option_text,
    "recital": _recital,
}


_SENTENCE_BREAK = re.compile(r"[.;]|\n")
"""Where a sentence ends: an announced option is not the first one of a recital that goes on after it."""


_EXPLICIT: Final[Ladder[Reading]] = {
    name: CHOICE_RULES[name]
    for name in (
        "letter",
        "last_line",
        "statement",
        "verdict",
        "leading_letter",
        "chosen",
        "conclusion",
        "marked_letter",
        "closing_letter",
    )
}
"""Rules that read a letter, or an option that is announced."""
_OVERRULED: Final = {"statement", "verdict", "leading_letter", "chosen", "conclusion", "bold", "marked_letter"}
_ANNOUNCED = re.compile(rf"[\"'(\[]{{0,2}}(?:(?:the )?[Oo]ption )?[\"'(\[]{{0,2}}{LETTER}(?=[\"')\]]{{0,2}}\s*(?:[.,;!\n)]|$))")


def _announced(before: str) -> bool:
    """Says whether what follows ``before`` is announced as the answer."""
    lowered = before[-LONGEST_PHRASE:].lower()
    return any(
        not lowered[match.end() :].strip(" (\"'")
        for pattern in (ANSWER, CHOSEN, CONCLUSION)
        for match in pattern.finditer(lowered)
    )


def _without_recital(text: str, options: Options) -> str:
    """Returns ``text`` without a run of two or more options recited one after another ("A. cat B. dog")."""
    runs: list[tuple[int, int, set[str]]] = []
    for start, end, letter in _lettered_options(text, options):
        if (
            runs
            and _BETWEEN_ECHOES.fullmatch(text, runs[-1][1], start)
            and not (
                _SENTENCE_BREAK.search(text, runs[-1][1], start) and len(runs[-1][2]) == 1 and _announced(text[: runs[-1][0]])
            )
        ):
            first, _, letters = runs.pop()
            runs.append((first, end, letters | {letter}))
        else:
            runs.append((start, end, {letter}))
    for start, end, letters in reversed(runs):
        if len(letters) > 1:
            text = f"{text[:start]} {text[end:]}"
    return text.strip()


def _lettered_options(text: str, options: Options) -> Iterator[tuple[int, int, str]]:
    for match in _LETTERED.finditer(text):
        words = " ".join(options.raw.get(match[1], "").split())
        end = match.end() + len(words)
        if words and text[match.end() : end].casefold() == words.casefold() and ends_here(text, end):
            yield match.start(), end, match[1]
