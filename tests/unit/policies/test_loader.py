"""Several files, defaults, budgets, versions and digests."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_vlmrobust.core.errors import PolicyError
from pytest_vlmrobust.policies import Bound, Judge, OnInconclusive, Policy, Tier, load_policy

Load = Callable[..., Policy]

BASE = """\
version: 1
defaults: {judge: point}
budgets: {max_unparsed_rate: 5%}
rules:
  - {id: low, metric: accuracy_drop, max: 5pp, where: {level: low}}
  - {id: high, metric: accuracy_drop, max: 30pp, where: {level: high}, tier: warn}
"""


def test_later_files_override_by_id_and_keep_the_place(load: Load) -> None:
    policy = load(
        BASE, "version: 1\nrules:\n  - {id: low, metric: accuracy_drop, max: 8pp}\n  - {id: new, metric: pcri, max: 0.1}\n"
    )
    assert [(rule.id, rule.source) for rule in policy.rules] == [("low", "b.yaml:3"), ("high", "a.yaml:6"), ("new", "b.yaml:4")]
    assert policy.rules[0].bound == Bound(high=0.08)
    assert not policy.rules[0].where  # the earlier rule is replaced as a whole


def test_defaults_of_a_later_file_hold_for_the_rules_of_all(load: Load) -> None:
    policy = load(BASE, "version: 1\ndefaults: {judge: interval, on_inconclusive: warn}\n")
    assert [rule.treatment.judge for rule in policy.rules] == [Judge.INTERVAL, Judge.INTERVAL]
    assert [rule.treatment.on_inconclusive for rule in policy.rules] == [OnInconclusive.WARN] * 2
    assert [rule.treatment.tier for rule in policy.rules] == [Tier.BLOCK, Tier.WARN]  # what a rule says itself stays


def test_budgets_override_key_by_key(load: Load) -> None:
    budgets = load(BASE, "version: 1\nbudgets: {max_error_rate: 1%}\n").budgets
    assert (budgets.max_error_rate, budgets.max_unparsed_rate) == (0.01, 0.05)
    assert budgets.sources == {"max_error_rate": "b.yaml:2", "max_unparsed_rate": "a.yaml:3"}


def test_budgets_have_defaults(load: Load) -> None:
    budgets = load("version: 1\nrules: [{id: r, metric: pcri, max: 0.1}]\n").budgets
    assert (budgets.max_error_rate, budgets.max_unparsed_rate, dict(budgets.sources)) == (0.0, 0.05, {})


@pytest.mark.parametrize(("value", "found"), [("150%", "the text '150%'"), ("-1%", "the text '-1%'")])
def test_budgets_are_shares(load: Load, value: str, found: str) -> None:
    message = f"a.yaml:2: budgets.max_error_rate is {found}. Expected a share between 0 and 100%"
    with pytest.raises(PolicyError, match=re.escape(message)):
        load(f"version: 1\nbudgets: {{max_error_rate: {value}}}\n")


@pytest.mark.parametrize("version", ["2", "true", "'1'", "[1]"])
def test_other_versions_are_refused(load: Load, version: str) -> None:
    with pytest.raises(PolicyError, match=re.escape("a.yaml:1: version is ")):
        load(f"version: {version}\nrules: []\n")


@pytest.mark.parametrize("files", [["version: 1\n"], ["version: 1\nrules: []\n", "version: 1\n"]])
def test_a_policy_without_rules_gates_nothing_and_is_refused(load: Load, files: list[str]) -> None:
    with pytest.raises(PolicyError, match=r"^a\.yaml.*: no rule at all, so nothing would be gated"):
        load(*files)


def test_no_file_at_all_is_refused() -> None:
    with pytest.raises(PolicyError, match="no thresholds file: no rule at all"):
        load_policy([], known_metrics=["pcri"])


def test_ids_are_unique_in_a_file(load: Load) -> None:
    text = "version: 1\nrules:\n- {id: r, metric: pcri, max: 0.1}\n- {id: r, metric: pcri, max: 0.2}\n"
    with pytest.raises(PolicyError, match=re.escape("a.yaml:4: rule id 'r' is taken already by a.yaml:3. Choose another")):
        load(text)


def test_what_is_overridden_is_checked_too(load: Load) -> None:
    broken = "version: 1\nrules: [{id: low, metric: accuracy_drop, max: 5}]\n"
    with pytest.raises(PolicyError, match=re.escape("a.yaml:2: rules[1].max is '5'")):
        load(broken, BASE)


def test_files_are_listed_with_the_digest_of_their_bytes(load: Load) -> None:
    (file,) = load(BASE).files
    assert (file.name, file.sha256) == ("a.yaml", hashlib.sha256(BASE.encode()).hexdigest())


def test_a_file_outside_the_root_is_shown_as_given(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    path = tmp_path / "t.yaml"
    path.write_text(BASE)
    policy = load_policy([path], known_metrics=["accuracy_drop"], root=tmp_path / "root")
    assert policy.rules[0].source == f"{path.as_posix()}:5"


def test_the_spelling_of_a_policy_does_not_change_its_hash(load: Load) -> None:
    respelled = (
        "version: 1\n# a comment\nrules:\n"
        "  - {id: high, metric: accuracy_drop, max: 0.3, where: {level: [high]}, tier: warn, judge: point, reason: because}\n"
        "  - {id: low, metric: accuracy_drop, max: 5%, where: {level: low}, judge: point}\n"
    )
    assert load(BASE).sha256 == load(respelled).sha256
    assert load(BASE).files != load(respelled).files


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max: 5pp", "max: 6pp"),
        ("level: low", "level: mid"),
        ("tier: warn", "tier: block"),
        ("judge: point", "judge: interval"),
        ("max_unparsed_rate: 5%", "max_unparsed_rate: 6%"),
        ("id: low", "id: lower"),
        ("max: 5pp", "max: 5pp, unless: {setting: fog}"),
    ],
)
def test_what_changes_a_verdict_changes_the_hash(load: Load, old: str, new: str) -> None:
    assert load(BASE).sha256 != load(BASE.replace(old, new)).sha256


WAIVERS = """\
waivers: [{id: W, metric: accuracy_drop, where: {model: m}, cap: 60pp, owner: me, reason: why, expires: 2027-06-30}]
"""


@pytest.mark.parametrize(
    ("old", "new"), [("", ""), ("60pp", "61pp"), ("2027", "2028"), ("owner: me", "owner: you"), ("model", "dataset")]
)
def test_a_waiver_changes_the_hash(load: Load, old: str, new: str) -> None:
    before = BASE if not old else BASE + WAIVERS
    assert load(before).sha256 != load(BASE + WAIVERS.replace(old, new)).sha256
