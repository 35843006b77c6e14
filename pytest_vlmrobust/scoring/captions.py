"""The words of a caption, and ROUGE-L of a caption against its references."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.score import Score

from .alignment import common_subsequence
from .grading import graded, read, targets
from .overlap import extract_text
from .text import straightened

BETA = 1.2
"""Weight of recall over precision, as in the COCO caption evaluation."""

_CLITIC = re.compile(r"(n't|'(?:s|re|ve|ll|d|m))(?!\w)")
_WORD = re.compile(r"'?\w+(?:[-'.,]\w+)*")

Words = Sequence[str]


def caption_words(text: str) -> list[str]:
    """Returns the words of a caption: lower case, no punctuation, ``n't`` and ``'s`` apart.

    Near what the COCO caption evaluation (Chen et al. 2015, "Microsoft COCO Captions") does by a tokenizer that needs Java.

    >>> caption_words("A man's dog, doesn't it run?")
    ['a', 'man', "'s", 'dog', 'does', "n't", 'it', 'run']
    """
    line = straightened(unicodedata.normalize("NFKC", text)).lower()
    return _WORD.findall(_CLITIC.sub(r" \1", line))


def rouge_l(candidate: Words, references: Sequence[Words]) -> float:
    """Returns ROUGE-L, in [0, 1]: the F-measure of the longest common subsequence; 0 where nothing is common.

    Lin 2004, "ROUGE", section 3, as the COCO caption evaluation computes it: (1 + b²) P R / (R + b² P) with b = 1.2, where P
    is the largest share of the candidate's words that are common with a reference, and R the largest of a reference's.
    """
    common = [(common_subsequence(candidate, reference), len(reference)) for reference in references]
    longest = max((length for length, _ in common), default=0)
    if not longest:
        return 0.0
    precision = longest / len(candidate)
    recall = max(length / words for length, words in common if words)
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def score_rouge_l(sample: Sample, prediction: Prediction) -> Score:
    """ROUGE-L of the caption against all targets (``rouge_l``): what a caption is worth without the rest of the data set."""

    def credit(answer: str) -> float:
        return rouge_l(caption_words(answer), [caption_words(target) for target in targets(sample)])

    return graded(read(sample, prediction, extract_text), prediction, credit)
