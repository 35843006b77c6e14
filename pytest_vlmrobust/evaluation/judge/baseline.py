"""Baseline: an earlier run, from its evidence, that cells are compared with sample by sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.errors import DatasetError, StoreError, UsageError, did_you_mean
from pytest_vlmrobust.core.prediction import Score
from pytest_vlmrobust.core.sample import PictureDigests, Sample
from pytest_vlmrobust.core.words import first_few, quantity
from pytest_vlmrobust.evaluation.run.answers import Questions
from pytest_vlmrobust.evaluation.run.results import counted
from pytest_vlmrobust.evaluation.run.views import depends_on_seed
from pytest_vlmrobust.metrics.table import ScoreTable
from pytest_vlmrobust.store import Evidence, StoredCell, read_manifest
from pytest_vlmrobust.store.run_directory import MANIFEST_FILE as MANIFEST

from .replay import Rescored, scored_again

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_MOST = 3
"""Ids that a message names."""


@dataclass(eq=False)
class Baseline:
    """The scores of an earlier run on the samples of this one."""

    evidence: Evidence
    trusting: bool = False
    """Whether a stored score that differs when it is computed again is only kept in ``rescored``, and not refused."""
    rescored: list[Rescored] = field(default_factory=list)
    """Answers whose stored score differs when it is computed again."""

    def __post_init__(self) -> None:
        self._cells = set(self.evidence.cells())
        self._models = sorted({cell.model for cell in self._cells})
        self._samples: dict[str, tuple[Sample, ...]] = {}
        self._pictures = {name: self.evidence.pictures(name) for name in self.evidence.datasets()}
        self._paired: dict[str, _Pairing] = {}
        self._best: dict[Cell, list[float]] = {}

    @classmethod
    def open(cls, run: Path, *, trusting: bool = False) -> Baseline:
        """Opens the evidence of a run: a directory below ``runs`` of a store, or one written by ``--vlm-report``.

        Args:
            run: the directory.
            trusting: whether stored scores that are others when they are computed again are only noted, see ``rescored``.

        Raises:
            UsageError: there is none, or nothing in it.
        """
        if not (run / "predictions.sqlite").is_file():
            raise UsageError(
                f"{str(run)!r} holds no predictions.sqlite: expected the directory of a run, .vlmrobust/runs/RUN, or one that "
                "--vlm-report wrote"
            )
        baseline = cls(Evidence.open(run, read_only=True), trusting)
        if not baseline._cells:
            raise UsageError(f"{str(run)!r}: the run measured nothing that could be compared with")
        return baseline

    def model(self, name: str) -> str:
        """Returns the model of the earlier run that ``name`` is compared with: the one called so, else the only one.

        Raises:
            UsageError: several models, and none called so.
        """
        if name in self._models:
            return name
        if len(self._models) == 1:
            return self._models[0]
        raise UsageError(
            f"the baseline has no model {name!r}.{did_you_mean(name, self._models)} It has: {', '.join(self._models)}. "
            "Give the model the same name in the models file"
        )

    def measured(self, cell: Cell) -> bool:
        """Whether the earlier run has answers of this cell."""
        return self._earlier_cell(cell) in self._cells

    @cached_property
    def seed(self) -> int | None:
        """The seed of its stochastic settings; ``None`` where its manifest does not say, or evidence was copied alone.

        Raises:
            StoreError: its manifest cannot be read.
        """
        directory = self.evidence.path.parent
        if not (directory / MANIFEST).is_file():
            return None
        settings = read_manifest(directory).get("settings")
        seed = settings.get("vlm_seed") if isinstance(settings, dict) else None
        return seed if isinstance(seed, int) else None

    @property
    def without_pictures(self) -> tuple[str, ...]:
        """The datasets of which the earlier run does not say what pictures it showed: an older release, or no clean cell."""
        return tuple(name for name, digests in self._pictures.items() if not digests)

    def samples(self, dataset: str) -> tuple[Sample, ...]:
        """Returns what the earlier run asked of a dataset.

        Raises:
            StoreError: it asked nothing of it, or it cannot be read.
        """
        if dataset not in self._samples:
            self._samples[dataset] = self.evidence.samples(dataset)
        return self._samples[dataset]

    def pictures(self, dataset: str) -> Mapping[str, PictureDigests]:
        """Returns what tells the pictures of its samples from others, by id, as far as the earlier run kept it."""
        return self._pictures.get(dataset, {})

    def scores(self, cell: Cell, now: Questions) -> NDArray[np.float64]:
        """Returns the earlier scores of the samples of now, shape (N,), of several views the best one's.

        They are computed again from its answers. NaN stands where an inference failed. Where either run does not know its
        pictures, nothing is said about them.

        Raises:
            DatasetError: the earlier run asked other samples, or about other pictures.
            StoreError: answers cannot be read, or their stored scores are others.
            UnknownName: a sample is scored by what is not registered here.
        """
        import numpy as np

        places = self._places(cell.dataset, now)
        best = self.own_scores(self._earlier_cell(cell))
        return np.array([best[place] for place in places], float)

    def own_scores(self, cell: Cell) -> list[float]:
        """Returns the scores of one of its own cells, computed again, a number for each of its samples; see :meth:`scores`.

        Raises:
            StoreError: answers cannot be read, or their stored scores are others.
            UnknownName: a sample is scored by what is not registered here.
        """
        if cell not in self._best:
            stored = self.evidence.get_cell(cell)
            samples = self.evidence.samples(cell.dataset, cell.model)
            scores, differing = scored_again(self.evidence, stored, samples)
            self.rescored += differing
            if differing and not self.trusting:
                raise StoreError(self._refusal(differing))
            self._best[cell] = best_scores(stored, samples, scores)
        return self._best[cell]

    def refuse_seed(self, seed: int | None, cells: Iterable[Cell]) -> None:
        """Refuses to be compared with a run whose stochastic settings made other pictures.

        Args:
            seed: of the other run; ``None`` where nobody knows it, and nothing can be said.
            cells: of the other run.

        Raises:
            DatasetError: the seeds differ, and a cell that both have has a setting that depends on them.
        """
        if seed is None or self.seed is None or seed == self.seed:
            return
        drawn = sorted({str(cell.setting) for cell in cells if depends_on_seed(cell.setting) and self.measured(cell)})
        if drawn:
            raise DatasetError(
                f"the baseline {str(self.evidence.path.parent)!r} was made with --vlm-seed={self.seed}, and this run has "
                f"--vlm-seed={seed}: pictures under {quantity(len(drawn), 'setting')} ({first_few(drawn, _MOST)}) "
                f"are others there. Run with --vlm-seed={self.seed}, or make a new baseline with --vlm-seed={seed}"
            )

    def close(self) -> None:
        """Closes the evidence."""
        self.evidence.close()

    def _refusal(self, differing: Sequence[Rescored]) -> str:
        more = f", and {quantity(len(differing) - 1, 'more answer')} of this cell" if len(differing) > 1 else ""
        return (
            f"{self.evidence.path}: {differing[0]}{more}. Scores of a run that is compared with have to be those of its answers: "
            "the file was changed, or a release that scores otherwise wrote it. Run the earlier model anew, and compare with that"
        )

    def _earlier_cell(self, cell: Cell) -> Cell:
        return Cell(self.model(cell.model), cell.dataset, cell.setting)

    def _places(self, dataset: str, now: Questions) -> tuple[int, ...]:
        """Returns the place in the earlier run of each sample of now, looked up once while these stay the same objects."""
        samples, pictures = now.samples(dataset), now.pictures(dataset)
        paired = self._paired.get(dataset)
        if paired is None or paired.samples is not samples or paired.pictures is not pictures:
            self._check_same(dataset, samples, pictures)
            place = {sample.id: index for index, sample in enumerate(self.samples(dataset))}
            paired = _Pairing(samples, pictures, tuple(place[sample.id] for sample in samples))
            self._paired[dataset] = paired
        return paired.places

    def _check_same(self, dataset: str, samples: Sequence[Sample], pictures: Mapping[str, PictureDigests]) -> None:
        """Refuses samples that do not pair: other ids, or another question, answer or picture under the same id."""
        before, after = ({sample.id: sample.asked for sample in each} for each in (self.samples(dataset), samples))
        shown = self.pictures(dataset)
        common = before.keys() & after.keys()
        differ = {
            "are not in the baseline": after.keys() - before.keys(),
            "are only there": before.keys() - after.keys(),
            "ask something else there": {name for name in common if before[name] != after[name]},
            "show other pictures there": {
                name for name in common & shown.keys() & pictures.keys() if not shown[name].same_as(pictures[name])
            },
        }
        differences = [f"{len(ids)} {what} ({first_few(sorted(ids), _MOST)})" for what, ids in differ.items() if ids]
        if differences:
            raise DatasetError(
                f"the baseline cannot be compared on {dataset}: of {len(after)} samples here, {'; '.join(differences)}. "
                "Expected the same samples in both runs: the same data set with the same pictures, and the same --vlm-sample. "
                "Where questions or pictures were changed on purpose, run the earlier model on them and compare with that run"
            )


@dataclass(frozen=True, slots=True, eq=False)
class _Pairing:
    """Which sample of the earlier run belongs to each sample of now."""

    samples: Sequence[Sample]
    pictures: Mapping[str, PictureDigests]
    places: tuple[int, ...]


def baseline_scores(baseline: Baseline, model: str, dataset: str, now: Questions, table: ScoreTable) -> dict[str, Any]:
    """Returns the earlier scores under the settings of a table, of those that the earlier run measured.

    Raises:
        DatasetError: the baseline asked other samples, or about other pictures.
    """
    cells = (Cell(model, dataset, Setting.parse(name)) for name in table.by_setting)
    return {str(cell.setting): baseline.scores(cell, now) for cell in cells if baseline.measured(cell)}


def not_compared(metric: str, table: ScoreTable) -> str:
    """Returns why a summary metric that compares with an earlier run does not apply, or an empty string."""
    if metrics.Needs.BASELINE_BY_SETTING not in metrics.get(metric).needs:
        return ""
    lacking = [name for name in table.by_setting if name not in (table.baseline_by_setting or {})]
    more = f" and {quantity(len(lacking) - 1, 'more setting')}" if len(lacking) > 1 else ""
    return f"the baseline did not measure {lacking[0]}{more}" if lacking else ""


def changed(baseline: Baseline, cell: Cell, now: Questions, values: NDArray[np.float64]) -> metrics.ChangedSamples:
    """Returns the samples that a cell answers worse than the baseline did, and better; none where that did not measure it.

    Raises:
        DatasetError: the baseline asked other samples, or about other pictures.
    """
    if not baseline.measured(cell):
        return metrics.ChangedSamples((), (), ())
    return metrics.changed_samples([sample.id for sample in now.samples(cell.dataset)], baseline.scores(cell, now), values)


def best_scores(stored: StoredCell, samples: Sequence[Sample], scores: Sequence[Score]) -> list[float]:
    """Returns what each sample counts for, of several views the best one, NaN where an inference failed.

    Args:
        stored: the cell.
        samples: what was asked.
        scores: of each sample those of all its views in a row.

    A view that was not asked about, because an earlier one was right, takes no part. As in the run itself, an answer without the
    pictures that cannot be read is a guess.
    """
    worth = counted(stored.cell.setting, samples, scores)
    values = [value if score.state != "unasked" else 0.0 for value, score in zip(worth, scores, strict=True)]
    rows = [values[start : start + stored.views] for start in range(0, len(values), stored.views)]
    return [float("nan") if any(value != value for value in row) else max(row) for row in rows]  # noqa: PLR0124 - NaN
