"""Mentions of answers in a text, the words around each, and the answer of the whole text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from .options import Options
from .text import WORD, Outcome, Stop, only_answer, strip_ends
from .words import After, Before, after, before, corrections, is_excepted, last_dissent, roles_of, tokens

MOST_MENTIONS: Final = 150
"""The most mentions that are read, from the end, and the first one."""
_LONGEST_OWN = 1_000
_TAKES_BACK = 4
"""Claims are weighed from 1, the line "Answer: B", to this, an option that is only named."""


class Mention(NamedTuple):
    """A mention of an answer, or a list of several ("A or B"), with the effect of the words around it."""

    start: int
    end: int
    letters: frozenset[str]
    in_words: bool = False
    """Whether an option's words are mentioned, and no letter."""
    labelled: bool = False
    """Whether the letter is followed by its option's text: "B. dog"."""
    marked: bool = False
    """Whether the letter is in brackets or quotes."""
    partial: bool = False
    """Whether the words may be a part of a larger quantity."""
    contradicted: bool = False
    """Whether the letter is followed by another option's text: "A. dog"."""
    before: Before = Before()
    after: After = After()
    recited: bool = False
    turn: int = 0
    """The end of the last correction before it."""
    questioned: bool = False

    @property
    def denied(self) -> bool:
        """Whether the text denies it."""
        return self.before.denied or self.after.denied

    @property
    def held(self) -> bool:
        """Whether the text neither denies it, nor asks for, supposes or only recites it."""
        return not (self.denied or self.before.void or self.after.void or self.questioned or self.recited)


