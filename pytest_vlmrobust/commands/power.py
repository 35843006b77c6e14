"""Power: `vlmrobust power`."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_vlmrobust.core.decision import Decision, Outcome
from pytest_vlmrobust.core.errors import UsageError, typed_path
from pytest_vlmrobust.core.words import first_few

from .arguments import Commands, add_command, counting, find_run, say, tell

if TYPE_CHECKING:
    from pytest_vlmrobust.core.sample import Sample
    from pytest_vlmrobust.evaluation.power.grouping import Grouping
    from pytest_vlmrobust.evaluation.power.profiles import ModelProfile
    from pytest_vlmrobust.evaluation.power.simulation import Power, Simulation
    from pytest_vlmrobust.policies import Policy

NOTHING_LOST = "nothing-lost"
EQUAL = "equal-to-baseline"
EQUAL_CHURN = "equal-to-baseline-churn"
PUBLISHED = "published"
TYPICAL = "typical"
HIDDEN_LOSS = "hidden-loss"
_SYNTHETIC = (NOTHING_LOST, TYPICAL, HIDDEN_LOSS, EQUAL, EQUAL_CHURN, PUBLISHED)
_SHOWN = (Decision.GO, Decision.NO_GO, Decision.INCONCLUSIVE)
_OUTCOMES = (Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.NOT_APPLICABLE, Outcome.WAIVED, Outcome.MEASURED)
_MOST_NAMED = 4
"""Number of rules to name among those that need most images."""
_SEARCHED = 4
"""The factor by which the search for a number of samples reduces the runs of each size."""
_FEWEST = 20


class _Row(NamedTuple):
    """The results for one profile."""

    power: Power
    needed: tuple[int, int | None] | None
    simulation: Simulation


def add(commands: Commands) -> None:
    """Adds it to the parser."""
    power = add_command(
        commands,
        "power",
        "simulate how often a policy decides GO, NO-GO or INCONCLUSIVE for known models",
        "vlmrobust power ours.yaml --samples 500 --no-search",
        "vlmrobust power default --profile latest",
    )
    power.add_argument("policies", nargs="*", metavar="POLICY", help="policy files, or names of shipped policies")
    power.add_argument(
        "--samples",
        type=counting("samples"),
        metavar="N",
        help="questions, or identities (default: as published, as in the run, or all of FILE)",
    )
    power.add_argument(
        "--profile",
        action="append",
        default=[],
        metavar="NAME|RUN",
        help=f"the simulated model (repeatable): {', '.join(_SYNTHETIC)}, another of the docs, "
        f"MMBench/Qwen3-VL-8B and its like, or a run (default: {NOTHING_LOST})",
    )
    power.add_argument(
        "--dataset",
        default="",
        metavar="NAME|FILE",
        help="name of the dataset for rules, or data as after --vlm-dataset, for its size, groups and categories; for the "
        "Observatory one collection (default: both)",
    )
    power.add_argument("--data", type=typed_path, metavar="DIR", help="the data folder, as after --vlm-data")
    power.add_argument(
        "--groups",
        type=counting("groups"),
        metavar="N",
        help="groups of questions, such as source images, of equal size (default: independent questions, or the groups of FILE)",
    )
    power.add_argument(
        "--correlation",
        type=_correlation,
        metavar="R",
        help="how alike the answers of a group are, 0 to 1 (default: 0.5)",
    )
    power.add_argument(
        "--shift", action="append", default=[], metavar="METRIC=VALUE", help="set a metric of each profile to a value"
    )
    power.add_argument(
        "--models",
        type=counting("models"),
        default=1,
        metavar="K",
        help="models of the run, all with this profile and independent",
    )
    power.add_argument(
        "--runs", type=counting("runs"), default=100, metavar="R", help="simulated runs of each profile (default: %(default)s)"
    )
    power.add_argument("--seed", type=_seed, default=0, help="seed of the simulation (default: %(default)s)")
    power.add_argument("--no-search", action="store_true", help="do not search how many questions would decide 80 %% of runs")
    power.add_argument(
        "--table", action="store_true", help="one line for each profile, in Markdown; without POLICY, of all shipped policies"
    )
    power.add_argument("--json", action="store_true", help="print JSON")
    power.set_defaults(run=_power, limits={"seconds": None})  # it computes as long as it is told to


def _seed(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a seed. Expected a whole number, 0 or more")
    return int(text)


def _correlation(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not 0.0 <= number <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a correlation. Expected a number from 0 to 1")
    return number


def _power(options: argparse.Namespace) -> int:
    from pytest_vlmrobust.shipped import shipped

    if not options.policies and not options.table:
        raise UsageError("vlmrobust power: name a policy, such as default, or ask for the --table of all shipped ones")
    if not options.policies and (options.groups or options.correlation is not None):
        raise UsageError(
            "vlmrobust power: --groups and --correlation are about questions: name a policy about them, such as default"
        )
    every = [[entry.stem] for entry in sorted(shipped("thresholds").glob("*.yaml"))]
    simulated, empty = {}, {}
    for files in [options.policies] if options.policies else every:
        name = " + ".join(Path(file).stem for file in files)
        policy = _policy(files)
        rows, why = _rows(policy, name, options)
        if not rows:
            empty[name] = why
            continue
        simulated[name] = rows
        if options.table:
            _say_table(name, rows, options)
        elif not options.json:
            for row in rows:
                _say_row(row, options)
    if options.json and simulated:
        say(json.dumps({name: [_as_json(row, options) for row in rows] for name, rows in simulated.items()}, indent=1))
    if empty:
        raise UsageError("\n".join(f"no rule of {name} can be simulated: {why}" for name, why in empty.items()))
    return 0


def _policy(files: Sequence[str]) -> Policy:
    from pytest_vlmrobust.evaluation.judge.scopes import known_metrics, thresholds_file
    from pytest_vlmrobust.metrics.record import AMBIGUOUS
    from pytest_vlmrobust.policies import load_policy

    paths = [thresholds_file(name, Path, given_as="POLICY") for name in files]
    return load_policy(paths, known_metrics=known_metrics(), ambiguous=AMBIGUOUS, root=Path.cwd())


def _rows(policy: Policy, name: str, options: argparse.Namespace) -> tuple[list[_Row], str]:
    """Returns the results for each profile, or why no rule can be simulated."""
    import numpy as np

    from pytest_vlmrobust.evaluation.power.simulation import Simulation
    from pytest_vlmrobust.evaluation.run.clock import utc_today

    rows, why = [], ""
    for place, (truth, n) in enumerate(_truths(policy, options)):
        simulation = Simulation(policy, truth, utc_today())
        rng = np.random.default_rng([options.seed, place])
        if not simulation.planned.tests:
            reasons = {**simulation.planned.left_out, **simulation.planned.idle}
            why = "; ".join(f"{rule} {reason}" for rule, reason in reasons.items()) or "it has no rules"
            continue
        power = simulation.run(n, options.runs, rng, _progress(f"{name}, {truth.name}", options.runs)).of_models(options.models)
        needed = None if options.no_search or options.table else _samples_needed(simulation, n, options, rng)
        rows.append(_Row(power, needed, simulation))
    return rows, why


def _samples_needed(simulation: Simulation, n: int, options: argparse.Namespace, rng: Any) -> tuple[int, int | None]:
    runs = max(options.runs // _SEARCHED, _FEWEST)
    return simulation.samples_to_decide(n, runs, rng, progress=_note("how many samples would decide:"))


def _truths(policy: Policy, options: argparse.Namespace) -> list[tuple[ModelProfile, int]]:
    """Returns each requested profile with its number of samples."""
    if _of_tasks(policy):
        return [_observing(name, options) for name in options.profile or (_usual(policy) if options.table else [NOTHING_LOST])]
    data = _data(options.dataset, options.data, options.correlation)
    grouped = bool(options.groups or (data and not data.grouping.independent))
    names = options.profile or (_usual(policy) if options.table else [NOTHING_LOST])
    _check_groups(names, data, options, grouped=grouped)
    if data:
        samples = options.samples or len(data.grouping.codes)
        options = argparse.Namespace(**{**vars(options), "dataset": data.name, "samples": samples})
    pairs = [pair for name in names for pair in _named_profiles(name, options)]
    return [(_with_groups(truth, n, data, options), n) for truth, n in pairs]


class _Data(NamedTuple):
    """The dataset after --dataset."""

    name: str
    grouping: Grouping
    samples: Sequence[Sample]


@cache
def _data(typed: str, folder: Path | None, correlation: float | None) -> _Data | None:
    """Returns the data given by ``--dataset``; None for a name that is neither a path nor that of data here."""
    from pytest_vlmrobust.datasets import names, resolve
    from pytest_vlmrobust.datasets.resolve import find
    from pytest_vlmrobust.evaluation.power.grouping import CORRELATION, Grouping

    is_path = "/" in typed or typed.startswith(("hf:", ".", "~")) or typed.endswith((".tsv", ".jsonl"))
    if not typed or not (folder or is_path or typed in names() or find(typed, folder)):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # notes on the data: vlmrobust data prints them
        dataset = resolve(typed, data_dir=folder)
        samples = dataset.samples()
        return _Data(dataset.name, Grouping.of(samples, CORRELATION if correlation is None else correlation), samples)


def _check_groups(names: Sequence[str], data: _Data | None, options: argparse.Namespace, *, grouped: bool) -> None:
    """Refuses options about groups that contradict each other or a profile."""
    ungrouped = "Leave out --groups, or give --dataset a name that no data has"
    if data is None and options.data:
        raise UsageError(f"--data {options.data}: there is no --dataset to look for in this folder")
    if data and options.groups:
        raise UsageError(f"--groups {options.groups}: {options.dataset} already has groups. {ungrouped}")
    if options.correlation is not None and not grouped:
        about = f"{options.dataset} has one question per image" if data else "samples are independent without groups"
        raise UsageError(f"--correlation {options.correlation:g}: {about}. Expected --groups N, or --dataset FILE with groups")
    for name in names:
        if (data or grouped) and _run_of(name):
            raise UsageError(f"--profile {name}: a run is drawn again with its own samples and groups. {ungrouped}")


def _with_groups(truth: ModelProfile, n: int, data: _Data | None, options: argparse.Namespace) -> ModelProfile:
    """Returns a profile with samples grouped according to the options."""
    from pytest_vlmrobust.evaluation.power.grouping import CORRELATION, Grouping
    from pytest_vlmrobust.evaluation.power.profiles import Profile

    if not isinstance(truth, Profile) or not (data or options.groups):
        return truth
    if data:
        return replace(truth, grouping=data.grouping)
    if options.groups > n:
        raise UsageError(f"--groups {options.groups}: {n} samples of {truth.name} have at most {n} groups")
    correlation = CORRELATION if options.correlation is None else options.correlation
    return replace(truth, grouping=Grouping.equal(n, options.groups, correlation))


def _usual(policy: Policy) -> list[str]:
    """Returns the default profiles of a table."""
    from pytest_vlmrobust.evaluation.power import observers, published

    if _of_tasks(policy):
        return list(observers.OBSERVERS)
    if policy.coverage.suites == ("patches",):
        return [NOTHING_LOST, TYPICAL, *published.VIEWS]
    return [NOTHING_LOST, EQUAL, EQUAL_CHURN, PUBLISHED]


def _of_tasks(policy: Policy) -> bool:
    """Whether a policy is only about the Observatory."""
    return policy.coverage.suites == ("observatory",)


def _observing(name: str, options: argparse.Namespace) -> tuple[ModelProfile, int]:
    """Returns a model at the tasks of the Observatory with its number of identities."""
    from pytest_vlmrobust.evaluation.power.observers import observer

    if options.shift:
        raise UsageError("--shift moves models that answer questions, and this policy is about the Observatory's tasks")
    for option in ("groups", "correlation", "data"):
        if getattr(options, option) is not None:
            raise UsageError(
                f"--{option} is about questions, and this policy is about the Observatory's tasks, whose groups are identities"
            )
    profile = observer(name, [options.dataset] if options.dataset else ())
    return profile, options.samples or profile.samples


def _named_profiles(name: str, options: argparse.Namespace) -> list[tuple[ModelProfile, int]]:
    from pytest_vlmrobust.evaluation.power import published, recorded

    dataset = options.dataset or "MMBench"
    benchmark = published.benchmark_of(dataset)
    usual = options.samples or next(iter(published.published_profiles(benchmark).values())).samples
    if run := _run_of(name):
        if options.shift:
            raise UsageError("--shift moves profiles that are published or lose nothing, not runs")
        runs = recorded.recorded_models(run)
        return [
            (replace(profile, dataset=options.dataset or profile.dataset), options.samples or profile.samples) for profile in runs
        ]
    if name == PUBLISHED:
        own = published.published_profiles(benchmark if options.dataset else "").values()
        return [(_shift_profile(_with_dataset(profile, options), options), options.samples or profile.samples) for profile in own]
    if profile := _synthetic(name, dataset):
        return [(_shift_profile(profile, options), usual)]
    if name.count("/") > 1 or name.startswith((".", "/", "~")):
        raise UsageError(f"--profile {name}: there is no such directory. Pass the directory of a run, or the name of a profile")
    profile = published.profile(name, options.dataset, [*_SYNTHETIC, *published.VIEWS, *published.published_profiles()])
    return [(_shift_profile(_with_dataset(profile, options), options), options.samples or profile.samples)]


def _run_of(name: str) -> Path | None:
    """Returns the directory of the run named by a profile, if it names one."""
    run = find_run(name)
    return run if run is not None and run.is_dir() else None


def _synthetic(name: str, dataset: str) -> Any:
    """Returns a profile that is not published in a table, or None if ``name`` is not one."""
    from pytest_vlmrobust.evaluation.power import published

    if name in (NOTHING_LOST, EQUAL, EQUAL_CHURN):
        churn = {NOTHING_LOST: None, EQUAL: 0.0, EQUAL_CHURN: 0.01}[name]
        return replace(published.nothing_lost(dataset, churn=churn), name=name)
    if name == HIDDEN_LOSS:
        return published.hidden_loss(dataset)
    if name in published.VIEWS:
        return published.context_profile(name, dataset)
    return published.typical(dataset) if name == TYPICAL else None


def _with_dataset(profile: Any, options: argparse.Namespace) -> Any:
    return replace(profile, dataset=options.dataset or profile.dataset)


def _shift_profile(profile: Any, options: argparse.Namespace) -> Any:
    from pytest_vlmrobust.evaluation.power.simulation import shift

    for text in options.shift:
        metric, equals, value = text.partition("=")
        try:
            number = float(value.removesuffix("pp").removesuffix("%")) / (100.0 if value.endswith(("pp", "%")) else 1.0)
        except ValueError:
            number = float("nan")
        if not equals or not -10.0 < number < 10.0:
            raise UsageError(f"--shift {text!r}: expected METRIC=VALUE, such as mean_drop=3.1pp or clean_accuracy=0.85")
        profile = shift(profile, metric, number)
    return profile


def _progress(about: str, runs: int) -> Callable[[int], None]:
    def show(done: int) -> None:
        if sys.stderr.isatty():
            end = "\n" if done == runs else ""
            sys.stderr.write(f"\r{about}: {done} of {runs} runs{end}")

    return show


def _note(about: str) -> Callable[[str], None]:
    def show(text: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"{about} {text}\n")

    return show


def _say_row(row: _Row, options: argparse.Namespace) -> None:
    power, planned = row.power, row.simulation.planned
    models = f", {options.models} models" if options.models > 1 else ""
    groups = _groups(row)
    grouped = f" in {groups[0]} groups of latent correlation {groups[1]:g}" if groups else ""
    say(f"{power.profile} on {row.simulation.truth.dataset}: {power.n} samples{grouped}{models}, {power.runs} simulated runs")
    given = f", {planned.given}" if planned.given else ""
    say("  " + ", ".join(f"{decision.value} {_share(power, decision)}" for decision in _SHOWN) + given)
    if row.needed is not None:
        low, high = row.needed
        needed = f"between {low} and {high} samples" if high else f"more than {low} samples, if any number does"
        say(f"  80 % of runs end GO or NO-GO with {needed}")
    widest = max(map(len, power.outcomes), default=4)
    say(f"  {'rule':<{widest}}  PASS  FAIL  INCONCLUSIVE  NOT_APPLICABLE  WARNED  keeps from GO alone")
    for name, outcomes in power.outcomes.items():
        shares = [outcomes.get(outcome, 0.0) for outcome in _OUTCOMES]
        passed = shares[0] + shares[4]
        say(
            f"  {name:<{widest}}  {passed:4.2f}  {shares[1]:4.2f}  {shares[2]:12.2f}  {shares[3]:14.2f}  {shares[5]:6.2f}"
            f"  {power.alone.get(name, 0.0):19.2f}"
        )
    if needed := _images_needed(row.simulation):
        say(f"  fewer source images than this cannot pass, even if no answer changes: {needed}")
    if said := _said_of_partly_changed(row, options):
        tell(f"  {said}")
    for shortfall in planned.shortfalls:
        tell(f"  never GO: {shortfall}")
    for name, why in planned.left_out.items():
        tell(f"  not simulated and assumed to be kept: {name}: {why}")
    for name, why in planned.idle.items():
        tell(f"  no say: {name}: {why}")


def _partly_changed(row: _Row, options: argparse.Namespace) -> dict[str, int]:
    """Returns the settings that change a part of the questions of a given dataset, and how many; others have all or no test."""
    from pytest_vlmrobust.core.cell import Setting
    from pytest_vlmrobust.evaluation.power.profiles import QUESTIONS
    from pytest_vlmrobust.evaluation.run.data import changed_by

    if not (data := _data(options.dataset, options.data, options.correlation)):
        return {}
    suites = [suite for suite in row.simulation.policy.coverage.suites if suite in QUESTIONS]
    settings = [name for suite in suites for name in row.simulation.truth.settings(suite)]
    counts = {name: len(changed_by(Setting.parse(name), data.samples)) for name in settings}
    return {name: count for name, count in counts.items() if 0 < count < len(data.samples)}


def _said_of_partly_changed(row: _Row, options: argparse.Namespace) -> str:
    """Returns a sentence about these settings; empty without one."""
    if not (counts := _partly_changed(row, options)):
        return ""
    shown = first_few([f"{name} {count:,}" for name, count in sorted(counts.items(), key=lambda each: each[1])], _MOST_NAMED)
    return f"tests count the questions that a setting changes, so rules about these hold less often than simulated: {shown}"


def _images_needed(simulation: Simulation) -> str:
    """Returns the blocking rules that need most source images, with their numbers."""
    from pytest_vlmrobust.evaluation.power.sample_size import images_needed
    from pytest_vlmrobust.policies import Tier

    rules = [
        rule for rule in simulation.policy.rules if rule.id in simulation.planned.tests and rule.treatment.tier is Tier.BLOCK
    ]
    needed = sorted(((images_needed(rule) or 0, rule.id) for rule in rules), reverse=True)
    return ", ".join(f"{name} {count:,}" for count, name in needed[:_MOST_NAMED] if count)


def _groups(row: _Row) -> tuple[int, float] | None:
    """Returns the number of groups of a profile with grouped samples, and their correlation."""
    from pytest_vlmrobust.evaluation.power.profiles import Profile

    truth = row.simulation.truth
    grouping = truth.grouping if isinstance(truth, Profile) else None
    if grouping is None or grouping.independent:
        return None
    return round(row.power.n * grouping.groups / len(grouping.codes)), grouping.correlation


def _share(power: Power, decision: Decision) -> str:
    return f"{power.share(decision):.2f} ± {2.0 * power.error(decision):.2f}"


def _say_table(name: str, rows: Sequence[_Row], options: argparse.Namespace) -> None:
    """Prints the rows of one policy in Markdown."""
    say(f"### {name}\n")
    given = next((row.simulation.planned.given for row in rows if row.simulation.planned.given), "")
    say(f"| true model | dataset | n | GO{f' ({given})' if given else ''} | NO-GO | INCONCLUSIVE | kept from GO by |")
    say("|---|---|--:|--:|--:|--:|---|")
    for row in rows:
        power = row.power
        shares = " | ".join(f"{power.share(decision):.2f}" for decision in _SHOWN)
        groups = _groups(row)
        n = f"{power.n} in {groups[0]} groups" if groups else power.n
        say(f"| {power.profile} | {row.simulation.truth.dataset} | {n} | {shares} | {_culprits(power)} |")
    left = {name: why for row in rows for name, why in row.simulation.planned.left_out.items()}
    never = {reason for row in rows for reason in row.simulation.planned.shortfalls}
    say("")
    for said in sorted({said for row in rows if (said := _said_of_partly_changed(row, options))}):
        say(f"{said[0].upper()}{said[1:]}.")
    for reason in sorted(never):
        say(f"Never GO without more: {reason}.")
    if left:
        say(f"Not simulated and assumed to be kept: {'; '.join(f'{rule} ({why})' for rule, why in sorted(left.items()))}.")
    if rows:
        error = 0.5 / options.runs**0.5
        latent = {f"latent correlation within a group {groups[1]:g}; " for row in rows if (groups := _groups(row))}
        runs = f"{options.runs} simulated runs a row, seed {options.seed}"
        say(f"{''.join(latent)}{runs}: Monte Carlo error at most {error:.3f}.\n")


def _culprits(power: Power) -> str:
    against = {
        name: sum(outcomes.get(outcome, 0.0) for outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.NOT_APPLICABLE))
        for name, outcomes in power.outcomes.items()
    }
    worst = sorted((name for name, share in against.items() if share >= 0.05), key=lambda name: -against[name])[:3]
    return ", ".join(f"{name} {against[name]:.2f}" for name in worst)


def _as_json(row: _Row, options: argparse.Namespace) -> dict[str, Any]:
    power, planned = row.power, row.simulation.planned
    return {
        "profile": power.profile,
        "dataset": row.simulation.truth.dataset,
        "samples": power.n,
        "groups": None if (groups := _groups(row)) is None else groups[0],
        "correlation": None if groups is None else groups[1],
        "runs": power.runs,
        "decisions": {decision.value: power.share(decision) for decision in _SHOWN},
        "standard_errors": {decision.value: power.error(decision) for decision in _SHOWN},
        "rules": {
            name: {outcome.value: share for outcome, share in outcomes.items()} for name, outcomes in power.outcomes.items()
        },
        "alone": dict(power.alone),
        "samples_for_80_percent": None if row.needed is None else {"too_few": row.needed[0], "enough": row.needed[1]},
        "given": planned.given,
        "not_simulated": dict(planned.left_out),
        "no_say": dict(planned.idle),
        "never_go": list(planned.shortfalls),
        "changed_questions": _partly_changed(row, options),
    }
