from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from pytest_vlmrobust.core.errors import UnknownName
from pytest_vlmrobust.testing import PROFILES, examples_of
from pytest_vlmrobust.testing.properties import VARIABLE, fails, is_thorough, try_examples


def test_the_fast_profile_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert examples_of() == examples_of("") == PROFILES["vlm-fast"] < PROFILES["vlm-thorough"]


def test_the_environment_chooses_and_the_option_beats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "vlm-thorough")
    assert examples_of() == PROFILES["vlm-thorough"]
    assert examples_of("vlm-fast") == PROFILES["vlm-fast"]


def test_thorough_is_what_the_option_or_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert not is_thorough()
    assert is_thorough("vlm-thorough")
    monkeypatch.setenv(VARIABLE, "vlm-thorough")
    assert is_thorough()
    assert not is_thorough("vlm-fast")


def test_a_profile_of_the_users_own_is_honoured() -> None:
    settings.register_profile("of-their-own", max_examples=7)
    assert examples_of("of-their-own") == 7


def test_a_misspelt_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "vlm-thorugh")
    message = r"VLMROBUST_PROFILE: unknown profile 'vlm-thorugh'\. Did you mean 'vlm-thorough'\? Known: vlm-fast, vlm-thorough"
    with pytest.raises(UnknownName, match=message):
        examples_of()


def test_profiles_are_known_to_hypothesis_and_always_draw_the_same() -> None:
    for name, examples in PROFILES.items():
        assert (settings.get_profile(name).max_examples, settings.get_profile(name).derandomize) == (examples, True)


def test_examples_are_the_same_each_time() -> None:
    runs: list[list[int]] = []
    for _ in range(2):
        drawn: list[int] = []
        try_examples("mine", st.integers(0, 10**6), drawn.append, 20)
        runs.append(drawn)
    assert runs[0] == runs[1]
    assert len(set(runs[0])) > 10


def test_the_smallest_example_that_fails_is_reported() -> None:
    def below(number: int) -> None:
        if number >= 17:
            fails("mine", "is too large", str(number))

    with pytest.raises(AssertionError, match=r"^metric 'mine' is too large\n    called with 17$"):
        try_examples("mine", st.integers(0, 1000), below, 50)
