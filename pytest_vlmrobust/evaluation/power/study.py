"""A study: the models whose truth is known, the questions that they answer, and how often the simulation runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.errors import UsageError

if TYPE_CHECKING:
    from pytest_vlmrobust.core.sample import Sample
    from pytest_vlmrobust.policies import Policy

    from .grouping import Grouping
    from .profiles import ModelProfile
    from .simulation import Power, Simulation

NOTHING_LOST = "nothing-lost"
EQUAL = "equal-to-baseline"
EQUAL_CHURN = "equal-to-baseline-churn"
PUBLISHED = "published"
TYPICAL = "typical"
HIDDEN_LOSS = "hidden-loss"
SYNTHETIC = (NOTHING_LOST, TYPICAL, HIDDEN_LOSS, EQUAL, EQUAL_CHURN, PUBLISHED)
"""The profiles that need no run and no table of a paper."""
_SEARCHED = 4
"""The factor by which the search for a number of samples reduces the runs of each size."""
_FEWEST = 20


class Shift(NamedTuple):
    """A metric of each profile that is set to a value."""

    metric: str
    value: float


class Result(NamedTuple):
    """The results for one profile."""

    power: Power
    needed: tuple[int, int | None] | None
    """A number of samples too few to decide most runs, and a sufficient one, if any; ``None`` without a search."""
    simulation: Simulation

    @property
    def groups(self) -> tuple[int, float] | None:
        """The number of groups of a profile with grouped samples, and their correlation."""
        from .profiles import Profile

        truth = self.simulation.truth
        grouping = truth.grouping if isinstance(truth, Profile) else None
        if grouping is None or grouping.independent:
            return None
        return round(self.power.n * grouping.groups / len(grouping.codes)), grouping.correlation

    @property
    def images_needed(self) -> list[tuple[str, int]]:
        """The blocking rules that need source images, with how many they need, the most first."""
        from pytest_vlmrobust.policies import Tier

        from .sample_size import images_needed

        tests = self.simulation.planned.tests
        rules = [rule for rule in self.simulation.policy.rules if rule.id in tests and rule.treatment.tier is Tier.BLOCK]
        needed = sorted(((images_needed(rule) or 0, rule.id) for rule in rules), reverse=True)
        return [(name, count) for count, name in needed if count]


class _Data(NamedTuple):
    """The dataset that a study names."""

    name: str
    grouping: Grouping
    samples: Sequence[Sample]


@dataclass(frozen=True)
class Study:
    """The simulation of a policy."""

    profiles: Sequence[str | Path] = ()
    """Names of profiles, and directories of runs; if empty, the usual ones."""
    dataset: str = ""
    """A name for rules, or data for their size, groups and categories; a collection of the Observatory."""
    folder: Path | None = None
    samples: int | None = None
    groups: int | None = None
    correlation: float | None = None
    shifts: Sequence[Shift] = ()
    models: int = 1
    runs: int = 100
    seed: int = 0
    searches: bool = True
    """Whether to search how many samples would decide most runs."""
    several: bool = False
    """Whether the usual profiles are several, as in a table."""

    def results(self, policy: Policy, name: str, progress: Callable[[str], None]) -> tuple[list[Result], str]:
        """Returns the results for each profile, or why no rule can be simulated; ``progress`` gets text for a terminal."""
        import numpy as np

        from pytest_vlmrobust.evaluation.run.clock import utc_today

        from .simulation import Simulation

        results, why = [], ""
        for place, (truth, n) in enumerate(self._truths(policy)):
            simulation = Simulation(policy, truth, utc_today())
            rng = np.random.default_rng([self.seed, place])
            if not simulation.planned.tests:
                reasons = {**simulation.planned.left_out, **simulation.planned.idle}
                why = "; ".join(f"{rule} {reason}" for rule, reason in reasons.items()) or "it has no rules"
                continue

            def tick(done: int, about: str = f"{name}, {truth.name}") -> None:
                progress(f"\r{about}: {done} of {self.runs} runs" + "\n" * (done == self.runs))

            power = simulation.run(n, self.runs, rng, tick).of_models(self.models)
            needed = None
            if self.searches:
                runs = max(self.runs // _SEARCHED, _FEWEST)
                needed = simulation.samples_to_decide(
                    n, runs, rng, progress=lambda text: progress(f"how many samples would decide: {text}\n")
                )
            results.append(Result(power, needed, simulation))
        return results, why

    def partly_changed(self, result: Result) -> dict[str, int]:
        """Returns the settings that change a part of the questions of given data, and how many; others have all or no test."""
        from pytest_vlmrobust.evaluation.run.data import changed_by

        from .profiles import QUESTIONS

        if not (data := self._data):
            return {}
        suites = [suite for suite in result.simulation.policy.coverage.suites if suite in QUESTIONS]
        settings = [name for suite in suites for name in result.simulation.truth.settings(suite)]
        counts = {name: len(changed_by(Setting.parse(name), data.samples)) for name in settings}
        return {name: count for name, count in counts.items() if 0 < count < len(data.samples)}

    def _truths(self, policy: Policy) -> list[tuple[ModelProfile, int]]:
        """Returns each profile with its number of samples."""
        names = self.profiles or (_usual(policy) if self.several else [NOTHING_LOST])
        if _of_tasks(policy):
            return [self._observing(str(name)) for name in names]
        self._check_groups(names)
        named = replace(self, dataset=self._data.name, samples=self.samples or len(self._data.samples)) if self._data else self
        pairs = [pair for name in names for pair in named.profiles_of(name)]
        return [(self._with_groups(truth, n), n) for truth, n in pairs]

    @cached_property
    def _data(self) -> _Data | None:
        """The data that ``dataset`` names; ``None`` for a name that is neither a path nor that of data here."""
        from pytest_vlmrobust.datasets import names, resolve
        from pytest_vlmrobust.datasets.resolve import find

        from .grouping import CORRELATION, Grouping

        typed = self.dataset
        is_path = "/" in typed or typed.startswith(("hf:", ".", "~")) or typed.endswith((".tsv", ".jsonl"))
        if not typed or not (self.folder or is_path or typed in names() or find(typed, self.folder)):
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # notes on the data: vlmrobust data prints them
            dataset = resolve(typed, data_dir=self.folder)
            samples = dataset.samples()
        correlation = CORRELATION if self.correlation is None else self.correlation
        return _Data(dataset.name, Grouping.of(samples, correlation), samples)

    def _check_groups(self, names: Sequence[str | Path]) -> None:
        """Refuses options about groups that contradict each other or a profile."""
        ungrouped, data = "Leave out --groups, or give --dataset a name that no data has", self._data
        grouped = bool(self.groups or (data and not data.grouping.independent))
        if data is None and self.folder:
            raise UsageError(f"--data {self.folder}: there is no --dataset to look for in this folder")
        if data and self.groups:
            raise UsageError(f"--groups {self.groups}: {self.dataset} already has groups. {ungrouped}")
        if self.correlation is not None and not grouped:
            about = f"{self.dataset} has one question per image" if data else "samples are independent without groups"
            raise UsageError(f"--correlation {self.correlation:g}: {about}. Expected --groups N, or --dataset FILE with groups")
        for run in names:
            if (data or grouped) and isinstance(run, Path):
                raise UsageError(f"--profile {run}: a run is drawn again with its own samples and groups. {ungrouped}")

    def _with_groups(self, truth: ModelProfile, n: int) -> ModelProfile:
        """Returns a profile whose samples are grouped."""
        from .grouping import CORRELATION, Grouping
        from .profiles import Profile

        if not isinstance(truth, Profile) or not (self._data or self.groups):
            return truth
        if self._data or not self.groups:
            return replace(truth, grouping=self._data.grouping if self._data else None)
        if self.groups > n:
            raise UsageError(f"--groups {self.groups}: {n} samples of {truth.name} have at most {n} groups")
        return replace(
            truth, grouping=Grouping.equal(n, self.groups, CORRELATION if self.correlation is None else self.correlation)
        )

    def _observing(self, name: str) -> tuple[ModelProfile, int]:
        """Returns a model at the tasks of the Observatory with its number of identities."""
        from .observers import observer

        if self.shifts:
            raise UsageError("--shift moves models that answer questions, and this policy is about the Observatory's tasks")
        for option, value in (("groups", self.groups), ("correlation", self.correlation), ("data", self.folder)):
            if value is not None:
                raise UsageError(
                    f"--{option} is about questions, and this policy is about the Observatory's tasks: its groups are identities"
                )
        profile = observer(name, [self.dataset] if self.dataset else ())
        return profile, self.samples or profile.samples

    def profiles_of(self, name: str | Path) -> list[tuple[ModelProfile, int]]:
        """Returns the profiles that a name or a run stands for, with their numbers of samples."""
        from . import published, recorded

        if isinstance(name, Path):
            if self.shifts:
                raise UsageError("--shift moves profiles that are published or lose nothing, not runs")
            return [self._named(profile) for profile in recorded.recorded_models(name)]
        dataset = self.dataset or "MMBench"
        benchmark = published.benchmark_of(dataset)
        if name == PUBLISHED:
            every = published.published_profiles(benchmark if self.dataset else "").values()
            return [self._named(self._shifted(profile)) for profile in every]
        if profile := _synthetic(name, dataset):
            usual = next(iter(published.published_profiles(benchmark).values())).samples
            return [(self._shifted(profile), self.samples or usual)]
        if name.count("/") > 1 or name.startswith((".", "/", "~")):
            raise UsageError(
                f"--profile {name}: there is no such directory. Pass the directory of a run, or the name of a profile"
            )
        offered = [*SYNTHETIC, *published.VIEWS, *published.published_profiles()]
        return [self._named(self._shifted(published.profile(name, self.dataset, offered)))]

    def _named(self, profile: Any) -> tuple[ModelProfile, int]:
        return replace(profile, dataset=self.dataset or profile.dataset), self.samples or profile.samples

    def _shifted(self, profile: Any) -> Any:
        from .simulation import shift

        for metric, value in self.shifts:
            profile = shift(profile, metric, value)
        return profile


def _usual(policy: Policy) -> list[str]:
    """Returns the profiles of a table that names none."""
    from . import observers, published

    if _of_tasks(policy):
        return list(observers.OBSERVERS)
    if policy.coverage.suites == ("patches",):
        return [NOTHING_LOST, TYPICAL, *published.VIEWS]
    return [NOTHING_LOST, EQUAL, EQUAL_CHURN, PUBLISHED]


def _of_tasks(policy: Policy) -> bool:
    """Whether a policy is only about the Observatory."""
    return policy.coverage.suites == ("observatory",)


def _synthetic(name: str, dataset: str) -> Any:
    """Returns a profile that is not published in a table, or None if ``name`` is not one."""
    from . import published

    if name in (NOTHING_LOST, EQUAL, EQUAL_CHURN):
        churn = {NOTHING_LOST: None, EQUAL: 0.0, EQUAL_CHURN: 0.01}[name]
        return replace(published.nothing_lost(dataset, churn=churn), name=name)
    if name == HIDDEN_LOSS:
        return published.hidden_loss(dataset)
    if name in published.VIEWS:
        return published.context_profile(name, dataset)
    return published.typical(dataset) if name == TYPICAL else None
