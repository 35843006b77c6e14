"""Ranking several models from the evidence of their runs, on the same samples and settings, without models or images."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import BASELINES, CLEAN, NO_IMAGE, Setting
from pytest_vlmrobust.core.conversion import from_plain, to_plain
from pytest_vlmrobust.core.errors import StoreError, UnknownName, UsageError
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.words import first_few, quantity
from pytest_vlmrobust.evaluation.judge.baseline import Baseline, refuse_unlike_answers
from pytest_vlmrobust.evaluation.run.manifest import ORIGIN
from pytest_vlmrobust.evaluation.run.plan import DIRECT
from pytest_vlmrobust.evaluation.run.resolutions import LADDER_FAMILY, PREPROCESSING
from pytest_vlmrobust.evaluation.run.results import words_of_thinking

from .paired import RunModel, differing_conditions, manifest, open_models, paired_table, run_models, runs_of
from .standings import BY, Board, ModelAnalysis, Ranking

if TYPE_CHECKING:
    from pytest_vlmrobust.store import Evidence

    from .boards import Part, RankingOptions


SHOWN = 3
"""Names in a message."""
UNREGISTERED = "not registered here"
"""The family of settings whose perturbation was registered in the run but is not registered here."""
_OTHER_EXPERIMENTS = {LADDER_FAMILY, "patches", PREPROCESSING}
"""Families whose settings do not measure the cost of a perturbation."""


def rank(runs: Sequence[tuple[str, Path]], *, by: str = BY[0], reference: str = "") -> Ranking:
    """Ranks all models of one or more runs, over the cells that all of them were asked about.

    Args:
        runs: name and directory of each; models of a run with a name are called NAME/MODEL, others by their own names.
        by: the quantity that ranks, one of :data:`~pytest_vlmrobust.evaluation.after.standings.BY`.
        reference: the model whose errors are the unit of mCE; empty for none.

    Raises:
        UsageError: a directory without evidence, fewer than two models, a duplicate name, no cell that all of them were asked
            about, or mCE without a reference model.
        UnknownName: no such quantity, or no such reference model.
        DatasetError: the runs asked different samples, or showed different images, or some models were answered by letters and
            others by text.
        StoreError: the evidence cannot be read.
    """
    with open_models(runs) as models:
        return rank_models(models, by=by, reference=reference)


def rank_run(evidence: Evidence, name: str, reference: str = "") -> tuple[Ranking | None, str]:
    """Returns the ranking of the models of a run, or ``None`` and the reason."""
    run = Baseline(evidence, called=name)
    try:
        return rank_models(run_models(run), reference=reference), ""
    except (UsageError, StoreError) as error:
        if isinstance(error, StoreError) and not run.stopped_early:
            raise
        return None, f"the models of the run are not ranked: {error}"


def rank_models(models: Sequence[RunModel], *, by: str = BY[0], reference: str = "") -> Ranking:
    """Ranks models of open runs, see :func:`rank`."""
    from .boards import RankingOptions, boards

    if by not in BY:
        raise UnknownName("quantity", by, BY, where="--by")
    _refuse_shared_names(models)
    names = tuple(model.name for model in models)
    if reference and reference not in names:
        raise UnknownName("reference model", reference, names, where="--reference")
    if by == "mean_corruption_error" and not reference:
        raise UsageError(f"--by {by} needs a model whose errors are its unit: --reference with one of {', '.join(names)}")
    common, left_out = _common(models, by)
    for dataset in common:
        refuse_unlike_answers({model.name: model.run.answered_by(model.cell(dataset, CLEAN)) for model in models}, dataset)
    parts = [_part(models, dataset, settings, left_out) for dataset, settings in common.items()]
    options = RankingOptions(names, by, reference)
    refs = _refs(models)
    if unknown := [name for name in names if name not in refs]:
        left_out.append(
            f"family, size and prompt mode of {first_few(unknown, SHOWN)} are unknown: no manifest.json beside the "
            "predictions.sqlite gives them. Without them there is no mean by family, size_trend, prompt_modes and chain_lengths"
        )
    return Ranking(
        runs=tuple(run.called for run in runs_of(models)),
        models=names,
        by=by,
        reference=reference,
        boards=_with_analyses(boards(parts, options), parts, options, models, refs),
        left_out=(*left_out, *differing_conditions(runs_of(models), common)),
    )


def _with_analyses(
    boards: Sequence[Board],
    parts: Sequence[Part],
    options: RankingOptions,
    models: Sequence[RunModel],
    refs: Mapping[str, ModelRef],
) -> tuple[Board, ...]:
    """Returns the boards with the papers' analyses: of each dataset, and on the first board PCRI by task over datasets."""
    from .analyses import analyses, patch_analyses, patch_boxes, patch_indices, rci_analyses

    by_dataset = {part.dataset: analyses(part, options, refs) for part in parts}
    by_dataset = {
        name: (*rows, *_chain_lengths(models, name, next(part for part in parts if part.dataset == name), refs))
        for name, rows in by_dataset.items()
    }
    by_dataset = {board.dataset: by_dataset.get(board.dataset, ()) for board in boards}
    indices = [
        index
        for model in models
        for index in patch_indices(model.run.evidence, model.model, model.name)
        if index.dataset in by_dataset
    ]
    counts = Counter((index.dataset, index.grid) for index in indices)
    of_all = [index for index in indices if counts[index.dataset, index.grid] == len(models)]
    by_dataset[boards[0].dataset] += (*patch_analyses(of_all), *rci_analyses(of_all), *patch_boxes(of_all))
    return tuple(replace(board, analyses=by_dataset[board.dataset]) for board in boards)


