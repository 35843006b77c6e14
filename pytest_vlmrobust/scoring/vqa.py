"""VQA soft accuracy: an answer is as right as people agree with it.

Antol et al. 2015, "VQA: Visual Question Answering", with the normalisation of the official evaluation program, which
TextVQA and VizWiz use too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.score import Score

from .grading import graded, read, targets
from .text import NUMBER_WORDS, straightened

ENOUGH = 3
"""People who must agree for an answer to be fully right."""

_ARTICLES: Final = frozenset({"a", "an", "the"})
_DIGITS: Final = {word: str(number) for number, word in enumerate(NUMBER_WORDS[:11])} | {"none": "0"}
_SHORTENED = (
    "ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd he'd've "
    "he's how'd how'll how's isn't it'd it'd've it'll ma'am mightn't mightn't've might've mustn't must've needn't not've "
    "o'clock oughtn't 'ow's'at shan't she'd've should've shouldn't shouldn't've somebody'd somebody'd've somebody'll "
    "somebody's someone'd someone'd've someone'll someone's something'd something'd've something'll that's there'd "
    "there'd've there're there's they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll "
    "what're what's what've when's where'd where's where've who'd who'd've who'll who's who've why'll why're why's won't "
    "would've wouldn't wouldn't've y'all y'all'll y'all'd've you'd you'd've you'll you're you've"
)
_CONTRACTIONS: Final = {full.replace("'", ""): full for full in _SHORTENED.split()}
_ANY_PUNCTUATION = re.compile(r"[;/\[\]\"{}()=+\\_\-><@`,?!]")
_COMMA_IN_NUMBER = re.compile(r"\d,\d")
_PERIOD = re.compile(r"\.(?!\d)")


@lru_cache(maxsize=16384)
def vqa_normalised(answer: str) -> str:
    """Returns the spelling under which answers are compared.

    Lower case; a punctuation mark that touches a blank is dropped, any other becomes a blank, and in an answer with a comma
    between digits (``1,000``) all are dropped; of full stops only those before a digit stay; number words up to ten, and
    ``none``, are digits; articles are dropped; contractions get their apostrophe.

    >>> vqa_normalised("The two dogs."), vqa_normalised("dont walk"), vqa_normalised("T-shirt"), vqa_normalised("1,000")
    ('2 dogs', "don't walk", 't shirt', '1000')
    """
    said = text = " ".join(straightened(answer).split())
    all_dropped = _COMMA_IN_NUMBER.search(said) is not None
    for mark in set(_ANY_PUNCTUATION.findall(said)):
        text = text.replace(mark, "" if all_dropped or f"{mark} " in said or f" {mark}" in said else " ")
    words = (_DIGITS.get(word, word) for word in _PERIOD.sub("", text).lower().split())
    return " ".join(_CONTRACTIONS.get(word.replace("'", ""), word) for word in words if word not in _ARTICLES)


def soft_accuracy(answer: str, references: Sequence[str]) -> float:
    """Returns the mean over all references of min(1, matches among the others / 3), in [0, 1].

    With ten references: 0.3, 0.6, 0.9 and 1 for one, two, three and more matches. Of fewer than four references, where three
    others do not exist, all others must match for full credit; a single one is compared with. (VLMEvalKit gives 0 to every
    answer where there is one reference.)

    Raises:
        ValueError: there are no references.
    """
    n = len(references)
    if not n:
        raise ValueError("soft accuracy needs at least one reference answer, and there are none")
    spelled = vqa_normalised(answer)
    matches = sum(vqa_normalised(reference) == spelled for reference in references)
    if n == 1:
        return float(matches)
    enough = min(ENOUGH, n - 1)
    return (matches * min(1.0, (matches - 1) / enough) + (n - matches) * min(1.0, matches / enough)) / n


def score_vqa_soft(sample: Sample, prediction: Prediction) -> Score:
    """The share of people who agree: mean over the references of min(1, matches among the others / 3) (``soft_accuracy``)."""
    return graded(read(sample, prediction), prediction, lambda answer: soft_accuracy(answer, targets(sample)))
