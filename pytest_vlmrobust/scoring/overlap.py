"""Scorers that give part of the credit: how near the letters are (ANLS), how many of the words were said (OCR recall)."""

from __future__ import annotations

import unicodedata
from collections import Counter

from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.score import Score

from .alignment import edit_distance
from .extraction import Extraction, Ladder, climb
from .grading import best, read
from .open_answer import OPEN_RULES
from .text import final_words, plain, straightened, stripped

THRESHOLD = 0.5
"""Normalised distances from here on earn nothing."""

WHOLE_TEXT: Ladder[str] = {name: OPEN_RULES[name] for name in ("answer_tag", "boxed", "refusal", "whole")}


def similarity(answer: str, target: str) -> float:
    """Returns 1 - d / length of the longer text where that quotient is below 0.5, else 0; d is the edit distance.

    Biten et al. 2019, "Scene Text Visual Question Answering", equation 1, for one answer. Case is ignored, runs of blanks
    are one. At exactly 0.5 the paper gives 0, as here; VLMEvalKit gives 0.5, half a point for ``13`` instead of ``12``.

    >>> similarity("colour", "Color"), similarity("13", "12")
    (0.8333333, 0.0)
    """
    got, wanted = (" ".join(text.split()).lower() for text in (answer, target))
    longest = max(len(got), len(wanted))
    if not longest or abs(len(got) - len(wanted)) >= THRESHOLD * longest:
        return 0.0
    distance = edit_distance(wanted, got) / longest
    return 1.0 - distance if distance < THRESHOLD else 0.0


def word_recall(text: str, target: str) -> float:
    """Returns the share of the words of ``target`` that ``text`` has, each as often as it is there, in [0, 1].

    Words end at blanks; case, and punctuation at their ends, do not count. 0 for a target without words.

    >>> word_recall("it says STOP, stop here", "stop stop now")
    0.6666667
    """
    wanted = Counter(_words(target))
    return (wanted & Counter(_words(text))).total() / wanted.total() if wanted else 0.0


def extract_text(text: str) -> Extraction:
    """Returns all that was said, thinking and control tokens apart, or what stands in an answer tag or box; a refusal is none."""
    said = final_words(text)
    if said is None:
        return Extraction(None, "unfinished_thinking")
    return climb(WHOLE_TEXT, said) if plain(said) else Extraction(None, "empty")


def score_anls(sample: Sample, prediction: Prediction) -> Score:
    """1 - normalised edit distance to the nearest target, where that distance is below 0.5, else 0 (``similarity``)."""
    return best(read(sample, prediction), sample, prediction, similarity)


def score_ocr_recall(sample: Sample, prediction: Prediction) -> Score:
    """The share of the target's words, counted with repetition, that stand anywhere in the text (``word_recall``).

    Res-Bench: its paper tokenises both and compares words exactly; the recall is that of its published program.
    """
    return best(read(sample, prediction, extract_text), sample, prediction, word_recall)


def _words(text: str) -> list[str]:
    line = straightened(unicodedata.normalize("NFKC", text)).casefold()
    return [stripped(word) or word for word in line.split()]
