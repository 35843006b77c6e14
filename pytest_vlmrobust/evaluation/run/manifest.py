"""Manifest: everything that determined a run, JSON-safe: versions, settings, models, data and policies."""

from __future__ import annotations

import os
import platform
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pytest_vlmrobust
from pytest_vlmrobust.backends.contract import Guard
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import VlmRobustError
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.policies import Policy
from pytest_vlmrobust.policies.policy import policy_content
from pytest_vlmrobust.scoring import scoring_rules

from .data import RunData
from .views import declared_perturbations

_CI_VARIABLES = (
    *("GITHUB_REPOSITORY", "GITHUB_REF", "GITHUB_WORKFLOW", "GITHUB_JOB", "GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT"),
    *("CI_PROJECT_PATH", "CI_COMMIT_REF_NAME", "CI_PIPELINE_ID", "CI_JOB_ID", "CI_JOB_NAME"),
    *("JOB_NAME", "BRANCH_NAME", "BUILD_NUMBER", "BUILD_TAG"),
)
"""Variables with the job of GitHub, GitLab or Jenkins; no others are read, because some hold secrets."""
_COMMITS = ("GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT")
"""Variables of these that name the commit."""


def job(directory: Path, environment: Mapping[str, str] = os.environ) -> dict[str, object]:
    """Returns the ``commit`` of a run and the job of its ``ci``, if known."""
    commit = next(filter(None, map(environment.get, _COMMITS)), "") or _checked_out(directory)
    known = {name: environment[name] for name in _CI_VARIABLES if environment.get(name)}
    return {**({"commit": commit} if commit else {}), **({"ci": known} if known else {})}


@lru_cache(maxsize=1)
def _checked_out(directory: Path) -> str:
    """Returns the commit checked out in a directory, with ``-dirty`` if tracked files differ; empty without Git."""
    command = ["git", "-C", str(directory), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_GIT_SECONDS)  # noqa: S603 - no shell
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


_GIT_SECONDS = 10


def origins(
    run_id: str,
    today: date,
    *,
    settings: Mapping[str, Any],
    command: Mapping[str, Any],
    models: Mapping[str, ModelRef],
    policies: Mapping[str, Policy],
    directory: Path,
) -> dict[str, object]:
    """Returns what determines a run and is known before the first inference, without loading weights."""
    return {
        **job(directory),
        "run": run_id,
        "date": today.isoformat(),
        "version": pytest_vlmrobust.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "scoring": scoring_rules(),
        "settings": dict(settings),
        "command": dict(command),
        "models": {name: model_origin(ref) for name, ref in models.items()},
        "policies": {name: policy_content(policy) for name, policy in policies.items()},
        **({"perturbations": declared} if (declared := declared_perturbations()) else {}),
    }


def measured_facts(
    records: Iterable[Record],
    models: Mapping[str, ModelRef],
    data: RunData,
    hold_backend: Callable[[ModelRef], Guard],
    processes: Mapping[str, Any],
    *,
    fingerprints: Mapping[str, Mapping[str, Any]],
) -> dict[str, object]:
    """Returns the part of the manifest known after the tests: the fingerprints of models, the data, and the outcomes.

    ``fingerprints`` are those that answers were stored with: a worker may know another part of a model than this process.
    An unavailable value is replaced by the reason. A model whose tests all ended in errors, with a reason from a process,
    is not contacted again, because its server may hang.
    """
    records = list(records)
    problems = {name: about for said in processes.values() for name, about in said.items() if "problem" in about}
    for record in records:
        if record.outcome is not Outcome.ERROR:
            problems.pop(record.model, None)
    datasets = [name for name in dict.fromkeys(record.dataset for record in records) if name]

    def fingerprint_of(name: str, ref: ModelRef) -> object:
        if stored := fingerprints.get(name):
            return stored
        return {"error": problems[name]["problem"]} if name in problems else _or_error(partial(_fingerprint, hold_backend, ref))

    return {
        "models": {name: {**model_origin(ref), "fingerprint": fingerprint_of(name, ref)} for name, ref in models.items()},
        "datasets": {name: _or_error(partial(_digest, data, name)) for name in datasets},
        "outcomes": dict(Counter(str(record.outcome) for record in records)),
    }


ORIGIN = ("backend", "location", "revision", "prompt_mode", "family", "parameters_billion")
"""Fields of a model in a manifest."""


def model_origin(ref: ModelRef) -> dict[str, object]:
    """Returns the origin of a model, its prompt mode, and its family and size."""
    given = {name: value for name in ("adapter", "quantization", "deployment") if (value := getattr(ref, name))}
    return {**{name: getattr(ref, name) for name in ORIGIN}, **given}


def _digest(data: RunData, name: str) -> str:
    return data.open(name).digest


def _fingerprint(hold_backend: Callable[[ModelRef], Guard], ref: ModelRef) -> dict[str, object]:
    return dict(hold_backend(ref).fingerprint())


def _or_error(get: Callable[[], object]) -> object:
    """Returns what ``get`` returns, or the reason why it failed."""
    try:
        return get()
    except VlmRobustError as error:
        return {"error": str(error)}
    except Exception as error:  # noqa: BLE001 - of a dataset of a third party: the tests say so, and the report is written
        return {"error": f"{type(error).__name__}: {error}"}
