"""Several files, defaults, budgets, versions and digests."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from pytest_vlmrobust.core.errors import PolicyError
from pytest_vlmrobust.policies import Bound, JudgedBy, OnInconclusive, Policy, Tier, load_policy
from pytest_vlmrobust.policies.budgets import BUDGET_KEYS, COVERAGE_KEYS
from pytest_vlmrobust.policies.load import (
    LARGEST_POLICY,
    RULE_KEYS,
    SCHEMA_FILE,
    SCOPE,
    TOP_KEYS,
    TREATMENT,
    WAIVER_KEYS,
    thresholds_schema,
)
from pytest_vlmrobust.policies.policy import policy_content

from .conftest import METRICS

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


LATER = """\
version: 1
defaults: {tier: warn, on_inconclusive: warn}
rules:
  - {id: gain, metric: visual_gain, min: 1pp}
  - {id: said, metric: accuracy, min: 50%, tier: block}
"""


@pytest.mark.parametrize("files", [(BASE, LATER), (LATER, BASE)])
def test_defaults_are_those_of_the_rules_of_their_own_file(load: Load, files: tuple[str, str]) -> None:
    treated = {rule.id: rule.treatment for rule in load(*files).rules}
    assert {name: about.tier for name, about in treated.items()} == {
        "low": Tier.BLOCK,
        "high": Tier.WARN,  # says so itself
        "gain": Tier.WARN,
        "said": Tier.BLOCK,
    }
    assert {name for name, about in treated.items() if about.judge is JudgedBy.POINT} == {"low", "high"}
    assert {name for name, about in treated.items() if about.on_inconclusive is OnInconclusive.WARN} == {"gain", "said"}


def test_a_rule_that_takes_the_place_of_another_has_the_defaults_of_its_own_file(load: Load) -> None:
    (low, _) = load(BASE, "version: 1\nrules:\n  - {id: low, metric: accuracy_drop, max: 5pp, where: {level: low}}\n").rules
    assert low.treatment.judge is JudgedBy.INTERVAL


@pytest.mark.parametrize("rules", ["", "rules: []\n"])
def test_defaults_without_a_rule_to_hold_for_are_refused(load: Load, rules: str) -> None:
    budgets = "budgets: {max_refusal_rate: 5%}\n"
    for text in ("{tier: warn}", "{alpha_pass: 0.01}"):
        with pytest.raises(PolicyError, match=r"and it has none, so they would change nothing\. Write them"):
            load(BASE, f"version: 1\ndefaults: {text}\n{budgets if 'tier' in text else ''}{rules}")
    assert load(BASE, f"version: 1\ndefaults: {{alpha_pass: 0.01}}\n{budgets}{rules}").rules
    assert load(BASE, f"version: 1\ndefaults: {{}}\n{rules}").rules


def replaced(load: Load, *rules: str) -> list[tuple[str, bool]]:
    """Returns what the policy says about rules called r that replace each other, file by file."""
    policy = load(*(f"version: 1\nrules:\n  - {{id: r, {rule}}}\n" for rule in rules))
    return [(str(replacement), replacement.only_tightens) for replacement in policy.replaced]


@pytest.mark.parametrize(
    ("later", "said", "only_tightens"),
    [
        ("metric: accuracy_drop, max: 50pp", "accuracy_drop <= 10 pp becomes <= 50 pp (looser)", False),
        ("metric: accuracy_drop, max: 5pp", "accuracy_drop <= 10 pp becomes <= 5 pp (tighter)", True),
        ("metric: accuracy_drop, within: [-5pp, 5pp]", "accuracy_drop <= 10 pp becomes in -5 pp..5 pp (tighter)", True),
        ("metric: accuracy_drop, within: [-5pp, 20pp]", "accuracy_drop <= 10 pp becomes in -5 pp..20 pp (another range)", False),
        ("metric: accuracy, min: 10%", "accuracy_drop <= 10 pp becomes accuracy >= 10 % (another metric)", False),
        ("metric: accuracy_drop, max: 10pp, reason: another one", "nothing changes", True),
        ("metric: accuracy_drop, max: 5pp, judge: point", "<= 5 pp (tighter); judge: interval becomes point", False),
        ("metric: accuracy_drop, max: 10pp, tier: warn", "tier: block becomes warn", False),
        (
            "metric: accuracy_drop, max: 10pp, where: {setting: [fog, invert]}",
            "where: everything becomes {setting: [fog, inv",
            False,
        ),
        ("metric: accuracy_drop, max: 10pp, unless: {model: m}", "unless: nothing becomes {model: [m]}", False),
    ],
)
def test_what_a_later_rule_changes_is_told(load: Load, later: str, said: str, *, only_tightens: bool) -> None:
    ((text, tightens),) = replaced(load, "metric: accuracy_drop, max: 10pp", later)
    assert text.startswith("rule r of a.yaml:3 is replaced by b.yaml:3: ")
    assert said in text
    assert tightens is only_tightens


def test_each_replacement_is_told(load: Load) -> None:
    replacements = replaced(load, *(f"metric: accuracy_drop, max: {bound}pp" for bound in (10, 5, 20)))
    assert [text.partition(": ")[0] for text, _ in replacements] == [
        "rule r of a.yaml:3 is replaced by b.yaml:3",
        "rule r of b.yaml:3 is replaced by c.yaml:3",
    ]
    assert [tightens for _, tightens in replacements] == [True, False]


def test_what_a_later_waiver_changes_is_told(load: Load) -> None:
    (same, budget) = load(BASE + WAIVERS, BASE.replace("5pp", "4pp") + WAIVERS).replaced[2:]
    assert same.only_tightens
    assert str(budget) == "budget max_unparsed_rate of a.yaml:3 is replaced by b.yaml:3: nothing changes"
    (other,) = load(BASE + WAIVERS, "version: 1\n" + WAIVERS.replace("60pp", "70pp").replace("2027", "2028")).replaced
    assert str(other) == (
        "waiver W of a.yaml:7 is replaced by b.yaml:2: cap: 60 pp becomes 70 pp; expires: 2027-06-30 becomes 2028-06-30"
    )
    assert not other.only_tightens


RULES = "rules: [{id: r, metric: pcri, max: 0.1}]\n"


@pytest.mark.parametrize(
    ("earlier", "later", "said", "only_tightens"),
    [
        (
            "",
            "budgets: {max_unparsed_rate: 100%}",
            "budget max_unparsed_rate (built-in default) {}: 5% becomes 100% (looser)",
            False,
        ),
        ("budgets: {max_error_rate: 7%}", "budgets: {max_error_rate: 7.5%}", "of a.yaml:2 {}: 7% becomes 7.5% (looser)", False),
        ("budgets: {max_error_rate: 7%}", "budgets: {max_error_rate: 1%}", "of a.yaml:2 {}: 7% becomes 1% (tighter)", True),
        ("budgets: {max_error_rate: 7%}", "budgets: {max_error_rate: 7%}", "of a.yaml:2 {}: nothing changes", True),
        (
            "coverage: {tests: whole}",
            "coverage: {tests: partial}",
            "coverage tests of a.yaml:2 {}: whole becomes partial (looser)",
            False,
        ),
        (
            "coverage: {rules: partial}",
            "coverage: {rules: whole}",
            "coverage rules of a.yaml:2 {}: partial becomes whole (tighter)",
            True,
        ),
        ("", "coverage: {samples: 500}", "coverage samples (built-in default) {}: whole becomes 500 (looser)", False),
        ("coverage: {samples: 20%}", "coverage: {samples: partial}", "{}: 20% becomes partial (looser)", False),
        ("coverage: {samples: 500}", "coverage: {samples: whole}", "{}: 500 becomes whole (tighter)", True),
        ("coverage: {samples: 500}", "coverage: {samples: 20%}", "{}: 500 becomes 20% (neither tighter nor looser)", False),
        ("coverage: {samples: 10%}", "coverage: {samples: 10%}", "{}: nothing changes", True),
        ("coverage: {samples: 10%}", "coverage: {samples: 20%}", "{}: 10% becomes 20% (tighter)", True),
        ("coverage: {samples: 20%}", "coverage: {samples: 10%}", "{}: 20% becomes 10% (looser)", False),
        ("coverage: {samples: 100}", "coverage: {samples: 200}", "{}: 100 becomes 200 (tighter)", True),
        (
            "coverage: {suites: [a, b]}",
            "coverage: {suites: [a]}",
            "coverage suites of a.yaml:2 {}: [a, b] becomes [a] (looser)",
            False,
        ),
        ("", "coverage: {suites: [a]}", "coverage suites (built-in default) {}: [] becomes [a] (tighter)", True),
        ("coverage: {suites: [a]}", "coverage: {suites: [a]}", "coverage suites of a.yaml:2 {}: nothing changes", True),
        ("coverage: {tests: partial}", "coverage: {tests: partial}", "coverage tests of a.yaml:2 {}: nothing changes", True),
    ],
)
def test_what_a_later_file_changes_about_the_whole_run_is_told(
    load: Load, earlier: str, later: str, said: str, *, only_tightens: bool
) -> None:
    policy = load(f"version: 1\n{earlier}\n{RULES}", f"version: 1\n{later}\n")
    (replacement,) = policy.replaced
    assert str(replacement).endswith(said.format("is replaced by b.yaml:2"))
    assert replacement.only_tightens is only_tightens
    assert policy_content(policy).get("replaced", []) == ([] if only_tightens else [str(replacement)])


def test_what_one_file_asks_for_replaces_nothing(load: Load) -> None:
    policy = load(f"version: 1\nbudgets: {{max_unparsed_rate: 100%}}\ncoverage: {{tests: partial}}\n{RULES}")
    assert policy.replaced == ()
    assert load(f"version: 1\nbudgets: {{max_unparsed_rate: 100%}}\n{RULES}", "version: 1\n").replaced == ()


def test_budgets_override_key_by_key(load: Load) -> None:
    budgets = load(BASE, "version: 1\nbudgets: {max_error_rate: 1%}\n").budgets
    assert (budgets.max_error_rate, budgets.max_unparsed_rate) == (0.01, 0.05)
    assert budgets.sources == {"max_error_rate": "b.yaml:2", "max_unparsed_rate": "a.yaml:3"}


def test_budgets_have_defaults(load: Load) -> None:
    budgets = load("version: 1\nrules: [{id: r, metric: pcri, max: 0.1}]\n").budgets
    assert (budgets.max_error_rate, budgets.max_unparsed_rate, dict(budgets.sources)) == (0.0, 0.05, {})


@pytest.mark.parametrize(("value", "problem"), [("150%", "the text '150%'"), ("-1%", "the text '-1%'")])
def test_budgets_are_shares(load: Load, value: str, problem: str) -> None:
    message = f"a.yaml:2: budgets.max_error_rate is {problem}. Expected a share between 0 and 100%"
    with pytest.raises(PolicyError, match=re.escape(message)):
        load(f"version: 1\nbudgets: {{max_error_rate: {value}}}\n")


@pytest.mark.parametrize("version", ["2", "true", "'1'", "[1]"])
def test_other_versions_are_refused(load: Load, version: str) -> None:
    with pytest.raises(PolicyError, match=re.escape("a.yaml:1: version is ")):
        load(f"version: {version}\nrules: []\n")


@pytest.mark.parametrize("files", [["version: 1\n"], ["version: 1\nrules: []\n", "version: 1\n"]])
def test_a_policy_without_rules_gates_nothing_and_is_refused(load: Load, files: list[str]) -> None:
    with pytest.raises(PolicyError, match=r"^a\.yaml.*: no rule at all, so nothing would be gated. Add at least one rule$"):
        load(*files)


def test_waivers_alone_gate_nothing(load: Load) -> None:
    waiver = "{id: w, metric: pcri, where: {model: m}, cap: 0.2, owner: me, expires: 2999-01-01, reason: because}"
    with pytest.raises(PolicyError, match="waivers alone gates nothing: name your policy too, --vlm-thresholds="):
        load(f"version: 1\nwaivers:\n- {waiver}\n")


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


def test_all_mistakes_of_all_files_are_said_at_once(load: Load) -> None:
    first = (
        "version: 1\nmode: ful\nbudgets: {max_error_rate: 2, max_refusal_rate: x}\ncoverage: {tests: al, samples: -1}\nrules:\n"
        "- {id: '-', metric: pcry, max: 5, judge: intervall}\n- {idd: r, metrik: pcri, max: 0.1}\n- {id: s, metric: pcri}\n"
        "waivers:\n- {id: w, metric: pcri, where: {}, cap: 1%, owner: '-', reason: why, expires: 2027-02-30}\n"
        "- {id: '-', metric: accuracy_drop, capp: 1%, cap: 200, owner: me}\nrulez: []\n"
    )
    with pytest.raises(PolicyError) as error:
        load(first, "version: 1\nrules: [{id: r, metric: accuracy_drop, min: 1%}]\n")
    assert [" ".join(line.split()[:2]) for line in str(error.value).splitlines()] == [
        "a.yaml:2: mode",
        "a.yaml:3: budgets.max_error_rate",
        "a.yaml:3: budgets.max_refusal_rate",
        "a.yaml:4: coverage.tests",
        "a.yaml:4: coverage.samples",
        "a.yaml:6: rules[1].id",
        "a.yaml:6: unknown",
        "a.yaml:6: rules[1].judge",
        "a.yaml:7: unknown",
        "a.yaml:7: unknown",
        "a.yaml:8: rules[3]",
        "a.yaml:10: waivers[1].where",
        "a.yaml:10: waivers[1].owner",
        "a.yaml:10: waivers[1].expires",
        "a.yaml:11: unknown",
        "a.yaml:11: waivers[2].id",
        "a.yaml:11: waivers[2].cap",
        "a.yaml:12: unknown",
        "b.yaml:2: rules[1].min",
    ]
    assert "unknown metric 'pcry'. Did you mean 'pcri'?" in str(error.value)


def test_of_many_mistakes_the_first_are_said_and_the_others_counted(load: Load) -> None:
    with pytest.raises(PolicyError) as error:
        load("version: 1\nrules:\n" + "- {id: r, metric: pcri}\n" * 30)
    lines = str(error.value).splitlines()
    assert [len(lines), lines[-1]] == [21, "... and 10 more mistakes"]


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
        "version: 1\n# a comment\nbudgets:\n  max_unparsed_rate: 0.05\nrules:\n"
        "  - {id: high, metric: accuracy_drop, max: 0.3, where: {level: [high]}, tier: warn, judge: point, reason: because}\n"
        "  - {id: low, metric: accuracy_drop, max: 5%, where: {level: low}, judge: point}\n"
    )
    assert load(BASE).sha256 == load(respelled).sha256
    assert load(BASE).files != load(respelled).files


WAIVERS = """\
waivers: [{id: W, metric: accuracy_drop, where: {model: m}, cap: 60pp, owner: me, reason: why, expires: 2027-06-30}]
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.yaml: the file is empty. Expected 'version: 1' and a list 'rules:'"),
        ("# only a comment\n", "a.yaml: the file is empty"),
        ("- 1\n", "a.yaml:1: the file is a list. Expected a mapping with the keys version, mode, purpose, defaults"),
        ("just words\n", "a.yaml:1: the file is the text 'just words'. Expected a mapping"),
        ("version: 1\nrules:\n\t- id: x\n", "a.yaml:3: not YAML: found character '\\t' that cannot start any token"),
        ("version: 1\nrules: [\n", "a.yaml:3: not YAML: "),
        (
            "version: 1\nrules:\n  - id: x\n   max: 1\n",
            "Check the indentation, colons and quotes of this line and the one before",
        ),
        ("version: 1\nversion: 1\n", "a.yaml:2: version is written twice, first in line 1. Keep one of them"),
        (
            "versoin: 1\n",
            "a.yaml:1: unknown key 'versoin' in the file. Did you mean 'version'? Known: version, mode, purpose, defaults",
        ),
        ("version: 1\n<<: {rules: []}\n", "a.yaml:2: unknown key '<<' in the file."),
        ("version: 1\n? [a, b]\n: 1\n", "a.yaml:2: unknown key 'a list' in the file."),
        ("version: 1\n1: 2\n", "a.yaml:2: unknown key '1' in the file."),
        ("rules: []\n", "a.yaml:1: the file lacks 'version'. Required: version"),
        (
            "version: 1\nrules:\n  - {id: x, metric: accuracy_drop, max: 1pp, where: {camera: side}}\n",
            "unknown key 'camera' in rules[1].where. Known: model, dataset, setting, family, level, category, meta.COLUMN",
        ),
        ("version: 1\nrules: *nobody\n", "a.yaml:2: not YAML: found undefined alias 'nobody'"),
    ],
)
def test_files_that_cannot_be_read_name_the_line(load: Load, text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(message)):
        load(text)


