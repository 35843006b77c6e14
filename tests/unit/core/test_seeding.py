from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.core.seeding import AUGMENTATION_SEED, SUBSET_SEED, derive_seed, rng_for

PARTS = st.lists(st.text(st.characters(exclude_characters="\x00", codec="utf-8"), max_size=8), max_size=3)


def test_the_published_seeds() -> None:
    assert (AUGMENTATION_SEED, SUBSET_SEED) == (1234, 42)


@pytest.mark.parametrize(
    ("seed", "parts", "derived"),
    [
        (1234, (), 6692897798178188291),
        (1234, ("shapes/0", "fog:mid"), 1622004081561933434),
        (42, ("subset", "größe"), 10011857361528078920),
    ],
)
def test_derived_seeds_never_change(seed: int, parts: tuple[str, ...], derived: int) -> None:
    assert derive_seed(seed, *parts) == derived


def test_the_first_numbers_of_a_generator_never_change() -> None:
    assert rng_for(1234, "shapes/0", "fog:mid").integers(0, 1000, 5).tolist() == [975, 375, 73, 114, 883]


@given(st.integers(0, 2**63), PARTS, st.integers(0, 2**63), PARTS)
def test_different_purposes_have_different_seeds(seed: int, parts: list[str], other: int, others: list[str]) -> None:
    same = (seed, parts) == (other, others)
    assert (derive_seed(seed, *parts) == derive_seed(other, *others)) == same


def test_parts_are_not_run_together() -> None:
    assert len({derive_seed(1, "ab", "c"), derive_seed(1, "a", "bc"), derive_seed(1, "abc"), derive_seed(1, "abc", "")}) == 4


def test_generators_of_neighbours_are_independent() -> None:
    draws = np.array([rng_for(1234, f"sample {i}").standard_normal(400) for i in range(20)])
    correlations = np.corrcoef(draws)[np.triu_indices(20, 1)]
    assert np.abs(correlations).max() < 0.25  # five standard errors of 1/sqrt(400)


def test_global_random_states_are_neither_read_nor_written() -> None:
    def states() -> str:
        return repr((random.getstate(), np.random.get_state(legacy=False)))  # noqa: NPY002 - this is what must not change

    before = states()
    first = rng_for(7, "a").random()
    assert states() == before
    random.seed(0)
    assert rng_for(7, "a").random() == first


def test_another_process_derives_the_same() -> None:
    program = "from pytest_vlmrobust.core.seeding import derive_seed; print(derive_seed(1234, 'a', 'b'))"
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert int(found) == derive_seed(1234, "a", "b")
