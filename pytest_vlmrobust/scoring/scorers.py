"""Scorers compare a prediction with its target, and record which rule read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache

from pytest_vlmrobust.core.errors import UnknownName, UsageError
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, UNANSWERED, Prediction, Score
from pytest_vlmrobust.core.registry import Registry
from pytest_vlmrobust.core.sample import UNDECLARED, Sample

from .boxes import score_box_hit, score_boxes
from .choice import extract_choice
from .corpus import CORPUS_METRICS
from .grading import grade_best, grade_text, normalised, read_answer, targets
from .numbers import score_numeric, score_numeric_contained, score_relaxed
from .open_answers import (
    score_alphanumeric_f1,
    score_anls,
    score_braced,
    score_braced_numbers,
    score_contains,
    score_contains_formula,
    score_ocr_recall,
    score_rouge_l,
    score_vqa_soft,
    score_word_f1,
)
from .text import Extraction, fold_case
from .yes_no import extract_yes_no

Scorer = Callable[[Sample, Prediction], Score]

SCORERS: Registry[Scorer] = Registry("scorer", "scorers")
"""Scorers by name; the scorer of a task has the task's name."""

_END_OF_SENTENCE = " .,;:!?"


def register(name: str, scorer: Scorer, *, replace: bool = False) -> Scorer:
    """Registers ``scorer`` for samples that name it, and for samples of the task with this name that name no scorer."""
    return SCORERS.add(name, scorer, replace=replace)


def names() -> list[str]:
    """Returns the name of every scorer."""
    return SCORERS.names()


def score(sample: Sample, prediction: Prediction) -> Score:
    """Returns the score of ``prediction``: NaN when the inference failed, 0 and unparsed when no answer can be read.

    For a completed inference without an answer, the rule says why (``UNANSWERED``): a refusal is not searched for an answer. The
    scorer is ``sample.scorer`` or else ``sample.task``. Raises UsageError if nothing says how the sample is
    scored (``UNDECLARED``).
    """
    _refuse_undeclared(sample)
    scorer = SCORERS.get(sample.scorer or sample.task)
    if prediction.finish_reason == "error":
        return Score.unscored(prediction.error or "the inference failed and gave no reason")
    if prediction.finish_reason in UNANSWERED:
        return Score.unparsed(prediction.finish_reason)
    return scorer(sample, prediction)


def score_choice(sample: Sample, prediction: Prediction) -> Score:
    """1 for the right letter, read from the text or taken as the most probable one (rule ``letter_logits``)."""
    if prediction.method == LETTER_LOGITS:
        letter = prediction.text.strip()
        return _letter_score(letter, tuple(targets(sample))) if letter in sample.options else Score.unparsed(LETTER_LOGITS)
    return _equal(extract_choice(prediction.text, sample.options), sample, prediction)


@lru_cache(maxsize=4096)
def _letter_score(letter: str, accepted: tuple[str, ...]) -> Score:
    return Score(float(letter.casefold() in map(str.casefold, accepted)), LETTER_LOGITS, letter)


def score_yes_no(sample: Sample, prediction: Prediction) -> Score:
    """1 for the right one of yes and no, read from the text or taken as the more probable one (rule ``letter_logits``)."""
    extraction = extract_yes_no(prediction.text, sample.question)
    if prediction.method == LETTER_LOGITS:
        extraction = Extraction(extraction.answer, LETTER_LOGITS)
    return _equal(extraction, sample, prediction)


def score_open(sample: Sample, prediction: Prediction) -> Score:
    """1 when the answer is one of the targets in their normalised spelling (``normalised``)."""
    return grade_text(
        read_answer(sample, prediction), sample, prediction, lambda said, target: normalised(said) == normalised(target)
    )


def score_exact(sample: Sample, prediction: Prediction) -> Score:
    """1 when the answer is one of the targets but for case, blanks, markup and a full stop at its end; articles count.

    VLMEvalKit's ``accuracy`` of GQA and OCRVQA, which compares the whole stripped text in lower case, and a full stop more.
    """
    return grade_text(read_answer(sample, prediction), sample, prediction, lambda said, target: _exact(said) == _exact(target))


def _exact(answer: str) -> str:
    line = fold_case(answer)
    return line.rstrip(_END_OF_SENTENCE) or line


def _equal(extraction: Extraction, sample: Sample, prediction: Prediction) -> Score:
    return grade_best(extraction, sample, prediction, lambda answer, target: answer.casefold() == target.casefold())


register("choice", score_choice)
register("yes_no", score_yes_no)
register("open", score_open)
register("exact", score_exact)
register("vqa_soft", score_vqa_soft)
register("relaxed", score_relaxed)
register("numeric", score_numeric)
register("numeric_contained", score_numeric_contained)
register("anls", score_anls)
register("ocr_recall", score_ocr_recall)
register("contains", score_contains)
register("contains_formula", score_contains_formula)
register("braced", score_braced)
register("braced_numbers", score_braced_numbers)
register("word_f1", score_word_f1)
register("alphanumeric_f1", score_alphanumeric_f1)
register("rouge_l", score_rouge_l)
register("boxes", score_boxes)
register("box_hit", score_box_hit)


# Checks, before the first inference, that the scorers and the corpus metric of a dataset exist.


def check_scoring(dataset: str, corpus_metric: str, samples: Iterable[Sample]) -> None:
    """Looks up the corpus metric of a dataset, and the scorer of each of its samples."""
    if corpus_metric not in CORPUS_METRICS:
        raise UnknownName("corpus metric", corpus_metric, CORPUS_METRICS.names(), where=f"dataset {dataset!r}")
    first: dict[str, Sample] = {}
    count: Counter[str] = Counter()
    for sample in samples:
        name = sample.scorer or sample.task
        first.setdefault(name, sample)
        count[name] += 1
    for name, sample in first.items():
        _refuse_undeclared(sample, dataset, count[name])
        if name not in SCORERS:
            raise UnknownName("scorer", name, SCORERS.names(), where=f"dataset {dataset!r}, sample {sample.id!r}")


def _refuse_undeclared(sample: Sample, dataset: str = "", count: int = 1) -> None:
    if sample.scorer != UNDECLARED or UNDECLARED in SCORERS:
        return
    where = f"dataset {dataset!r}, sample" if dataset else "sample"
    like_it = f" (the first of {count})" if count > 1 else ""
    raise UsageError(
        f"{where} {sample.id!r} is not scored{like_it}: it is an open question, and the data do not say how its answer is "
        'compared with the target. In a .jsonl, write "task": "open" in each such line for the scorer \'open\', or "scorer" '
        f"with one of {', '.join(SCORERS.names())}. For NAME.tsv, write NAME.benchmark.yaml beside it, such as "
        "'kinds: [{task: open, scorer: anls}]'"
    )