def test_tabs_come_with_advice(load: Load) -> None:
    with pytest.raises(PolicyError, match="Indent with spaces: YAML does not allow tabs"):
        load("version: 1\nrules:\n\t- id: x\n")


def test_a_byte_order_mark_and_windows_line_ends_are_fine(load: Load) -> None:
    text = b"\xef\xbb\xbfversion: 1\r\nrules:\r\n  - {id: r, metric: pcri, max: 0.1}\r\n"
    assert load(text).rules[0].source == "a.yaml:3"


def test_an_absent_file_and_a_directory_are_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"none\.yaml: cannot read the thresholds file: No such file or directory"):
        load_policy([tmp_path / "none.yaml"], known_metrics=["pcri"])
    with pytest.raises(PolicyError, match="cannot read the thresholds file: Is a directory"):
        load_policy([tmp_path], known_metrics=["pcri"])


def test_tags_construct_nothing(load: Load) -> None:
    with pytest.raises(PolicyError, match=re.escape("a.yaml:2: budgets.max_error_rate is ")):
        load("version: 1\nbudgets: {max_error_rate: !!python/name:os.system ''}\n")


def test_a_file_that_would_take_long_to_read_is_refused(load: Load) -> None:
    with pytest.raises(
        PolicyError, match=r"the thresholds file has 1,048,\d+ bytes\. Expected at most 1,048,576: several settings"
    ):
        load("version: 1\nrules: [{id: a, metric: accuracy, min: 5%}]\n#" + "x" * LARGEST_POLICY)


