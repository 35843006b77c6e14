"""How boxes are told and asked for in a prompt, in the coordinates that the model speaks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..core.boxes import PIXELS, RESIZED_PIXELS, Box, BoxSpace, Localisation
from ..core.sample import Sample

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
    """Returns what comes after the pictures: their size, how boxes are written, those that are told, and what to find.

    Raises:
        ValueError: the sample does not say what is asked for.
    """
    about = _about(sample)
    told = f"In the {_ORDINALS[about.given_in]} picture: {_json(about.given, about)}\n" if about.given else ""
    sided = any(name.startswith(("left", "right")) for name in (*about.given, *about.boxes))
    viewer = _VIEWER if sided else ""
    return f"{_coordinates(about)}\n{viewer}{told}Find the box of each of these in the second picture: {', '.join(about.boxes)}."


def box_instruction(sample: Sample) -> Mapping[str, str]:
    """Returns how to answer, by prompt mode.

    Raises:
        ValueError: the sample does not say what is asked for.
    """
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
    """Returns a box as JSON; one without extent as the point that it is."""
    space = about.spoken
    numbers = _spelled(space.write(box, about.size), space)
    is_point = (box[0], box[1]) == (box[2], box[3])
    edges = tuple(space.order) if is_point else _EDGES[space.order]
    return "{" + ", ".join(f'"{edge}": {number}' for edge, number in zip(edges, numbers, strict=False)) + "}"


def _spelled(numbers: Iterable[float], space: BoxSpace) -> list[str]:
    return [f"{number:.3f}" if _base(space) == "fractions" else str(round(number)) for number in numbers]


def _base(space: BoxSpace) -> str:
    return space.name.removesuffix("_yx")
