"""The text that goes with an image: one template per kind of answer, one instruction per prompt mode.

Questions and options are laid out as VLMEvalKit does; the instructions of the direct and the chain-of-thought mode are
those of VLM-RobustBench, appendix C.3. A thinking model is asked like a direct one: it
thinks by itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..core.sample import Sample
from .box_wording import box_instruction, box_task

_TOKENS_AROUND, _TOKENS_OF_A_BOX = 48, 48
"""A box in JSON, keys and four numbers of four digits, takes about 40 tokens where each digit is one."""
_CHOICE_INSTRUCTIONS = {
    "direct": (
        "Please select the correct answer from the options above. Respond with only the letter of the correct option. "
        "Do not explain. Answer:"
    ),
    "cot": (
        "Answer the preceding multiple choice question. The last line of your response should be of the following format: "
        "'Answer: $LETTER' (without quotes) where LETTER is one of options. Think step by step before answering."
    ),
}
_YES_NO_INSTRUCTIONS = {
    "direct": "Please answer yes or no.",
    "cot": (
        "Think step by step before answering. The last line of your response should be of the following format: "
        "'Answer: $WORD' (without quotes) where WORD is yes or no."
    ),
}
_OPEN_INSTRUCTIONS = {
    "direct": "Answer the question using a single word or phrase.",
    "cot": (
        "Think step by step before answering. The last line of your response should be of the following format: "
        "'Answer: $ANSWER' (without quotes) where ANSWER is a single word or phrase."
    ),
}


def prompt(sample: Sample, mode: str) -> str:
    """Returns the text for a sample in a prompt mode (``direct``, ``cot`` or ``thinking``).

    An instruction of the sample takes the place of the direct one; in the chain-of-thought mode it is said before. Boxes are
    told and asked for in the space of the sample's ``localisation``.

    Raises:
        ValueError: a sample that asks for boxes does not say which.
    """
    asked_like = "direct" if mode == "thinking" else mode
    if sample.task == "boxes":
        about = box_task(sample)
        question = _with_hint(sample, sample.question)
        return f"{question}\n{about}\n{_instruction(sample, box_instruction(sample), asked_like)}"
    if sample.task == "choice":
        question = _with_hint(sample, f"Question: {sample.question}")
        return f"{question}\nOptions:\n{_listed(sample.options)}{_instruction(sample, _CHOICE_INSTRUCTIONS, asked_like)}"
    instructions = _YES_NO_INSTRUCTIONS if sample.task == "yes_no" else _OPEN_INSTRUCTIONS
    return f"{_with_hint(sample, sample.question)}\n{_instruction(sample, instructions, asked_like)}"


def _instruction(sample: Sample, instructions: Mapping[str, str], mode: str) -> str:
    if not sample.instruction:
        return instructions[mode]
    return sample.instruction if mode == "direct" else f"{sample.instruction}\n{instructions[mode]}"


def scorable_choices(sample: Sample, mode: str) -> tuple[str, ...]:
    """Returns the answers whose log-probabilities decide, or nothing where the model has to write: first, or for its scorer."""
    if mode != "direct" or sample.scorer not in ("", sample.task):
        return ()
    if sample.task == "choice":
        return tuple(sample.options)
    return ("Yes", "No") if sample.task == "yes_no" else ()


def answer_limit(sample: Sample, mode: str, limit: int) -> int:
    """Returns how many tokens an answer may have: ``limit``, or what boxes take where nothing else is to be written."""
    if mode != "direct" or sample.localisation is None:
        return limit
    return min(limit, _TOKENS_AROUND + _TOKENS_OF_A_BOX * len(sample.localisation.boxes))


def _with_hint(sample: Sample, text: str) -> str:
    return f"Hint: {sample.hint}\n{text}" if sample.hint else text


def _listed(options: Mapping[str, str]) -> str:
    return "".join(f"{letter}. {text}\n" for letter, text in options.items())
