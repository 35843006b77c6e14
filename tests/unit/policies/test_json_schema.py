"""The JSON Schema of thresholds files against the reader that it describes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_vlmrobust.core.errors import PolicyError
from pytest_vlmrobust.policies import Policy
from pytest_vlmrobust.policies.budgets import BUDGET_KEYS, COVERAGE_KEYS
from pytest_vlmrobust.policies.json_schema import FILE, thresholds_schema
from pytest_vlmrobust.policies.load import (
    RULE_KEYS,
    SCOPE,
    TOP_KEYS,
    TREATMENT,
    WAIVER_KEYS,
)

from .conftest import METRICS

jsonschema = pytest.importorskip("jsonschema")
Load = Callable[..., Policy]

THRESHOLDS = Path(__file__).parents[3] / "thresholds"
RULE = "{id: drop, metric: accuracy_drop, max: 5pp}"
WAIVER = "{id: W, metric: accuracy_drop, where: {setting: fog}, cap: 9pp, owner: jo, reason: known, expires: 2027-06-30}"


class Loader(yaml.SafeLoader):
    """Reads days as text, as editors do."""


Loader.yaml_implicit_resolvers = {
    first: [resolver for resolver in resolvers if not resolver[0].endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def accepts(text: str) -> bool:
    schema = thresholds_schema(METRICS)
    validator: Any = jsonschema.Draft7Validator(schema)
    validator.check_schema(schema)
    return bool(validator.is_valid(yaml.load(text, Loader)))  # noqa: S506 - a safe one


@pytest.mark.parametrize("file", sorted(THRESHOLDS.glob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_files_keep_the_shipped_schema(file: Path) -> None:
    validator: Any = jsonschema.Draft7Validator(json.loads((THRESHOLDS / FILE).read_text(encoding="utf-8")))
    text = file.read_text(encoding="utf-8")
    assert [error.message for error in validator.iter_errors(yaml.load(text, Loader))] == []  # noqa: S506 - a safe one
    assert text.startswith(f"# yaml-language-server: $schema={FILE}\n")


def test_every_key_of_the_reader_is_described() -> None:
    schema = thresholds_schema(METRICS)
    described = {name: tuple(schema["properties"][name]["properties"]) for name in ("defaults", "budgets", "coverage")}
    assert tuple(schema["properties"]) == TOP_KEYS
    assert described == {"defaults": tuple(TREATMENT), "budgets": BUDGET_KEYS, "coverage": COVERAGE_KEYS}
    assert {name: tuple(kind["properties"]) for name, kind in schema["definitions"].items()} == {
        "scope": tuple(SCOPE),
        "rule": RULE_KEYS,
        "waiver": WAIVER_KEYS,
    }


@pytest.mark.parametrize(
    "text",
    [
        f"version: 1\nrules: [{RULE}]\nwaivers: [{WAIVER}]",
        "version: 1\nrules:\n  - {id: a, metric: pcri, within: [-0.4, 40%], judge: point, alpha_pass: 0.1, where: {level: none}}",
        "version: 1\nrules:\n  - {id: a, metric: accuracy, min: .5, where: {level: ['448', low]}, unless: {model: [a, b]}}",
        f"version: 1\nrules: [{RULE}]\ncoverage: {{tests: partial, samples: 20%, suites: [patches], rules: partial}}",
        "version: 1\nrules: [{id: a, metric: relative_corruption_error, max: 5}, {id: b, metric: accuracy_drop, max: 1.0}]",
        f"version: 1\nrules: [{RULE}]\ncoverage: {{samples: 500}}\nbudgets: {{max_error_rate: 0}}\ndefaults: {{tier: warn}}",
    ],
)
def test_what_the_reader_accepts_is_accepted(load: Load, text: str) -> None:
    load(text)
    assert accepts(text)


@pytest.mark.cases(
    "text",
    [
        f"rules: [{RULE}]",
        f"version: 2\nrules: [{RULE}]",
        f"version: 1\nrule: [{RULE}]",
        "version: 1\nrules: [{id: a, metric: accuracy_drop}]",
        "version: 1\nrules: [{id: a, metric: accuracy_drop, max: 5pp, within: [0, 0.1]}]",
        "version: 1\nrules: [{id: a b, metric: accuracy_drop, max: 5pp}]",
        "version: 1\nrules: [{id: a, metric: accuracy_drop, max: 5 points}]",
        "version: 1\nrules: [{id: a, metric: accuracy_drop, max: 5pp, tier: block it}]",
        "version: 1\nrules: [{id: a, metric: accuracy_drop, max: 5pp, alpha_fail: 0.7}]",
        "version: 1\nrules: [{id: a, metric: accuracy_drop, max: 5pp, where: {}}]",
        "version: 1\nrules: [{id: a, metric: pcri, within: [0.1]}]",
        f"version: 1\nrules: [{RULE}]\nwaivers: [{WAIVER.replace('owner: jo, ', '')}]",
        f"version: 1\nrules: [{RULE}]\nwaivers: [{WAIVER.replace('2027-06-30', 'soon')}]",
        f"version: 1\nrules: [{RULE}]\ncoverage: {{samples: 0}}",
        f"version: 1\nrules: [{RULE}]\ncoverage: {{tests: hole}}",
        f"version: 1\nrules: [{RULE}]\ncoverage: {{rules: hole}}",
        "version: 1\nrules: [{id: a, metric: accuracy_drop, max: 5}]",
        "version: 1\nrules: [{id: a, metric: pcri, within: [-5.0, 0.1]}]",
        f"version: 1\nrules: [{RULE}]\nbudgets: {{max_error_rate: 5}}",
        f"version: 1\nrules: [{RULE}]\nbudgets: {{max_error_rate: -0.1}}",
        f"version: 1\nrules: [{RULE}]\nwaivers: [{WAIVER.replace('9pp', '9')}]",
        "version: 1\nrules: [{id: a, metric: accuracy_drop, max: 1e99999999999999999999pp}]",
    ],
)
def test_what_the_reader_refuses_is_refused(load: Load, text: str) -> None:
    with pytest.raises(PolicyError):
        load(text)
    assert not accepts(text)
