"""The server: what its pages hold, which addresses they take, and whom they refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields, replace
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import pytest

from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import MissingExtra, UsageError
from pytest_vlmrobust.core.record import Example, Picture
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.reporting.viewer.address import Address
from pytest_vlmrobust.reporting.viewer.contents import target_of, with_option
from pytest_vlmrobust.store import Evidence, Journal, StoredCell, write_manifest
from tests.unit.reporting.pages import page_text
from tests.unit.reporting.viewer.conftest import EVIL, Served
from tests.unit.store.browsed import answer, put, record, run

pytestmark = pytest.mark.process


def text(page: str) -> str:
    """Returns what a reader sees of a page, more or less."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", page)))


def links(page: str) -> list[str]:
    return [unescape(link) for link in re.findall(r'href="([^"]+)"', page)]


def test_the_overview_says_how_far_each_run_is(viewer: Served, stored: Callable[..., None]) -> None:
    status, _, page = viewer.get("/")
    assert status == 200
    stored(page_text(page))
    assert "/answers?run=first&verdict=FAIL" in links(page)


def test_answers_are_shown_worst_first(viewer: Served) -> None:
    _, _, page = viewer.get("/answers?run=first&model=m1")
    said = text(page)
    assert "30 answers, worst first" in said
    assert "page 1 of 2" in said
    assert re.search(r"wrong harmful flip fog:high", said)
    assert "answer B a dog target A a cat clean A a cat sure 60 %" in said
    assert "/sample?run=first&model=m1&data=d&id=d0&under=fog%3Ahigh&at=0" in links(page)


def test_a_filter_stays_in_every_link(viewer: Served) -> None:
    _, _, page = viewer.get("/answers?run=first&setting=fog&flip=harmful&text=Which&page=1")
    assert "5 answers" in text(page)
    for link in links(page):
        if link.startswith(("/samples", "/answers")) and "verdict" not in link and "flip" in link:
            assert "setting=fog" in link
            assert "text=Which" in link
    assert any(link.startswith("/samples?run=first&setting=fog&flip=harmful&text=Which") for link in links(page))


def test_the_verdict_of_a_test_leads_to_its_answers(viewer: Served) -> None:
    _, _, page = viewer.get("/answers?run=first&verdict=FAIL")
    assert "12 answers" in text(page)
    assert "fog:low" not in re.sub(r"<select.*?</select>", "", page, flags=re.DOTALL)


def test_samples_have_a_strip_for_each_model(viewer: Served) -> None:
    _, _, page = viewer.get("/samples?run=first")
    assert "6 samples" in text(page)
    assert page.count('class="dots"') == 12
    assert 'title="fog:high: wrong, harmful flip"' in page
    assert 'class="dot d-unparsed"' in page


def test_a_sample_is_shown_with_everything_about_it(viewer: Served, stored: Callable[..., None]) -> None:
    status, _, page = viewer.get("/sample?run=first&data=d&id=d0&under=fog:high&at=1&sort=data")
    assert status == 200
    stored(page_text(page))
    assert page.count('class="group"') == 4  # clean, no_image, fog, invert
    assert [link for link in links(page) if "at=0" in link and link.startswith("/sample")]
    assert [link for link in links(page) if "at=2" in link and link.startswith("/sample")]


def test_two_runs_stand_side_by_side_and_their_own_pictures_too(viewer: Served) -> None:
    _, _, page = viewer.get("/sample?data=d&id=d1&under=invert")
    said = text(page)
    for name in ("m1 in first", "m2 in first", "m1 in second"):
        assert name in said
    assert page.count('class="gallery"') == 3  # clean is the same in both runs, and invert is not
    _, _, page = viewer.get("/answers?differs=yes&setting=fog:high")
    assert "m1 in second" in text(page)


def test_views_of_a_picture_are_shown_in_their_places(serve: Callable[..., Served], tmp_path: Path) -> None:
    directory = run(tmp_path / "one", {"m": {"clean": "rrrrrr"}})
    with Evidence.open(directory) as evidence:
        put(evidence, "m", "d", "patches:2", [answer(kind) for kind in "wrww" * 6], views=4)
    _, _, page = serve(directory).get("/sample?data=d&id=d0&under=patches:2")
    said = text(page)
    assert "side-2" in page
    assert "✓ patch 1,2" in said
    assert "✕ patch 2,1" in said


