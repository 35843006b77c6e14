"""Wording: the same question in other words, letters, marks and layouts. Meaning, options and right answer stay.

Quoted text is not changed, because questions about written words quote them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from functools import partial

import numpy as np

from pytest_vlmrobust.core.sample import Sample

from .registry import corruption

NAMES = (
    *("option_format", "prompt_layout", "answer_format", "question_style", "typos", "letter_case", "punctuation", "whitespace"),
)
_PROMPTCEPTION = "after Promptception (arXiv 2509.03986)"
_PARC = "after PARC (arXiv 2506.14808)"
wording = partial(corruption, family="wording", on="question")

QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”|\u2018[^\u2019]*\u2019|`[^`]*`|(?<!\w)'[^']*'(?!\w)")
_WORD = re.compile(r"[A-Za-z]+")
_CASED = re.compile(r"(?<![\w.])(?<!\d )[^\W\d_]+(?!\w)")
_SHORT_WORDS = {
    *("am", "an", "as", "at", "be", "by", "do", "he", "if", "in", "is", "it", "me", "my", "no", "of", "on", "or"),
    *("so", "to", "up", "us", "we"),
}
_END_MARKS = re.compile(r"[?.!:]+\s*$")
_POINTS = re.compile(r"\b(above|below|following|preceding|previous)\b", re.IGNORECASE)
"""Words of an instruction about its position."""
_SHORTEST = 5
"""Letters of a word that is misspelt: shorter words turn into other words."""
_NUMBERS = {
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty", "thirty"),
    *("forty", "fifty", "sixty", "seventy", "eighty", "ninety", "hundred", "thousand", "million", "first"),
    *("second", "third", "fourth", "fifth"),
}
_OTHER_WORDS = {
    *("trail", "trial", "causal", "casual", "untied", "united", "dessert", "latter", "dinner", "supper", "loose", "matter"),
    *("bitter", "copper", "hopping", "tapping", "planning", "staring", "starring", "filling", "coarse", "course", "scared"),
    *("sacred", "silver", "sliver", "bread", "beard", "brand"),
}
"""Words that a misspelling would turn others into."""

_SHORT_INSTRUCTIONS = {"choice": "Answer with the letter of the correct option.", "yes_no": "Answer with yes or no."}
_LAYOUTS = {
    "plain": ("{question}\n{options}\n{instruction}", "Question: {question}\n{instruction}"),
    "markdown": (
        "**Question**: {question}\n\n**Options**:\n{options}\n\n**Instruction**: {instruction}",
        "**Question**: {question}\n\n**Instruction**: {instruction}",
    ),
    "blank_lines": ("Question: {question}\n\nOptions:\n\n{options}\n\n{instruction}", "{question}\n\n{instruction}"),
    "instruction_first": ("{instruction}\nQuestion: {question}\nOptions:\n{options}", "{instruction}\n{question}"),
}
"""Layouts of prompts with and without options."""
_STYLES = {
    "polite": "Could you please answer this question? {}",
    "verbose": "Please look carefully at all parts of what is shown, and take your time. Then answer this question: {}",
}


@wording(
    levels={"parentheses": {"form": "({letter}) {text}"}, "bracket": {"form": "{letter}) {text}"}},
    source=f"{_PROMPTCEPTION}, category 1",
)
def option_format(sample: Sample, *, form: str) -> Sample:
    """Writes ``(A)`` or ``A)`` before each option instead of ``A.``."""
    return dataclasses.replace(sample, option_format=form) if sample.task == "choice" else sample


@wording(levels={name: {"layout": name} for name in _LAYOUTS}, source=f"{_PROMPTCEPTION}, categories 2 and 3")
def prompt_layout(sample: Sample, *, layout: str) -> Sample:
    """Lays out question, options and instruction differently; with ``instruction_first`` in another order.

    An instruction with "above" or "below" is not moved; the framework's instruction is replaced by that of ``answer_format``.
    """
    if sample.task == "boxes":
        return sample
    if layout == "instruction_first":
        sample, before = answer_format(sample), sample
        if not sample.instruction or _POINTS.search(sample.instruction):
            return before
    return dataclasses.replace(sample, layout=_LAYOUTS[layout][sample.task != "choice"])


@wording(source=f"{_PROMPTCEPTION}, categories 1 and 5")
def answer_format(sample: Sample) -> Sample:
    """Rewords the instruction for the answer. An instruction in the data is not changed."""
    instruction = sample.instruction or _SHORT_INSTRUCTIONS.get(sample.task, "")
    return dataclasses.replace(sample, instruction=instruction)


@wording(levels={name: {"style": name} for name in _STYLES}, source=f"{_PARC}, verbose; politeness is ours")
def question_style(sample: Sample, *, style: str) -> Sample:
    """Begins the question with a polite request, or with much advice."""
    return dataclasses.replace(sample, question=_STYLES[style].format(sample.question))


@wording(stochastic=True, levels={"1": {"words": 1}, "3": {"words": 3}}, source=f"{_PROMPTCEPTION}, type 4.1, of the question")
def typos(sample: Sample, rng: np.random.Generator, *, words: int) -> Sample:
    """Misspells ``words`` words of the question: swaps two letters, or repeats one.

    Numbers, names, short words and words of the options are unchanged.
    """
    kept = {word.casefold() for text in sample.options.values() for word in _WORD.findall(text)} | _NUMBERS
    quoted = [match.span() for match in QUOTED.finditer(sample.question)]
    candidates = [
        match
        for match in _WORD.finditer(sample.question)
        if len(match[0]) >= _SHORTEST
        and match[0].casefold() not in kept
        and (match[0].islower() or not match.start())
        and not any(start <= match.start() < end for start, end in quoted)
    ]
    misspelt = [(match, wrong) for match in candidates if (wrong := _misspelt(match[0], rng)) != match[0]]
    chosen = [misspelt[place] for place in rng.permutation(len(misspelt))[:words]]
    text = sample.question
    for match, wrong in sorted(chosen, key=lambda pair: -pair[0].start()):
        text = text[: match.start()] + wrong + text[match.end() :]
    return dataclasses.replace(sample, question=text)


def _misspelt(word: str, rng: np.random.Generator) -> str:
    """Returns a word with a mistake after its first letter, or the word itself if that would be another word."""
    place, twice = int(rng.integers(1, len(word) - 2)), bool(rng.integers(2))
    first, second = word[place], word[place + 1]
    wrong = f"{word[:place]}{first * 2 + second if twice or first == second else second + first}{word[place + 2 :]}"
    return word if wrong.casefold() in _OTHER_WORDS else wrong


@wording(levels={"upper": {"case": "upper"}, "lower": {"case": "lower"}}, source=f"{_PROMPTCEPTION}, type 4.3, of the question")
def letter_case(sample: Sample, *, case: str) -> Sample:
    """Writes the words of the question in capital or in small letters; units, letters by themselves and acronyms stay."""

    def cased(word: re.Match[str]) -> str:
        is_word = word[0][1:].islower() and (len(word[0]) > 2 or word[0].lower() in _SHORT_WORDS)
        return (word[0].upper() if case == "upper" else word[0].lower()) if is_word else word[0]

    return dataclasses.replace(sample, question=_outside_quotes(sample.question, partial(_CASED.sub, cased)))


@wording(levels={"none": {"mark": ""}, "repeated": {"mark": "???"}}, source=f"{_PROMPTCEPTION}, type 4.4, of the question")
def punctuation(sample: Sample, *, mark: str) -> Sample:
    """Removes the mark at the end of the question, or repeats its question mark."""
    end = _END_MARKS.search(sample.question)
    if end is None or (mark and "?" not in end[0]):
        return sample
    return dataclasses.replace(sample, question=sample.question[: end.start()] + mark)


@wording(source="ours")
def whitespace(sample: Sample) -> Sample:
    """Doubles the blanks between the words of the question."""
    return dataclasses.replace(sample, question=_outside_quotes(sample.question, lambda text: text.replace(" ", "  ")))


def _outside_quotes(text: str, change: Callable[[str], str]) -> str:
    parts, end = list[str](), 0
    for quoted in QUOTED.finditer(text):
        parts += [change(text[end : quoted.start()]), quoted[0]]
        end = quoted.end()
    return "".join([*parts, change(text[end:])])


# Directional changes: the question asks for something else, and the right answer changes with it.
#
# A model that reads only the usual parts of a question answers as before, and is wrong. Questions whose new answer would not be
# certain are unchanged.


DIRECTIONAL = ("negation", "antonym")
directional = partial(corruption, family="directional", on="question", changes=("meaning",))

_MOST_OPTIONS = 4
_OPPOSITE = {"yes": "no", "no": "yes"}
_OF_OTHER_OPTIONS = re.compile(
    r"\b(above|below|all|none|both|neither|either|other options?|cannot|can't|unknown|unclear)\b", re.IGNORECASE
)
"""Words of options that are about other options, or about what cannot be said."""
_POLAR = re.compile(r"(is|are|was|were|do|does|did|has|have|can|will)\b[^?.!;]*\?\s*", re.IGNORECASE)
"""A question that asks for yes or no and nothing else."""
_NUMBER = r"(?= (?:\d+|one|two|three|four|five|six|seven|eight|nine|ten)\b)"
_COMPLEMENTS = (
    *((r"an odd number of", "an even number of"), (r"an even number of", "an odd number of")),
    *((r"odd(?=\?)", "even"), (r"even(?=\?)", "odd"), (r"true(?=\?| that)", "false"), (r"false(?=\?| that)", "true")),
    *((r"correct(?=\?)", "incorrect"), (r"incorrect(?=\?)", "correct")),
    *((rf"more than{_NUMBER}", "at most"), (rf"at most{_NUMBER}", "more than")),
    *((rf"(?:fewer|less) than{_NUMBER}", "at least"), (rf"at least{_NUMBER}", "fewer than")),
    (r"the same(?=\?| \w+\?)", "different"),
)
"""Words, as expressions, and others: exactly one of the two is true of a thing, and "the same" of two things."""
_UNCERTAIN = re.compile(
    r"\b(?:not|no|never|nor|or|and|both|a|an|any|all|every|each|some|none|only|always|as)\b|n't|\bthere (?!#)"
    r"|(?<!# )(?<!the )(?<!these )\b(?:one|two|three|four|five|six|seven|eight|nine|ten)\b",
    re.IGNORECASE,
)
"""With these words beside it (``#``) the complement of one word is not that of the question: both can be true of some things."""
_OF_SEVERAL = re.compile(r"(?:are|were|do|have|can)\b(?! there #| you (?:see|count) #)", re.IGNORECASE)
"""A question about several things: the answer may differ between them."""
_THE_TWO = re.compile(r"\b(?:the|these) two\b", re.IGNORECASE)
_A_NUMBER = re.compile(r"\b(?:number|sum|count|digit|integer|product|value)\b", re.IGNORECASE)
"""Words for a number, which is odd or even."""


@directional(source="PARC (arXiv 2506.14808), negation (LS-N), around the whole question so that its answer is certain")
def negation(sample: Sample) -> Sample:
    """Asks which option is not a right answer, or whether "no" is the right answer to a yes/no question.

    Every other option is right then, so that guessing among more than four would nearly always be. Questions with more options,
    with one about others ("none of the above"), with equal ones and with several right answers are unchanged.
    """
    target = sample.target
    if sample.task == "yes_no" and target in _OPPOSITE:
        question = f'Is "no" the right answer to the question "{sample.question}"?'
        return dataclasses.replace(sample, question=question, target=_OPPOSITE[str(target)])
    if sample.task != "choice" or not isinstance(target, str) or len(sample.options) > _MOST_OPTIONS:
        return sample
    if len({*sample.options.values()}) < len(sample.options) or any(
        _OF_OTHER_OPTIONS.search(text) for text in sample.options.values()
    ):
        return sample
    others = tuple(letter for letter in sample.options if letter != target)
    question = f'Which option is NOT a right answer to the question "{sample.question}"?'
    return dataclasses.replace(sample, question=question, target=others[0] if len(others) == 1 else others, target_of_attack="")


@directional(source="PARC (arXiv 2506.14808), antonyms (LS-A) and the exchange of more and less (LS-M)", version=2)
def antonym(sample: Sample) -> Sample:
    """Puts the opposite of a word in a yes/no question: "odd" for "even", "at most 3" for "more than 3".

    Words are exchanged only if exactly one of the two is true, and only in questions with one such word and without words such as
    "and", "any" or "not": a picture can have both a sign less than 3 m away and one more than 3 m away.
    """
    question, target = sample.question, sample.target
    if (
        sample.task != "yes_no"
        or target not in _OPPOSITE
        or not _POLAR.fullmatch(question)
        or QUOTED.search(question)
        or "#" in question
    ):
        return sample
    matches = [(match, other) for words, other in _COMPLEMENTS for match in re.finditer(rf"\b{words}", question)]
    if len(matches) != 1:
        return sample
    ((match, other),) = matches
    rest = f"{question[: match.start()]}#{question[match.end() :]}"
    if _UNCERTAIN.search(rest):
        return sample
    if not _THE_TWO.search(rest) if match[0] == "the same" else _OF_SEVERAL.match(rest):
        return sample
    if match[0] in ("odd", "even") and not _A_NUMBER.search(rest):
        return sample
    return dataclasses.replace(sample, question=rest.replace("#", other), target=_OPPOSITE[str(target)])
