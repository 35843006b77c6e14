"""Where a text announces, retracts or corrects an answer, and short phrases that are a whole answer."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from .extraction import CHANGE, HEDGE, WORD, Outcome, Stop, any_of, is_negated, word
from .options import Options
from .phrases import english
from .text import bare, strip_ends

# A short phrase that is a whole answer, or follows an announcement: "B", "(B) dog", "a dog", "A or B".


LONGEST_PHRASE = 240
"""Characters of a phrase that are read."""

LETTER = rf"(?<![{WORD}])(?<![{WORD}]-)([A-Z])(?![{WORD}'°%+]|-[A-Za-z])"
"""An upper-case letter that stands alone."""

_WORDS_OF_A_REASON = r"because|since|as|due|which|therefore|rather than|instead of|over|though|although|even though|while|whereas"
_SURE_OR_NOT = (
    "for sure|without (?:a |any )?doubt|i (?:think|believe|guess|suppose)|probably|definitely|maybe|perhaps|obviously|clearly"
)
_CONDITION = re.compile(r"\s+(?:if|unless|when)\b")
_HEAD = re.compile(
    rf"[\s\"'(\[{{<]{{0,6}}(?:(?:the )?(?:option|choice|letter|选项)\s?)?[\s\"'(\[{{<]{{0,6}}"
    rf"(?P<letter>[A-Za-z])(?![{WORD}'°%+]|-[A-Za-z])(?P<tail>.*)",
    re.DOTALL | re.IGNORECASE,
)
_END_OF_LETTER = re.compile(
    rf"\s*$|[\"'>]*[.:)\]}}]|[\"'>]|,|;|!|\?|\s*\n|\s+[-(=]"
    rf"|\s+(?:(?:and|but) )?(?:\w+ly )?not\s+\(?[A-Z]\b|\s+(?:{_SURE_OR_NOT})\W*$|\s+(?:{_WORDS_OF_A_REASON})\b",
    re.IGNORECASE,
)
_END_OF_SMALL_LETTER = re.compile(
    rf"\s*$|[\"'>]*[.:)\]}}](?:\s|$)|\s*\n|[\"'>)]?(?:,|\s-)\s|[!?]|,?\s+(?:{_WORDS_OF_A_REASON})\b", re.IGNORECASE
)
_OTHER_LETTER = re.compile(r"\)?\s?(?:[-=:/>→⇒]|->|=>|==)\s?\(?(?P<other>[A-Z])\)?[\s.!]*")
_LIST = re.compile(
    rf"\W*(?:(?:either|both|option|options)\s+)?\(?(?P<one>[A-Za-z])\)?\s*(?:"
    r"(?:(?:,|\.{1,3})\s*or|,\s*and|[,;/&+]|\?{1,3}|\(?\bor\b|\band\b|和|或者|或|及|与)"
    rf"(?:\s*,?\s*{HEDGE}\b,?)?|[.,;(]?\s*(?:but )?{HEDGE}\b,?)"
    rf"\s*(?:(?:option|choice)\s+)?\(?(?P<other>[A-Za-z])(?![{WORD}'])(?!(?<=[AI])\s+[a-z])",
    re.IGNORECASE,
)
_EITHER_NO = re.compile(r"\W*[A-Z]\W{1,3}no \(?[A-Z]\W*$")
"""A correction in English, and "not" in Spanish, Italian or Portuguese: "B, no A"."""
_RUN = re.compile(r"\W*([A-Z])((?:\s*[.)]+\s*\(?[A-Z])+)\W*")


def bare_letter(phrase: str, options: Options) -> str | None:
    """Returns the letter if ``phrase`` holds nothing else but quotes and brackets; upper or lower case."""
    letter = strip_ends(phrase)
    return letter.upper() if len(letter) == 1 and letter.upper() in options.letters else None


def several_letters(phrase: str, options: Options) -> bool:
    """Says whether ``phrase`` begins with several letters: "A or B", "A, maybe B", "A.B.C". A denied letter does not count."""
    if _is_run(phrase, options) or _EITHER_NO.match(phrase):
        return True
    match = _LIST.match(phrase)
    if not match or match["one"].isupper() != match["other"].isupper():
        return False
    letters = {match[name].upper() for name in ("one", "other") if not is_negated(phrase, *match.span(name))}
    return len(letters) == 2 and letters <= options.letters


def _is_run(phrase: str, options: Options) -> bool:
    """Says whether ``phrase`` has only letters and full stops, and is not an option's letter followed by its own text."""
    match = _RUN.fullmatch(phrase)
    if not match or options.exact(match[2]) == match[1]:
        return False
    letters = set(re.findall("[A-Z]", phrase))
    return len(letters) > 1 and letters <= options.letters


