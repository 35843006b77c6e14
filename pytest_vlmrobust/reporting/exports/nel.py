"""NeMo Evaluator: a run as results for `nel compare` and `nel gate`, a benchmark for each dataset and setting.

The layout is that of https://docs.nvidia.com/nemo/evaluator/evaluation/result-format: a folder for each benchmark, with
``eval-NAME.json`` for the whole and ``results.jsonl`` for the samples. Missing stays missing: a failed inference has
no line, because the format has no state for it, and a benchmark without lines has no score.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pytest_vlmrobust import __version__
from pytest_vlmrobust.core.cell import Cell
from pytest_vlmrobust.core.errors import DatasetError, UsageError
from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.words import without_halves
from pytest_vlmrobust.store import Answer, Evidence
from pytest_vlmrobust.store.database import FILE_NAME as EVIDENCE

from . import best_view, chosen_models, new_directory, targets_of

RESULTS = "results.jsonl"
MEAN = "accuracy"
"""The corpus metric that equals nel's: the mean of scores."""
_DIGITS = 13
"""Hexadecimal digits of a problem's number: below 2**53, it survives programs that read JSON numbers as doubles."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The output for a cell."""

    name: str
    """The test id without the model: two models are compared on equal names."""
    dataset: str
    """The dataset by its short name."""
    results: int
    """Lines, one for each scored sample."""
    unscored: int
    """Samples without a line: an inference failed."""
    corpus_metric: str
    """The corpus metric of the dataset; nel only sees the mean of scores."""


def write_nel(run: Path, out: Path, *, model: str = "") -> tuple[Benchmark, ...]:
    """Writes the results of a model of a run into a new directory, atomically; returns the benchmarks sorted by name.

    ``model`` may be empty if the run has only one. Two samples with the same number of their problem are a DatasetError.
    """
    if not (run / EVIDENCE).is_file():
        raise UsageError(
            f"{str(run)!r} holds no {EVIDENCE}: expected the directory of a run, .vlmrobust/runs/RUN, or one that "
            "--vlm-report wrote"
        )
    danger = "nel would take whatever it holds for results of this run"
    with Evidence.open(run, read_only=True) as evidence, new_directory(out, danger) as staged:
        groups = groupby(_cells(evidence, run, model), lambda cell: cell.dataset)
        written = [benchmark for dataset, group in groups for benchmark in _write(evidence, dataset, group, run, staged)]
    return tuple(sorted(written, key=lambda benchmark: benchmark.name))


def problem_number(sample: Sample) -> int:
    """Returns the number of a problem in [0, 2**52), from a sample's id and question.

    So it is the same in every run and sample selection, and a question changed under the same id is another problem,
    which nel does not pair.
    """
    return int(fingerprint([sample.id, *sample.question_key])[:_DIGITS], 16)


def _cells(evidence: Evidence, run: Path, model: str) -> list[Cell]:
    """Returns the cells of the selected model, sorted."""
    cells = evidence.cells()
    chosen = chosen_models(run, sorted({cell.model for cell in cells}), model)
    if len(chosen) > 1:
        raise UsageError(
            f"{str(run)!r} has {len(chosen)} models, {', '.join(chosen)}, and nel compares one with one. "
            "Name one of them with --model"
        )
    return [cell for cell in cells if cell.model in chosen]


def _write(evidence: Evidence, dataset: str, cells: Iterable[Cell], run: Path, out: Path) -> list[Benchmark]:
    metric, digest = evidence.corpus_metric(dataset), evidence.datasets()[dataset]  # the first says so if it is unknown
    unchanged = evidence.samples(dataset)
    numbers = _problem_numbers(dataset, unchanged)
    benchmarks = []
    for cell in cells:
        stored = evidence.get_cell(cell)
        is_changed = evidence.changed_questions(dataset, cell.setting)
        samples = evidence.samples(dataset, setting=cell.setting) if is_changed else unchanged
        encoded = [_line(_problem(numbers[place], samples[place]), answers) for place, answers in stored.by_sample]
        lines = [line for line in encoded if line]
        benchmark = Benchmark(f"{dataset}-{cell.setting}", dataset, len(lines), len(encoded) - len(lines), metric)
        config = {
            "benchmark": benchmark.name,
            "model": cell.model,
            "dataset": dataset,
            "dataset_digest": digest,
            "corpus_metric": metric,
            "setting": str(cell.setting),
            "views": stored.views,
            "pytest_vlmrobust": __version__,
        }
        _put(
            out,
            benchmark,
            {"run_id": f"{run.resolve().name}/{cell}", "config": config, "benchmark": _whole(benchmark, lines)},
            lines,
        )
        benchmarks.append(benchmark)
    return benchmarks


def _problem_numbers(dataset: str, samples: Sequence[Sample]) -> list[int]:
    """Returns the number of each problem: under every setting, that of the original question."""
    numbers: dict[int, str] = {}
    for sample in samples:
        number = problem_number(sample)
        if number in numbers:
            raise DatasetError(
                f"{dataset}: the samples {numbers[number]!r} and {sample.id!r} would both be problem {number} of nel. "
                "Give one of them another id"
            )
        numbers[number] = sample.id
    return list(numbers)


def _problem(number: int, sample: Sample) -> dict[str, Any]:
    metadata = {"category": sample.category, "group": sample.group}
    return {
        "problem_idx": number,
        "repeat": 0,
        "expected_answer": " | ".join(targets_of(sample)),
        "metadata": {name: value for name, value in metadata.items() if value},
        "scoring_details": {"sample": sample.id},
    }


def _line(problem: Mapping[str, Any], answers: Sequence[Answer]) -> dict[str, Any] | None:
    """Returns the line of a sample from its first best view; None if an inference failed."""
    if (view := best_view(answers)) is None:
        return None
    best = answers[view]
    seen = {"view": view, "views": len(answers)} if len(answers) > 1 else {}
    return {
        **problem,
        "reward": best.score.value,
        "model_response": best.prediction.text,
        "extracted_answer": best.score.answer,
        "scoring_details": {**problem["scoring_details"], "state": best.score.state, "rule": best.score.rule, **seen},
    }


def _whole(benchmark: Benchmark, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the benchmark summary in nel's format.

    Categories are only in the lines, because nel gives a category missing in one of two benchmarks the score 0.
    """
    scores = {"mean_reward": {"value": math.fsum(line["reward"] for line in lines) / len(lines)}} if lines else {}
    return {"name": benchmark.name, "samples": benchmark.results, "unscored": benchmark.unscored, "scores": scores}


def _put(out: Path, benchmark: Benchmark, whole: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> None:
    name = _file_name(benchmark.name)
    folder = out / name
    folder.mkdir(parents=True)
    (folder / f"eval-{name}.json").write_text(f"{_json(whole)}\n", encoding="ascii", newline="\n")
    (folder / RESULTS).write_text("".join(f"{_json(line)}\n" for line in lines), encoding="ascii", newline="\n")


def _file_name(name: str) -> str:
    """Returns a unique file name for a benchmark that is valid on every file system.

    >>> _file_name("mmbench-fog:mid+flip_h")
    'mmbench-fog=mid+flip_h'
    """
    return quote(name, safe=":+").replace(":", "=")


def _json(value: Any) -> str:
    """Returns JSON in ASCII: nel would end a line at each of Unicode's line separators."""
    return json.dumps(_printable(value), allow_nan=False)


def _printable(value: Any) -> Any:
    """Returns a value with halves of surrogate pairs, which nel could not print, spelled out."""
    if isinstance(value, str):
        return without_halves(value)
    return {key: _printable(item) for key, item in value.items()} if isinstance(value, dict) else value
