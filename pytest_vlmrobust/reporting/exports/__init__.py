"""Exports: a run as files for other programs, a module for each kind of program; and what several of them need."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from math import isnan
from pathlib import Path

from pytest_vlmrobust.core.errors import UnknownName, UsageError
from pytest_vlmrobust.core.fingerprint import canonical_json
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.store import Answer

UNASKED = "unasked"
"""The state of a view that was skipped because an earlier view was right."""


@contextlib.contextmanager
def new_directory(out: Path, danger: str) -> Iterator[Path]:
    """Gives a folder that becomes ``out`` once all is written; ``danger`` says why ``out`` must not exist."""
    if out.exists():
        raise UsageError(f"{str(out)!r} exists: {danger}. Name a directory that does not exist")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
        staged = Path(folder) / out.name
        staged.mkdir()
        yield staged
        staged.replace(out)


def chosen_models(run: Path, models: Sequence[str], model: str) -> list[str]:
    """Returns the models of a run to export: the given one, or all that it measured."""
    if not models:
        raise UsageError(f"{str(run)!r}: the run measured nothing that could be exported")
    if model and model not in models:
        raise UnknownName("model", model, models, where="--model")
    return [model] if model else list(models)


def targets_of(sample: Sample) -> list[str]:
    """Returns the accepted answers of a sample; boxes as JSON."""
    if sample.localisation is not None:
        return [canonical_json(dict(sample.localisation.boxes))]
    return list(sample.targets)


def best_view(answers: Sequence[Answer]) -> int | None:
    """Returns which view counts for a sample, the first best of those evaluated; ``None`` if an inference failed."""
    values = {view: answer.score.value for view, answer in enumerate(answers) if answer.score.state != UNASKED}
    return None if not values or any(map(isnan, values.values())) else max(values, key=values.__getitem__)