def leading_letter(phrase: str, options: Options, *, expected: bool = False) -> Outcome:
    """Returns the letter that ``phrase`` begins with, when punctuation sets it off, or its own text follows.

    "B. dog", "(B) dog", "B dog", "B because …", "B, since …", "option B"; in lower case only "b." and "b)". "A dog" may be an
    article or a letter and is a stop when ``dog`` is another option; "A dog is running" is no letter. Where a letter is
    ``expected``, "B here" counts too (but not A and I, which are words).
    """
    match = _HEAD.match(phrase)
    if not match or match["letter"].upper() not in options.letters or several_letters(phrase, options):
        return None
    letter, tail = match["letter"].upper(), match["tail"]
    if is_negated(phrase, *match.span("letter")) or _CONDITION.match(tail):
        return None
    other = _OTHER_LETTER.fullmatch(tail)
    if other and other["other"] in options.letters - {letter} and bare(options.raw[letter]) != bare(other["other"]):
        return Stop.AMBIGUOUS
    if _is_refuted(letter, tail, options):
        return None
    ends = _END_OF_LETTER if match["letter"].isupper() else _END_OF_SMALL_LETTER
    if ends.match(tail):
        return letter
    return _before_words(letter, tail, options, expected=expected) if match["letter"].isupper() else None


_REFUTED = re.compile(
    r"\s*(?:[:(,-]\s*)?(?:(?:this|that|it|which) )?(?:(?:is|are|was|does|would be)(?:n't| not)?\b\s*)?(?:clearly |definitely )?"
    r"(?:(?<=n't )\w+|(?<=not )\w+|incorrect|wrong|false|(?<!, )not\b|no(?:\W*$|(?=[,;.]))|absent|missing|ruled out"
    r"|eliminated|❌|✗)",
    re.IGNORECASE,
)


def _is_refuted(letter: str, tail: str, options: Options) -> bool:
    """Says whether a letter's own text behind it is called wrong: "D. bicycle: incorrect"."""
    own = " ".join(options.raw[letter].split()).lower()
    start = tail.lower().find(own) if own else -1
    return 0 <= start <= _BEFORE_OWN and _REFUTED.match(tail, start + len(own)) is not None


_BEFORE_OWN = 8
"""Most characters between a letter and its text."""


def _before_words(letter: str, tail: str, options: Options, *, expected: bool) -> Outcome:
    whole = options.exact(tail)
    if whole and whole != letter:
        return Stop.AMBIGUOUS
    own_text = whole or (letter != "A" and options.begins(tail, letter))
    return letter if own_text or (expected and letter not in "AI" and tail.startswith(" ")) else None


def read_phrase(phrase: str, options: Options, *, expected: bool = False) -> Outcome:
    """Returns the announced answer: a letter, an option's text, or the text of one option at the beginning."""
    line = phrase.strip().partition("\n")[0][:LONGEST_PHRASE]
    letter = bare_letter(phrase, options) or bare_letter(line, options)
    if letter:
        return letter
    if several_letters(line, options):
        return Stop.AMBIGUOUS
    return options.exact(line) or leading_letter(line, options, expected=expected) or _leading_text(line, options)


def _leading_text(line: str, options: Options) -> Outcome:
    meant = options.meant_in(line)
    if len(meant) == 1:
        (letter,) = meant
        return letter if options.begins(line, letter) else None
    return Stop.AMBIGUOUS if len(meant) > 1 and any(options.begins(line, letter) for letter in meant) else None


# Words after which an answer is announced: "the answer is …", "so …", "I choose …".


_BEST = ("correct", "right", "best", "final", "appropriate", "accurate", "likely", "suitable", "plausible", "closest")
_OPTION = any_of("option", "choice", "letter", "response", "one", "match", "fit", "description")
_NOUN = word("answers?", r"ans\.?", "assistant", "solution", *(f"{best} {_OPTION}" for best in _BEST), "the one (?=that|which)")
_NAMED_NOUN = word("option", "choice", "letter")
_TO_WHAT = r"(?:(?: (?:to|for|of|here|in)| ?(?:that|which)) [^.:\n]{1,60}?|, [^,.:\n]{1,40},)?"
_IS = any_of(
    rf"(?<![{WORD}])(?:is|are|was|were)(?![{WORD}])",
    rf"(?:would|should|could|might|may|must|will|(?:would |will )?ha(?:s|ve) to|seems to|appears to) be(?![{WORD}])",
    rf"'s(?![{WORD}])",
    "[:=→-]",
)
_SURELY = any_of(
    "therefore", "thus", "hence", "clearly", "definitely", "most likely", "likely", "probably", "indeed", "simply", "actually"
)
_A_LETTER = rf"(?<=\s)(?=\(?[a-z]\)?(?![{WORD}']))"
_SURELY_IS = rf"(?:{_IS}\s*)+(?:{_SURELY}(?![{WORD}])[\s,:]*)*"
ANSWER = re.compile(rf"{_NOUN}{_TO_WHAT}\s*(?:{_SURELY_IS}|{_A_LETTER})|{_NAMED_NOUN}{_TO_WHAT}\s*{_SURELY_IS}")
"""The answer, and a verb, a colon, or a letter at once; or the option (choice, letter), and a verb or a colon."""

