"""What in a policy can be honoured and is probably not meant."""

from __future__ import annotations

import math
from datetime import date
from pathlib import Path

import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.evaluation.after.policy_lint import lint, tighter_than_noise
from pytest_vlmrobust.evaluation.judge.scopes import KnownNames, known_metrics, known_tests, shipped_tests
from pytest_vlmrobust.policies import MetricKey, Policy, Scope, load_policy

TODAY = date(2027, 1, 1)
WAIVER = "{{id: W1, owner: jo, reason: known, expires: {expires}, metric: {metric}, where: {where}, cap: {cap}}}"
RULE = "{id: low, metric: accuracy_drop, where: {level: low}, max: 5pp}"


@pytest.fixture
def write(tmp_path: Path) -> Path:
    return tmp_path / "p.yaml"


def policy_of(path: Path, *rules: str, waivers: tuple[str, ...] = ()) -> Policy:
    lines = ["version: 1", "rules:", *(f"  - {rule}" for rule in rules)]
    lines += ["waivers:", *(f"  - {waiver}" for waiver in waivers)] if waivers else []
    path.write_text("\n".join(lines) + "\n")
    return load_policy([path], known_metrics=known_metrics(), root=path.parent)


def said(policy: Policy, samples: int | None = None) -> list[str]:
    return [str(finding) for finding in lint(policy, today=TODAY, samples=samples)]


def waiver(**facts: str) -> str:
    usual = {"expires": "2027-03-01", "metric": "accuracy_drop", "where": "{setting: fog}", "cap": "60pp"}
    return WAIVER.format(**{**usual, **facts})


@pytest.mark.parametrize(
    ("scope", "named", "meant"),
    [
        ("where: {setting: glas_blur}", "setting 'glas_blur'", "Did you mean 'glass_blur'? "),
        ("where: {setting: 'fog:lwo'}", "setting 'fog:lwo'", "Did you mean 'fog:low'? "),
        ("where: {family: blurr}", "family 'blurr'", "Did you mean 'blur'? "),
        ("unless: {level: 'hi?'}", "level 'hi?'", ""),
    ],
)
def test_a_rule_about_a_name_that_is_not_known(write: Path, scope: str, named: str, meant: str) -> None:
    sentence = f"rule a: {named} matches no {named.split(maxsplit=1)[0]} that is known. {meant}A gate refuses it"
    assert said(policy_of(write, f"{{id: a, metric: accuracy_drop, {scope}, max: 5pp}}")) == [f"p.yaml:3: {sentence}"]


@pytest.mark.parametrize(
    ("metric", "rule"),
    [
        ("pcri", "where: {family: blur}, within: [-0.1, 0.1]"),
        ("accuracy_drop", "where: {setting: clean}, max: 5pp"),
        ("accuracy_drop", "where: {setting: '*_blur'}, unless: {family: [blur, observatory]}, max: 5pp"),
    ],
)
def test_a_rule_that_nothing_can_meet(write: Path, metric: str, rule: str) -> None:
    sentence = f"rule a meets no test: {metric} is measured nowhere that its scope admits. See vlmrobust explain {metric}"
    assert said(policy_of(write, f"{{id: a, metric: {metric}, {rule}}}")) == [f"p.yaml:3: {sentence}"]


def test_a_rule_about_a_metric_of_ones_own_that_no_shipped_suite_measures(write: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics.REGISTRY, "_things", dict(metrics.REGISTRY._things))
    metrics.metric(name="own_drop", unit="fraction", better="lower")(lambda clean, perturbed_by_setting: 0.0)
    sentence = "rule a meets no test: no shipped suite measures own_drop: name it in vlm_metrics of a suite of your own"
    assert said(policy_of(write, "{id: a, metric: own_drop, max: 5%, judge: point}")) == [f"p.yaml:3: {sentence}"]