def test_the_last_file_that_says_what_a_go_is_good_for_counts(load: Load) -> None:
    release = load(BASE)
    assert release.purpose == "release"
    demonstration = load(BASE, "version: 1\npurpose: demonstration\n")
    assert (demonstration.purpose, demonstration.replaced) == ("demonstration", ())
    assert demonstration.sha256 != release.sha256
    back = load(BASE, "version: 1\npurpose: demonstration\n", "version: 1\npurpose: release\n")
    assert back.purpose == "release"
    (change,) = back.replaced
    assert str(change).startswith("purpose of b.yaml:2 is replaced by c.yaml:2: demonstration becomes release")
    assert not change.only_tightens
    with pytest.raises(PolicyError, match=r"b\.yaml:2: purpose.*'demo'.*demonstration"):
        load(BASE, "version: 1\npurpose: demo\n")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("", (0.05, 0.05, "inconclusive")),
        ("strictness: usual", (0.05, 0.05, "inconclusive")),
        ("strictness: strict", (0.01, 0.05, "inconclusive")),
        ("strictness: lenient", (0.1, 0.05, "warn")),
        ("strictness: lenient, alpha_pass: 0.02", (0.02, 0.05, "warn")),
    ],
)
@pytest.mark.parametrize("where", ["defaults", "rule"])
def test_strictness_stands_for_four_keys_and_each_of_them_outranks_it(
    load: Load, said: str, expected: tuple[float, float, str], where: str
) -> None:
    more = f", {said}" if said and where == "rule" else ""
    defaults = f"defaults: {{{said}}}\n" if where == "defaults" else "defaults: {alpha_pass: 0.3}\n" if more else ""
    (rule,) = load(f"version: 1\n{defaults}rules: [{{id: a, metric: accuracy_drop, max: 5pp{more}}}]\n").rules
    treatment = rule.treatment
    assert (treatment.alpha_pass, treatment.alpha_fail, treatment.on_not_applicable) == expected
    assert treatment.multiplicity == "bonferroni"