def test_of_several_pictures_the_one_that_settings_change_stands_for_the_sample(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    directory = run(tmp_path / "one", {"m": {"clean": "rrrrrr", "invert": "wrrrrr"}}, changes={"perturbed": (2, 3)})
    served = serve(directory)
    for path in ("/answers?setting=invert", "/samples", "/sample?data=d&id=d0&under=invert"):
        pictures = re.findall(r'src="/picture/small([^"]+)"', served.get(path)[2])
        assert pictures
        assert all("number=2" in picture for picture in pictures)


def test_a_sample_without_pictures_says_why_and_shows_the_rest(viewer: Served) -> None:
    _, _, page = viewer.get("/sample?run=first&data=d&id=d5&under=fog:high")
    assert "the image of d5 is lost" in text(page)
    assert "the inference failed" in text(page)
    status, headers, body = viewer.get("/picture/small?run=first&data=d&id=d5")
    assert (status, headers["content-type"], body) == (404, "text/plain; charset=utf-8", "the image of d5 is lost")


def test_pictures_come_in_two_sizes(viewer: Served) -> None:
    for size in ("small", "full"):
        status, headers, _ = viewer.get(f"/picture/{size}?run=first&data=d&id=d0&under=invert")
        assert (status, headers["content-type"]) == (200, "image/png")
    assert viewer.get("/picture/huge?run=first&data=d&id=d0")[0] == 404


def test_hostile_answers_are_text(viewer: Served) -> None:
    pages = [
        viewer.get(path)[2]
        for path in ("/", "/answers?run=second", "/samples?run=second", "/sample?run=second&data=d&id=d2&under=fog:low")
    ]
    for page in pages:
        assert "<script>document" not in page
        assert 'onerror="document' not in page
        assert page.count("<script") == 1
        assert "\u202e" not in page
        assert "\x1b" not in page
    assert "&lt;script&gt;document.title=&#39;owned&#39;&lt;/script&gt;" in pages[1]
    assert "\\u202egnp.exe\\x1b[2J" in pages[3]
    hostile = viewer.get("/answers?text=%3Cscript%3Ealert(1)%3C/script%3E%22onx=1")[2]
    assert "<script>alert" not in hostile
    assert '"onx' not in hostile


def test_a_very_long_answer_is_cut(serve: Callable[..., Served], tmp_path: Path) -> None:
    directory = run(tmp_path / "one", {"m": {"clean": "rrrrrr"}}, said="x" * 400_000)
    served = serve(directory)
    assert len(served.get("/answers")[2]) < 100_000
    page = served.get("/sample?data=d&id=d0")[2]
    assert len(page) < 100_000
    assert "(380000 more characters)" in page


@pytest.mark.cases(
    ("path", "status", "said"),
    [
        ("/answers?run=thrid", 404, "unknown run 'thrid'"),
        ("/answers?state=rigth", 404, "Did you mean 'right'?"),
        ("/answers?colour=red", 404, "unknown part of the address 'colour'"),
        ("/answers?page=two", 404, "page='two', expected a whole number of up to 9 digits"),
        ("/answers?page=--2", 404, "page='--2', expected a whole number"),
        ("/answers?page=1e9", 404, "page='1e9', expected a whole number"),
        ("/answers?page=99999999999", 404, "page='99999999999', expected a whole number of up to 9 digits"),
        ("/answers?verdict=FIAL", 404, "Did you mean 'FAIL'?"),
        ("/answers?setting=fgo", 200, "Nothing fits. No answer here has the setting 'fgo'. Did you mean 'fog'?"),
        ("/samples?setting=clena", 200, "Nothing fits. No answer here has the setting 'clena'. Did you mean 'clean'?"),
        ("/answers?setting=%3Cb%3E", 200, "Nothing fits. No answer here has the setting '<b>'."),
        ("/answers?model=m11&category=od", 200, "No answer here has the model 'm11'. Did you mean 'm1'? No answer here has the"),
        ("/answers?text=%25", 200, "Nothing fits. Leave something out of the filter."),
        ("/answers?text=_____", 200, "Nothing fits. Leave something out of the filter."),
        ("/sample?data=dd&id=d0", 404, "unknown dataset 'dd'. Did you mean 'd'?"),
        ("/sample?data=d&id=d00", 404, "dataset 'd': unknown sample 'd00'. Did you mean 'd0'? No run that is shown here asked"),
        ("/sample?data=d&id=d0&under=fog:hihg", 200, "Not asked about this sample under fog:hihg. Did you mean 'fog:high'?"),
        ("/answers?text=" + "x" * 401, 404, "the address is too long"),
        ("/answers?text=" + "x" * 9000, 414, "the address is too long"),
        ("/sample?data=d&id=nobody", 404, "unknown sample 'nobody'"),
        ("/../../etc/passwd", 404, "There is no such page"),
        ("/picture/small?run=first&data=..&id=../../x", 404, "no images of .."),
    ],
)
def test_what_there_is_not_is_said(viewer: Served, path: str, status: int, said: str) -> None:
    answered, _, page = viewer.get(path)
    assert answered == status
    assert said in text(page)


def test_a_page_beyond_the_last_one_is_the_last_one(viewer: Served) -> None:
    assert "page 2 of 2" in text(viewer.get("/answers?run=first&model=m1&page=99")[2])
    assert "page 1 of 2" in text(viewer.get("/answers?run=first&model=m1&page=-3")[2])


HOSTILE_NUMBERS = ("-5", "1e9", "999999999", "-999999999", "\u0663", "NaN")
HOSTILE_VALUES = [
    *("nonsense", "7", " ", "x" * 400),
    *("%", "%_\\", "'", "' or 1=1 --", "fog:", ":", "+", "clean+", "patches:0", "patches:99999", "../../etc/passwd", "{{7*7}}"),
    *("\x00", "\n", "\u202e", "\N{PILE OF POO}", '"><script>alert(1)</script>'),
]


@pytest.mark.parametrize(
    "path", ["/?", "/answers?", "/samples?", "/sample?data=d&id=d0&", "/picture/small?data=d&id=d0&", "/live?"]
)
def test_whatever_an_address_asks_for_the_server_answers(viewer: Served, path: str) -> None:
    broken = []
    for name, default in {**{field.name: field.default for field in fields(Address)}, "nobody": ""}.items():
        for value in (*HOSTILE_VALUES, *(HOSTILE_NUMBERS if isinstance(default, int) else ())):
            address = path + urlencode({name: value})
            status, headers, page = viewer.get(address)
            markup = headers["content-type"].startswith("text/html") and "<script>alert" in page
            if status not in {200, 404} or markup:
                broken.append((address, status))
    assert not broken
    assert viewer.get(f"{path}text=%ff%fe")[0] in {200, 404}, "bytes that are no text"


# Whom the server refuses.


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example", "[::1]", ""])
def test_a_name_that_was_pointed_here_is_refused(viewer: Served, host: str) -> None:
    assert viewer.get("/answers", Host=host)[0] in {400, 421}


def test_this_machine_is_served_by_its_names(viewer: Served) -> None:
    assert viewer.get("/", Host=f"localhost:{viewer.port}")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_can_be_sent(viewer: Served, method: str) -> None:
    assert viewer.get("/", method)[0] == 405


def test_other_origins_may_link_here_and_hold_nothing(viewer: Served) -> None:
    assert viewer.get("/picture/small?data=d&id=d0", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors")[0] == 403
    assert viewer.get("/live", Sec_Fetch_Site="same-site", Sec_Fetch_Mode="cors")[0] == 403
    assert viewer.get("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 200


@pytest.mark.parametrize("path", ["/", "/answers", "/live", "/script.js", "/nothing", "/picture/small?data=x"])
def test_every_answer_says_what_a_browser_may_do(viewer: Served, path: str) -> None:
    headers = viewer.get(path)[1]
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self';")
    assert "unsafe" not in policy
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


def test_pages_have_no_script_or_style_within(viewer: Served) -> None:
    for path in ("/?run=first", "/answers?run=first", "/samples?run=first", "/sample?run=first&data=d&id=d0"):
        page = viewer.get(path)[2]
        assert not re.search(r"\son\w+=|\sstyle=|<style|javascript:|https?://", page)
        assert re.findall(r"<script[^>]*>", page) == ['<script src="/script.js" defer>']


def test_it_listens_on_this_machine_alone() -> None:
    pytest.importorskip("starlette")
    from pytest_vlmrobust.reporting.viewer.server import listen

    listening = listen(0)
    try:
        assert listening.getsockname()[0] == "127.0.0.1"
        with pytest.raises(UsageError, match="Name another port, or 0 for any that is free"):
            listen(listening.getsockname()[1])
    finally:
        listening.close()


def test_without_the_libraries_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    from pytest_vlmrobust.reporting.viewer.page import Pages
    from pytest_vlmrobust.reporting.viewer.runs import Runs
    from pytest_vlmrobust.reporting.viewer.server import listen, server
    from tests.unit.reporting.viewer.conftest import Painter

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    listening = listen(0)
    with listening, pytest.raises(MissingExtra, match=r"pip install 'starlette>="):
        server(Pages(Runs(list, Painter, together=False)), listening)


# Runs that go on.


def test_a_run_is_followed_while_it_goes_on(serve: Callable[..., Served], tmp_path: Path) -> None:
    directory = run(tmp_path / "one", {"m": {"clean": "rrrrrr"}}, decision="")
    served = serve(directory, together=False)
    before = json.loads(served.get("/live?run=one")[2])["runs"][0]
    assert (before["text"], before["done"], before["selected"], before["going"]) == ("no decision yet", 1, 10, True)
    assert "<progress" in served.get("/")[2]
    with Evidence.open(directory) as evidence, Journal(directory) as journal:
        put(evidence, "m", "d", "fog:low", [answer("w")] * 6)
        journal.append(record("m", "d", "fog:low", Outcome.FAIL))
        after = json.loads(served.get("/live?run=one")[2])["runs"][0]
        assert (after["done"], after["newest"][0]["id"], after["newest"][0]["name"]) == (2, "m-d-fog:low", "FAIL")
        assert after["version"] != before["version"]
        assert "12 answers" in text(served.get("/answers")[2])
    write_manifest(directory, {"decision": "NO-GO", "selected": 10, "models": {"m": {}}})
    done = json.loads(served.get("/live?run=one")[2])["runs"][0]
    assert (done["text"], done["going"]) == ("NO-GO", False)
    with Journal(directory) as journal:
        journal.append(record("m", "d", "fog:low", Outcome.WAIVED))
    policies = {"m": {"purpose": "demonstration"}}
    write_manifest(directory, {"decision": "GO", "selected": 10, "models": {"m": {}}, "policies": policies})
    waived = json.loads(served.get("/live?run=one")[2])["runs"][0]
    assert (waived["text"], waived["sign"], waived["css"]) == ("GO WITH WAIVERS (demonstration)", "⚑", "waived")


def test_a_run_that_has_just_begun_is_shown_and_says_what_it_lacks(serve: Callable[..., Served], tmp_path: Path) -> None:
    directory = tmp_path / "new"
    Journal(directory).close()
    served = serve(directory)
    assert "manifest" in text(served.get("/")[2])
    assert "No test has left answers yet" in text(served.get("/answers")[2])


def test_a_store_without_runs_says_how_to_make_one(serve: Callable[..., Served]) -> None:
    served = serve()
    assert "There is no run here yet" in text(served.get("/")[2])
    assert "pytest --vlm=NAME" in text(served.get("/samples")[2])


def test_a_damaged_run_is_said(serve: Callable[..., Served], tmp_path: Path) -> None:
    directory = run(tmp_path / "one", {"m": {"clean": "rrrrrr"}})
    (directory / "records.jsonl").write_text("{}\n", encoding="utf-8")
    (directory / "predictions.sqlite").write_bytes(b"x" * 4096)
    served = serve(directory)
    assert "not a record of this release" in text(served.get("/")[2])
    status, _, page = served.get("/answers")
    assert status == 503
    assert "not a database" in text(page)


def test_a_run_that_lost_its_answers_says_so(serve: Callable[..., Served], tmp_path: Path) -> None:
    directory = run(tmp_path / "one", {"m": {"clean": "rrrrrr"}})
    with Journal(directory) as journal:
        journal.append(replace(record("m", "d", "clean", Outcome.PASS), n_requested=6))
    served = serve(directory)
    assert "is missing" not in text(served.get("/")[2])
    (directory / "predictions.sqlite").unlink()
    assert "one/predictions.sqlite: is missing: nothing shows what the models answered" in text(served.get("/")[2])


def test_an_evil_name_of_a_run_is_text(serve: Callable[..., Served], tmp_path: Path) -> None:
    directory = run(tmp_path / 'a"><script>alert(1)<', {"m": {"clean": "rrrrrr"}})
    served = serve(directory)
    page = served.get("/")[2]
    assert "<script>alert" not in page
    assert EVIL not in page
    link = next(link for link in links(page) if link.startswith("/answers?run="))
    assert served.get(link.replace(" ", "%20"))[0] == 200


def test_a_stored_thumbnail_is_shown_where_a_picture_cannot_be_made_again(serve: Callable[..., Served], tmp_path: Path) -> None:
    directory = run(tmp_path / "store" / "runs" / "one", {"m": {"clean": "rrrrrr", "fog:high": "rrrrrw"}})
    name, content = "ab" * 32 + ".webp", b"RIFF\x04\x00\x00\x00WEBPtext"
    (tmp_path / "store" / "pictures").mkdir()
    (tmp_path / "store" / "pictures" / name).write_bytes(content)
    (tmp_path / "store" / "secret.webp").write_bytes(content)
    seen = (Picture(name, "clean"), Picture("../secret.webp", "fog:high"))
    with Journal(directory) as journal:
        kept = replace(record("m", "d", "fog:high"), examples=(Example("d5", "newly_wrong", "Which one?", pictures=seen),))
        journal.append(kept)
    served = serve(directory)
    status, headers, body = served.get("/picture/small?data=d&id=d5&under=clean")
    assert (status, headers["content-type"], body) == (200, "image/webp", content.decode())
    assert served.get("/picture/full?data=d&id=d5&under=clean")[0] == 404
    assert served.get("/picture/small?data=d&id=d5&under=fog:high")[0] == 404  # its name leads out of the folder


def test_many_runs_are_shown_page_by_page(serve: Callable[..., Served], tmp_path: Path) -> None:
    directories = [tmp_path / f"run{number:02}" for number in range(21)]
    for directory in directories:
        Journal(directory).close()
    served = serve(*directories, together=False)
    assert served.get("/")[2].count("data-run=") == 20
    assert re.findall(r'data-run="([^"]+)"', served.get("/?page=2")[2]) == ["run20"]


def test_two_directories_of_one_name_are_told_apart(serve: Callable[..., Served], tmp_path: Path) -> None:
    first = run(tmp_path / "a" / "same", {"m": {"clean": "rrrrrr"}})
    second = run(tmp_path / "b" / "same", {"m": {"clean": "wrrrrr"}})
    page = serve(first, second).get("/answers?differs=yes")[2]
    assert "m in same~2" in text(page)
    assert "2 answers" in text(page)


def test_options_in_another_order_keep_their_answers(
    serve: Callable[..., Served], tmp_path: Path, stored: Callable[..., None]
) -> None:
    directory = run(tmp_path / "one", {"m": {"clean": "rrrrrr"}})
    turned = {"options": {"A": "a dog", "B": "a cat"}, "target": "B", "original_letters": {"A": "B", "B": "A"}}
    changes = dict.fromkeys(range(6), json.dumps(turned))
    with Evidence.open(directory) as evidence:
        cell = Cell("m", "d", Setting.parse("option_order:1"))
        evidence.put_cells([StoredCell(cell, 1, tuple(answer("w", sure=0.8) for _ in range(6)), questions=changes)])
    server = serve(directory)
    stored(page_text(server.get("/sample?data=d&id=d0&under=option_order:1")[2]))
    assert "clean A a cat" in text(server.get("/answers?setting=option_order:1")[2])


def test_every_letter_of_a_target_is_shown_with_its_option() -> None:
    sample = Sample("s", (), "?", ("A", "B"), "choice", {"A": "red", "B": "blue"})
    assert with_option(target_of(sample), sample) == "A red | B blue"
    assert with_option("C", sample) == "C"
