from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Cell, FamilyMetric, Setting, Step, SweepMetric, spell_level
from pytest_vlmrobust.core.errors import SettingError


def test_ids_are_those_of_the_contract_and_show_what_a_test_is_about() -> None:
    about = [
        Cell("qwen2-vl-2b", "mmbench", Setting.parse("glass_blur:low")),
        SweepMetric("qwen2-vl-2b", "mmbench", "worst_case_drop"),
        FamilyMetric("f", "d", "scale_gap", "clean"),
    ]
    ids = ["qwen2-vl-2b-mmbench-glass_blur:low", "qwen2-vl-2b-mmbench-worst_case_drop", "f-d-scale_gap-clean"]
    assert list(map(repr, about)) == list(map(str, about)) == ids


def test_cells_and_settings_are_values() -> None:
    fog = Setting.parse("fog:low")
    assert Cell("m", "d", fog) == Cell("m", "d", Setting.parse("fog:low"))
    assert len({Cell("m", "d", fog), Cell("m", "d", fog), Cell("n", "d", fog)}) == 2
    assert {Setting.parse("fog:mid"): 1}[Setting((Step("fog", "mid"),))] == 1


NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True)
NUMBERS = st.dictionaries(NAMES, st.floats(-1e6, 1e6).map(lambda number: round(number, 6)) | st.integers(-999, 999), min_size=1)
WORDS = st.from_regex(r"[a-z0-9][a-z0-9_.]{0,8}", fullmatch=True)
LEVELS = st.none() | WORDS | st.builds(spell_level, st.just("") | WORDS, NUMBERS)
SETTINGS = st.lists(st.builds(Step, NAMES, LEVELS), min_size=1, max_size=4).map(lambda steps: Setting(tuple(steps)))


@given(SETTINGS)
def test_what_is_written_is_read_back(setting: Setting) -> None:
    assert Setting.parse(str(setting)) == setting


@given(st.text(max_size=20) | st.text("ab:+._10A=,-", max_size=8))
def test_any_text_is_read_as_it_stands_or_refused(text: str) -> None:
    with contextlib.suppress(SettingError):
        assert str(Setting.parse(text)) == text


@pytest.mark.cases(
    ("text", "steps"),
    [
        ("flip_h", (Step("flip_h"),)),
        ("glass_blur:low", (Step("glass_blur", "low"),)),
        ("patches:3", (Step("patches", "3"),)),
        ("zoom:1.5", (Step("zoom", "1.5"),)),
        ("fog:mid+flip_v", (Step("fog", "mid"), Step("flip_v"))),
    ],
)
def test_spelling(text: str, steps: tuple[Step, ...]) -> None:
    assert Setting.parse(text).steps == steps


@pytest.mark.cases(
    ("text", "part"),
    [
        ("", ""),
        ("fog:", "fog:"),
        (":low", ":low"),
        ("Fog:low", "Fog:low"),
        ("fog:LOW", "fog:LOW"),
        ("fog low", "fog low"),
        ("fog:low:high", "fog:low:high"),
        ("fog:low+", ""),
        ("fog\n", "fog\n"),
        ("1fog", "1fog"),
    ],
)
def test_what_cannot_be_read_is_refused_by_part(text: str, part: str) -> None:
    with pytest.raises(SettingError) as caught:
        Setting.parse(text)
    assert str(caught.value).startswith(f"setting {text!r}: cannot read {part!r}. Expected name or name:level")
    assert "'glass_blur:low'" in str(caught.value)


def test_name_and_level() -> None:
    assert (Setting.parse("fog:mid").name, Setting.parse("fog:mid").level) == ("fog", "mid")
    assert Setting.parse("flip_h").level is None
    composed = Setting.parse("fog:mid+flip_h")
    assert (composed.name, composed.level) == ("fog+flip_h", None)
    assert (Setting.parse("clean"), Setting.parse("no_image")) == (CLEAN, NO_IMAGE)