def _chain_lengths(models: Sequence[RunModel], dataset: str, part: Part, refs: Mapping[str, ModelRef]) -> Iterator[ModelAnalysis]:
    """Yields the lengths of chains of thought of each model that was also run without them."""
    from .analyses import Chains, chain_lengths, mode_pairs

    by_name = {model.name: model for model in models}
    for plain, thinking in mode_pairs(refs):
        if refs[plain].prompt_mode != DIRECT:
            continue
        cells = []
        for setting in (CLEAN, *map(Setting.parse, part.table.by_setting)):
            both = []
            for model in (by_name[plain], by_name[thinking]):
                answers = model.run.evidence.get_cell(model.cell(dataset, setting)).answers
                order = [place for place in model.run.places(dataset, by_name[plain].run) if place is not None]
                words = [words_of_thinking(answer.prediction.text) for answer in answers]
                both.append(Chains([answers[place].score.value for place in order], [words[place] for place in order]))
            cells.append((setting, both[0], both[1]))
        yield from chain_lengths((plain, thinking), cells)


def _refs(models: Sequence[RunModel]) -> dict[str, ModelRef]:
    """Returns the models' entries in the manifests of the runs; models without one are absent."""
    refs = {}
    for model in models:
        every = manifest(model.run).get("models")
        known = every.get(model.model) if isinstance(every, dict) else None
        if isinstance(known, dict):
            with contextlib.suppress(TypeError):
                about = {key: known.get(key) for key in ORIGIN}
                refs[model.name] = from_plain(to_plain(ModelRef(model.model, "", "")) | about, ModelRef)
    return refs


def _refuse_shared_names(models: Sequence[RunModel]) -> None:
    by_name: dict[str, RunModel] = {}
    for model in models:
        if (other := by_name.setdefault(model.name, model)) is not model:
            raise UsageError(
                f"the model {model.name!r} is in {other.run.called!r} and in {model.run.called!r}. Give the runs names of their "
                "own, which are then put before those of their models: vlmrobust rank before=RUN after=RUN"
            )
    if len(models) < 2:
        raise UsageError(
            f"a ranking needs two models or more, found {', '.join(by_name) or 'none'}. Name several runs, or a run of several "
            "models (--vlm)"
        )