@pytest.mark.parametrize(
    "rule",
    [
        "{id: a, metric: accuracy_drop, where: {model: anything, dataset: mine, category: count}, max: 5pp}",
        "{id: a, metric: accuracy_drop, where: {setting: 'resolution:300'}, max: 5pp}",
        "{id: a, metric: accuracy_drop, where: {level: '31?'}, max: 5pp}",
        "{id: a, metric: accuracy_drop, where: {setting: 'fog:low+flip_h'}, max: 5pp}",
        "{id: a, metric: accuracy_drop, where: {family: blur}, unless: {dataset: mine, setting: '*_blur'}, max: 5pp}",
        "{id: a, metric: accuracy_drop, where: {family: [blur+binary, 'weather+*']}, max: 5pp}",
        "{id: a, metric: accuracy_drop, where: {setting: ['*+invert', 'fog:*+flip_h']}, max: 5pp}",
        "{id: a, metric: identity_drop, where: {setting: observatory_ood}, max: 5pp}",
        "{id: a, metric: baseline_drop, where: {setting: fog}, max: 2pp}",
        "{id: a, metric: drop_increase, max: 2pp}",
        "{id: a, metric: resolution_accuracy.macro, min: 50%, judge: point}",
    ],
)
def test_a_rule_that_something_may_meet(write: Path, rule: str) -> None:
    assert said(policy_of(write, rule)) == []


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("accuracy_drop, max: 100pp", "accuracy_drop <= 100 pp) can never fail: no value of accuracy_drop lies beyond"),
        ("visual_gain, min: -1.0", "visual_gain >= -1) can never fail: no value of visual_gain lies beyond. Tight"),
        ("accuracy, within: [0, 100%]", "accuracy in 0..1) can never fail: no value of accuracy lies beyond"),
        ("transfer_retention, min: 0", "transfer_retention >= 0) can never fail"),
        (
            "accuracy, min: 100%",
            (
                "accuracy >= 100 %) can hardly ever pass: it allows only the extreme value of accuracy, and judges "
                "the interval, which is wider. Loosen it, or judge: point"
            ),
        ),
        ("harmful_flip_rate, max: 0", "harmful_flip_rate <= 0) can hardly ever pass"),
    ],
)
def test_a_bound_that_decides_nothing(write: Path, rule: str, sentence: str) -> None:
    (finding,) = said(policy_of(write, f"{{id: a, metric: {rule}}}"))
    assert finding.startswith(f"p.yaml:3: rule a ({sentence}")


@pytest.mark.parametrize(
    "rule",
    [
        "metric: accuracy_drop, max: 99pp",
        "metric: relative_corruption_error, max: 900%",
        "metric: accuracy, min: 100%, judge: point",
        "metric: accuracy_drop, within: [-100pp, 5pp]",
    ],
)
def test_a_bound_that_may_decide(write: Path, rule: str) -> None:
    assert said(policy_of(write, f"{{id: a, {rule}}}")) == []


@pytest.mark.parametrize(
    ("rule", "facts", "where"),
    [
        ("min: -0.1", {"options": 2}, "at patches:3 among 2 options: no outcome gives a value outside -0.004"),
        ("min: -0.1", {"options": 2, "clean": 0.6}, "at patches:3 among 2 options: no outcome gives a value outside -0.004"),
        (
            "min: -0.01, where: {setting: 'patches:4'}",
            {"options": 2},
            "at patches:4 among 2 options: no outcome gives a value outside -0.000",
        ),
    ],
)
def test_a_bound_that_no_outcome_could_break_at_hand_is_refused(
    write: Path, rule: str, facts: dict[str, float], where: str
) -> None:
    policy = policy_of(write, f"{{id: a, metric: pcri_excess, {rule}}}")
    (finding,) = lint(policy, today=TODAY, **facts)  # type: ignore[arg-type]
    assert finding.refused
    assert f"can never fail {where}" in finding.text
    assert not [finding for finding in lint(policy, today=TODAY) if finding.refused]


