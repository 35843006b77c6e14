"""Which thresholds hold for which model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.errors import PolicyError, did_you_mean
from pytest_vlmrobust.core.prediction import ModelRef

if TYPE_CHECKING:
    from pytest_vlmrobust.policies import MetricFacts, Policy, Rule

DEFAULT = "default"
_ABOUT = {
    "box_coverage": "The share of the boxes asked for that an answer gives, right or wrong, on pictures under one setting.",
    "corpus_drop": "What the dataset's own metric loses from clean pictures to a setting, where that is no mean of scores.",
    "corpus_pcri": "One less the dataset's own metric of the best patches over that of whole pictures.",
    "corpus_score": "The dataset's own metric (F1, CIDEr, accuracy over groups of questions), where that is no mean of scores.",
    "fixation_rate": "The share of pictures for which a model names the same cell of a grid wherever they stand.",
    "grid_distance": "How many cells a wrong answer is away from the target in a grid.",
    "label_preserving_drop": "The accuracy drop over the samples whose answer the setting leaves right.",
    "preprocessing_gain": "What a small picture gains when it is padded or enlarged before the model sees it.",
    "unparsed_increase": "How many more answers cannot be read under a setting than on clean pictures; of written answers alone.",
}
"""What the evaluation measures beside registered metrics, and rules may bound."""


def policy_for(ref: ModelRef, given: Sequence[str], path: Callable[[str], Path], root: Path) -> Policy:
    """Returns the policy of a model: the files given, else the one its record names, else the default.

    Raises:
        PolicyError: a file that is absent or cannot be honoured.
        UnknownName: a rule about a metric that does not exist.
    """
    from pytest_vlmrobust.metrics.registry import AMBIGUOUS
    from pytest_vlmrobust.policies import load_policy

    files = tuple(thresholds_file(name, path) for name in given or (ref.policy or DEFAULT,))
    return load_policy(files, known_metrics=known_metrics(), ambiguous=AMBIGUOUS, root=root)


def thresholds_file(name: str, path: Callable[[str], Path], *, said: str = "--vlm-thresholds") -> Path:
    """Returns the file that ``name`` means: a path, or the name of a shipped policy; ``said`` is where the name was given.

    Raises:
        PolicyError: there is no such file, and no shipped policy of that name.
    """
    from pytest_vlmrobust.shipped import shipped

    file = path(name)
    own = path(f"thresholds/{name}.yaml")  # what `vlmrobust init` copied, and somebody may have tightened
    for candidate in (file, own):
        if candidate.is_file():
            return candidate
    offered = {entry.stem: entry for entry in sorted(shipped("thresholds").glob("*.yaml"))}
    if name in offered:
        return offered[name]
    raise PolicyError(
        f"{said} {name!r}: there is no file {str(file)!r}, and no shipped policy of that name."
        f"{did_you_mean(name, offered)} Shipped: {', '.join(offered)}"
    )


def is_relative(rule: Rule) -> bool:
    """Whether a rule compares with an earlier run."""
    from pytest_vlmrobust import metrics

    from .judged import BASELINE

    return rule.metric in metrics.names() and metrics.get(rule.metric).suite == BASELINE


def is_summary(rule: Rule) -> bool:
    """Whether a rule bounds a property of one model over many settings, whatever other runs or models there are."""
    from pytest_vlmrobust import metrics

    from .strata import MACRO

    name = rule.metric.removesuffix(MACRO)
    return name in metrics.names(scope="sweep") and not is_relative(rule)


def shows_looking(rule: Rule) -> bool:
    """Whether a rule asks that a model answers better with the pictures than without: else its robustness says nothing."""
    return rule.metric == "visual_gain"


def beside_metrics() -> dict[str, str]:
    """Returns what rules may bound and no registered metric is: name to what it is, with its facts."""
    found = {}
    for name, about in _ABOUT.items():
        facts = known_metrics()[name]
        low, high = (f"{end:g}".replace("inf", "∞") for end in facts.bounds)
        better = "neither is better" if facts.better == "none" else f"{facts.better} is better"
        found[name] = f"{about} Of one setting; {facts.unit}, {low} … {high}; {better}."
    return found


@cache
def known_metrics() -> dict[str, MetricFacts]:
    """Returns what rules may be about: registered metrics, and what the evaluation computes beside them.

    That is the drop over label-preserving samples, a data set's own metric, metrics on the mean curve of categories, what
    preprocessing gains, properties of families of models, and what the Observatory counts beside scores.
    """
    from pytest_vlmrobust import metrics
    from pytest_vlmrobust.policies import MetricFacts

    from .judged import (
        BASELINE,
        LABEL_PRESERVING_DROP,
        OBSERVATORY,
        PREPROCESSING_GAIN,
        UNPARSED_INCREASE,
        unmeasured_metrics,
    )
    from .observatory import COVERAGE, DISTANCE, FIXATION
    from .strata import MACRO, has_macro
    from .whole import CORPUS_DROP, CORPUS_PCRI, CORPUS_SCORE

    records = {name: metrics.get(name) for name in metrics.names()}
    lacking = unmeasured_metrics()
    facts = {
        name: MetricFacts(
            record.unit,
            record.better,
            record.scope,
            record.interval is not None,
            split=record.suite in (OBSERVATORY, BASELINE),
            bounds=record.bounds,
            unmeasured=lacking.get(name, ""),
        )
        for name, record in records.items()
    }
    families = {
        name: MetricFacts(record.unit, record.better, "sweep", split=True, bounds=record.bounds)
        for name, record in metrics.FAMILY_METRICS.items()
    }
    beside = {
        FIXATION: MetricFacts("fraction", "lower", "cell", bounds=(0.0, 1.0)),
        COVERAGE: MetricFacts("fraction", "higher", "cell", bounds=(0.0, 1.0)),
        DISTANCE: MetricFacts("cells", "lower", "cell", bounds=(0.0, math.inf)),
    }
    own = {
        CORPUS_SCORE: MetricFacts("benchmark's own", "higher", "cell"),
        CORPUS_DROP: MetricFacts("benchmark's own", "lower", "cell"),
        CORPUS_PCRI: MetricFacts("ratio", "none", "cell", bounds=facts["pcri"].bounds),
    }
    macro = {
        f"{name}{MACRO}": MetricFacts(record.unit, record.better, record.scope, interval=False, bounds=record.bounds)
        for name, record in records.items()
        if has_macro(record)
    }
    own[UNPARSED_INCREASE] = MetricFacts("fraction", "lower", "cell", bounds=(-1.0, 1.0))
    own[PREPROCESSING_GAIN] = MetricFacts("fraction", "higher", "cell", bounds=(-1.0, 1.0))
    return {**facts, LABEL_PRESERVING_DROP: facts["accuracy_drop"], **own, **macro, **families, **beside}
