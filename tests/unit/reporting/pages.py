"""Records of a small run with something in every part of the page."""

from __future__ import annotations

import dataclasses
import hashlib
import html
import re
from pathlib import Path
from typing import Any

import numpy as np

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import CHECK, FAMILY, Example, Measure, Picture, Record, Reply
from pytest_vlmrobust.reporting import Command
from pytest_vlmrobust.store.repeatability import Repeatability
from pytest_vlmrobust.store.run_directory import Pictures

COMMAND = Command(("--vlm=m", "--vlm-store=a store"), ("suites",))
DIGESTS = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("clean", "fog", "patch")}


def measure(metric: str, value: float, outcome: Outcome = Outcome.MEASURED, **changes: Any) -> Measure:
    judged: dict[str, Any] = {"bound": "<= 0.2", "ends": (0.2,), "rule": "drop", "source": "p.yaml:4"}
    judged = judged if outcome is not Outcome.MEASURED else {}
    return Measure(metric, value, value - 0.05, value + 0.05, 100, outcome=outcome, **{**judged, **changes})


def cell(
    setting: str, family: str = "", level: str = "", drop: float = 0.1, outcome: Outcome = Outcome.PASS, **more: Any
) -> Record:
    rates = (measure("harmful_flip_rate", max(drop, 0.0) + 0.02), measure("helpful_flip_rate", 0.02))
    measures = (measure("accuracy", 0.9 - drop), measure("accuracy_drop", drop, outcome), *rates)
    facts: dict[str, Any] = {"setting": setting, "family": family, "level": level, "outcome": outcome, "measures": measures}
    nodeid = f"suites/test_corruptions.py::test_cell[m-d-{setting}]"
    said = {"n": 100, "n_requested": 100, "policy_sha256": "ab" * 32, "reason": f"accuracy_drop {drop:.3f}", "nodeid": nodeid}
    names = {"test": "cell", "id": f"m-d-{setting}", "model": "m", "dataset": "d"}
    return Record(**{**names, **facts, **said, **more})


def example(kind: str = "newly_wrong", **changes: Any) -> Example:
    pictures = (Picture(f"{DIGESTS['clean']}.webp", "clean"), Picture(f"{DIGESTS['fog']}.webp", "fog:high"))
    replies = (Reply("clean", "A", "A", "letter", 1.0), Reply("fog:high", "I say B", "B", "final_letter", 0.0))
    facts: dict[str, Any] = {"options": {"A": "a cat", "B": "a dog"}, "target": "A", "category": "animals"}
    return dataclasses.replace(Example("s-1", kind, "What is it?", replies=replies, pictures=pictures, **facts), **changes)


def patched() -> Example:
    pictures = (
        Picture(f"{DIGESTS['clean']}.webp", "clean", "wrong"),
        Picture(f"{DIGESTS['patch']}.webp", "patch 1,2", "right"),
    )
    replies = (Reply("clean", "B", "B", "letter", 0.0), Reply("patch 1,2", "A", "A", "letter", 1.0))
    return example("patch_only", pictures=pictures, replies=replies)


def summary(metric: str, value: float, outcome: Outcome = Outcome.MEASURED, **more: Any) -> Record:
    facts: dict[str, Any] = {"test": "sweep", "id": f"m-d-{metric}", "model": "m", "dataset": "d", "n": 100}
    measures = (measure(metric, value, outcome),)
    return Record(**{**facts, "metric": metric, "outcome": outcome, "measures": measures, "nodeid": f"s.py::t[{metric}]", **more})


def run() -> list[Record]:
    """Returns the records of a run: baselines, perturbations, rungs, patches, tasks, a family and a failed check."""
    waived = measure("accuracy_drop", 0.3, Outcome.WAIVED, waiver="W1", reason="waived by W1")
    rungs = [
        cell(f"resolution:{size}", "ladder", str(size), 0.1 - size / 2000, received="grid 1x4x4" if size < 50 else "grid 1x6x6")
        for size in (20, 40, 80)
    ]
    task: dict[str, Any] = {"dataset": "faces.matching", "task": "matching", "split": "clean"}
    return [
        cell("clean", drop=0.0),
        cell("no_image", drop=0.6, outcome=Outcome.MEASURED),
        cell("fog:low", "weather", "low", 0.01),
        cell("fog:high", "weather", "high", 0.4, Outcome.FAIL, examples=(example(),), categories={"animals": 0.5}, n_unparsed=3),
        cell("invert", "binary", drop=0.3, outcome=Outcome.WAIVED, measures=(waived,)),
        *rungs,
        cell("patches:2", "patches", "2", -0.1, examples=(patched(),), positions=(0.1, 0.4, 0.3, 0.2)),
        summary("worst_case_drop", 0.4, Outcome.FAIL),
        summary("tail_share", 0.2),
        summary("identity_accuracy", 0.6, id="m-faces-identity", nodeid="s.py::t[i]", **task),
        summary("split_group_gap", 0.1, id="m-faces-gap", nodeid="s.py::t[g]", **task),
        summary("scale_gain", 0.1, test=FAMILY, id="fam-d-scale_gain", model="fam", notes=("small 0.5, large 0.6",)),
        Record(CHECK, "test_beside", "", "", outcome=Outcome.ERROR, reason="it broke", nodeid="t.py::test_beside"),
    ]


def asked_twice(rules: int = 2) -> tuple[Repeatability, Repeatability]:
    """Returns an A/A comparison beside so many rules, one of which is tighter than the noise, and one that failed."""
    beside = tuple(f"rule r{number}: accuracy_drop bounded by 0.2, noise 0.120 (at most 0.210)" for number in range(rules))
    measured = Repeatability(
        model="m",
        dataset="d",
        repeated=200,
        flipped=13,
        reworded=21,
        failed=1,
        cells=7,
        samples=100,
        rate=0.065,
        low=0.0388,
        high=0.1013,
        noise={"accuracy_drop": 0.12},
        noise_high={"accuracy_drop": 0.21},
        conditions="batches of 8 in place of 16, another order",
        beside=beside,
        tighter=("p.yaml:4: rule r0 (accuracy_drop 0.1) is tighter than the noise",),
    )
    return measured, Repeatability("m", "faces.matching", problem="the model is lost")


def store(folder: Path) -> Path:
    """Writes the thumbnails that the records of :func:`run` name, and returns their folder."""
    pictures = Pictures(folder)
    for level, digest in enumerate(DIGESTS.values()):
        pictures.add(digest, np.full((8, 8, 3), 60 * level, np.uint8))
    return folder


def page_text(page: str, *sections: str) -> str:
    """Returns what a reader sees of a page, or of sections of it, a line for each row, paragraph and item."""
    if sections:
        page = "".join(re.findall(rf'<section[^>]* id="(?:{"|".join(sections)})".*?</section>', page, re.DOTALL))
    page = re.sub(r"<(style|script|svg|head)\b.*?</\1>", "", page, flags=re.DOTALL)
    page = re.sub(r"\s+", " ", page)
    page = re.sub(r"</(tr|p|li|h[1-6]|div|dt|dd|summary|caption|section|article|header|footer|a)>", "\n", page)
    page = re.sub(r"</t[hd]>", " | ", page)
    text = html.unescape(re.sub(r"<[^>]*>", " ", page))
    return "\n".join(line for row in text.split("\n") if (line := " ".join(row.split()))) + "\n"