@pytest.mark.parametrize(
    ("rule", "facts", "where"),
    [
        ("pcri_excess, min: -0.1", {"options": 4, "clean": 0.6}, "patches:3 among 4 options at a clean accuracy of 0.6"),
        ("pcri_matched, min: -0.1", {"clean": 0.95}, "patches:2 at a clean accuracy of 0.95: no outcome gives a value"),
        ("rci, min: -0.30", {"clean": 0.8}, "patches:2 at a clean accuracy of 0.8: no outcome gives a value outside -0.250"),
        ("accuracy_drop, max: 90pp", {"clean": 0.8}, "a clean accuracy of 0.8: no outcome gives a value outside -0.200"),
    ],
)
def test_a_bound_that_a_good_model_cannot_break_is_noted(write: Path, rule: str, facts: dict[str, float], where: str) -> None:
    """A model that is right more often has less to be distracted from; other models break such a bound."""
    (finding,) = lint(policy_of(write, f"{{id: a, metric: {rule}}}"), today=TODAY, **facts)  # type: ignore[arg-type]
    assert (finding.refused, finding.noted) == (False, True)
    assert finding.text.startswith("this model cannot break rule a (")
    assert f"at {where}" in finding.text
    assert lint(policy_of(write, f"{{id: a, tier: warn, metric: {rule}}}"), today=TODAY, **facts) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rule", "facts"),
    [
        ("metric: pcri_excess, min: -0.1", {"options": math.inf, "clean": 0.6}),
        ("metric: pcri_excess, min: -0.1, where: {setting: 'patches:2'}", {"options": 4, "clean": 0.6}),
        ("metric: pcri_matched, min: -0.1", {"options": 2, "clean": 0.9}),
        ("metric: pcri, within: [-1, 0.5]", {"clean": 0.8}),
        ("metric: accuracy_drop, max: 20pp", {"clean": 0.8}),
        ("metric: accuracy, where: {setting: clean}, min: 80%", {"options": 2, "clean": 0.9}),
    ],
)
def test_a_bound_that_some_outcome_breaks_is_not(write: Path, rule: str, facts: dict[str, float]) -> None:
    policy = policy_of(write, f"{{id: a, {rule}}}")
    assert lint(policy, today=TODAY, **facts) == []  # type: ignore[arg-type]


def test_a_rule_that_only_warns_is_not_refused(write: Path) -> None:
    policy = policy_of(write, "{id: a, metric: accuracy_drop, max: 100pp, tier: warn}")
    (finding,) = lint(policy, today=TODAY)
    assert not finding.refused


def test_a_budget_that_admits_everything(write: Path) -> None:
    write.write_text(f"version: 1\nbudgets: {{max_unparsed_rate: 100%, max_error_rate: 99%}}\nrules: [{RULE}]\n")
    policy = load_policy([write], known_metrics=known_metrics(), root=write.parent)
    assert said(policy) == ["p.yaml:2: budget max_unparsed_rate of 100 % can never be broken: no rate is above it. Lower it"]


@pytest.mark.parametrize(
    ("later", "replaced", "change"),
    [
        ("budgets: {max_unparsed_rate: 99%}", "budget max_unparsed_rate (built-in default)", "5% becomes 99% (looser)"),
        ("budgets: {max_unparsed_rate: 4%}", "", ""),
        (f"rules: [{RULE.replace('5pp', '9pp')}]", "rule low of p.yaml:3", "accuracy_drop <= 5 pp becomes <= 9 pp (looser)"),
        (f"rules: [{RULE.replace('5pp', '4pp')}]", "", ""),
    ],
)
def test_what_a_later_file_loosens(write: Path, later: str, replaced: str, change: str) -> None:
    policy_of(write, RULE)
    file = write.with_name("q.yaml")
    file.write_text(f"version: 1\n{later}\n")
    findings = said(load_policy([write, file], known_metrics=known_metrics(), root=write.parent))
    expected = f"q.yaml:2: {replaced} is replaced by q.yaml:2: {change}. Check whether that is intended"
    assert findings == ([expected] if change else [])


@pytest.mark.parametrize(
    ("metric", "rule", "cap", "everything"),
    [
        ("accuracy_drop", "max: 5pp", "100pp", True),
        ("accuracy_drop", "max: 5pp", "99pp", False),
        ("accuracy", "min: 50%", "0", True),
        ("accuracy", "min: 50%", "1%", False),
        ("visual_gain", "min: 50%", "-100%", True),
        ("relative_corruption_error", "max: 50%", "9900%", False),
    ],
)
def test_a_waiver_that_covers_every_breach(write: Path, metric: str, rule: str, cap: str, *, everything: bool) -> None:
    covering = waiver(metric=metric, where="{model: m}", cap=cap)
    findings = said(policy_of(write, f"{{id: a, metric: {metric}, {rule}}}", waivers=(covering,)))
    sentence = f"p.yaml:5: waiver W1 of jo covers every breach: {metric} is never worse than its cap of "
    assert [text.startswith(sentence) for text in findings] == [True] * everything


