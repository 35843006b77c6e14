from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_vlmrobust.policies import MetricFacts, Policy, load_policy

METRICS = {
    "accuracy": MetricFacts("fraction", "higher", bounds=(0.0, 1.0)),
    "accuracy_drop": MetricFacts("fraction", "lower", bounds=(-1.0, 1.0)),
    "harmful_flip_rate": MetricFacts("fraction", "lower"),
    "relative_corruption_error": MetricFacts("ratio", "lower"),
    "pcri": MetricFacts("fraction", "none"),
    "worst_case_drop": MetricFacts("fraction", "lower", "sweep"),
    "visual_gain": MetricFacts("fraction", "higher", "sweep"),
    "tail_share": MetricFacts("fraction", "lower", "sweep", interval=False),
    "mean_severity_correlation": MetricFacts("correlation", "higher", "sweep"),
}
AMBIGUOUS = {"rce": ("relative_corruption_error", "relative_continuous_error")}

Load = Callable[..., Policy]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads thresholds files from their texts: the first is called a.yaml, the second b.yaml."""

    def from_texts(*texts: str | bytes) -> Policy:
        paths = [tmp_path / f"{letter}.yaml" for letter, _ in zip("abc", texts, strict=False)]
        for path, text in zip(paths, texts, strict=True):
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_policy(paths, known_metrics=METRICS, ambiguous=AMBIGUOUS, root=tmp_path)

    return from_texts


@pytest.fixture
def load_rule(load: Load) -> Load:
    """Loads a file with one rule from the lines of its body; the rule stands in line 3, its body from line 4 on."""

    def from_body(body: str) -> Policy:
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        return load(f"version: 1\nrules:\n  - id: only\n{lines}")

    return from_body
