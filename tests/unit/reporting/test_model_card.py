from __future__ import annotations

import dataclasses

from pytest_vlmrobust.core.record import Measure
from pytest_vlmrobust.core.verdict import Outcome
from pytest_vlmrobust.reporting import RunFacts
from pytest_vlmrobust.reporting.model_card import model_card

from .conftest import record

ORIGINS = {
    "version": "0.1.0",
    "run": "r1",
    "date": "2026-06-01",
    "models": {"m": {"location": "owner/name", "revision": "abc", "prompt_mode": "direct"}},
}


def test_it_says_what_was_gated_decided_and_left_out() -> None:
    fog = dataclasses.replace(record("m-d-fog:high", Outcome.FAIL, 0.3), setting="fog:high", policy_sha256="c0ffee", n_unparsed=4)
    mild = dataclasses.replace(record("m-d-fog:low"), setting="fog:low")
    worst = dataclasses.replace(
        record("m-d-worst", Outcome.WAIVED, reason="waived by W1"),
        test="sweep",
        metric="worst_case_drop",
        measures=(Measure("worst_case_drop", 0.3, 0.1, 0.4, 100, "0.2", Outcome.WAIVED),),
    )
    text = model_card([mild, fog, worst], RunFacts(planned=4, selected=3), ORIGINS)
    assert text.startswith("## Robustness\n\n**NO-GO**: ")
    for line in (
        "- Gate: pytest-vlmrobust 0.1.0, run r1 of 2026-06-01",
        "- Model: m, owner/name at abc, asked in mode direct",
        "- Policy of m: SHA-256 `c0ffee`",
        "| d | worst_case_drop | 0.300 | [0.100, 0.400] | 100 | 0.2 | WAIVED |",
        "- partial selection: 3 of 4 tests; the decision speaks for these only",
        "- waived: m-d-worst: waived by W1",
        "- 4 of 200 answers could not be read and count as wrong",
    ):
        assert f"{line}\n" in text
    hardest = text[text.index("Hardest settings") :]
    assert hardest.index("fog:high") < hardest.index("fog:low")


def test_a_run_of_nothing_says_so() -> None:
    text = model_card([], RunFacts(), {})
    assert "**INCONCLUSIVE**" in text
    assert "- Data: none; 0 perturbed settings" in text


def test_names_are_no_markup() -> None:
    text = model_card([dataclasses.replace(record("x"), model="<script>|\n# x")], RunFacts(), {})
    assert "<script>" not in text
    assert "\n# x" not in text
