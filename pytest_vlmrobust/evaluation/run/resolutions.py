"""Preprocessed: small images that are padded or enlarged before a model sees them, the settings of Res-Bench's Table 3."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import BASELINES, Setting
from pytest_vlmrobust.core.words import first_few
from pytest_vlmrobust.perturbations.registry import REGISTRY

from .probes import FEWEST
from .results import CellResult

PREPROCESSING = "preprocessing"
"""The family of these steps, and the name of Table 3's settings in a mark."""
PADDED = {2: (3, 4, 6, 7, 8, 9, 11, 12), 4: (6, 7, 8, 9, 11, 12)}
"""Twelfths of the size that an image has before and after padding: 224 and 448 of 1344 pixels, as published."""
ENLARGED = {2: (4, 8), 4: (8,)}
"""The same of enlarging, published for super-resolution."""
TWELFTHS = 12
_PUBLISHED_EDGE = 1344
_PADDING = ("pad_white", "pad_zero")
_PLAIN_ENLARGING = ("upscale_lanczos", "upscale_bicubic")


def preprocessing(native_long_edge: int | None = None) -> list[str]:
    """Returns the settings of Table 3, such as ``resolution:224+pad_white:448``: padding first, then enlarging.

    Enlarging is plain interpolation, or super-resolution if the user registered a network for it.

    >>> preprocessing(160)[:2]
    ['resolution:27+pad_white:40', 'resolution:27+pad_white:53']
    """
    edge = native_long_edge or _PUBLISHED_EDGE
    settings = [
        f"resolution:{twelfths(edge, before)}+{name}:{twelfths(edge, after)}"
        for names, sizes in ((_PADDING, PADDED), ((*_PLAIN_ENLARGING, *_networks()), ENLARGED))
        for name in names
        for before, larger in sizes.items()
        for after in larger
        if twelfths(edge, after) > twelfths(edge, before)
    ]
    return list(dict.fromkeys(settings))


def twelfths(edge: int, count: int) -> int:
    """Returns ``count`` twelfths of a long edge in whole pixels, at least 1."""
    return max(1, round(edge * count / TWELFTHS))


def is_preprocessed(setting: Setting) -> bool:
    """Whether a setting is a rung of the resolution ladder followed by a preprocessing step."""
    if setting in BASELINES or len(setting.steps) != 2:
        return False
    return perturbations.info(str(setting)).family == f"ladder+{PREPROCESSING}"


def _networks() -> list[str]:
    """Returns perturbations of the family that are not built in: super-resolution networks of the user's own."""
    built_in = (*_PADDING, *_PLAIN_ENLARGING)
    return [name for name, record in REGISTRY.loaded_things().items() if record.family == PREPROCESSING and name not in built_in]


# Rungs: whether a resolution reached the model; its processor may undo it, and small images never had it.


LADDER_FAMILY = "ladder"
_LADDERS = ("resolution", "resolution_lanczos")
_DETAILS = ("image_grid_thw", "visual_tokens")
"""Details of backends about an image after the processor, the most informative first."""
_FEWEST_RUNGS = 3


def received(result: CellResult) -> str:
    """Returns the image sizes that reached the model in a cell; empty if unknown."""
    kinds = list(dict.fromkeys(_seen(result) or ()))
    return first_few(kinds, 1)


def same_pictures(results: Sequence[CellResult]) -> str:
    """Returns why a ladder is meaningless, if all its rungs showed identical images; else an empty text."""
    alike = list(_by_pictures(results).values())
    if len(alike) != 1 or len(alike[0]) == 1:
        return ""
    return f"all {len(alike[0])} rungs showed the same images, as happens when no image is larger than the lowest rung"


def collapsed_rungs(results: Sequence[CellResult]) -> tuple[str, ...]:
    """Returns which rungs were equal: identical images, or received at the same size, for every image.

    If the received sizes are unknown, the text says so.
    """
    alike = list(_by_pictures(results).values())
    by_grid: dict[tuple[str, ...], list[CellResult]] = {}
    for rungs in alike:
        by_grid.setdefault(_seen(rungs[0]) or (), []).append(rungs[0])
    notes = [
        f"{_named(rungs)} showed the same images, as happens when no image is larger than the lowest of these"
        for rungs in alike
        if len(rungs) > 1
    ]
    if unknown := by_grid.pop((), []):
        notes.append(f"the model does not say at which size it received {_named(unknown)}: whether these differ is unknown")
    notes += [
        f"{_named(rungs)} reached the model at one size ({seen[0]}): the size limits of its processor undid them"
        for seen, rungs in by_grid.items()
        if len(rungs) > 1
    ]
    return tuple(notes)


def why_not_received(results: Sequence[CellResult]) -> tuple[int, str]:
    """Returns how many rungs a model cannot distinguish, and the evidence; 0 if it can, or if too little is known.

    Only rungs with different images are compared. If the received sizes are unknown, the length of
    prompts shows it, because the questions are the same, or else the answers.
    """
    rungs = [alike[0] for alike in _by_pictures(results).values()]
    if len(rungs) < _FEWEST_RUNGS or len(rungs[0].samples) < FEWEST:
        return 0, ""
    sizes = [_seen(rung, (*_DETAILS, "prompt_tokens")) for rung in rungs]
    if all(seen is not None for seen in sizes):
        one_size = len(set(sizes)) == 1
        return (len(rungs), "the images of all rungs reached it at one size") if one_size else (0, "")
    answers = {tuple(prediction.text for prediction in rung.predictions) for rung in rungs}
    varied = len(set(next(iter(answers)))) > 1
    return (len(rungs), "it answers each question the same at all rungs") if len(answers) == 1 and varied else (0, "")


def _named(results: Sequence[CellResult]) -> str:
    return ", ".join(str(result.cell.setting) for result in results)


def _by_pictures(results: Sequence[CellResult]) -> dict[tuple[str, ...], list[CellResult]]:
    """Groups rungs by their answer keys: equal keys mean identical pixels."""
    by_keys: dict[tuple[str, ...], list[CellResult]] = {}
    for result in results:
        if result.cell.setting.name in _LADDERS:
            known = result.keys if all(result.keys) else (str(result.cell.setting),)
            by_keys.setdefault(known, []).append(result)
    return by_keys


def _seen(result: CellResult, names: Sequence[str] = _DETAILS) -> tuple[str, ...] | None:
    """Returns the received sizes of all answers by the first detail that all have; ``None`` without one."""
    for name in names:
        sizes = [prediction.details.get(name) for prediction in result.predictions]
        if all(value is not None for value in sizes):
            return tuple(f"{name.replace('_', ' ')} {value}" for value in sizes)
    return None
