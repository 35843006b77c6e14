"""Power: `vlmrobust power`, in words, as a table in Markdown, and as JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Option

from pytest_vlmrobust.commands.arguments import AsJson, DataFolder, Seed, find_run, in_quarantine, number, say, tell
from pytest_vlmrobust.core.decision import Decision, Outcome
from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.words import first_few
from pytest_vlmrobust.evaluation.power.study import NOTHING_LOST, SYNTHETIC, Shift, Study

if TYPE_CHECKING:
    from pytest_vlmrobust.evaluation.power.simulation import Power
    from pytest_vlmrobust.evaluation.power.study import Result
    from pytest_vlmrobust.policies import Policy


def _correlation(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.0 <= number <= 1.0:
        raise BadParameter(f"{text!r} is not a correlation. Expected a number from 0 to 1")
    return number


def _shift(text: str) -> Shift:
    metric, equals, value = text.partition("=")
    try:
        number = float(value.removesuffix("pp").removesuffix("%")) / (100.0 if value.endswith(("pp", "%")) else 1.0)
    except ValueError:
        number = math.nan
    if not equals or not -10.0 < number < 10.0:
        raise UsageError(f"--shift {text!r}: expected METRIC=VALUE, such as mean_drop=3.1pp or clean_accuracy=0.85")
    return Shift(metric, number)


@in_quarantine(seconds=None)  # it computes as long as it is told to
def power(
    policies: Annotated[list[str] | None, Argument(metavar="POLICY", help="policy files, or names of shipped policies")] = None,
    *,
    samples: Annotated[
        int | None, number("samples", "questions, or identities", default="as published, as in the run, or all of FILE")
    ] = None,
    profiles: Annotated[
        list[str] | None,
        Option(
            "--profile",
            metavar="NAME|RUN",
            help=f"the simulated model (repeatable): {', '.join(SYNTHETIC)}, another of the docs, "
            "MMBench/Qwen3-VL-8B and its like, or a run",
            show_default=NOTHING_LOST,
        ),
    ] = None,
    dataset: Annotated[
        str,
        Option(
            metavar="NAME|FILE",
            help="name of the dataset for rules, or data as after --vlm-dataset, for its size, groups and categories; for the "
            "Observatory one collection",
            show_default="both",
        ),
    ] = "",
    folder: DataFolder = None,
    groups: Annotated[
        int | None,
        number(
            "groups",
            "groups of questions, such as source images, of equal size",
            default="independent questions, or the groups of FILE",
        ),
    ] = None,
    correlation: Annotated[
        float | None,
        Option(metavar="R", parser=_correlation, help="how alike the answers of a group are, 0 to 1", show_default="0.5"),
    ] = None,
    shifts: Annotated[
        list[Shift] | None,
        Option("--shift", metavar="METRIC=VALUE", parser=_shift, help="set a metric of each profile to a value"),
    ] = None,
    models: Annotated[int, number("models", "models of the run, all with this profile and independent", "K")] = 1,
    runs: Annotated[int, number("runs", "simulated runs of each profile", "R")] = 100,
    seed: Seed = 0,
    no_search: Annotated[bool, Option("--no-search", help="do not search how many questions would decide 80 % of runs")] = False,
    table: Annotated[
        bool, Option("--table", help="one line for each profile, in Markdown; without POLICY, of all shipped policies")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Simulate how often a policy decides GO, NO-GO or INCONCLUSIVE for known models.

    Examples:
        vlmrobust power ours.yaml --samples 500 --no-search
        vlmrobust power default --profile latest
    """
    from pytest_vlmrobust.shipped import shipped

    if not policies and not table:
        raise UsageError("vlmrobust power: name a policy, such as default, or ask for the --table of all shipped ones")
    if not policies and (groups or correlation is not None):
        raise UsageError(
            "vlmrobust power: --groups and --correlation are about questions: name a policy about them, such as default"
        )
    study = Study(
        [_run_of(name) or name for name in profiles or ()],
        dataset,
        folder,
        samples=samples,
        groups=groups,
        correlation=correlation,
        shifts=shifts or (),
        models=models,
        runs=runs,
        seed=seed,
        searches=not (no_search or table),
        several=table,
    )
    simulated, empty = {}, {}
    for files in [policies] if policies else [[entry.stem] for entry in sorted(shipped("thresholds").glob("*.yaml"))]:
        name = " + ".join(Path(file).stem for file in files)
        results, why = study.results(_policy(files), name, _progress)
        if not results:
            empty[name] = why
            continue
        simulated[name] = [result_json(result, study) for result in results] if as_json else []
        if table:
            say(result_table(name, results, study))
        elif not as_json:
            _print(results, study)
    if as_json and simulated:
        say(json.dumps(simulated, indent=1))
    if empty:
        raise UsageError("\n".join(f"no rule of {name} can be simulated: {why}" for name, why in empty.items()))
    return 0