WAIVED = """
version: 1
rules: [{id: drop, metric: accuracy_drop, max: 5pp}]
waivers:
- {id: W, owner: OWNER, reason: REASON, expires: 2030-01-01, metric: accuracy_drop, where: {model: MODEL}, cap: 50pp}
"""


@pytest.mark.parametrize(
    ("part", "text", "said"),
    [
        ("OWNER", r'"\u200b"', "U+200B ZERO WIDTH SPACE"),
        ("OWNER", r'"jo\u2060"', "U+2060 WORD JOINER"),
        ("OWNER", r'"\u3164"', "U+3164 HANGUL FILLER"),
        ("OWNER", '"-"', "the name of somebody"),
        ("REASON", r'"\u200d"', "U+200D ZERO WIDTH JOINER"),
        ("MODEL", r'"ti\u00adny"', "U+00AD SOFT HYPHEN"),
        ("MODEL", r'[tiny, "ti\u200bny"]', "U+200B ZERO WIDTH SPACE"),
    ],
)
def test_nothing_in_a_waiver_is_hidden_from_its_reader(tmp_path: Path, part: str, text: str, said: str) -> None:
    content = WAIVED.replace(part, text).replace("OWNER", "jo").replace("REASON", "known").replace("MODEL", "tiny")
    path = tmp_path / "p.yaml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(PolicyError, match=r"p\.yaml:5.*" + said.replace("+", r"\+")):
        load_policy([path], known_metrics=["accuracy_drop"])


def test_one_owner_has_one_spelling(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    content = WAIVED.replace("OWNER", r'"\uff2a\uff4f e\u0301"').replace("REASON", "known").replace("MODEL", "tiny")
    path.write_text(content, encoding="utf-8")
    assert load_policy([path], known_metrics=["accuracy_drop"]).waivers[0].owner == "Jo \u00e9"


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
    validator: Any = jsonschema.Draft7Validator(json.loads((THRESHOLDS / SCHEMA_FILE).read_text(encoding="utf-8")))
    text = file.read_text(encoding="utf-8")
    assert [error.message for error in validator.iter_errors(yaml.load(text, Loader))] == []  # noqa: S506 - a safe one
    assert text.startswith(f"# yaml-language-server: $schema={SCHEMA_FILE}\n")


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
