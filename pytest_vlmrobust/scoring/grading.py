"""From a text to a score: what all scorers share."""

from __future__ import annotations

from collections.abc import Callable

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, Prediction
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.score import Score

from .extraction import Extraction, Stop
from .open_answer import extract_open
from .refusal import is_refusal
from .text import final_words, folded, plain

TRUNCATED = Stop.TRUNCATED.value
WHOLE = "whole"


def targets(sample: Sample) -> tuple[str, ...]:
    """Returns every accepted answer of ``sample``.

    Raises:
        UsageError: there is none.
    """
    found = (sample.target,) if isinstance(sample.target, str) else sample.target
    if not found:
        raise UsageError(f"sample {sample.id!r} has no target; expected at least one accepted answer")
    return found


def read(sample: Sample, prediction: Prediction, extract: Callable[[str], Extraction] = extract_open) -> Extraction:
    """Returns what ``extract`` reads; words of a refusal are an answer where a target says the like ("can't tell")."""
    found = extract(prediction.text)
    if found.rule == Stop.REFUSAL.value and any(is_refusal(folded(target)) for target in targets(sample)):
        return Extraction(plain(final_words(prediction.text) or ""), WHOLE)
    return found


def graded(found: Extraction, prediction: Prediction, credit: Callable[[str], float]) -> Score:
    """Returns the score of what was read: ``credit`` of the answer, in [0, 1], or unparsed where there is none."""
    if found.answer is None:
        return unread(found.rule, prediction)
    return Score(float(credit(found.answer)), found.rule, found.answer)


def best(found: Extraction, sample: Sample, prediction: Prediction, credit: Callable[[str, str], float]) -> Score:
    """Returns the score of what was read against the target that it meets best; ``credit`` takes answer and target."""
    return graded(found, prediction, lambda answer: max(credit(answer, target) for target in targets(sample)))


def unread(rule: str, prediction: Prediction) -> Score:
    """Returns the score of a text without an answer; the rule is ``truncated`` where the text was cut off."""
    cut = prediction.finish_reason == "length" and prediction.method != LETTER_LOGITS
    return Score.unparsed(TRUNCATED if cut else rule)