def _print(results: Sequence[Result], study: Study) -> None:
    for result in results:
        say("\n".join(result_lines(result, study)))
        for note in result_notes(result, study):
            tell(f"  {note}")


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(text)


def _policy(files: Sequence[str]) -> Policy:
    from pytest_vlmrobust.evaluation.judge.scopes import known_metrics, thresholds_file
    from pytest_vlmrobust.metrics.record import AMBIGUOUS
    from pytest_vlmrobust.policies import load_policy

    paths = [thresholds_file(name, Path, given_as="POLICY") for name in files]
    return load_policy(paths, known_metrics=known_metrics(), ambiguous=AMBIGUOUS, root=Path.cwd())


def _run_of(name: str) -> Path | None:
    """Returns the directory of the run named by a profile, if it names one."""
    run = find_run(name)
    return run if run is not None and run.is_dir() else None


_SHOWN = (Decision.GO, Decision.NO_GO, Decision.INCONCLUSIVE)
_OUTCOMES = (Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.NOT_APPLICABLE, Outcome.WAIVED, Outcome.MEASURED)
_MOST_NAMED = 4
"""Number of rules to name among those that need most images, and of settings."""


def result_lines(result: Result, study: Study) -> Iterator[str]:
    """Yields the lines about one profile: the decisions, and a row for each rule."""
    power, planned = result.power, result.simulation.planned
    models = f", {study.models} models" if study.models > 1 else ""
    grouped = f" in {result.groups[0]} groups of latent correlation {result.groups[1]:g}" if result.groups else ""
    yield f"{power.profile} on {result.simulation.truth.dataset}: {power.n} samples{grouped}{models}, {power.runs} simulated runs"
    shares = ", ".join(f"{decision.value} {power.share(decision):.2f} ± {2.0 * power.error(decision):.2f}" for decision in _SHOWN)
    yield f"  {shares}{f', {planned.given}' if planned.given else ''}"
    if result.needed is not None:
        low, high = result.needed
        needed = f"between {low} and {high} samples" if high else f"more than {low} samples, if any number does"
        yield f"  80 % of runs end GO or NO-GO with {needed}"
    widest = max(map(len, power.outcomes), default=4)
    yield f"  {'rule':<{widest}}  PASS  FAIL  INCONCLUSIVE  NOT_APPLICABLE  WARNED  alone prevents GO"
    for name, outcomes in power.outcomes.items():
        passed, failed, undecided, inapplicable, waived, warned = (outcomes.get(outcome, 0.0) for outcome in _OUTCOMES)
        yield (
            f"  {name:<{widest}}  {passed + waived:4.2f}  {failed:4.2f}  {undecided:12.2f}  {inapplicable:14.2f}  {warned:6.2f}"
            f"  {power.alone.get(name, 0.0):17.2f}"
        )
    if result.images_needed:
        counts = ", ".join(f"{name} {count:,}" for name, count in result.images_needed[:_MOST_NAMED])
        yield f"  fewer source images than this cannot pass, even if no answer changes: {counts}"