CHOSEN = re.compile(rf"{word(*english('choose'))}[\s,:]*")
"""A verb that chooses."""

CONCLUSION = re.compile(
    rf"{word(*english('so'), *english('it_is'))}[\s,:]*(?:(?:it's|it is|would be|must be) )?|(?:[→⇒⟹∴➜➡👉☞➤►]|=>|->)\s*"
)
"""A word that draws a conclusion."""

_POSSIBLE = re.compile(r"\b(?:could|might|may) be\b")
MOST_TRIED = 20
"""How many announcements are tried, from the last one back."""
_PAUSES = " \n,:=→⇒>-"
_HEDGE = re.compile(HEDGE)
_RIVAL = re.compile(rf"{LETTER}\)?[\s,.;?(]*(?:\b(?:or|and|but)\b[\s,]*)?(?:(?:more|most|quite|very) )?$")
_OR = re.compile(rf"{LETTER}\)?[\s,;]*\bor\s*$")
_FROM = re.compile(rf"{LETTER}\)?\s*$")
_ARROW = re.compile(r"[→⇒⟹➜➡👉☞➤►=-]")
_RIVAL_REACH = 30
_END_OF_SENTENCE = re.compile(r"[.!?](?:\s|$)")


def read_announcement(pattern: re.Pattern[str], text: str, lowered: str, options: Options, *, expected: bool) -> Outcome:
    """Returns what the last readable phrase after ``pattern`` says; a phrase runs to the end of its line, or its sentence.

    A denied announcement ("I don't think it is B") does not count.

    Args:
        pattern: matches an announcement; searched in ``lowered``.
        text: the text.
        lowered: the same in lower case, character by character.
        options: the options.
        expected: whether a letter after ``pattern`` counts although other words follow.
    """
    for match in reversed(list(pattern.finditer(lowered))[-MOST_TRIED:]):
        words_end = match.start() + len(match[0].rstrip(_PAUSES))
        if is_negated(lowered, words_end, match.end()) or _is_supposed(lowered, match.start()):
            continue
        if lowered.endswith(_ONE_BY_ONE, 0, match.start()):
            continue
        for phrase in _phrases(text, match.end()):
            outcome = read_phrase(phrase, options, expected=expected)
            if outcome:
                rival = _has_rival(text, lowered, match.start(), outcome, options)
                return Stop.AMBIGUOUS if rival or _was_possible(match, pattern, text, lowered, options) else outcome
    return None


_ONE_BY_ONE = ("each ", "every ", "all the ")
"""Before "option:" these begin a list of all of them."""
_SUPPOSED = re.compile(
    r"\b(?<!even )(?:if (?:it|this|that|there|they) (?:were|was|had|weren't|wasn't)|(?:were|had) (?:it|this|there))\b[^.!?\n]*\Z"
)


def _is_supposed(lowered: str, start: int) -> bool:
    """Says whether the sentence supposes before ``start`` what is not so: "Were it a dog, I'd say B"."""
    return _SUPPOSED.search(lowered, max(0, start - LONGEST_PHRASE), start) is not None


def _was_possible(match: re.Match[str], pattern: re.Pattern[str], text: str, lowered: str, options: Options) -> bool:
    """Says whether the announcement is one of several that each name a possible answer: "It could be A. It could be B."."""
    if not _POSSIBLE.search(match[0]):
        return False
    said = (
        read_phrase(next(_phrases(text, other.end())), options)
        for other in pattern.finditer(lowered)
        if other.start() < match.start() and _POSSIBLE.search(other[0])
    )
    return any(said)


def _has_rival(text: str, lowered: str, start: int, outcome: Outcome, options: Options) -> bool:
    """Says whether the announcement at ``start`` only adds a possibility: the "maybe C" of "B or maybe C"."""
    before = _FROM if _ARROW.match(text, start) else _OR
    other = before.search(text, max(0, start - _RIVAL_REACH), start)
    if other and other[1] in options.letters - {outcome} and not is_negated(text, *other.span(1)):
        return True
    if not _HEDGE.match(lowered, start):
        return False
    rival = _RIVAL.search(text, max(0, start - _RIVAL_REACH), start)
    return rival is not None and rival[1] in options.letters - {outcome} and not is_negated(text, *rival.span(1))


def _phrases(text: str, start: int) -> Iterator[str]:
    line = text[start : start + LONGEST_PHRASE].lstrip().partition("\n")[0]
    yield line
    sentence = _END_OF_SENTENCE.split(line, maxsplit=1)[0]
    if sentence != line:
        yield sentence