@pytest.mark.parametrize(
    ("metric", "written", "meant"), [("clean_accuracy", "0.4%", "40%"), ("visual_gain", "0.07pp", "7pp"), ("accuracy", "1%", "")]
)
def test_a_lower_end_below_a_hundredth_was_probably_a_share(write: Path, metric: str, written: str, meant: str) -> None:
    findings = said(policy_of(write, f"{{id: a, metric: {metric}, min: {written}}}"))
    shown = written.replace("%", " %").replace("pp", " pp")
    apart = meant.replace("%", " %").replace("pp", " pp")
    unit = shown.split()[-1]
    text = f"rule a ({metric} >= {shown}) asks for less than 1 {unit}, which hardly any model misses. Write {meant}"
    assert findings == ([f"p.yaml:3: {text} if {apart} are meant"] if meant else [])
    assert said(policy_of(write, f"{{id: a, metric: {metric}, min: 0.004}}")) == [], "its author wrote a fraction"


def test_of_two_rules_on_the_same_tests_the_looser_never_decides(write: Path) -> None:
    looser = "{id: loose, metric: accuracy_drop, where: {level: low}, max: 10pp}"
    expected = (
        "rule loose (accuracy_drop <= 10 pp) never decides: rule low (p.yaml:{}) asks as much or more of the same tests. "
        "Remove one of them"
    )
    assert said(policy_of(write, RULE, looser)) == [f"p.yaml:4: {expected.format(3)}"]
    assert said(policy_of(write, looser, RULE)) == [f"p.yaml:3: {expected.format(4)}"]


@pytest.mark.parametrize(
    "other",
    [
        "{id: b, metric: accuracy_drop, where: {level: mid}, max: 10pp}",
        "{id: b, metric: accuracy_drop, where: {level: low}, max: 10pp, judge: point}",
        "{id: b, metric: accuracy_drop, where: {level: low}, unless: {setting: fog}, max: 10pp}",
        "{id: b, metric: harmful_flip_rate, where: {level: low}, max: 10pp}",
        "{id: b, metric: accuracy_drop, where: {level: low}, within: [-3pp, 10pp]}",
    ],
)
def test_two_rules_that_may_both_decide(write: Path, other: str) -> None:
    assert said(policy_of(write, RULE, other)) == []


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({}, ""),
        ({"where": "{setting: 'fog:high'}"}, "covers nothing: no rule that blocks is about accuracy_drop there."),
        ({"metric": "accuracy"}, "covers nothing: no rule that blocks is about accuracy there. Remove it"),
        ({"expires": "2026-12-31"}, "expired on 2026-12-31, so that breaches fail again: renew or remove it"),
        ({"expires": "2027-01-01"}, "expires on 2027-01-01, in 0 days: fix what it covers, or renew it"),
        ({"expires": "2027-01-31"}, "expires on 2027-01-31, in 30 days"),
        ({"expires": "2027-02-01"}, ""),
        ({"expires": "2031-12-31"}, ""),
        ({"expires": "2032-01-03"}, "expires on 2032-01-03, in 5 years, which is as good as never. Give it a date"),
        ({"expires": "9999-12-31"}, "expires on 9999-12-31, in 7972 years, which is as good as never"),
        ({"where": "{setting: [fog, fogg]}"}, "setting 'fogg' matches no setting that is known. Did you mean 'fog'? A gate refu"),
    ],
)
def test_waivers(write: Path, facts: dict[str, str], sentence: str) -> None:
    findings = said(policy_of(write, RULE, waivers=(waiver(**facts),)))
    assert [(text.startswith("p.yaml:5: waiver W1 of jo"), sentence in text) for text in findings] == [(True, True)] * bool(
        sentence
    )


