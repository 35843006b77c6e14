"""Facts about a run that are not in its records, and the tolerant reader of its manifest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.decision import Allowance
from pytest_vlmrobust.core.run_scope import RunScope
from pytest_vlmrobust.core.words import number, percent, quantity
from pytest_vlmrobust.evaluation.after.standings import Ranking
from pytest_vlmrobust.evaluation.judge.measurements import quantities
from pytest_vlmrobust.store.gates import GateCount
from pytest_vlmrobust.store.repeatability import Repeatability
from pytest_vlmrobust.store.spending import Spending

from .explanation import Command


def mapping(value: object) -> Mapping[str, Any]:
    """Returns a JSON object of a manifest; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def objects(value: object) -> list[Mapping[str, Any]]:
    """Returns the objects of a JSON list; empty for anything else."""
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
    if isinstance(value, list | tuple) and value:
        return ", ".join(map(value_text, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None or value in ("", [], ()) else str(value)


@dataclass(frozen=True, slots=True)
class RunFacts(RunScope):
    """Facts about a run that are not in its records: inputs of its decision, and content of reports."""

    policies: Mapping[str, str] = field(default_factory=dict)
    """Model to the files and the hash of its policy."""
    warnings: Sequence[str] = ()
    allowances: Sequence[Allowance] = ()
    """What the run did not do or show, although a line of a policy allows it."""
    pictures: Path | None = None
    """The folder of thumbnails; ``None`` without one."""
    origins: Mapping[str, object] = field(default_factory=dict)
    """The facts that determined the run and were known at its start, for reports without a manifest."""
    repeatability: Sequence[Repeatability] = ()
    """The repeatability of answers; empty if none was repeated."""
    spending: Sequence[Spending] = ()
    """The spending for new answers of each model; empty if all were cached."""
    command: Command | None = None
    """The command line of pytest; ``None`` if unknown."""
    directory: str = ""
    """The directory of the run, relative to the working directory of pytest; empty if unknown."""
    report: str = ""
    """Its HTML page, likewise; empty if not requested."""
    gates: Sequence[GateCount] = ()
    """The gate counts of the run's questions; empty if this run decided nothing."""
    ranking: Ranking | None = None
    """The ranking of the run's models; ``None`` for a single model, or without a ranking criterion."""

    def with_ranking(self, ranking: Ranking | None, problem: str) -> RunFacts:
        """Returns the facts with the models side by side, or with a warning that says why they are not."""
        return replace(self, ranking=ranking, warnings=[*self.warnings, *filter(None, [problem])])


def policy_replacements(origins: Mapping[str, object]) -> list[str]:
    """Returns a sentence for each change by later thresholds files other than tightening, by model."""
    policies = origins.get("policies")
    pairs = policies.items() if isinstance(policies, Mapping) else ()
    return [f"policy of {name}: {sentence}" for name, policy in pairs for sentence in replacements_in(policy)]


def purposes(origins: Mapping[str, object], model: str = "") -> list[str]:
    """Returns the purposes of a run's policies that are not release policies; for a single model if given."""
    policies = mapping(origins.get("policies")).items()
    named = [mapping(policy).get("purpose") for name, policy in policies if model in ("", name)]
    return list(dict.fromkeys(str(purpose) for purpose in named if purpose))


def replacements_in(policy: object) -> list[str]:
    """Returns the replacements of a policy in the manifest; empty for malformed entries."""
    sentences = policy.get("replaced") if isinstance(policy, Mapping) else None
    return list(map(str, sentences)) if isinstance(sentences, list | tuple) else []


def ci_variables(origins: Mapping[str, object]) -> dict[str, str]:
    """Returns the CI variables in the manifest of a run; empty outside CI."""
    variables = origins.get("ci")
    return {str(name): str(value) for name, value in variables.items()} if isinstance(variables, Mapping) else {}


# Noise: repeated answers (A/A), in words and next to the thresholds.


def noise_lines(repeat: Repeatability) -> list[str]:
    """Returns the lines about repeated answers: flips, noise, and thresholds."""
    name = f"A/A {repeat.model}-{repeat.dataset}:"
    if not repeat.measured:
        return [f"{name} not measured: {why_unmeasured(repeat)}"]
    failed = f", {quantity(repeat.failed, 'inference')} failed" if repeat.failed else ""
    rate, low, high = (percent(share, 2) for share in (repeat.rate, repeat.low, repeat.high))
    share = f"{rate}, 90 % interval {low} to {high}"
    reworded = quantity(repeat.reworded, "was worded differently", "were worded differently")
    counted = f"{repeat.flipped} of {quantity(repeat.repeated, 'answer')} flipped ({share}), {reworded}{failed}"
    noise = ", ".join(f"{metric} {value} (at most {most})" for metric, value, most in noise_by_metric(repeat))
    return [
        f"{name} {counted}; {quantity(repeat.cells, 'cell')}, {repeat.conditions}",
        f"     noise of {quantity(repeat.samples, 'sample')} between two runs: {noise}",
        *(f"     {sentence}" for sentence in repeat.beside),
    ]


def noise_by_metric(repeat: Repeatability) -> list[tuple[str, str, str]]:
    """Returns each metric with its measured and largest noise in its unit, smallest first."""
    ordered = sorted(repeat.noise, key=lambda metric: (repeat.noise_high[metric], metric))
    units = {metric: metric_facts.unit if (metric_facts := quantities().get(metric)) else "" for metric in ordered}
    return [
        (metric, number(repeat.noise[metric], units[metric]), number(repeat.noise_high[metric], units[metric]))
        for metric in ordered
    ]


def why_unmeasured(repeat: Repeatability) -> str:
    """Returns why the noise is unknown; empty if it is known."""
    if repeat.measured:
        return ""
    return repeat.problem or f"no answer could be asked for again ({quantity(repeat.failed, 'inference')} failed)"


def noise_warnings(comparisons: Iterable[Repeatability]) -> list[str]:
    """Returns, a sentence for each, the rules that the same model may break by answering twice."""
    return [f"{repeat.model}-{repeat.dataset}: {sentence}" for repeat in comparisons for sentence in repeat.tighter]
