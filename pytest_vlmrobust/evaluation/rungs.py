"""Rungs: what a model received of a resolution, which its processor may have undone, or small pictures never had."""

from __future__ import annotations

from collections.abc import Sequence

from .cell_result import CellResult

LADDER_FAMILY = "ladder"
_LADDERS = ("resolution", "resolution_lanczos")
_DETAILS = ("image_grid_thw", "visual_tokens")
"""What backends say about a picture after their processor, the most telling first."""


def received(result: CellResult) -> str:
    """Returns what reached the model of the pictures of a cell; an empty string when it does not say."""
    kinds = list(dict.fromkeys(_seen(result) or ()))
    more = f" and {len(kinds) - 1} more" if len(kinds) > 1 else ""
    return f"{kinds[0]}{more}" if kinds else ""


def same_pictures(results: Sequence[CellResult]) -> str:
    """Returns why a ladder says nothing: all its rungs showed the very same pictures. An empty string where some differ."""
    alike = list(_by_pictures(results).values())
    if len(alike) != 1 or len(alike[0]) == 1:
        return ""
    return f"all {len(alike[0])} rungs showed the very same pictures, as where none is larger than the lowest rung"


def collapsed_rungs(results: Sequence[CellResult]) -> tuple[str, ...]:
    """Returns which rungs were one: the same pictures, or received by the model as one size, for every picture.

    Where the model does not say what it received, that is said.
    """
    alike = list(_by_pictures(results).values())
    by_grid: dict[tuple[str, ...], list[CellResult]] = {}
    for rungs in alike:
        by_grid.setdefault(_seen(rungs[0]) or (), []).append(rungs[0])
    found = [
        f"{_named(rungs)} showed the very same pictures, as where none is larger than the lowest of these"
        for rungs in alike
        if len(rungs) > 1
    ]
    if unknown := by_grid.pop((), []):
        found.append(f"the model does not say at which size it received {_named(unknown)}: whether these differ is unknown")
    found += [
        f"{_named(rungs)} reached the model as one size ({seen[0]}): limits of its processor on size undid them"
        for seen, rungs in by_grid.items()
        if len(rungs) > 1
    ]
    return tuple(found)


def _named(results: Sequence[CellResult]) -> str:
    return ", ".join(str(result.cell.setting) for result in results)


def _by_pictures(results: Sequence[CellResult]) -> dict[tuple[str, ...], list[CellResult]]:
    """Returns the rungs by the keys of their answers, which tell pictures apart: equal ones asked about the same pixels."""
    found: dict[tuple[str, ...], list[CellResult]] = {}
    for result in results:
        if result.cell.setting.name in _LADDERS:
            known = result.keys if all(result.keys) else (str(result.cell.setting),)
            found.setdefault(known, []).append(result)
    return found


def _seen(result: CellResult) -> tuple[str, ...] | None:
    """Returns what the model received for each answer, ``None`` when it does not say."""
    for name in _DETAILS:
        found = [prediction.details.get(name) for prediction in result.predictions]
        if all(value is not None for value in found):
            return tuple(f"{name.replace('_', ' ')} {value}" for value in found)
    return None