@pytest.mark.parametrize(
    ("rule", "metric", "cap", "bound", "expected"),
    [
        ("max: 10pp", "accuracy_drop", "10pp", "accuracy_drop <= 10 pp", "above 10 pp"),
        ("max: 10pp", "accuracy_drop", "5pp", "accuracy_drop <= 10 pp", "above 10 pp"),
        ("min: 60%", "accuracy", "60%", "accuracy >= 60 %", "below 60 %"),
        ("within: [-0.4, 0.4]", "pcri", "0.3", "pcri in -0.4..0.4", "below -0.4 or above 0.4"),
    ],
)
def test_a_cap_within_its_bound_is_refused(write: Path, rule: str, metric: str, cap: str, bound: str, expected: str) -> None:
    covering = waiver(metric=metric, where="{model: m}", cap=cap)
    policy = policy_of(write, f"{{id: a, metric: {metric}, {rule}}}", waivers=(covering,))
    (refusal,) = [finding for finding in lint(policy, today=TODAY) if finding.refused]
    assert str(refusal).startswith("p.yaml:5: waiver W1 of jo covers nothing: its cap of ")
    assert f"does not go beyond the bound of rule a ({bound}, p.yaml:3). Expected a cap {expected}, the worst" in str(refusal)


def test_a_cap_beyond_one_of_its_bounds_is_kept(write: Path) -> None:
    rules = [
        f"{{id: {level}, metric: accuracy_drop, max: {most}, where: {{level: {level}}}}}"
        for level, most in (("low", "5pp"), ("high", "20pp"))
    ]
    for where, refused in (("{setting: fog}", False), ("{setting: fog, level: high}", True)):
        findings = lint(policy_of(write, *rules, waivers=(waiver(where=where, cap="15pp"),)), today=TODAY)
        assert any(finding.refused for finding in findings) is refused


def test_a_waiver_of_a_rule_that_only_warns_covers_nothing(write: Path) -> None:
    (finding,) = said(policy_of(write, RULE.replace("max", "tier: warn, max"), waivers=(waiver(),)))
    assert "covers nothing" in finding


def test_samples_that_decide_too_little(write: Path) -> None:
    policy = policy_of(write, RULE, "{id: own, metric: worst_case_drop, where: {model: m, dataset: mine}, max: 34pp}")
    assert said(policy, samples=2000) == []
    (finding,) = said(policy, samples=100)
    assert finding.startswith("p.yaml:3: with 100 questions even a model that loses nothing is only shown to have ")
    assert finding.endswith(
        "; rule low (accuracy_drop <= 5 pp, p.yaml:3) needs about 380 questions to pass it"
    )  # under the 42 low settings of the shipped suite
    assert len(said(policy, samples=10)) == 2


def test_bounds_within_the_noise_of_the_same_model(write: Path) -> None:
    policy = policy_of(
        write,
        RULE,
        "{id: worst, metric: worst_case_drop, max: 34pp}",
        "{id: pcri, metric: pcri, min: -10%}",
        "{id: clean, metric: clean_accuracy, min: 80%}",
    )
    noise = {"accuracy_drop": 0.06, "worst_case_drop": 0.06, "clean_accuracy": 0.5}
    (finding,) = tighter_than_noise(policy.rules, noise)
    assert str(finding) == (
        "p.yaml:3: rule low (accuracy_drop <= 5 pp) is tighter than the noise of 6.0 pp that was measured: "
        "the same model may break it by chance. Loosen it, or make inference repeatable"
    )
    assert tighter_than_noise(policy.rules, {"accuracy_drop": 0.05}) == []
    assert tighter_than_noise(policy.rules, {}) == []


def test_what_the_shipped_suites_measure() -> None:
    tests = shipped_tests()
    low = {test.setting for test in tests if (test.metric, test.level, test.dataset) == ("accuracy_drop", "low", "any")}
    assert len(low) == 42
    assert {test.setting for test in tests if test.metric == "identity_drop"} == {"observatory_id", "observatory_ood"}
    assert {test.dataset for test in tests if test.metric == "split_position_gap"} == {"any.pointing"}
    assert {test.level for test in tests if test.metric == "pcri"} == {"2", "3", "4", "5"}
    assert tests < known_tests()


def test_names_of_the_run_are_known() -> None:
    planned = [MetricKey("m", "d", "accuracy_drop", "mine:7", "own", "7")]
    scope = Scope(setting=("mine",), family=("own",), level=("7",))
    assert KnownNames.of(planned).unknown_globs(scope) == []
    assert len(KnownNames.of().unknown_globs(scope)) == 2  # there may be a size of 7 pixels
