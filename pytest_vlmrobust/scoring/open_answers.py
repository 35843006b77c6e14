"""Scorers of free answers: agreement with people, edit distance to the target, share of the target's words."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Final

from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import Sample

from .grading import OPEN_RULES, extract_open, grade, grade_text, normalised, plain_targets, read_answer
from .text import NUMBER_WORDS, Extraction, Ladder, Stop, apply_rules, final_words, fold_case, plain_text, straighten, strip_ends

# VQA soft accuracy: the share of people who agree with an answer.
#
# Antol et al. 2015, "VQA: Visual Question Answering", with the normalisation of the official evaluation program, which
# TextVQA and VizWiz use too.


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
def normalise_vqa(answer: str) -> str:
    """Returns the spelling in which answers are compared.

    Lower case; a punctuation mark that touches a blank is dropped, any other becomes a blank, and in an answer with a comma
    between digits (``1,000``) all are dropped; of full stops only those before a digit stay; number words up to ten, and
    ``none``, are digits; articles are dropped; contractions get their apostrophe.

    >>> [normalise_vqa(text) for text in ("The two dogs.", "dont walk", "T-shirt", "1,000")]
    ['2 dogs', "don't walk", 't shirt', '1000']
    """
    line = text = " ".join(straighten(answer).split())
    all_dropped = _COMMA_IN_NUMBER.search(line) is not None
    for mark in set(_ANY_PUNCTUATION.findall(line)):
        text = text.replace(mark, "" if all_dropped or f"{mark} " in line or f" {mark}" in line else " ")
    words = (_DIGITS.get(word, word) for word in _PERIOD.sub("", text).lower().split())
    return " ".join(_CONTRACTIONS.get(word.replace("'", ""), word) for word in words if word not in _ARTICLES)


def soft_accuracy(answer: str, references: Sequence[str]) -> float:
    """Returns the mean over all references of min(1, matches among the others / 3), in [0, 1].

    With ten references: 0.3, 0.6, 0.9 and 1 for one, two, three and more matches. With two or three references all others must
    match for full credit; with a single reference the accuracy is 1 or 0. (VLMEvalKit gives 0 to every
    answer where there is one reference.)
    """
    n = len(references)
    if not n:
        raise ValueError("soft accuracy needs at least one reference answer, and there are none")
    spelled = normalise_vqa(answer)
    matches = sum(normalise_vqa(reference) == spelled for reference in references)
    if n == 1:
        return float(matches)
    enough = min(ENOUGH, n - 1)
    return (matches * min(1.0, (matches - 1) / enough) + (n - matches) * min(1.0, matches / enough)) / n


def score_vqa_soft(sample: Sample, prediction: Prediction) -> Score:
    """The share of people who agree: mean over the references of min(1, matches among the others / 3) (``soft_accuracy``)."""
    return grade(read_answer(sample, prediction), prediction, lambda answer: soft_accuracy(answer, plain_targets(sample)))


# Edit distance and longest common subsequence of two sequences, by bit-parallel algorithms on Python integers.
#
# Hyyrö 2003, "A bit-vector algorithm for computing Levenshtein and Damerau edit distances", and Hyyrö 2004, "Bit-parallel
# LCS-length computation revisited": one step per element of the longer sequence instead of one per pair of elements.


def edit_distance(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """Returns the fewest insertions, deletions and substitutions that turn ``first`` into ``second``.

    >>> edit_distance("kitten", "sitting")
    3
    """
    if not first:
        return len(second)
    positions = _positions(first)
    full, last = (1 << len(first)) - 1, 1 << (len(first) - 1)
    up, down, distance = full, 0, len(first)
    for element in second:
        equal = positions.get(element, 0)
        diagonal = (((equal & up) + up) ^ up) | equal | down
        right_up, right_down = down | ~(diagonal | up), up & diagonal
        distance += bool(right_up & last) - bool(right_down & last)
        right_up = (right_up << 1) | 1
        up = ((right_down << 1) | ~(diagonal | right_up)) & full
        down = right_up & diagonal & full
    return distance


def common_subsequence(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """Returns the length of the longest common subsequence.

    >>> common_subsequence("a man rides a horse".split(), "the man on a brown horse".split())
    3
    """
    positions = _positions(first)
    full = (1 << len(first)) - 1
    unmatched = full
    for element in second:
        shared = unmatched & positions.get(element, 0)
        unmatched = ((unmatched + shared) | (unmatched - shared)) & full
    return len(first) - unmatched.bit_count()


def _positions(sequence: Sequence[Hashable]) -> dict[Hashable, int]:
    positions: dict[Hashable, int] = {}
    for number, element in enumerate(sequence):
        positions[element] = positions.get(element, 0) | 1 << number
    return positions


# Scorers that give partial credit: edit distance to the target (ANLS), share of the target's words (OCR recall).


THRESHOLD = 0.5
"""A normalised distance of this or more scores 0."""

WHOLE_TEXT: Ladder[str] = {name: OPEN_RULES[name] for name in ("answer_tag", "boxed", "refusal", "whole")}


def similarity(answer: str, target: str) -> float:
    """Returns 1 - d / length of the longer text where that quotient is below 0.5, else 0; d is the edit distance.

    Biten et al. 2019, "Scene Text Visual Question Answering", equation 1, for one answer. Case is ignored, runs of blanks
    are one. At exactly 0.5 the paper gives 0, as here; VLMEvalKit gives 0.5, half a point for ``13`` instead of ``12``.

    >>> round(similarity("colour", "Color"), 3), similarity("13", "12")
    (0.833, 0.0)
    """
    got, wanted = (" ".join(text.split()).lower() for text in (answer, target))
    longest = max(len(got), len(wanted))
    if not longest or abs(len(got) - len(wanted)) >= THRESHOLD * longest:
        return 0.0
    distance = edit_distance(wanted, got) / longest
    return 1.0 - distance if distance < THRESHOLD else 0.0


def word_recall(text: str, target: str) -> float:
    """Returns the share of the words of ``target`` that are in ``text``, counted with repetition, in [0, 1].

    Words end at blanks; case, and punctuation at their ends, do not count. 0 for a target without words.

    >>> round(word_recall("it says STOP, stop here", "stop stop now"), 3)
    0.667
    """
    wanted = Counter(_words(target))
    return (wanted & Counter(_words(text))).total() / wanted.total() if wanted else 0.0


def extract_text(text: str) -> Extraction:
    """Returns the reply without thinking and control tokens, or the content of an answer tag or box; a refusal has no answer."""
    reply = final_words(text)
    if isinstance(reply, Stop):
        return Extraction(None, reply.value)
    return apply_rules(WHOLE_TEXT, reply) if plain_text(reply) else Extraction(None, "empty")


def score_anls(sample: Sample, prediction: Prediction) -> Score:
    """1 - normalised edit distance to the nearest target, where that distance is below 0.5, else 0 (``similarity``)."""
    return grade_text(read_answer(sample, prediction), sample, prediction, similarity)


def score_contains(sample: Sample, prediction: Prediction) -> Score:
    """1 when one of the targets stands anywhere in the text, in any case and as any part of it.

    Liu et al. 2024, "OCRBench". A text that lists every word there is earns everything, and ``3`` is found in ``13``.
    """
    return grade_text(read_answer(sample, prediction, extract_text), sample, prediction, _contains)


def score_contains_formula(sample: Sample, prediction: Prediction) -> Score:
    """1 when one of the targets stands anywhere in the text, without blanks and in this case: OCRBench's written formulas."""
    return grade_text(read_answer(sample, prediction, extract_text), sample, prediction, _contains_formula)