def result_notes(result: Result, study: Study) -> Iterator[str]:
    """Yields sentences about what the simulation of a profile leaves out."""
    planned = result.simulation.planned
    if changed := _partly_changed(result, study):
        yield changed
    yield from (f"never GO: {shortfall}" for shortfall in planned.shortfalls)
    yield from (f"not simulated and assumed to be kept: {name}: {why}" for name, why in planned.left_out.items())
    yield from (f"no say: {name}: {why}" for name, why in planned.idle.items())


def result_table(name: str, results: Sequence[Result], study: Study) -> str:
    """Returns the results of one policy in Markdown, a row for each profile."""
    given = next((result.simulation.planned.given for result in results if result.simulation.planned.given), "")
    lines = [
        f"### {name}\n",
        f"| true model | dataset | n | GO{f' ({given})' if given else ''} | NO-GO | INCONCLUSIVE | kept from GO by |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    for result in results:
        power = result.power
        shares = " | ".join(f"{power.share(decision):.2f}" for decision in _SHOWN)
        n = f"{power.n} in {result.groups[0]} groups" if result.groups else power.n
        lines.append(f"| {power.profile} | {result.simulation.truth.dataset} | {n} | {shares} | {_culprits(power)} |")
    lines.append("")
    lines += [f"{line[0].upper()}{line[1:]}." for line in sorted({_partly_changed(result, study) for result in results} - {""})]
    never = {reason for result in results for reason in result.simulation.planned.shortfalls}
    lines += [f"Never GO without more: {reason}." for reason in sorted(never)]
    if left := {rule: why for result in results for rule, why in result.simulation.planned.left_out.items()}:
        kept = "; ".join(f"{rule} ({why})" for rule, why in sorted(left.items()))
        lines.append(f"Not simulated and assumed to be kept: {kept}.")
    latent = {f"latent correlation within a group {result.groups[1]:g}; " for result in results if result.groups}
    runs = f"{study.runs} simulated runs a row, seed {study.seed}"
    lines.append(f"{''.join(latent)}{runs}: Monte Carlo error at most {0.5 / study.runs**0.5:.3f}.\n")
    return "\n".join(lines)


def result_json(result: Result, study: Study) -> dict[str, Any]:
    """Returns the results for one profile as JSON."""
    power, planned = result.power, result.simulation.planned
    groups, correlation = result.groups or (None, None)
    return {
        "profile": power.profile,
        "dataset": result.simulation.truth.dataset,
        "samples": power.n,
        "groups": groups,
        "correlation": correlation,
        "runs": power.runs,
        "decisions": {decision.value: power.share(decision) for decision in _SHOWN},
        "standard_errors": {decision.value: power.error(decision) for decision in _SHOWN},
        "rules": {
            name: {outcome.value: share for outcome, share in outcomes.items()} for name, outcomes in power.outcomes.items()
        },
        "alone": dict(power.alone),
        "samples_for_80_percent": None if result.needed is None else {"too_few": result.needed[0], "enough": result.needed[1]},
        "given": planned.given,
        "not_simulated": dict(planned.left_out),
        "no_say": dict(planned.idle),
        "never_go": list(planned.shortfalls),
        "changed_questions": study.partly_changed(result),
    }


def _partly_changed(result: Result, study: Study) -> str:
    """Returns a sentence about the settings that change a part of the questions; empty without one."""
    if not (counts := study.partly_changed(result)):
        return ""
    shown = first_few([f"{name} {count:,}" for name, count in sorted(counts.items(), key=lambda pair: pair[1])], _MOST_NAMED)
    return f"tests count the questions that a setting changes, so rules about these hold less often than simulated: {shown}"


def _culprits(power: Power) -> str:
    against = {
        name: sum(outcomes.get(outcome, 0.0) for outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.NOT_APPLICABLE))
        for name, outcomes in power.outcomes.items()
    }
    worst = sorted((name for name, share in against.items() if share >= 0.05), key=lambda name: -against[name])[:3]
    return ", ".join(f"{name} {against[name]:.2f}" for name in worst)
