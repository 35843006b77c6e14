"""Facts about a run beside its records, and how its manifest is read: a file, which may hold anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.decision import Allowance
from pytest_vlmrobust.core.run_scope import RunScope
from pytest_vlmrobust.evaluation.after.standings import Ranking
from pytest_vlmrobust.store.gates import GateCount
from pytest_vlmrobust.store.repeatability import Repeatability
from pytest_vlmrobust.store.spending import Spending

from .explanation import Command


def mapping(value: object) -> Mapping[str, Any]:
    """Returns a JSON object of a manifest, which is a file and may hold anything; an empty one in place of anything else."""
    return value if isinstance(value, Mapping) else {}


def objects(value: object) -> list[Mapping[str, Any]]:
    """Returns the objects of a JSON list; none in place of anything else."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def flat(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yields every value of a JSON document with the path to it: ``models.tiny.fingerprint.dtype``.

    >>> list(flat({"a": {"b": 1}, "c": [2, 3], "d": None}))
    [('a.b', '1'), ('c', '2, 3'), ('d', 'none')]
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from flat(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping | list | tuple) for item in value):
        for index, item in enumerate(value, 1):
            yield from flat(item, f"{path}.{index}")
    else:
        yield path, value_text(value)


def value_text(value: object) -> str:
    """Returns a JSON value as words."""
    if isinstance(value, list | tuple):
        return ", ".join(map(value_text, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None or value == "" else str(value)


@dataclass(frozen=True, slots=True)
class RunFacts(RunScope):
    """What is known about a run beside its records: what its decision depends on, and what reports show."""

    policies: Mapping[str, str] = field(default_factory=dict)
    """Model to the files and the hash of its policy."""
    warnings: Sequence[str] = ()
    allowances: Sequence[Allowance] = ()
    """What the run did not do or show, and a line of a policy lets pass."""
    pictures: Path | None = None
    """The folder of thumbnails that examples name; ``None`` where there is none."""
    origins: Mapping[str, object] = field(default_factory=dict)
    """What determined the run as far as it was known when it began; for reports that are made without a manifest."""
    repeatability: Sequence[Repeatability] = ()
    """What was found when some of the answers were asked for again; nothing where none were."""
    spending: Sequence[Spending] = ()
    """What the answers of each model took that were not in the store; nothing where all were."""
    command: Command | None = None
    """How pytest was called; ``None`` if unknown."""
    kept: str = "results.json"
    """The file that holds the records that a screen has no room for."""
    directory: str = ""
    """The directory of the run, as it is named where pytest was called; empty where nobody knows."""
    report: str = ""
    """Its page of HTML, likewise; empty where none was asked for."""
    gates: Sequence[GateCount] = ()
    """How often the questions of the run have decided gates; nothing where this one decided nothing."""
    ranking: Ranking | None = None
    """The models of the run side by side; ``None`` where there is one model, or nothing to rank by."""

    def with_ranking(self, ranking: Ranking | None, problem: str) -> RunFacts:
        """Returns the facts with the models side by side, or with a warning that says why they are not."""
        return replace(self, ranking=ranking, warnings=[*self.warnings, *filter(None, [problem])])


def policy_replacements(origins: Mapping[str, object]) -> list[str]:
    """Returns what later thresholds files do to earlier ones beside tightening them, a sentence for each model and change."""
    policies = origins.get("policies")
    known = policies.items() if isinstance(policies, Mapping) else ()
    return [f"policy of {name}: {sentence}" for name, policy in known for sentence in replacements_in(policy)]


def purposes(origins: Mapping[str, object], model: str = "") -> list[str]:
    """Returns what the policies of a run are for that are no release policies; of one model where one is named."""
    policies = mapping(origins.get("policies")).items()
    named = [mapping(policy).get("purpose") for name, policy in policies if model in ("", name)]
    return list(dict.fromkeys(str(purpose) for purpose in named if purpose))


def replacements_in(policy: object) -> list[str]:
    """Returns what the manifest says about a policy that later files replace; empty for malformed entries."""
    sentences = policy.get("replaced") if isinstance(policy, Mapping) else None
    return list(map(str, sentences)) if isinstance(sentences, list | tuple) else []


def ci_variables(origins: Mapping[str, object]) -> dict[str, str]:
    """Returns what the manifest of a run says about the job that made it, by the names of variables; empty elsewhere."""
    known = origins.get("ci")
    return {str(name): str(value) for name, value in known.items()} if isinstance(known, Mapping) else {}
