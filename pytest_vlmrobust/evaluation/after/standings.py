"""Ranking: several models on the same samples under the same settings, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from pytest_vlmrobust.core.estimate import LEVEL, Estimate


@dataclass(frozen=True, slots=True)
class Quantity:
    """A quantity that is computed for each model."""

    name: str
    """The name of the registered metric, if it is one."""
    words: str
    better: Literal["higher", "lower"]
    unit: str = ""
    """How it is shown: ``%``, ``pp``, or empty for a plain number."""

    @property
    def unit_of_difference(self) -> str:
        """How the difference of two models is shown."""
        return "pp" if self.unit else ""


MEAN_ACCURACY = Quantity("mean_accuracy", "accuracy under settings", "higher", "%")
CLEAN_ACCURACY = Quantity("clean_accuracy", "clean accuracy", "higher", "%")
MEAN_DROP = Quantity("mean_drop", "mean drop", "lower", "pp")
WORST_CASE_DROP = Quantity("worst_case_drop", "worst-case drop", "lower", "pp")
MEAN_CORRUPTION_ERROR = Quantity("mean_corruption_error", "mCE", "lower")
QUANTITIES = {
    quantity.name: quantity for quantity in (MEAN_ACCURACY, CLEAN_ACCURACY, MEAN_DROP, WORST_CASE_DROP, MEAN_CORRUPTION_ERROR)
}
"""The quantities of each model by name, in column order.

Models are not ranked by the largest of many drops: the difference of two such maxima has no useful interval.
"""
RankedBy = Literal["mean_accuracy", "clean_accuracy", "mean_drop", "mean_corruption_error"]
BY: tuple[RankedBy, ...] = get_args(RankedBy)
"""The quantities that models can be ranked by; the first is the default."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One model among the others."""

    model: str
    values: Mapping[str, Estimate]
    """Name of a quantity to its value with interval; an undefined value has a reason."""
    rank: int | None = None
    """One plus the number of better models; tied models share the better rank. ``None`` if nothing is ranked."""
    rank_best: int | None = None
    """The best rank that the samples do not rule out: one plus the number of models shown to be better."""
    rank_worst: int | None = None
    """The worst such rank: the number of models minus those shown to be worse."""
    not_apart: tuple[str, ...] = ()
    """Models that cannot be distinguished from it."""
    failed: int = 0
    """Failed inferences in the cells that count; they have no score."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two models: the quantity of the first minus that of the second, paired by sample."""

    first: str
    second: str
    difference: Estimate
    """Its interval holds jointly with those of all other pairs."""
    apart: bool
    """Whether the samples distinguish the two models: the interval excludes 0."""


@dataclass(frozen=True, slots=True)
class FamilyDrops:
    """The mean drop of each model under one family of perturbations."""

    family: str
    settings: int
    """Number of settings in the mean, over all datasets."""
    mean_drop: Mapping[str, Estimate]
    """By model."""


CORRUPTION_ERRORS, TIERS, CATEGORY_DROPS = "corruption_errors", "tiers", "category_drops"
SIZE_TREND, PROMPT_MODES, PATCH_TASKS = "size_trend", "prompt_modes", "patch_tasks"
CHAIN_LENGTHS, PATCH_BOXES = "chain_lengths", "patch_boxes"
RCI_BANDS, RCI_CORRELATIONS = "rci_bands", "rci_correlations"
EFFECTS, MOST_HARMFUL, TOP_RCE = "effects", "most_harmful", "top_rce"


@dataclass(frozen=True, slots=True)
class ModelAnalysis:
    """One row of a paper's analysis of several models."""

    name: str
    """The name of the analysis, one of the constants above."""
    part: str
    """The subject of the row: a family of perturbations, a setting, a category of questions, a model or all models, a family of
    models or a pair; for ``rci_bands`` a dataset."""
    values: Mapping[str, Estimate]
    """Column to number; the columns are models or quantities."""
    of: str = ""
    """The level for ``tiers``, ``effects``, ``most_harmful``, ``top_rce``; the task for ``patch_tasks``; for ``chain_lengths``
    the outcome; for ``patch_boxes`` the patch; for ``rci_bands`` and ``rci_correlations`` the grid; empty for the others."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Board:
    """All models on one dataset, or over all datasets."""

    dataset: str
    """Empty over all datasets."""
    samples: int
    settings: int
    """Number of perturbed settings that all models were asked about; over all datasets their sum."""
    standings: tuple[Standing, ...]
    """Best first."""
    differences: tuple[Difference, ...] = ()
    """Every pair of models once, in the order of the standings."""
    families: tuple[FamilyDrops, ...] = ()
    """Families with the largest drop, on average over models, come first."""
    notes: tuple[str, ...] = ()
    """Limitations: failed inferences, and undefined quantities with reasons."""
    analyses: tuple[ModelAnalysis, ...] = ()
    """The papers' analyses of several models: of one dataset, and on the first board PCRI by task."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The ranking of several models."""

    runs: tuple[str, ...]
    """The locations of the runs."""
    models: tuple[str, ...]
    by: str
    """Name of the quantity that ranks."""
    reference: str
    """The model whose errors are the unit of mCE; empty if none was named."""
    boards: tuple[Board, ...]
    """If there are several datasets, the board over all of them first, then one for each."""
    left_out: tuple[str, ...] = ()
    """Excluded measurements: cells that not all models were asked about, and experiments of another kind."""
    confidence: float = LEVEL
    """Level of each interval, and of all statements about ranks and pairs of a board together."""

    @property
    def quantity(self) -> Quantity:
        """The ranking quantity."""
        return QUANTITIES[self.by]

    @property
    def quantities(self) -> list[Quantity]:
        """The quantities of the table, the ranking one first; mCE only with a reference model."""
        given = [quantity for quantity in QUANTITIES.values() if self.reference or quantity is not MEAN_CORRUPTION_ERROR]
        return sorted(given, key=lambda quantity: quantity.name != self.by)
