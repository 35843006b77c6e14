"""Rungs: what a model received of a resolution, which its processor may have undone."""

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


def collapsed_rungs(results: Sequence[CellResult]) -> tuple[str, ...]:
    """Returns which rungs the model received as one, for every picture, or that it does not say what it received of some."""
    rungs_of = [result for result in results if result.cell.setting.name in _LADDERS]
    by_grid: dict[tuple[str, ...], list[str]] = {}
    for result in rungs_of:
        by_grid.setdefault(_seen(result) or (), []).append(str(result.cell.setting))
    unknown = by_grid.pop((), [])
    silent = (f"the model does not say at which size it received {', '.join(unknown)}: whether these differ is unknown",)
    return (silent if unknown else ()) + tuple(
        f"{', '.join(rungs)} reached the model as one size ({seen[0]}): limits of its processor on size undid them"
        for seen, rungs in by_grid.items()
        if len(rungs) > 1
    )


def _seen(result: CellResult) -> tuple[str, ...] | None:
    """Returns what the model received for each answer, ``None`` when it does not say."""
    for name in _DETAILS:
        found = [prediction.details.get(name) for prediction in result.predictions]
        if all(value is not None for value in found):
            return tuple(f"{name.replace('_', ' ')} {value}" for value in found)
    return None
