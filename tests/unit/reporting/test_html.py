from __future__ import annotations

import base64
import dataclasses
import hashlib
import html.parser
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import Measure, Record, Reply
from pytest_vlmrobust.reporting import Command, RunFacts, RunView, write_report
from pytest_vlmrobust.reporting.html import render_html, samples
from pytest_vlmrobust.reporting.html.charts import resolution_curve
from pytest_vlmrobust.reporting.html.page import rendered_again
from pytest_vlmrobust.reporting.sweeps import sweeps

from .pages import COMMAND, DIGESTS, asked_twice, cell, example, measure, page_text, run, store, summary

NOTHING = RunFacts()
VOID = {"meta", "img", "br", "input", "link", "hr"}
HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }} {% raw %}",
    "<!-- --><![CDATA[ ]]>",
    "\u202eevil\u2066",
    "a\0b\x1b[31m",
    "half \ud800 a pair",
    "javascript:alert(1)",
)


class Outline(html.parser.HTMLParser):
    """What a page consists of; refuses elements that are not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [value or "" for name, value in attrs if name == "href"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in {"script", "style"}:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return render_html(RunView(run(), dataclasses.replace(FACTS, pictures=store(tmp_path_factory.mktemp("pictures")))))


MANIFEST: dict[str, object] = {
    "run": "20260101-000000-1",
    "command": {"options": ["--not-the-one-that-counts"]},
    "repeatability": [{"model": "in a section of its own"}],
    "models": {"m": {"fingerprint": {"dtype": "float32"}}},
    "policies": {
        "m": {
            "files": [{"name": "p.yaml", "sha256": "cd" * 32}],
            "rules": [
                {"id": "drop", "metric": "accuracy_drop", "bound": "-0.2..0.2", "reason": "because", "where": {"level": ["low"]}},
                {"id": "idle", "metric": "pcri", "bound": "0.1", "evidence": "the paper"},
            ],
            "waivers": [{"id": "W1", "owner": "somebody", "expires": "2030-01-01", "cap": 0.5, "reason": "known weakness"}],
        }
    },
}
FACTS = RunFacts(planned=30, selected=20, warnings=("a rule applied to no test",), command=COMMAND, origins=MANIFEST)


def data_of(page: str) -> Any:
    (block,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(block)


def test_the_parts_stand_in_the_order_of_looking(page: str) -> None:
    outline = Outline(page)
    parts = ["limits", "sweeps", "observatory", "families", "policy", "manifest", "tests"]
    assert [name for name in outline.ids if name in parts] == parts
    assert outline.text.index("NO-GO") < outline.text.index("What limits this evidence")


def test_ids_are_unique_and_links_lead_somewhere(page: str) -> None:
    outline = Outline(page)
    assert len(set(outline.ids)) == len(outline.ids)
    inner = {link.removeprefix("#") for link in outline.links if link.startswith("#")}
    assert inner <= set(outline.ids)
    assert [link for link in outline.links if not link.startswith("#")] == []


def test_what_the_page_says(page: str, stored: Callable[..., None]) -> None:
    """Its decision, what limits the evidence, the policy as applied, waivers once each, and that A/A was not measured."""
    stored(page_text(page))
    assert '<div class="icon" aria-hidden="true">✕</div>' in page


def test_analyses_have_true_minus_signs_and_tests_beyond_the_first_are_counted() -> None:
    gains = [cell(f"fog:{level}", "weather", level, drop, Outcome.FAIL) for level, drop in (("low", -0.2), ("mid", -0.3))]
    others = [cell(f"blur{at}", "blur", "", 0.5, Outcome.FAIL) for at in range(14)]
    text = Outline(render_html(RunView([*gains, *others], NOTHING))).text
    assert "1 more test is listed under all tests" in text
    assert "\N{MINUS SIGN}20.0 " in text
    assert "-20.0" not in text


def test_what_was_not_asked_is_said_and_drawn_nowhere() -> None:
    unasked = cell("fog:low", "weather", "low", math.nan, Outcome.MEASURED, not_asked="it cannot do the task")
    text = Outline(render_html(RunView([cell("clean"), unasked], NOTHING))).text
    assert "1 test was not asked" in text
    assert "Not asked, 1 of 2 tests: it cannot do the task" in text
    assert "Drop of accuracy by family" not in text


def test_summary_metrics_that_were_not_asked_are_not_measured() -> None:
    nothing = (Measure("mean_drop", math.nan, n=96),)
    unasked = Record("sweep", "m-d-mean_drop", "m", "d", outcome=Outcome.NOT_APPLICABLE, measures=nothing, not_asked="it cannot")
    text = Outline(render_html(RunView([cell("clean"), unasked], NOTHING))).text
    assert "1 summary metric not asked for (NOT_APPLICABLE)" in text
    assert "measured only" not in text


def test_the_map_has_drops_with_marks_that_open_the_test(page: str) -> None:
    (spot,) = re.findall(r"<td[^>]*><a role=\"button\"[^>]*fog%3Ahigh.*?</a></td>", page)
    assert '<td class="h5">' in spot
    assert 'href="#cell=m-d-fog%3Ahigh"' in spot
    assert 'aria-label="fog:high: drop 40.0 points, FAIL"' in spot
    assert "40.0 " in spot
    assert "✕" in spot


def test_the_map_marks_what_rests_on_a_part_of_the_answers() -> None:
    part = cell("fog:high", "weather", "high", n_requested=12, n_samples=100)
    page = render_html(RunView([cell("clean"), cell("fog:low", "weather", "low"), part], NOTHING))
    spots = {fog: re.findall(rf"<a role=\"button\"[^>]*{fog}.*?</a></td>", page)[0] for fog in ("fog%3Ahigh", "fog%3Alow")}
    assert ', 12 of 100 answers">~' in spots["fog%3Ahigh"]
    assert "~" not in spots["fog%3Alow"]
    assert "~ stopped early" in Outline(page).text


def test_without_a_manifest_the_records_speak(stored: Callable[..., None]) -> None:
    page = render_html(RunView(run(), NOTHING))
    stored(page_text(page, "policy", "manifest"))
    assert "pytest --vlm" not in Outline(page).text


def test_a_manifest_of_anything_is_survived() -> None:
    odd = {"policies": {"m": [1]}, "command": "x", "repeatability": 3, "models": None, "run": {"a": [{"b": True}]}}
    assert "a.1.b yes" in Outline(render_html(RunView(run(), RunFacts(origins=odd)))).text


def test_commands_repeat_the_options_of_the_run(page: str) -> None:
    tests = {test["name"]: test for test in data_of(page)["tests"]}
    again = "pytest --vlm=m '--vlm-store=a store' 'suites/test_corruptions.py::test_cell[m-d-fog:high]'"
    assert tests["m-d-fog:high"]["command"] == again
    assert "--not-the-one-that-counts" not in page


def test_what_was_asked_twice_stands_beside_the_thresholds(stored: Callable[..., None]) -> None:
    page = render_html(RunView(run(), RunFacts(repeatability=asked_twice(), warnings=("m-d: r0 is tight",), origins=MANIFEST)))
    outline = Outline(page)
    assert outline.ids.index("families") < outline.ids.index("noise") < outline.ids.index("policy")
    stored(page_text(page, "limits", "noise"))
    assert "in a section of its own" not in outline.text


def test_many_rules_beside_the_noise_are_folded() -> None:
    text = Outline(render_html(RunView(run(), RunFacts(repeatability=asked_twice(9))))).text
    assert "9 rules, 1 of them tighter than the noise" in text


def test_a_run_that_asked_once_has_no_section_of_it(page: str) -> None:
    assert "noise" not in Outline(page).ids
    assert "#noise" not in page


def test_thumbnails_are_there_once(page: str) -> None:
    pictures = data_of(page)["pictures"]
    assert len(pictures) == 3
    for text in pictures:
        content = base64.b64decode(text, validate=True)
        assert content[8:12] == b"WEBP"
        assert page.count(text) == 1


def test_a_measure_is_told_in_the_unit_of_its_bound_with_the_interval_that_decided() -> None:
    drop = measure("accuracy_drop", 0.1, Outcome.FAIL, bound="<= 5 pp", unit="pp", decisive_low=0.055, decisive_high=0.15)
    by_value = measure("accuracy", -0.5, Outcome.PASS, bound="in -0.6..0.3", target="dataset")
    plain = Measure("ACE", math.nan)
    measures = data_of(render_html(RunView([cell("fog:low", measures=(drop, by_value, plain))], NOTHING)))["tests"][0]["measures"]
    assert [(entry["value"], entry["interval"], entry["bound"]) for entry in measures] == [
        ("10.0 pp", "[5.5, 15.0]", "<= 5 pp"),
        ("−0.500", "judged by value", "in −0.6 – 0.3"),  # noqa: RUF001 - as printed
        ("undefined", "", ""),
    ]


def test_what_was_asked_is_there_once() -> None:
    records = [cell(f"fog:{level}", "weather", level, examples=(example(),)) for level in ("low", "mid", "high")]
    data = data_of(render_html(RunView(records, NOTHING)))
    assert [question["question"] for question in data["asked"]] == ["What is it?"]
    assert [test["examples"][0]["asked"] for test in data["tests"]] == [0, 0, 0]


def test_of_too_many_samples_the_worst_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_vlmrobust.reporting.html.samples.MOST_EXAMPLES", 1)
    mild = cell("fog:low", "weather", "low", 0.1, examples=(example(), example()))
    bad = cell("fog:high", "weather", "high", 0.4, Outcome.FAIL, examples=(example(), example()))
    tests = data_of(render_html(RunView([mild, bad], NOTHING)))["tests"]
    assert [(test["name"], len(test["examples"]), test["elsewhere"]) for test in tests] == [
        ("m-d-fog:high", 1, 1),
        ("m-d-fog:low", 0, 2),
    ]


def test_of_too_many_thumbnails_the_worst_are_kept(tmp_path: Path) -> None:
    folder = store(tmp_path)
    size = max(path.stat().st_size for path in folder.iterdir())
    kept = samples.embed_thumbnails(RunView(run(), NOTHING).tests, folder, budget=2 * size)
    assert list(kept) == [f"{DIGESTS[name]}.webp" for name in ("clean", "fog")]


def test_thumbnails_that_are_missing_are_counted(tmp_path: Path) -> None:
    text = Outline(render_html(RunView(run(), RunFacts(pictures=tmp_path)))).text
    assert "3 of 3 thumbnails are not on this page" in text


def test_a_picture_is_read_from_the_folder_and_nowhere_else(tmp_path: Path) -> None:
    folder = store(tmp_path / "pictures")
    (tmp_path / "secret.webp").write_bytes(b"RIFF0000WEBPsecret")
    (folder / "0123abcd.webp").write_bytes(b"<svg onload=alert(1)>")
    wanted = [("../secret.webp", "up"), ("0123abcd.webp", "no webp")]
    shown = tuple(dataclasses.replace(example().pictures[0], file=name, caption=caption) for name, caption in wanted)
    records = [cell("fog:high", "weather", "high", examples=(example(pictures=shown),))]
    assert data_of(render_html(RunView(records, RunFacts(pictures=folder))))["pictures"] == ["", ""]


def test_patches_are_framed_by_more_than_colour(page: str) -> None:
    assert '<div class="view framed right">' in page
    assert "Answered from a patch only" in page
    assert '<span class="hidden">right</span>' in page
    assert page.count("not asked</span>") == 3


def test_rungs_are_drawn_with_the_intervals_of_the_table(page: str) -> None:
    def curve(**ends: Any) -> str:
        rungs = [cell(f"resolution:{at}", "ladder", str(at), measures=(Measure("accuracy", 0.5, **ends),)) for at in (20, 40)]
        chart = resolution_curve(sweeps(rungs)[0])
        return chart.svg if chart else ""

    assert curve(low=0.1, high=0.9, decisive_low=0.4, decisive_high=0.6) == curve(low=0.4, high=0.6) != curve(low=0.1, high=0.9)
    assert "90 % interval" not in page


@pytest.mark.cases("text", HOSTILE)
def test_hostile_text_is_only_ever_text(text: str) -> None:
    replies = (Reply("clean", text, text, text, 1.0), Reply(text, text, text, text, math.nan, "error"))
    bad = example(question=text, sample=text, options={text: text}, target=text, category=text, replies=replies)
    records = [
        cell(
            "fog:high", "weather", "high", 0.4, Outcome.FAIL, id=text, reason=text, notes=(text,), examples=(bad,), worst=(text,)
        ),
        cell(text, text, "low", model=text, dataset=text, nodeid=text, received=text, categories={text: 1.0}),
        cell("patches:2", "patches", "2", examples=(dataclasses.replace(bad, kind="patch_only"),)),
        summary("tail_share", 0.1, split=text, notes=(text,)),
        summary("identity_accuracy", 0.1, task=text, dataset=text),
    ]
    measured, failed = asked_twice()
    named = dataclasses.replace(measured, model=text, dataset=text, conditions=text, beside=(text,), tighter=(text,))
    named = dataclasses.replace(named, noise={text: 0.1}, noise_high={text: 0.2})
    facts = RunFacts(
        warnings=(text,),
        policies={text: text},
        command=Command((text,), (text,)),
        repeatability=(named, dataclasses.replace(failed, problem=text)),
    )
    page = render_html(RunView(records, dataclasses.replace(facts, origins={text: {text: [text]}, "command": [text]})))
    outline = Outline(page)
    assert outline.tags.count("script") == 2
    assert outline.tags.count("img") == 0
    assert not [name for _, name, _ in outline.attributes if name.startswith("on") or name == "style"]
    assert not [link for link in outline.links if not link.startswith("#")]
    assert not set(page) & set("\0\x1b\u202e\u2066\ud800")
    page.encode("utf-8")
    assert data_of(page)["tests"]


def test_long_answers_are_cut_and_say_so() -> None:
    long = example(replies=(Reply("clean", "x" * 100_000, value=0.0),))
    page = render_html(RunView([cell("fog:high", "weather", "high", examples=(long,))], NOTHING))
    assert "… (98000 more characters)" in page
    assert len(page) < 200_000


def test_half_a_surrogate_does_not_stop_the_other_files(tmp_path: Path) -> None:
    write_report(tmp_path, RunView([cell("fog:high", "weather", "high", reason="\ud800")], NOTHING), None)
    (written,) = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["records"]
    assert written["reason"] == "\ud800"
    assert r"\ud800" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_page_forbids_everything_but_its_own(page: str) -> None:
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    style = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    script = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    for name, (content,) in (("style-src", style), ("script-src", script)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{name} &#39;sha256-{digest}&#39;" in policy
    assert policy.startswith("default-src &#39;none&#39;; img-src data:;")


def test_nothing_is_loaded(page: str) -> None:
    outline = Outline(page)
    assert not [value for _, name, value in outline.attributes if name in {"src", "srcset", "action", "data", "poster"}]
    assert re.findall(r"https?://(?!www\.w3\.org)", page) == []


def test_the_same_records_give_the_same_bytes(page: str, tmp_path: Path) -> None:
    facts = RunFacts(planned=30, selected=20, warnings=("a rule applied to no test",), pictures=store(tmp_path), command=COMMAND)
    assert render_html(RunView(run(), dataclasses.replace(facts, origins=MANIFEST))) == page


def test_an_empty_run_has_a_page() -> None:
    outline = Outline(render_html(RunView([], NOTHING)))
    assert "INCONCLUSIVE" in outline.text
    assert "Sweeps" not in outline.text


def test_rows_judged_by_value_are_marked_in_map_chart_list_and_tables(stored: Callable[..., None]) -> None:
    records = [
        cell(f"fog:{level}", "weather", level, drop, outcome, measures=(measure("accuracy_drop", drop, outcome, target=target),))
        for level, drop, outcome, target in (("high", 0.4, Outcome.FAIL, "dataset"), ("low", 0.1, Outcome.PASS, "population"))
    ]
    page = render_html(RunView(records, NOTHING))
    stored(page_text(page))
    text = Outline(page).text
    assert "fog:high ✕*" in text
    assert "fog:low ✓" in text


def test_undefined_numbers_are_no_zeros() -> None:
    page = render_html(RunView([cell("fog:high", "weather", "high", math.nan, Outcome.NOT_APPLICABLE, reason="no")], NOTHING))
    assert '<td class="nan">' in page
    assert "undefined" in page
    assert not re.search(r"\bnan\b", Outline(page).text, re.IGNORECASE)


def test_tests_that_share_an_id_have_addresses_of_their_own() -> None:
    twins = [cell("fog:low", "weather", "low"), cell("fog:low", "weather", "low", nodeid="other.py::t")]
    assert [test["name"] for test in data_of(render_html(RunView(twins, NOTHING)))["tests"]] == ["m-d-fog:low", "m-d-fog:low~2"]


def test_a_page_is_that_of_its_records(page: str) -> None:
    records, facts = run(), FACTS
    assert rendered_again(page, RunView(records, facts)) == page
    others = [dataclasses.replace(records[0], reason="another one"), *records[1:]]
    assert rendered_again(page, RunView(others, facts)) != page
    other = rendered_again(page, RunView(records, dataclasses.replace(facts, origins={**MANIFEST, "date": "1999-12-31"})))
    title = page.partition("<title>")[2].partition("</title>")[0]
    assert "m (revision not recorded) on d (100 samples), faces.matching" in title
    assert title not in other


@pytest.mark.parametrize("opened", ['"pictures":[', '"pictures":["', '"pictures":["A",', '"pictures":["A","'])
def test_a_page_of_anything_is_read_once(opened: str) -> None:
    """Somebody may send one."""
    view = RunView(run(), RunFacts(origins=MANIFEST))
    assert rendered_again(opened * 300_000, view) == render_html(view)
    assert rendered_again('"pictures":[' + '"A",' * 1_000_000, view) == render_html(view)
