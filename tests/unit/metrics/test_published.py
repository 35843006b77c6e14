"""The published tables, recomputed: what follows from the printed numbers, and what does not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pytest_vlmrobust import metrics

Rows = list[dict[str, str]]

TOLERANCES = {"avg": 1e-3, "rho": 1.5e-2, "ace": 5e-3, "rce": 1.5e-2}
"""What rounding of twelve accuracies to three decimals can do; it makes ties, so most to the rank correlation."""

CATEGORY_SIZES = {
    "blur": 5,
    "noise": 4,
    "weather": 5,
    "digital": 2,
    "geometric": 5,
    "occlusion": 3,
    "color_tone": 10,
    "resolution": 5,
    "vlm_specific": 3,
    "binary": 7,
}


@pytest.mark.parametrize("table", ["resbench_main", "resbench_subtasks"])
def test_resbench(table: str, golden: Callable[[str], Rows]) -> None:
    for row in golden(table):
        edges = [int(name.removeprefix("acc_")) for name in row if name.startswith("acc_")]
        curve = [float(row[f"acc_{edge}"]) for edge in edges]
        ours = {
            "avg": metrics.accuracy(curve),
            "rho": metrics.resolution_correlation(edges, curve),
            "ace": metrics.absolute_continuous_error(curve),
            "rce": metrics.relative_continuous_error(curve),
        }
        apart = [name for name, value in ours.items() if abs(value - float(row[name])) > TOLERANCES[name]]
        assert ";".join(apart) == row["disagrees"], (row["model"], row.get("subtask"), ours)


def test_resbench_tables_hold_but_for_ten_rows(golden: Callable[[str], Rows]) -> None:
    rows = golden("resbench_main") + golden("resbench_subtasks")
    assert len(rows) == 8 + 75
    assert sum(bool(row["disagrees"]) for row in rows) == 10
    assert all(bool(row["why"]) == bool(row["disagrees"]) for row in rows)


def test_mce_is_the_plain_mean_over_49_perturbations(golden: Callable[[str], Rows]) -> None:
    """Scores made so that each perturbation has its category's printed error must give the printed "all"."""
    for row in golden("robustbench_mce"):
        own, reference = {}, {}
        for category, size in CATEGORY_SIZES.items():
            for kind in range(size):
                setting = f"{category}{kind}:low"
                reference[setting] = _with_errors(1000)
                own[setting] = _with_errors(round(10 * float(row[category])))
        value = 100 * metrics.mean_corruption_error(own, reference)
        assert value == pytest.approx(float(row["all"]), abs=0.11), row


def test_drops_are_harmful_minus_helpful_flips(golden: Callable[[str], Rows]) -> None:
    for row in golden("robustbench_flips"):
        for dataset, net in (("mmbench", "mmbench_net"), ("mmmupro", "mmmupro_net_abs")):
            harmful, helpful = (round(10 * float(row[f"{dataset}_flip_{sign}"])) for sign in ("plus", "minus"))
            clean = [1] * harmful + [0] * (1000 - harmful)
            perturbed = [0] * harmful + [1] * helpful + [0] * (1000 - harmful - helpful)
            drop = metrics.accuracy_drop(clean, perturbed)
            assert abs(100 * abs(drop) - float(row[net])) < 0.15, row
            assert metrics.flip_rates(clean, perturbed) == (harmful / 1000, helpful / 1000)


def test_tiers_of_binary_perturbations(golden: Callable[[str], Rows]) -> None:
    for row in golden("robustbench_binary"):
        for dataset in ("mmbench", "mmmupro"):
            tier = metrics.robustness_tier(float(row[f"{dataset}_drop_pp"]) / 100)
            assert tier == row[f"{dataset}_tier"].lower(), row


def test_hand_worked_cases(golden: Callable[[str], Rows]) -> None:
    for row in golden("hand_worked"):
        table = metrics.ScoreTable(_digits(row["clean"]), _settings(row["perturbed"]), _digits(row["no_image"], row["clean"]))
        record = metrics.get(row["metric"])
        value = record.function(*(table.argument(need, "one") for need in record.needs))
        assert value == pytest.approx(float(row["value"]), nan_ok=True, abs=1e-12), row


def _with_errors(errors: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    scores = np.ones(2000)
    scores[:errors] = 0.0
    return scores


def _digits(text: str, otherwise: str = "") -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([float(digit) for digit in text or otherwise])


def _settings(text: str) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Reads ``fog:low=1110 flip_v=1100``, or the scores of one setting."""
    if "=" not in text:
        return {"one": _digits(text)} if text else {}
    return {name: _digits(digits) for name, _, digits in (part.partition("=") for part in text.split())}
