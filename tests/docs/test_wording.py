"""Pages stay readable: short sentences, small cells of tables, few words in all, one word for one thing; so do names in code."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.decision import Decision, Outcome

from .conftest import PAGES, ROOT

READ = [*PAGES, ROOT / "CHANGELOG.md"]
WORDS = 45_000
"""So many words may the pages for users have together; words, and not bars of tables or signs."""
MEAN = 17
"""So many words may the sentences of a page have on average."""
OTHER_WORDS = re.compile(r"\b(?:pictures?|whoever|as far as|what is left)\b", re.IGNORECASE)
"""An image is an image; the others are turns of phrase that nobody says."""
VAGUE_NAMES = {"asked", "told", "found", "one", "own"}
"""None of them says what a value is; ``records``, ``interval`` and ``image_paths`` do."""
FOLDERS = sorted({str(path.parent.relative_to(ROOT)) for path in (ROOT / "pytest_vlmrobust").rglob("*.py")})
NOTIONS = 30
"""So many words of ours may somebody meet in the tutorial."""
NOUNS = ("suite", "setting", "policy", "rule", "bound", "waiver", "metric", "cell", "sweep", "perturbation", "sample", "scorer")


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("figures", ROOT / "docs" / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["figures"] = module
    spec.loader.exec_module(module)
    return module


def test_long_sentences_and_large_cells_are_found(figures: ModuleType, tmp_path: Path) -> None:
    long, large = (" ".join(["word"] * count) for count in (31, 26))
    text = f"# {long}\n\n{long}.\n\nShort [words](link). Short.\n\n- {long}\n\n"
    (tmp_path / "page.md").write_text(f"{text}| a | b |\n|---|---|\n| {large} | c |\n\n```text\n{long}\n```\n", encoding="utf-8")
    page = figures.Page.read(tmp_path / "page.md")
    assert page.long_sentences == [f"{long}.", long]
    assert page.large_cells == [large]


@pytest.mark.cases("page", READ)
def test_a_page_has_short_sentences_and_small_cells(page: Path, figures: ModuleType) -> None:
    wording = figures.Page.read(page)
    assert not [*wording.long_sentences, *wording.large_cells]
    assert wording.mean_sentence <= MEAN


@pytest.mark.cases("page", READ)
def test_a_page_has_one_word_for_one_thing(page: Path, figures: ModuleType) -> None:
    wording = figures.Page.read(page)
    assert not [text for text in (*wording.sentences, *wording.in_cells) if OTHER_WORDS.search(re.sub('".*?"', "", text))]


def test_the_documentation_is_short_enough_to_be_read(figures: ModuleType) -> None:
    read = [figures.Page.read(page) for page in READ if page.name != "CONTRIBUTING.md" and page.parent.name != "examples"]
    assert sum(page.words for page in read) <= WORDS


def test_the_tutorial_meets_thirty_notions_at_most() -> None:
    met = notions((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"))
    assert {"init", "--vlm-rerun", "NO-GO", "waiver", "cap", "accuracy_drop", "suite"} <= met
    assert len(met) <= NOTIONS, sorted(met)


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_say_what_they_bind(folder: str) -> None:
    trees = {path.name: ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / folder).glob("*.py")}
    vague = [
        (file, line, name) for file, tree in trees.items() for line, name in bindings(tree) if name.strip("_") in VAGUE_NAMES
    ]
    assert vague == [], "say the noun: records, interval, image_paths"


def test_every_way_to_bind_a_name_is_seen() -> None:
    code = """
import a as b
from c import d as e
def f(g, *h, i=0, **j):
    k, *l = (m := 0), n
    for o in p: lambda q: [r for r, s in t]
    with u as v: w.x = y
    try: ...
    except ValueError as z: ...
    match z:
        case {"A": B, **C} | [D, *E]: F: int = 0
class G: ...
"""
    assert "".join(sorted(name for _, name in bindings(ast.parse(code)))) == "BCDEFGbefghijklmoqrsvxz"


def bindings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields the line of each binding of a name, and the name."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Name(id=str(name), ctx=ast.Store()) | ast.Attribute(attr=str(name), ctx=ast.Store()) | ast.arg(arg=str(name))
            ):
                yield node.lineno, name
            case ast.FunctionDef(name=str(name)) | ast.AsyncFunctionDef(name=str(name)) | ast.ClassDef(name=str(name)):
                yield node.lineno, name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.alias(asname=str(name)):
                yield node.lineno, name


def notions(page: str) -> set[str]:
    """Returns the words of ours in a page: options, commands, keys of YAML, marks and fixtures, metrics, verdicts and nouns."""
    words = {*NOUNS, *metrics.names(), *map(str, Outcome), *map(str, Decision)}
    met = {word for word in words if re.search(rf"(?<![\w-]){re.escape(word)}s?(?![\w-])", page)}
    yaml = "\n".join(re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    met |= {key.removesuffix("s") for key in re.findall(r"(?:^ *(?:- )?|[{,] ?)(\w+):", yaml, re.MULTILINE)}
    return met | set(re.findall(r"--vlm-[\w-]+|\bvlm_\w+|(?<=vlmrobust )[\w-]+", page))
