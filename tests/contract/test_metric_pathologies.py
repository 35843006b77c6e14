"""What the papers' raw numbers say about models that are known exactly, and what the companions say instead.

Every case is an enumeration of all guesses or a seeded simulation: a model that knows a share of the questions and guesses the
rest among four options, anew for each of four patches.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.metrics import ScoreTable, estimate

Array = NDArray[np.float64]

OPTIONS, PATCHES = 4, 4
GUESSES = np.array(list(itertools.product([1.0, 0.0, 0.0, 0.0], repeat=1 + PATCHES)))
"""Every combination of guesses at the whole image and at each patch, once: shape (1024, 5)."""
CHANCES = 1 / OPTIONS


def _model(*, both: int, whole_only: int = 0, patches_only: int = 0, neither: int = 1) -> tuple[Array, Array]:
    """Returns scores on the whole image, (N,), and on each patch, (N, 4), of a model that knows so many parts of the questions.

    ``whole_only``: needs the whole image, guesses on patches; ``patches_only``: distracted by the whole image, where it guesses.
    """
    blocks = []
    for parts, knows_whole, knows_patch in (
        (both, True, True), (whole_only, True, False), (patches_only, False, True), (neither, False, False),
    ):  # fmt: skip
        block = np.tile(GUESSES, (parts, 1))
        block[:, 0] = 1.0 if knows_whole else block[:, 0]
        block[:, 1] = 1.0 if knows_patch else block[:, 1]
        blocks.append(block)
    rows = np.concatenate(blocks)
    return rows[:, 0], rows[:, 1:]


def _excess(whole: Array, patches: Array) -> float:
    return metrics.pcri_excess(whole, patches, np.full(len(whole), CHANCES))


def test_a_pure_guesser_has_an_index_of_strong_distraction() -> None:
    whole, patches = _model(both=0)
    assert metrics.pcri(whole, patches) == pytest.approx(-1.734, abs=5e-4) == metrics.pcri_neutral(1 / OPTIONS, OPTIONS, PATCHES)
    assert metrics.rci_band(metrics.rci(whole, patches)) == "strong local"
    assert _excess(whole, patches) == pytest.approx(0.0)


def test_a_pure_guesser_does_not_pass_the_validity_gate() -> None:
    whole, patches = _model(both=0)
    table = ScoreTable(whole, patches_by_setting={"patches:2": patches}, chance=CHANCES)
    for name in ("pcri", "rci", "pcri_excess"):
        assert not estimate(name, table, "patches:2").valid


@pytest.mark.parametrize("known", [1, 3, 9])
def test_an_indifferent_model_looks_distracted(known: int) -> None:
    whole, patches = _model(both=known)
    raw = metrics.pcri(whole, patches)
    assert raw < -0.04
    assert raw == pytest.approx(metrics.pcri_neutral(float(whole.mean()), OPTIONS, PATCHES))
    assert _excess(whole, patches) == pytest.approx(0.0, abs=1e-12)


def test_a_model_that_needs_the_whole_image_looks_distracted_too() -> None:
    """It knows half of the questions either way and a quarter from the whole image only: P_whole is 0.81."""
    whole, patches = _model(both=2, whole_only=1)
    assert metrics.pcri(whole, patches) == pytest.approx(-0.036, abs=5e-4)
    assert _excess(whole, patches) == pytest.approx(0.097, abs=5e-4)


def test_a_distracted_model_stays_distracted() -> None:
    whole, patches = _model(both=2, patches_only=1)
    assert metrics.pcri(whole, patches) < _excess(whole, patches) < -0.1


def test_the_same_guess_everywhere_is_no_luck() -> None:
    """Where a question gets the same guess in every view the raw index is right, and the envelope reaches to it: [neutral, 0]."""
    known = np.repeat([1.0, 0.0], [3, 1])
    guesses = np.array([1.0, 0.0, 0.0, 0.0])
    whole = np.maximum(known[:, None], guesses).ravel()
    patches = np.tile(whole[:, None], PATCHES)
    assert metrics.pcri(whole, patches) == 0.0
    assert _excess(whole, patches) > 0.0


def _attempts() -> Array:
    """Returns every combination of guesses at four views, in an order that has nothing to do with the patches."""
    views = np.array(list(itertools.product([1.0, 0.0, 0.0, 0.0], repeat=PATCHES)))
    return np.repeat(views, 4, axis=0)


def test_equal_luck_on_both_sides_cancels() -> None:
    for parts, sign in (
        ({"both": 0}, 0),
        ({"both": 3}, 0),
        ({"both": 2, "whole_only": 1}, 1),
        ({"both": 2, "patches_only": 1}, -1),
    ):
        whole, patches = _model(**parts)
        attempts = np.concatenate([_attempts()] * (len(whole) // len(GUESSES)))
        knows = parts["both"] + parts.get("whole_only", 0)
        attempts[: knows * len(GUESSES), 0] = 1.0
        value = metrics.pcri_matched(whole, patches, attempts)
        assert value == pytest.approx(0.0, abs=1e-12) if sign == 0 else sign * value > 0.04


def test_a_flat_curve_has_the_ace_of_its_noise() -> None:
    """55 % right at each of twelve resolutions, 14 % of the answers changing from one to the next, 1200 samples: about 0.098."""
    rng, errors, floors = np.random.default_rng(3), [], []
    keep = math.sqrt(1 - 0.14 / (2 * 0.55 * 0.45))
    for _ in range(100):
        right = (rng.random((1200, 1)) < 0.55) & np.ones((1, 12), dtype=np.bool_)
        rungs = np.where(rng.random((1200, 12)) < keep, right, rng.random((1200, 12)) < 0.55).astype(float)
        errors.append(metrics.absolute_continuous_error(rungs.mean(axis=0).tolist()))
        floors.append(metrics.resolution_noise_floor(rungs))
    assert float(np.mean(errors)) == pytest.approx(11 * math.sqrt(2 * 0.14 / (math.pi * 1200)), rel=0.05)
    assert float(np.mean(errors)) == pytest.approx(float(np.mean(floors)), rel=0.05)


@pytest.mark.parametrize("samples", [50, 200])
def test_few_samples_make_a_flat_curve_look_rough(samples: int) -> None:
    """The interval reaches down to 0 nevertheless, and the note says what noise gives."""
    rungs = (np.random.default_rng(samples).random((samples, 12)) < 0.55).astype(float)
    table = ScoreTable(rungs[:, 0], {f"resolution:{112 * rung}": rungs[:, rung - 1] for rung in range(1, 13)})
    result = estimate("absolute_continuous_error", table)
    assert result.value > 0.2
    assert result.low < 0.1 * result.value
    assert "sampling noise alone would give 0." in result.reason