def _common(models: Sequence[RunModel], by: str) -> tuple[dict[str, list[Setting]], list[str]]:
    """Returns the perturbed settings of each dataset that all models were asked about, and sentences about the excluded ones."""
    measured = [{(c.dataset, c.setting) for c in model.run.evidence.cells() if c.model == model.model} for model in models]
    common: dict[str, list[Setting]] = {}
    left_out: list[str] = []
    for dataset in sorted({dataset for pairs in measured for dataset, _ in pairs}):
        settings = sorted({setting for pairs in measured for name, setting in pairs if name == dataset} - {NO_IMAGE})
        lacking = {
            setting: [m.name for m, pairs in zip(models, measured, strict=True) if (dataset, setting) not in pairs]
            for setting in settings
        }
        ours = [setting for setting in settings if _counts(setting) and not lacking[setting]]
        if lacking.get(CLEAN) == [] and (ours or by == "clean_accuracy"):
            common[dataset] = ours
            left_out += _uncounted_settings(dataset, lacking)
        else:
            absent = sorted({name for names in lacking.values() for name in names})
            why = f" ({', '.join(absent)})" if absent else ""
            left_out.append(f"{dataset}: left out: not all models were asked about clean images and about a perturbation{why}")
    if not common:
        raise UsageError(f"no cell was measured for all of {', '.join(model.name for model in models)}. {'; '.join(left_out)}")
    return common, left_out


def _uncounted_settings(dataset: str, lacking: Mapping[Setting, Sequence[str]]) -> list[str]:
    """Returns sentences about settings of a dataset that are excluded, with the reasons."""
    others = [str(setting) for setting in lacking if not (_counts(setting) or setting == CLEAN)]
    missing = [
        f"{setting} (not asked of {', '.join(names)})"
        for setting, names in lacking.items()
        if names and str(setting) not in others
    ]
    by_reason = {"": missing, "; sizes and patches are experiments of their own": others}
    return [
        f"{dataset}: {len(names)} of {len(lacking)} settings do not count: {first_few(names, SHOWN)}{why}"
        for why, names in by_reason.items()
        if names
    ]


def _counts(setting: Setting) -> bool:
    """Whether a setting perturbs an image for its own sake."""
    return setting not in BASELINES and not _OTHER_EXPERIMENTS.intersection(_family(setting).split("+"))


def _family(setting: Setting) -> str:
    try:
        return perturbations.info(str(setting)).family
    except UnknownName:
        return UNREGISTERED


def _part(models: Sequence[RunModel], dataset: str, settings: Sequence[Setting], left_out: list[str]) -> Part:
    """Returns the scores of all models on a dataset, samples in the order of the first run."""
    from .boards import Part

    first = models[0]
    samples = first.run.samples(dataset)
    shares = {
        setting: [len(m.run.evidence.get_scores(m.cell(dataset, setting))) / len(m.run.samples(dataset)) for m in models]
        for setting in settings
    }
    several = [str(setting) for setting, fractions in shares.items() if max(fractions) > 1]
    few = [str(setting) for setting, fractions in shares.items() if min(fractions) < 1 and str(setting) not in several]
    for names, why in ((several, "show several images of a sample"), (few, "change a part of the questions")):
        if names:
            number = quantity(len(names), "setting does", "settings do")
            left_out.append(f"{dataset}: {number} not count: {first_few(names, SHOWN)}; they {why}")
    counted = [setting for setting, fractions in shares.items() if {*fractions} == {1}]
    asked_blind = all(model.cell(dataset, NO_IMAGE) in model.run.evidence.cells() for model in models)
    table = paired_table(models, dataset, [CLEAN, *counted, *([NO_IMAGE] if asked_blind else [])], rescored=False)
    by_setting = dict(table.by_setting)
    no_image = by_setting.pop(str(NO_IMAGE), None)
    families = {name: _family(Setting.parse(name)) for name in by_setting}
    categories = [sample.category for sample in samples]
    return Part(dataset, replace(table, by_setting=by_setting), families, categories, no_image)
