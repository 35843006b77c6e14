"""The text that goes with an image: one template per kind of answer, one instruction per prompt mode.

Questions and options are laid out as VLMEvalKit does; the instructions of the direct and the chain-of-thought mode are
those of VLM-RobustBench, appendix C.3. A thinking model is asked like a direct one: it
thinks by itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..core.sample import Sample

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

    An instruction of the sample takes the place of the direct one; in the chain-of-thought mode it is said before.
    """
    asked_like = "direct" if mode == "thinking" else mode
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
    """Returns the answers whose log-probabilities decide, or nothing where the model has to write first."""
    if mode != "direct":
        return ()
    if sample.task == "choice":
        return tuple(sample.options)
    return ("Yes", "No") if sample.task == "yes_no" else ()


def _with_hint(sample: Sample, text: str) -> str:
    return f"Hint: {sample.hint}\n{text}" if sample.hint else text


def _listed(options: Mapping[str, str]) -> str:
    return "".join(f"{letter}. {text}\n" for letter, text in options.items())
