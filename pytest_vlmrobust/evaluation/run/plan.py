"""The plan: from the inputs of a run to its cells, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_vlmrobust import metrics, perturbations
from pytest_vlmrobust.core.cell import BASELINES, Cell, FamilyMetric, Setting, SweepMetric
from pytest_vlmrobust.core.errors import UnknownName, UsageError
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.perturbations.catalog import OFFERED_GRIDS, SETS, records
from pytest_vlmrobust.perturbations.registry import REGISTRY

from .resolutions import PREPROCESSING, preprocessing

LADDER = "ladder"
"""The name of twelve rungs up to the size of a dataset's images if they are equal, else of the published ladder."""
RUNGS = 12
PATCHES = "patches"
"""The name of the grids of a run."""
GRIDS = (2, 3)
"""The published grids that a run uses by default."""
ORDERS = "options"
"""The name of all cyclic orders of a dataset's largest choice set, with at least four options."""
FEWEST_OPTIONS = 4


def expand_settings(
    names: Iterable[str],
    native_long_edge: int | None = None,
    grids: Sequence[int] = GRIDS,
    most_options: int = FEWEST_OPTIONS,
) -> tuple[Setting, ...]:
    """Expands names of settings and sets of settings.

    Sets are those of perturbations, such as ``robustbench``, and four that depend on the run: ``ladder``, ``preprocessing``,
    ``patches`` and ``options``. ``native_long_edge`` is the one that all images of the dataset share, in pixels; ``most_options``
    how many options its largest choice set has.
    """
    expanded: dict[Setting, None] = {}
    for name in names:
        for member in _members(name, native_long_edge, grids, most_options):
            setting = Setting.parse(member)
            if setting not in BASELINES:
                _check(setting)
            expanded[setting] = None
    return tuple(expanded)


def read_grids(text: str) -> tuple[int, ...]:
    """Reads grids, patches on a side: ``2,3``."""
    offered = {str(n): n for n in OFFERED_GRIDS}
    parts = [part.strip() for part in text.split(",")]
    if wrong := [part for part in parts if part not in offered]:
        raise UsageError(
            f"--vlm-patches {text!r}: {wrong[0]!r} is not a grid. Expected patches on a side, one or several of "
            f"{', '.join(offered)}, separated by commas"
        )
    return tuple(dict.fromkeys(offered[part] for part in parts))


def _check(setting: Setting) -> None:
    try:
        perturbations.info(setting)
        for record, level in records(setting):
            record.require(level)
    except UnknownName as error:
        if error.name == str(setting):  # no part of something longer: it may have been meant as a set
            raise UnknownName(
                "setting, or set of settings", error.name, [*SETS, LADDER, PREPROCESSING, *REGISTRY.names()]
            ) from None
        raise


def ladder(native_long_edge: int) -> list[str]:
    """Returns twelve rungs, a twelfth of the native size apart, each once.

    >>> ladder(160)[:3], ladder(160)[-1]
    (['resolution:13', 'resolution:27', 'resolution:40'], 'resolution:160')
    """
    edges = (max(1, round(native_long_edge * step / RUNGS)) for step in range(1, RUNGS + 1))
    return list(dict.fromkeys(f"resolution:{edge}" for edge in edges))


def _members(name: str, native_long_edge: int | None, grids: Sequence[int], most_options: int) -> list[str]:
    if name == LADDER:
        return perturbations.names("resolution") if native_long_edge is None else ladder(native_long_edge)
    if name == PREPROCESSING:
        return preprocessing(native_long_edge)
    if name == PATCHES:
        return [f"{PATCHES}:{n}" for n in grids]
    if name == ORDERS:
        return [f"option_order:{shift}" for shift in range(1, max(most_options, FEWEST_OPTIONS))]
    return perturbations.names(name) if name in SETS else [name]


def plan_cells(models: Sequence[str], settings: Mapping[str, Sequence[Setting]]) -> list[Cell]:
    """Returns the cells by model, so that each model is loaded once, with baselines first, so that drops are known at once."""
    return [
        Cell(model, dataset, setting)
        for model in models
        for dataset, expanded in settings.items()
        for setting in [*(s for s in BASELINES if s in expanded), *(s for s in expanded if s not in BASELINES)]
    ]


def plan_sweeps(
    models: Mapping[str, ModelRef],
    datasets: Sequence[str],
    names: Sequence[str],
    splits: Sequence[str] = ("",),
    *,
    baseline: bool = False,
) -> list[SweepMetric]:
    """Returns the summary metrics of every sweep, model by model.

    A metric that compares a thinking model with its non-thinking counterpart is planned only where the run has both, and a
    metric that compares with an earlier run only with a ``baseline``.
    """
    comparing = {name: needs_counterpart(name) for name in names}
    return [
        SweepMetric(model, dataset, name, split)
        for model in models
        for dataset in datasets
        for name in names
        for split in splits
        if not comparing[name] or non_thinking_counterpart(models, model)
        if baseline or not needs_baseline(name)
    ]


def needs_baseline(metric: str) -> bool:
    """Returns whether a summary metric compares with an earlier run."""
    return metrics.Needs.BASELINE_BY_SETTING in metrics.get(metric).needs


def needs_counterpart(metric: str) -> bool:
    """Returns whether a metric compares a thinking model with the same model without thinking."""
    return metrics.Needs.BASE_BY_SETTING in metrics.get(metric).needs


def plan_families(
    models: Mapping[str, ModelRef], datasets: Sequence[str], names: Sequence[str], splits: Sequence[str]
) -> list[FamilyMetric]:
    """Returns the properties of every family of models in the run; empty if no family has two sizes."""
    for name in names:
        if name not in metrics.FAMILY_METRICS:
            raise UnknownName("metric of a family", name, metrics.FAMILY_METRICS)
    return [
        FamilyMetric(family, dataset, name, split)
        for family in families(models)
        for dataset in datasets
        for name in names
        for split in splits
    ]


# Families: which models of a run belong together, by size and by whether they think first.


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
    model = models[name]
    if model.prompt_mode != THINKING or not model.family:
        return ""
    of_size = {
        other: ref
        for other, ref in models.items()
        if ref.prompt_mode != THINKING and (ref.family, ref.parameters_billion) == (model.family, model.parameters_billion)
    }
    alike = [other for other, ref in of_size.items() if ref.prompt_mode == DIRECT] or [*of_size]
    if len(alike) > 1:
        raise UsageError(
            f"the thinking model {name!r} could be compared with {' or '.join(map(repr, sorted(alike)))}, which have its family "
            f"{model.family!r} and its size. Gate them in runs of their own, or give one another family in the models file"
        )
    return next(iter(alike), "")


def family_name(ref: ModelRef) -> str:
    """Returns the family of a model, with its prompt mode unless it is direct: sizes and means are compared like for like."""
    return ref.family if ref.prompt_mode == DIRECT else f"{ref.family}-{ref.prompt_mode}"
