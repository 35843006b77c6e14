"""Directional changes: the question asks for something else, and the right answer changes with it.

A model that reads only the usual parts of a question answers as before, and is wrong. Questions whose new answer would not be
certain are unchanged.
"""

from __future__ import annotations

import dataclasses
import re
from functools import partial

from pytest_vlmrobust.core.sample import Sample

from .registry import corruption
from .wording import QUOTED

NAMES = ("negation", "antonym")
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
"""A question about several things, of which some can be so and others not."""
_THE_TWO = re.compile(r"\b(?:the|these) two\b", re.IGNORECASE)
_A_NUMBER = re.compile(r"\b(?:number|sum|count|digit|integer|product|value)\b", re.IGNORECASE)
"""What can be odd or even as a number is."""


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

    Only words of which exactly one is true are exchanged, and only in questions with one of them and without words such as
    "and", "any" or "not": of a sign less and a sign more than 3 m away, both can be there.
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
    found = [(match, other) for words, other in _COMPLEMENTS for match in re.finditer(rf"\b{words}", question)]
    if len(found) != 1:
        return sample
    ((match, other),) = found
    rest = f"{question[: match.start()]}#{question[match.end() :]}"
    if _UNCERTAIN.search(rest):
        return sample
    if not _THE_TWO.search(rest) if match[0] == "the same" else _OF_SEVERAL.match(rest):
        return sample
    if match[0] in ("odd", "even") and not _A_NUMBER.search(rest):
        return sample
    return dataclasses.replace(sample, question=rest.replace("#", other), target=_OPPOSITE[str(target)])