def _contains(text: str, target: str) -> bool:
    return fold_case(target) in fold_case(text)


def _contains_formula(text: str, target: str) -> bool:
    content, wanted = ("".join(plain_text(words).split()) for words in (text, target))
    return wanted in content


_BRACES = re.compile(r"\{([^{}]*)\}")


def score_braced(sample: Sample, prediction: Prediction) -> Score:
    """1 when what stands in braces, or else the answer, is a target in any case."""
    return grade_text(read_answer(sample, prediction, extract_braced), sample, prediction, _same)


def score_braced_numbers(sample: Sample, prediction: Prediction) -> Score:
    """Like `braced`, but 1 also if the digits equal those of a target. For counts.

    Rahmanzadehgervi et al. 2024, "Vision language models are blind", and Vo et al. 2025, "Vision language models are biased",
    ask for answers in braces: ``{3}``, ``rows={3} columns={4}``.
    """
    return grade_text(read_answer(sample, prediction, extract_braced), sample, prediction, _same_numbers)


def extract_braced(text: str) -> Extraction:
    """Returns what stands in braces, joined by commas; without any, the answer."""
    reply = final_words(text)
    contents = [] if isinstance(reply, Stop) else [content.strip() for content in _BRACES.findall(plain_text(reply))]
    return Extraction(",".join(contents), "braces") if any(contents) else extract_open(text)


