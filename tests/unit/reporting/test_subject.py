from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pytest_vlmrobust.core.decision import Decision, Outcome
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.reporting import RunFacts, RunView
from pytest_vlmrobust.reporting.subject import Subject

from .conftest import record

WEIGHTS = {"weights": {"sha256": "d90cf1babcfd" + "0" * 52}}
ORIGINS: dict[str, object] = {
    "run": "20260601-120000-1",
    "date": "2026-06-01",
    "version": "0.1.0",
    "models": {
        "small": {"location": "owner/small", "revision": "abc", "prompt_mode": "direct"},
        "tiny": {"location": "/opt/tiny", "revision": "", "fingerprint": WEIGHTS},
    },
    "policies": {
        name: {"files": [{"name": "thresholds/tiny.yaml", "sha256": "cd" * 32}], "sha256": "ab" * 32}
        for name in ("small", "tiny")
    },
}
RUN = [
    record("small-words-fog", model="small", dataset="words", n_requested=8, n_samples=72),
    record("tiny-shapes-fog", model="tiny", dataset="shapes", n_requested=128),
    record("tiny-shapes-patches:3", model="tiny", dataset="shapes", n_requested=1152, family="patches"),
]


def of(records: Sequence[Record], origins: Mapping[str, object]) -> Subject:
    return RunView(records, RunFacts(origins=origins)).subject


def test_it_names_models_revisions_data_samples_date_version_and_policy() -> None:
    assert of(RUN, ORIGINS).lines == [
        ("models", "small (owner/small, revision abc), tiny (weights d90cf1babcfd)"),
        ("data", "shapes (128 samples), words (72 samples)"),
        ("date", "2026-06-01"),
        ("gate", "pytest-vlmrobust 0.1.0"),
        ("policy", "thresholds/tiny.yaml abababababab"),
        ("run", "20260601-120000-1"),
    ]
    assert of(RUN, ORIGINS).title(Decision.NO_GO) == (
        "NO-GO: small (owner/small, revision abc), tiny (weights d90cf1babcfd) on shapes (128 samples), words (72 samples), "
        "2026-06-01, pytest-vlmrobust 0.1.0, policy abababababab"
    )


def test_it_says_what_goes_with_every_question() -> None:
    models = {
        "small": {"deployment": {"system_prompt": "Be brief.\nAnd kind.", "query": {"api-version": "1"}}},
        "lora": {"adapter": "loras/a", "fingerprint": {"identity": {"model": {"sha256": "ab" * 32}}}},
        "free": {"fingerprint": {"decoding": {"temperature": None}}},
        "plain": {"fingerprint": {"decoding": {"temperature": 0.0}}},
        "odd": {"deployment": "x", "fingerprint": {"decoding": 3}},
    }
    assert [line for line in of([], {"models": models}).lines if line[0] == "asked with"] == [
        ("asked with", "free: temperature: none"),
        ("asked with", "lora: adapter: loras/a"),
        ("asked with", 'small: system_prompt: Be brief.\nAnd kind., query: {"api-version":"1"}'),
    ]
    assert "lora (weights abababababab)" in dict(of([], {"models": models}).lines)["models"]


def test_policies_that_differ_are_named_by_model() -> None:
    judged = [dataclasses.replace(record, policy_sha256=digit * 64) for record, digit in zip(RUN[:2], "ef", strict=True)]
    lines = dict(of(judged, ORIGINS).lines)
    assert lines["policy of small"] == "thresholds/tiny.yaml eeeeeeeeeeee"
    assert lines["policy of tiny"] == "thresholds/tiny.yaml ffffffffffff"


def test_what_nobody_recorded_is_said_to_be_unknown() -> None:
    lines = dict(of(RUN[2:], {}).lines)
    assert lines["model"] == "tiny (revision not recorded)"
    assert lines["data"] == "shapes"  # views of patches are no samples
    assert lines["date"] == "not recorded"
    assert lines["gate"] == "pytest-vlmrobust of a version not recorded"
    assert lines["policy"] == "none: nothing was gated"
    assert of([], {}).title(Decision.INCONCLUSIVE) == "INCONCLUSIVE, pytest-vlmrobust, no policy"


def test_many_datasets_are_counted_in_the_title_and_named_below() -> None:
    many = [record(f"m-d{at}", dataset=f"d{at}") for at in range(9)]
    assert of(many, {}).title(Decision.GO).count("samples") == 4
    assert " and 5 more" in of(many, {}).title(Decision.GO)
    assert dict(of(many, {}).lines)["data"].count("samples") == 9


@pytest.mark.parametrize("bad", [{"models": 1, "policies": [2]}, {"models": {"m": None}, "policies": {"m": {"files": {"a": 1}}}}])
def test_a_manifest_may_hold_anything(bad: dict[str, Any]) -> None:
    assert of([record("m-d-x", Outcome.FAIL)], bad).title(Decision.NO_GO).startswith("NO-GO: m (revision not recorded) on d")
