"""What no YAML file may be, whatever its schema."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_vlmrobust.core.errors import PolicyError
from pytest_vlmrobust.policies import Policy, load_policy

Load = Callable[..., Policy]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.yaml: the file is empty. Expected 'version: 1' and a list 'rules:'"),
        ("# only a comment\n", "a.yaml: the file is empty"),
        ("- 1\n", "a.yaml:1: the file is a list. Expected a mapping with the keys version, mode, defaults"),
        ("just words\n", "a.yaml:1: the file is the text 'just words'. Expected a mapping"),
        ("version: 1\nrules:\n\t- id: x\n", "a.yaml:3: not YAML: found character '\\t' that cannot start any token"),
        ("version: 1\nrules: [\n", "a.yaml:3: not YAML: "),
        ("version: 1\n---\nversion: 1\n", "a.yaml:2: not YAML: but found another document"),
        ("version: 1\nversion: 1\n", "a.yaml:2: version is written twice, first in line 1. Keep one of them"),
        ("versoin: 1\n", "a.yaml:1: unknown key 'versoin' in the file. Did you mean 'version'? Known: version, mode, defaults"),
        ("version: 1\n<<: {rules: []}\n", "a.yaml:2: unknown key '<<' in the file."),
        ("version: 1\n? [a, b]\n: 1\n", "a.yaml:2: unknown key 'a list' in the file."),
        ("version: 1\n1: 2\n", "a.yaml:2: unknown key '1' in the file."),
        ("rules: []\n", "a.yaml:1: the file lacks 'version'. Required: version"),
        ("version: 1\nrules: *nobody\n", "a.yaml:2: not YAML: found undefined alias 'nobody'"),
        ("version: 1\nrules: " + "[" * 5000, "a.yaml:2: lists or mappings are nested too deeply. Expected at most 40 levels"),
        ("version: 1\nrules: \x07\n", "a.yaml:2: not YAML: unacceptable character #x0007. Remove it"),
    ],
)
def test_files_that_cannot_be_read_name_the_line(load: Load, text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(message)):
        load(text)


def test_tabs_come_with_advice(load: Load) -> None:
    with pytest.raises(PolicyError, match="Indent with spaces: YAML does not allow tabs"):
        load("version: 1\nrules:\n\t- id: x\n")


def test_bytes_that_are_not_utf8_name_the_line(load: Load) -> None:
    with pytest.raises(PolicyError, match=re.escape("a.yaml:2: byte 0xe9 is not UTF-8. Save the file as UTF-8")):
        load(b"version: 1\n# caf\xe9\n")


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


def test_anchors_that_contain_themselves_and_bombs_end(load: Load) -> None:
    with pytest.raises(PolicyError, match=re.escape("a.yaml:2: a list contains itself (&). Write its values out")):
        load("version: 1\nrules: &loop [*loop]\n")
    bomb = "version: 1\nrules:\n- &a [x, x]\n" + "".join(
        f"- &{letter} [{', '.join([f'*{previous}'] * 9)}]\n" for previous, letter in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with pytest.raises(PolicyError, match=re.escape("a.yaml:9: the aliases (*) stand for more than 16 million characters.")):
        load(bomb)
