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
    found = [
        match
        for match in _WORD.finditer(sample.question)
        if len(match[0]) >= _SHORTEST
        and match[0].casefold() not in kept
        and (match[0].islower() or not match.start())
        and not any(start <= match.start() < end for start, end in quoted)
    ]
    misspelt = [(match, wrong) for match in found if (wrong := _misspelt(match[0], rng)) != match[0]]
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