def _same(answer: str, target: str) -> bool:
    return normalised(answer) == normalised(target.strip(" {}"))


def _same_numbers(answer: str, target: str) -> bool:
    wanted = re.findall(r"\d+", target)
    return _same(answer, target) or (bool(wanted) and re.findall(r"\d+", answer) == wanted)


def _score_tokens(split: Callable[[str], Sequence[str]], doc: str) -> Callable[[Sample, Prediction], Score]:
    def overlap(text: str, target: str) -> float:
        said, wanted = (Counter(split(re.sub(r"###|\*\*\*", "", words).lower())) for words in (text, target))
        total = said.total() + wanted.total()
        return 2 * (said & wanted).total() / total if total else 0.0

    def scorer(sample: Sample, prediction: Prediction) -> Score:
        return grade_text(read_answer(sample, prediction, extract_text), sample, prediction, overlap)

    scorer.__doc__ = doc
    return scorer


score_word_f1 = _score_tokens(
    str.split, """F1 of the words of text and target, in any case and order: CC-OCR, Yang et al. 2024."""
)
score_alphanumeric_f1 = _score_tokens(
    lambda text: [word for each in text.split() if (word := re.sub(r"[^a-z0-9]", "", each))],
    """Like `word_f1`, of letters a to z and digits: CC-OCR for scenes.""",
)


def score_ocr_recall(sample: Sample, prediction: Prediction) -> Score:
    """The share of the target's words, counted with repetition, that stand anywhere in the text (``word_recall``).

    Res-Bench: its paper tokenises both and compares words exactly; the recall is that of its published program.
    """
    return grade_text(read_answer(sample, prediction, extract_text), sample, prediction, word_recall)


def _words(text: str) -> list[str]:
    line = straighten(unicodedata.normalize("NFKC", text)).casefold()
    return [strip_ends(word) or word for word in line.split()]


# The words of a caption, and ROUGE-L of a caption against its references.


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
    line = straighten(unicodedata.normalize("NFKC", text)).lower()
    return _WORD.findall(_CLITIC.sub(r" \1", line))


def rouge_l(candidate: Words, references: Sequence[Words]) -> float:
    """Returns ROUGE-L, in [0, 1]: the F-measure of the longest common subsequence; 0 where nothing is common.

    Lin 2004, "ROUGE", section 3, as the COCO caption evaluation computes it: (1 + b²) P R / (R + b² P) with b = 1.2, where P is
    the largest share of the candidate's words that are common with a reference, and R the largest share of a reference's words.
    """
    common = [(common_subsequence(candidate, reference), len(reference)) for reference in references]
    longest = max((length for length, _ in common), default=0)
    if not longest:
        return 0.0
    precision = longest / len(candidate)
    recall = max(length / words for length, words in common if words)
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def score_rouge_l(sample: Sample, prediction: Prediction) -> Score:
    """ROUGE-L of the caption against all targets (``rouge_l``); it does not depend on the rest of the dataset."""

    def credit(answer: str) -> float:
        return rouge_l(caption_words(answer), [caption_words(target) for target in plain_targets(sample)])

    return grade(read_answer(sample, prediction, extract_text), prediction, credit)