# A retracted letter does not count as an answer: of "A? No, B" and "not A but B", only "B" is read.


_CORRECTION_REACH = 120
"""Characters before a change of mind that are searched for the retracted letter."""
_MOST_CHANGES = 20
_ASKED = "? "

_NO = word(r"no(?=\s*[,.!;:-]|\s+(?:wait|actually|sorry|it)\b)", "nope")
_STATEMENT = any_of(
    "it's",
    "it is",
    "it must be",
    "it should be",
    "make (?:it|that)",
    "(?:the|my) (?:(?:correct|right|final) )?answer is",
    r"(?:i(?:'d|'ll| would| will)? )?(?:now )?(?:(?:say|go with|choose|pick|(?:change|switch) (?:(?:my answer|it|that) )?to)\b)",
)
_TURN = re.compile(
    rf"(?:(?:(?:{CHANGE}|{_NO})[\s,.!;:()-]{{0,6}}){{1,5}}(?:{_STATEMENT}\s)?(?:(?:option|choice)\s)?)\(?"
    rf"(?P<letter>[a-z])(?<![{WORD}][a-z])(?![{WORD}'])"
)
_BEGINS_TURN: Final = (re.compile(CHANGE), re.compile(_NO))
"""What ``_TURN`` begins with: the engine finds these fast, since each of their branches begins with a plain character."""
_LETTER = re.compile(LETTER)
_NOT_BUT = re.compile(rf"(?:\b[Nn]ot|n't) (?:option )?\(?{LETTER}\)?,? but (?:rather )?(?:option )?\(?(?={LETTER})")
_BUT = re.compile(rf" but (?:rather )?(?:option )?\(?{LETTER}")
_SETTLED = re.compile(
    r"\)?\s*(?:$|[.,;!:\n)]|\?\s*yes\b|(?:is|seems) (?:the )?(?:correct|right|answer|best|better)\b)", re.IGNORECASE
)


def without_corrected(text: str, options: Options) -> str:
    """Returns ``text`` without retracted letters, and without the words that retract them.

    "The answer is A? No, B." becomes "The answer is B."; so do "A - wait, B", "A. cat. Actually, B. dog", "A. Let me
    check. It's B" and "not A but B". The
    retracted letter may be followed by its own text. The new letter must be final: "A. No, B is wrong" stays.
    """
    turns = [(_taken_back(text, match.start(), options), match.start("letter")) for match in _turns(text.lower())]
    contrasts = [
        (match.start(), match.end())
        for match in (_NOT_BUT.finditer(text) if _BUT.search(text) else ())
        if match[1] in options.letters
    ]
    kept_from = len(text)
    for start, end in sorted(turns + contrasts)[-_MOST_CHANGES:][::-1]:
        if start >= 0 and end <= kept_from and _is_settled(text, end, options):
            text, kept_from = (
                f"{text[:start]}{' ' * text[:start].endswith(tuple('abcdefghijklmnopqrstuvwxyz'))}{text[end:]}",
                start,
            )
    return text


def _turns(lowered: str) -> Iterable[re.Match[str]]:
    """Returns the last changes of mind of a text in lower case, in order; they do not overlap."""
    starts = sorted(begun.start() for pattern in _BEGINS_TURN for begun in pattern.finditer(lowered))
    found: deque[re.Match[str]] = deque(maxlen=_MOST_CHANGES)
    end = 0
    for start in starts:
        match = _TURN.match(lowered, start) if start >= end else None
        if match:
            found.append(match)
            end = match.end()
    return found


def _taken_back(text: str, turn: int, options: Options) -> int:
    """Returns the position of the letter that the change of mind at ``turn`` retracts; -1 for none."""
    for match in _LETTER.finditer(text, max(0, turn - _CORRECTION_REACH), turn):
        letter, between = match[1], bare(text[match.end() : turn].rstrip(" -")).rstrip(_ASKED)
        if letter in options.letters and not (between and letter not in options.whole.get(between, ())):
            own_text = not between and options.begins(text[match.end() :], letter)
            asked = _ASKING.search(text, 0, match.start())
            return -1 if own_text else asked.start() if asked else match.start()
    return -1


_ASKING = re.compile(
    r"\b(?:is|was|could|would|might|should) (?:it|this|that|the (?:correct )?answer)\b(?: be)?[^.?!\n]{0,12}\Z", re.IGNORECASE
)


def _is_settled(text: str, position: int, options: Options) -> bool:
    """Says whether the letter at ``position`` is final: an option, not denied, with nothing or its own text behind it."""
    letter, rest = text[position], text[position : position + _CORRECTION_REACH]
    if letter not in options.letters or is_negated(rest, 0, 1):
        return False
    return _SETTLED.match(rest, 1) is not None or options.begins(rest[1:], letter)
