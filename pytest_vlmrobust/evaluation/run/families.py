"""Families: which models of a run belong together, by size and by whether they think first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.prediction import ModelRef

DIRECT, THINKING = "direct", "thinking"


@dataclass(frozen=True, slots=True)
class Family:
    """Models of a family with the same prompt mode, by size."""

    members: tuple[str, ...]
    """Names in test ids, the smallest model first."""
    parameters: tuple[float, ...]
    """Their sizes in billions of parameters, in the same order, all different."""

    @property
    def largest(self) -> str:
        """The member whose policy judges the family."""
        return self.members[-1]


def families(models: Mapping[str, ModelRef]) -> dict[str, Family]:
    """Returns the families with at least two sizes, by name in test ids: ``qwen2-vl``, ``internvl-thinking``.

    Models without a family or size are left out; of two models with the same size the first counts.
    """
    by_family: dict[str, dict[float, str]] = {}
    for name, ref in models.items():
        if ref.family and ref.parameters_billion is not None:
            by_family.setdefault(family_name(ref), {}).setdefault(ref.parameters_billion, name)
    sized = {family: sorted(by_size.items()) for family, by_size in by_family.items() if len(by_size) > 1}
    if alike := [family for family in sized if family in models]:
        raise UsageError(f"the family {alike[0]!r} has the name of a model of the run: rename one of them in the models file")
    return {
        family: Family(tuple(name for _, name in members), tuple(size for size, _ in members))
        for family, members in sized.items()
    }


def non_thinking_counterpart(models: Mapping[str, ModelRef], name: str) -> str:
    """Returns the run's model that is ``name`` without thinking; empty if none.

    One that answers directly comes before one that is asked for its reasons.
    """
    own = models[name]
    if own.prompt_mode != THINKING or not own.family:
        return ""
    of_size = {
        other: ref
        for other, ref in models.items()
        if ref.prompt_mode != THINKING and (ref.family, ref.parameters_billion) == (own.family, own.parameters_billion)
    }
    alike = [other for other, ref in of_size.items() if ref.prompt_mode == DIRECT] or [*of_size]
    if len(alike) > 1:
        raise UsageError(
            f"the thinking model {name!r} could be compared with {' or '.join(map(repr, sorted(alike)))}, which have its family "
            f"{own.family!r} and its size. Gate them in runs of their own, or give one another family in the models file"
        )
    return next(iter(alike), "")


def family_name(ref: ModelRef) -> str:
    """Returns the family of a model, with its prompt mode unless it is direct: sizes and means are compared like for like."""
    return ref.family if ref.prompt_mode == DIRECT else f"{ref.family}-{ref.prompt_mode}"