def lower(text: str) -> str:
    """Returns a text in lower case, character by character."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else "".join(each.lower()[:1] for each in text)


def find_mentions(text: str, options: Options) -> list[Mention]:
    """Returns every mention of an option in ``text`` in order, with the effect of the words around it."""
    lowered = lower(text)
    letters = list(_letters(text, options))
    labelled = [(each.start, each.end) for each in letters if each.labelled]
    said = [
        Mention(start, end, each, in_words=True, partial=partial)
        for start, end, each, partial in options.mentions(lowered)
        if not any(begin <= start and end <= stop for begin, stop in labelled)
    ]
    covered = [(each.start, each.end) for each in said if each.end - each.start > 1]
    letters = [each for each in letters if not any(begin <= each.start and each.end <= stop for begin, stop in covered)]
    listed = sorted((*letters, *said), key=lambda each: each.start)
    listed = listed if len(listed) <= MOST_MENTIONS else [listed[0], *listed[1 - MOST_MENTIONS :]]
    return _recitals(with_context(_joined(listed, text, lowered), text, lowered), text, options.letters)


# Letters, each with its option's text if that follows.


_LETTER = re.compile(
    rf"(?<![{WORD}+°])(?<![{WORD}]')(?<![{WORD}][-.&])[A-Z](?![{WORD}°%+&*#]|'[A-Za-z]|-[A-Za-z]|\.[A-Za-z](?![A-Za-z]))"
)
_LABEL = re.compile(r"(?:(?P<set_off>[)\]\"'}]{0,2}\s?[.:,=)]|[)\]]|\s-|\s(?=\())|(?=[\s\u3040-\uffff]))\s*")
_WORD_BEHIND = re.compile(r"\s(?=[^\W\d_])(?![A-Z]|the\s)([^\s.,;:!?()]+)")
_OPTION_BEFORE = re.compile(r"(?:[Oo]ption|[Cc]hoice|[Ll]etter)\s\W?\Z")
_LETTER_SOON = re.compile(r"(?:\s[^\W\dA-Z]+){0,2}\s\W?[A-Z](?![\w'])")
_AFTER_LETTER = re.compile(
    r"(?:seems|looks|appears|fits|matches|doesn't|isn't|can|could|has|shows|makes|depicts|would|should|must|may|might|then|vs|with|it"
    r"|alone|only|even|by|to|from|at)"
)
_OF_A_SENTENCE: Final = frozenset(
    ["is", "fits", "because", "or", "not", "wrong", "unlike", "but", "correct", "so", "hedge", "ending"]
)


def _letters(text: str, options: Options) -> Iterable[Mention]:
    matches = list(_LETTER.finditer(text))
    end = 0
    for match in matches if len(matches) <= 2 * MOST_MENTIONS else [matches[0], *matches[1 - 2 * MOST_MENTIONS :]]:
        if match.start() >= end and not _is_word(match[0], text, match.end()):
            mention = _letter(match, text, options)
            end = mention.end
            if options.letters & mention.letters or text[end : end + 1] in ("", *(".,)\n" if match[0] in "AI" else " .,)\n")):
                yield mention


def _letter(match: re.Match[str], text: str, options: Options) -> Mention:
    start, end, letter = match.start(), match.end(), match[0]
    opened, closed = text[max(0, start - 2) : start], text[end : end + 1]
    marked = opened[-1:] in tuple("([{\"'<") and closed in tuple(")]}\"'>") and opened[:-1] != "/"
    label = _LABEL.match(text, end)
    contradicted = letter in options.letters and any(letter not in letters for letters in _said_beside(text, start, end, options))
    if not label or letter not in options.letters:
        return Mention(start, end, frozenset(letter), marked=marked, contradicted=contradicted)
    length = options.begins(text[label.end() : label.end() + _LONGEST_OWN], letter)
    if length:
        return Mention(start, label.end() + length, frozenset(letter), marked=marked, labelled=True)
    words = options.lowered[letter]
    behind = bool(words) and text[max(0, start - len(words) - 4) : start].lower().rstrip("([ ,.:").endswith(words)
    begun = options.begun_by(text[label.end() :][: 2 * options.longest + 80]) if label["set_off"] and not behind else frozenset()
    contradicted = contradicted or (bool(begun) and letter not in begun)
    return Mention(start, end, frozenset(letter), marked=marked, contradicted=contradicted)


_TRUTH = r"(?P<said>yes|no|true|false)"
_TRUTH_BEFORE = re.compile(rf"\b{_TRUTH}[\"']?(?:[.,:]\s|\s)[\"'(\[]{{0,2}}\Z", re.IGNORECASE)
_TRUTH_BEHIND = re.compile(rf"[)\]\"'}}]{{0,2}}(?:\s?[.,:(=]|\s-)\s?[\"'(]?{_TRUTH}\b(?!\s\w)", re.IGNORECASE)


def _said_beside(text: str, start: int, end: int, options: Options) -> Iterable[frozenset[str]]:
    """Yields the letters of the options Yes, No, True and False directly beside a letter: "Yes (B)", "B. Yes"."""
    for said in (_TRUTH_BEFORE.search(text, max(0, start - 12), start), _TRUTH_BEHIND.match(text, end)):
        if said and (letters := options.whole.get(said["said"].lower())):
            yield letters


def _is_word(letter: str, text: str, end: int) -> bool:
    """Says whether a capital vowel is the word that it also is: "A dog", "I think", "E a resposta"."""
    behind = _WORD_BEHIND.match(text, end) if letter in "AEIOUY" else None
    if behind is None or _OPTION_BEFORE.search(text[max(0, end - 12) : end - 1]):
        return False
    word = behind[1].lower()
    roles = roles_of(word)
    if roles and roles <= {"or", "filler", "hedge"} and not _LETTER_SOON.match(text, behind.end()):
        return True
    if letter == "I":
        return word not in ("is", "fits", "matches", "and", "or")
    if word.isascii() and roles & {"correct", "filler"} and not roles & {"is", "fits", "so", "hedge", "because", "or"}:
        return True
    return not _AFTER_LETTER.fullmatch(word) and _OF_A_SENTENCE.isdisjoint(roles)


# Lists of mentions, and words with their letter behind them.


_EITHER_NO = re.compile(r"[)\"']?,?\sno\s[(\"']?")
"""A correction in English, and "not" in Spanish, Italian or Portuguese: "B, no A"."""
_BEHIND = re.compile(r"[,.:]?\s?(?:[(\[](?:option )?|(?:which is |that is )?option )$")
_ARTICLE = re.compile(r"(?:an?|the|la|el|der|die|das|eine?|le|une?|[()\[\]\"'])")
_SIGNS: Final = frozenset(",/&|;")


def _joined(listed: list[Mention], text: str, lowered: str) -> list[Mention]:
    """Returns the mentions, with lists joined ("A, C and D") and words joined with their letter ("2017 (C)")."""
    joined: list[Mention] = []
    for each in listed:
        last = joined[-1] if joined else None
        if last and _belong_together(last, each, text, lowered):
            joined[-1] = last._replace(end=each.end, letters=last.letters | each.letters, partial=False, labelled=False)
        elif (
            last
            and last.in_words
            and not each.in_words
            and not each.labelled
            and _BEHIND.fullmatch(text[last.end : each.start])
            and (text[last.end] != "." or last.letters & each.letters)  # "It is not a cat. (B)"
        ):
            same = bool(last.letters & each.letters)
            joined[-1] = each._replace(start=last.start, labelled=same, contradicted=not same)
        else:
            joined.append(each)
    return [each for each in joined if not each.partial]


def _belong_together(last: Mention, each: Mention, text: str, lowered: str) -> bool:
    if last.in_words != each.in_words or (last.labelled and each.labelled) or (last.letters & each.letters and not each.in_words):
        return False
    between = lowered[last.end : each.start]
    if last.partial and each.partial:
        return True
    return _is_list(between) or (_EITHER_NO.fullmatch(between) is not None and not strip_ends(text[: last.start]))


def _is_list(between: str) -> bool:
    if len(between) > 40 or "\n" in between.strip(" "):
        return False
    said = [(word, roles_of(word)) for word in tokens(between) if not _ARTICLE.fullmatch(word)]
    if not said:
        return "(" not in between or ")" in between
    ors = [word for word, roles in said if "or" in roles]
    hedges = [word for word, roles in said if "hedge" in roles]
    if ors or any(word in _SIGNS for word, _ in said):
        stops = "." if ors[:1] in (["or"], ["ou"], ["oder"]) else ""
        return all(word in (*ors, *_SIGNS, *stops) or roles & {"hedge", "option"} for word, roles in said)
    return bool(hedges) and all(word in (*hedges, ".", "but") for word, _ in said)


# The effect of the words around each mention.


_PAIR = re.compile(r"([A-Z])\W{0,2}[,;]\s(?:(?:maybe|perhaps|probably|possibly)\s)?\W?([A-Z])")
_END = re.compile(r"[.!?\n]")
_SUPPOSED = re.compile(r" (?:would|could|might)\b")
"""Says what another picture would show: "A cow would have horns"."""
_SEEMS = re.compile(r"\b(?:look|seem|appear|resembl|might be|may be|could be)[^.!?\n;,]{0,30}\Z")
_CONTRAST = re.compile(
    r"(?:[.,]?\s(?:but|yet|however),?(?:(?:\s[a-z]+){0,3}?\sis|\sit's)|\.\sit(?:'s|\sis)|,?(?:\s(?!and|that|which)[a-z]+){0,3}?,?\sis)"
    r"\s(?:actually|really|in fact|in reality)\s(?:an?\s|the\s|\W?\Z)"
)
_CONCEDED = re.compile(r"\b(?:al)?though\b[^.!?\n,;]*\Z")
"""What only seems so is denied where a contrast follows: "it looks like a dog but is actually a cat"."""
_REPLY = re.compile(r"\?[\s\"')]{0,3}(yes|no)\b(?!,? (?:i|we|the) )")
"""A question with its answer: "A cat? No. A dog? Yes."."""


def with_context(listed: list[Mention], text: str, lowered: str, *, no: bool = True) -> list[Mention]:
    """Adds the effect of the words around them to mentions; ``no``: whether "no" is a correction."""
    done: list[Mention] = []
    turns = [end for end, _ in corrections(lowered, no=no)]
    floor, waiting = 0, listed[::-1]
    while waiting:
        each = waiting.pop()
        turn = max((end for end in turns if end <= each.start), default=0) if turns else 0
        ceiling = waiting[-1].start if waiting else len(lowered)
        ahead = before(lowered, each.start, floor, turn, in_words=each.in_words)
        pair = _PAIR.fullmatch(text[each.start : each.end]) if len(each.letters) == 2 else None
        if pair and (ahead.denied or ahead.void):  # "unlike B, A fits"
            ceiling = each.start + pair.start(2)
            waiting.append(each._replace(start=ceiling, letters=frozenset(pair[2])))
            each = each._replace(end=each.start + 1, letters=frozenset(pair[1]))
        if ahead.kind == "also" and done:
            each = each._replace(letters=each.letters | done[-1].letters)
        behind = after(lowered, each.end, ceiling)
        excepted = is_excepted(lowered, each.start, denied_behind=behind.denied)
        if excepted is not None:
            ahead, behind = ahead._replace(kind="statement", denied=excepted), behind._replace(denied=False)
        seems = _SEEMS.search(lowered, max(done[-1].end if done else 0, each.start - 60), each.start)
        if seems and (
            _CONTRAST.match(lowered, each.end, ceiling) or _CONCEDED.search(lowered, max(floor, each.start - 80), seems.start())
        ):
            behind = behind._replace(denied=True)
        if each.in_words and not behind.verdict and _SUPPOSED.match(lowered, each.end):
            behind = behind._replace(void=True)
        stop = _END.search(text, each.end)
        questioned = stop is not None and stop[0] == "?"
        if stop and (reply := _REPLY.match(lowered, stop.start())):
            questioned, behind = False, behind._replace(verdict=reply[1] == "yes", denied=reply[1] == "no")
        if ahead.kind != "label" or each.in_words:
            done.append(each._replace(before=ahead, after=behind, turn=turn, questioned=questioned))
        floor = max(each.end, behind.end)
    return done


_BETWEEN_THEM = re.compile(r"\bbetween (?:options? )?\W?\Z", re.IGNORECASE)
_HEADER = re.compile(r"(?:\b(?:options|choices)|选项|選択肢)\W*\Z", re.IGNORECASE)
_BETWEEN = re.compile(r"[\s,;.|/)(\[\]&-]*(?:(?:and|or)\s)?[\s(\[]*")


def _recitals(listed: list[Mention], text: str, known: frozenset[str]) -> list[Mention]:
    """Marks mentions that only recite the options in sequence: "A. cat B. dog"; an announced one only if all of them follow."""
    recited = {
        place
        for place, each in enumerate(listed)
        if (each.in_words and each.letters >= known)  # "of cat, dog and cow"
        or (len(each.letters) > 1 and _BETWEEN_THEM.search(text, max(0, each.start - 24), each.start))
    }
    every = len({letter for each in listed if each.labelled for letter in each.letters}) == len(known)
    for place, (first, second) in enumerate(pairwise(listed)):
        between = text[first.end : second.start]
        if not (first.labelled and second.labelled) or first.letters == second.letters or not _BETWEEN.fullmatch(between):
            continue
        stated = first.before.kind in ("line", "statement", "conclusion") and place not in recited and not every
        stated = stated and not _HEADER.search(text, max(0, first.start - 20), first.start)
        if not stated or not re.search(r"[.;\n]", between):
            recited |= {place, place + 1}
    return [each._replace(recited=place in recited) for place, each in enumerate(listed)] if recited else listed


# The answer of the whole text.


class Claim(NamedTuple):
    """A mention that claims to be the answer."""

    weight: int
    rule: str
    mention: Mention


def choose(mentions: list[Mention], text: str, known: frozenset[str], *, no: bool = True) -> tuple[str, Outcome]:
    """Returns the answer of all mentions and its rule; two different answers are ambiguous.

    ``known`` has the option letters; ``no``: whether "no" is a correction.
    """
    if any(each.contradicted and each.held for each in mentions):
        return "statement", Stop.AMBIGUOUS
    claims = list(_claims(mentions, text))
    lowered = lower(text)
    claims = [claim for claim in claims if claim.mention.letters & known or claim is claims[-1]]
    kept = _after_changes(claims, [each for each in mentions if not each.in_words], corrections(lowered, no=no), lowered)
    if not kept:
        return "statement", None if kept is not None else Stop.AMBIGUOUS
    strongest = min(claim.weight for claim in kept)
    best = [claim for claim in kept if claim.weight == strongest]
    rule, last = best[-1].rule, best[-1].mention
    best = [claim for claim in best if not claim.mention.letters > last.letters]  # "B or C, most likely C"
    if "final" in lowered[max(0, last.start - 40) : last.start]:
        best = best[-1:]
    letters = frozenset().union(*(claim.mention.letters for claim in best))
    if strongest == _TAKES_BACK:
        letters |= _said_later(mentions, last, letters, text)
    for weight, name, each in kept if strongest < _TAKES_BACK else ():
        if weight < _TAKES_BACK and (each.start > last.start or (name == "leading_letter" and not each.letters > letters)):
            letters |= each.letters
    return rule, Stop.NONE if letters.isdisjoint(known) else only_answer(set(letters))


def _said_later(mentions: list[Mention], named: Mention, letters: frozenset[str], text: str) -> frozenset[str]:
    """Returns the options that later sentences mean in words, where they mean none of ``letters``, which are only named."""
    later = [each for each in mentions if each.in_words and each.held and _END.search(text, named.end, each.start)]
    said = frozenset[str]().union(*(each.letters for each in later))
    return said if said.isdisjoint(letters) else frozenset()


def _claims(mentions: list[Mention], text: str) -> Iterable[Claim]:
    mentions = _with_neighbours(mentions, text)
    held = [each for each in mentions if each.held]
    headed = {
        each.letters for each in held if each.before.kind == "start" and not each.in_words and _HEAD.match(text, each.start)
    }
    denied = False
    for each in mentions:
        if each.held:
            weight, rule = _claim(each, held, text, denied=denied, gone_through=len(headed) > 1)
            if weight:
                yield Claim(weight, rule, each)
        denied = denied or (not each.held and not each.recited)


def _with_neighbours(mentions: list[Mention], text: str) -> list[Mention]:
    """Joins options in words with the options after them in the same clause: "a cat chasing a bird"."""
    done = mentions[-1:]
    for each, behind in reversed(list(pairwise(mentions))):
        both = each.in_words and behind.in_words and each.held and behind.held and each.before.kind and not behind.before.kind
        between = tokens(text[each.end : behind.start].lower()) if both else ["-"]
        apart = any("breaks" in roles_of(word) or word in ("-", ":") for word in between)
        done.append(each if apart else each._replace(letters=each.letters | done[-1].letters))
    return done[::-1]


_HEAD = re.compile(r"[A-Z]\)?\s?[.:)]")
_NUMBERED = re.compile(r"^\W*(?:[Qq](?:uestion)? ?)?\d{1,2}[.):]\s")
_NO_CLAIM: Final = (0, "")


def _claim(each: Mention, held: list[Mention], text: str, *, denied: bool, gone_through: bool) -> tuple[int, str]:
    """Returns how strongly a mention claims to be the answer, 1 is most and 0 not at all, and by which rule."""
    kind, at_end = each.before.kind, not strip_ends(text[each.end :])
    if kind in ("line", "statement", "also"):
        return (1 if kind == "line" else 2), "statement"
    if each.after.verdict and not each.in_words:
        return 2, "verdict"
    concluded = at_end and (text[: each.start].rstrip().endswith("=") if each.in_words else kind == "subject")
    if concluded or kind == "conclusion" or (each.before.turned and denied and each.after.ends):
        return 3, "conclusion"
    leads, alone = _place(each, text)
    leads = leads and (alone if each.in_words else each.after.ends or each.labelled)
    if leads and not each.in_words and (at_end or not gone_through) and not _is_topic(each, text):
        return 3, "leading_letter"
    if leads if each.in_words else at_end and _closes(each, held, text):
        return 3, "closing_letter"
    named = each.marked or each.labelled or kind == "named" or (kind == "lettered" and each.after.ends)
    return (4, "marked_letter") if named and not each.in_words else _NO_CLAIM


def _place(each: Mention, text: str) -> tuple[bool, bool]:
    """Returns whether a mention begins the text, a correction, its last line or a line of nothing else, and ends its line."""
    begin, end = max(text.rfind("\n", 0, each.start) + 1, each.turn), text.find("\n", each.end)
    alone = not strip_ends(text[each.end : end if end >= 0 else len(text)])
    begins = not strip_ends(_NUMBERED.sub("", text[begin : each.start]))
    return begins and (begin in (0, each.turn, text.rfind("\n") + 1) or alone), alone


def _is_topic(each: Mention, text: str) -> bool:
    """Whether a list of letters is only the topic of the text: "A vs B: …"."""
    return len(each.letters) > 1 and text[each.end : each.end + 1] == ":"


def _closes(each: Mention, held: list[Mention], text: str) -> bool:
    """Whether a letter at the end is isolated and no other option is chosen before it."""
    ahead = text[: each.start].rstrip(" \"'([*")
    set_off = not ahead or ahead[-1] in ".,:;!?\n-→👉✅" or ahead.endswith(" but")
    if not set_off and (not each.turn or strip_ends(text[each.turn : each.start])):
        return False
    return not any(other.letters != each.letters and other.turn == each.turn for other in held)


def _after_changes(
    claims: list[Claim], letters: list[Mention], turns: list[tuple[int, bool]], lowered: str
) -> list[Claim] | None:
    """Returns the claims that were not retracted; None if the text retracts without a new claim."""
    dissent = last_dissent(lowered)
    claims = [claim for claim in claims if claim.mention.start > dissent]
    for begin, unsettled in reversed(turns) if claims else ():
        later = [claim for claim in claims if claim.mention.start >= begin]
        if later:
            return later
        behind = [each for each in letters if each.start >= begin]
        if any(each.held for each in behind) or (unsettled and not behind):
            return None
    return claims
