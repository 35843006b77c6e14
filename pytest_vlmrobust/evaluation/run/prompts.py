"""The text that goes with an image: one template per kind of answer, one instruction per prompt mode.

The layout of questions and options is that of VLMEvalKit; the instructions of the direct and the chain-of-thought mode are
those of VLM-RobustBench, appendix C.3. A thinking model gets the direct prompt, because it
reasons anyway.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.backends.contract import Guard
from pytest_vlmrobust.core.boxes import PIXELS, RESIZED_PIXELS, Box, BoxSpace, Localisation, box_space
from pytest_vlmrobust.core.sample import Sample

# Boxes in a prompt, in the model's coordinates.


_UNITS = {
    PIXELS: "pixels",
    RESIZED_PIXELS: "pixels",
    "thousandths": "thousandths of its width and height",
    "fractions": "fractions of its width and height",
}
_EDGES = {"xy": ("x1", "y1", "x2", "y2"), "yx": ("y1", "x1", "y2", "x2")}
_ORDINALS = ("first", "second")
_VIEWER = "Left and right are as you see them in the picture.\n"
_COT = (
    "Think step by step before answering. The last part of your response should be JSON of the following form, "
    "without other words after it: "
)


def box_task(sample: Sample) -> str:
    """Returns the text after the images: their size, the format of boxes, given boxes, and what to find."""
    about = _about(sample)
    given = f"In the {_ORDINALS[about.given_in]} picture: {_json(about.given, about)}\n" if about.given else ""
    sided = any(name.startswith(("left", "right")) for name in (*about.given, *about.boxes))
    viewer = _VIEWER if sided else ""
    return f"{_coordinates(about)}\n{viewer}{given}Find the box of each of these in the second picture: {', '.join(about.boxes)}."


def box_instruction(sample: Sample) -> Mapping[str, str]:
    """Returns how to answer, by prompt mode."""
    about = _about(sample)
    edges = ", ".join(f'"{edge}": ...' for edge in _EDGES[about.spoken.order])
    form = "{" + ", ".join(f'"{name}": {{{edges}}}' for name in about.boxes) + "}"
    number = "a fraction" if _base(about.spoken) == "fractions" else "a whole number"
    rest = f"Each ... is {number}. Leave out what you do not find; if you find nothing, answer []."
    return {
        "direct": f"Answer with JSON of this form only: {form}\n{rest} Do not explain.",
        "cot": f"{_COT}{form}\n{rest}",
    }


def _about(sample: Sample) -> Localisation:
    if sample.localisation is None or not sample.localisation.boxes:
        raise ValueError(f"sample {sample.id!r} asks for boxes and has no localisation that says which")
    return sample.localisation


def _coordinates(about: Localisation) -> str:
    space = about.spoken
    measured = _UNITS[_base(space)] == "pixels"
    width, height = (round(space.width), round(space.height)) if measured else about.size
    order = "x before y" if space.order == "xy" else "y before x"
    return (
        f"Each picture is {width} pixels wide and {height} pixels high. A box is written in {_UNITS[_base(space)]}, {order}: "
        f"x is 0 at the left edge and {space.width:g} at the right edge, y is 0 at the top edge and {space.height:g} at the "
        "bottom edge; x1 and y1 are the top left corner, x2 and y2 the bottom right corner."
    )


def _json(boxes: Mapping[str, Box], about: Localisation) -> str:
    return "{" + ", ".join(f'"{name}": {_box(box, about)}' for name, box in boxes.items()) + "}"


def _box(box: Box, about: Localisation) -> str:
    """Returns a box as JSON; a box without extent as a point."""
    space = about.spoken
    numbers = _spelled(space.write(box, about.size), space)
    is_point = (box[0], box[1]) == (box[2], box[3])
    edges = tuple(space.order) if is_point else _EDGES[space.order]
    return "{" + ", ".join(f'"{edge}": {number}' for edge, number in zip(edges, numbers, strict=False)) + "}"


def _spelled(numbers: Iterable[float], space: BoxSpace) -> list[str]:
    return [f"{number:.3f}" if _base(space) == "fractions" else str(round(number)) for number in numbers]


def _base(space: BoxSpace) -> str:
    return space.name.removesuffix("_yx")


_TOKENS_AROUND, _TOKENS_OF_A_BOX = 48, 48
"""Token limits for boxes: a box in JSON, keys and four numbers of four digits, takes about 40 tokens with one per digit."""
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
_INSTRUCTIONS = {"choice": _CHOICE_INSTRUCTIONS, "yes_no": _YES_NO_INSTRUCTIONS}
_CHOICE_LAYOUT = "Question: {question}\nOptions:\n{options}\n{instruction}"
_LAYOUT = "{question}\n{instruction}"


def prompt(sample: Sample, mode: str) -> str:
    """Returns the text for a sample in a prompt mode (``direct``, ``cot`` or ``thinking``).

    A sample's instruction replaces the direct instruction; in chain-of-thought mode it comes before. Boxes are
    written in the space of the sample's ``localisation``.
    """
    asked_like = "direct" if mode == "thinking" else mode
    is_choice, is_boxes = sample.task == "choice", sample.task == "boxes"
    instruction = (
        box_instruction(sample)[asked_like] if is_boxes else _INSTRUCTIONS.get(sample.task, _OPEN_INSTRUCTIONS)[asked_like]
    )
    text = _filled(
        sample.layout or (_CHOICE_LAYOUT if is_choice else _LAYOUT),
        question=f"{sample.question}\n{box_task(sample)}" if is_boxes else sample.question,
        options=_listed(sample),
        instruction=sample.instruction or instruction,
    )
    more = f"\n{instruction}" if sample.instruction and asked_like != "direct" else ""
    hint = f"Hint: {sample.hint}\n" if sample.hint else ""
    return f"{hint}{text}{more}"


def scorable_choices(sample: Sample, mode: str) -> tuple[str, ...]:
    """Returns the letters to score by log-probability; empty if the model must write, for reasoning or for its scorer."""
    if mode != "direct" or sample.scorer not in ("", sample.task):
        return ()
    if sample.task == "choice":
        return tuple(sample.options)
    return ("Yes", "No") if sample.task == "yes_no" else ()


def answer_limit(sample: Sample, mode: str, limit: int) -> int:
    """Returns the token limit of an answer: ``limit``, or the length of boxes if nothing else is written."""
    if mode != "direct" or sample.localisation is None:
        return limit
    return min(limit, _TOKENS_AROUND + _TOKENS_OF_A_BOX * len(sample.localisation.boxes))


def _listed(sample: Sample) -> str:
    form = sample.option_format or "{letter}. {text}"
    return "\n".join(_filled(form, letter=letter, text=text) for letter, text in sample.options.items())


def _filled(layout: str, **parts: str) -> str:
    """Returns a layout with its parts in their places; braces in a part are text."""
    return re.sub(rf"{{({'|'.join(parts)})}}", lambda match: parts[match[1]], layout)


# Spaces: the box coordinates of a model.


def in_space_of(sample: Sample, convention: str, backend: Guard) -> Sample:
    """Returns a localisation sample with the space of a model's convention; other samples unchanged.

    The image size after the processor is requested only if the convention depends on it.
    """
    about = sample.localisation
    if about is None:
        return sample
    seen = backend.seen_size(*about.size) if convention.startswith(RESIZED_PIXELS) else None
    return dataclasses.replace(sample, localisation=dataclasses.replace(about, space=box_space(convention, about.size, seen)))


# How much the prompts of a box task reveal about the boxes, computed from the samples without a model.


_Named: TypeAlias = tuple[tuple[str, Box], ...]
_UNKNOWN = (float("nan"),) * 4


def prompt_leakage_ious(samples: Sequence[Sample]) -> NDArray[np.float64] | None:
    """Returns the mean overlap predictable from each prompt alone, shape (N,), read-only; None without boxes.

    See :func:`pytest_vlmrobust.metrics.prompt_leakage_iou`.
    """
    pairs = [(sample.source_image, about) for sample in samples if (about := sample.localisation)]
    if not pairs or len(pairs) != len(samples):
        return None
    given = tuple(_shares(about.given, about.size) for _, about in pairs)
    return _overlaps(given, tuple(_shares(about.boxes, about.size) for _, about in pairs), tuple(group for group, _ in pairs))


@lru_cache(maxsize=64)
def _overlaps(given: tuple[_Named, ...], targets: tuple[_Named, ...], groups: tuple[str, ...]) -> NDArray[np.float64]:
    overlaps = metrics.prompt_leakage_iou(_by_name(given), _by_name(targets), groups)
    overlaps.flags.writeable = False
    return overlaps


def _shares(boxes: Mapping[str, Box], size: tuple[int, int]) -> _Named:
    """Returns boxes as fractions of an image."""
    width, height = size
    return tuple((name, (x1 / width, y1 / height, x2 / width, y2 / height)) for name, (x1, y1, x2, y2) in sorted(boxes.items()))


def _by_name(boxes: Iterable[_Named]) -> dict[str, list[Box]]:
    """Returns the boxes of all samples by name; NaN for missing boxes."""
    samples = [dict(named) for named in boxes]
    return {name: [sample.get(name, _UNKNOWN) for sample in samples] for name in sorted(set[str]().union(*samples))}
