from __future__ import annotations

import re
from pathlib import Path

from pytest_vlmrobust.commands.policies import render_policy
from pytest_vlmrobust.policies import load_policy

POLICY = """\
version: 1
budgets: {max_unparsed_rate: 2%}
coverage: {samples: 20%, suites: [corruptions, patches]}
rules:
  - {id: low, metric: accuracy_drop, where: {level: [low, mid]}, unless: {setting: "fog:low"}, max: 5pp, tier: warn}
  - {id: "all", metric: pcri, within: [-0.4, 0.4], judge: point}
  - {id: seen, metric: visual_gain, where: {dataset: "[abc]*", model: tiny}, min: 7pp}
waivers:
  - {id: W1, owner: jo, reason: known, expires: 2999-01-01, metric: accuracy_drop, where: {setting: fog}, cap: 9pp}
"""
EXPECTED = """\
rule  metric         of                              bound  judged by        where
low   accuracy_drop  low, mid unless fog:low       <= 5 pp  interval, warns  5
all   pcri           all                      in -0.4..0.4  point            6
seen  visual_gain    tiny; [abc]*                  >= 7 pp  interval         7

waiver  metric         of    cap  until       where
W1      accuracy_drop  fog  9 pp  2999-01-01  9

where: line of p.yaml
budgets: at most 0.0 % failed inferences, 2.0 % unreadable answers, 5.0 % refused answers
coverage that GO requires: all tests that are collected, among them those of corruptions, patches; 20 % of the samples
"""


def render(path: Path, text: str) -> str:
    path.write_text(text)
    metrics = ["accuracy_drop", "pcri", "visual_gain"]
    return render_policy(load_policy([path], known_metrics=metrics, root=path.parent), width=120, color=False)


def test_all_that_a_policy_says(tmp_path: Path) -> None:
    assert render(tmp_path / "p.yaml", POLICY) == EXPECTED


def test_on_a_narrow_terminal_only_scopes_take_several_rows(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "p.yaml").write_text(POLICY)
    policy = load_policy([tmp_path / "folder" / "p.yaml"], known_metrics=["accuracy_drop", "pcri", "visual_gain"], root=tmp_path)
    rows = re.sub(r"\x1b\[[0-9;]*m", "", render_policy(policy, width=80, color=True)).splitlines()
    assert rows[1:5] == [
        "low   accuracy_drop  low, mid unless             <= 5 pp  interval, warns  5",
        "                     fog:low",
        "all   pcri           all                    in -0.4..0.4  point            6",
        "seen  visual_gain    tiny; [abc]*                >= 7 pp  interval         7",
    ]
    assert "where: line of folder/p.yaml" in rows
    assert max(map(len, rows)) <= 80


def test_a_part_may_do(tmp_path: Path) -> None:
    text = POLICY.replace("samples: 20%, suites: [corruptions, patches]", "samples: partial, tests: partial")
    assert render(tmp_path / "p.yaml", text).endswith("GO requires: any selection of tests; any number of samples\n")
    text = POLICY.replace("samples: 20%, suites: [corruptions, patches]", "samples: 500")
    assert render(tmp_path / "p.yaml", text).endswith("GO requires: all tests that are collected; 500 samples of each dataset\n")


def test_what_a_file_holds_is_never_obeyed(tmp_path: Path) -> None:
    text = render(tmp_path / "p.yaml", POLICY.replace("[abc]*", r"abc\e[2J"))
    assert r"abc\x1b[2J" in text
    assert all(char.isprintable() for char in text.replace("\n", ""))
