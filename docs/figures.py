"""Measures how the code is laid out: files, lines, import circles, and the files that one test enters; and how pages are worded.

    python docs/figures.py                  # this checkout
    python docs/figures.py --pages          # words, long sentences and large table cells of each page of the documentation
    python docs/figures.py --root OTHER     # another one, such as a worktree of an earlier commit
    python docs/figures.py --walk           # also runs two tests of the gate and counts the files and functions that they enter

Lines of code are lines with a token that is neither a comment nor a docstring. A circle is a set of modules that import each
other, directly or not; imports within functions and those for type checkers count. ``--walk`` needs pytest and what the package
depends on, and asks a scripted model.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = "pytest_vlmrobust"
LONGEST_SENTENCE, LARGEST_CELL = 30, 25
"""Words that a sentence, and a cell of a table, of the documentation may have."""
SHORT = 30
"""A file with fewer lines of code is counted as short."""
CELLS = [f"suites/test_corruptions.py::test_cell[constant-shapes-gaussian_noise:{level}]" for level in ("low", "mid")]
"""Two tests that are alike: the first one also opens the data, the model and the store of the run."""
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}

WALK = """
import json, sys
import pytest

entered = []

def notice(frame, event, _):
    if event == "call" and "pytest_vlmrobust" in frame.f_code.co_filename:
        if frame.f_code.co_name[0] != "<" or frame.f_code.co_name == "<lambda>":  # comprehensions: no functions in Python 3.12
            entered[-1].add((frame.f_code.co_filename, f"{frame.f_code.co_name}:{frame.f_code.co_firstlineno}"))

@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    entered.append(set())
    sys.setprofile(notice)
    try:
        return (yield)
    finally:
        sys.setprofile(None)

def pytest_unconfigure(config):
    with open(OUT, "w") as file:
        json.dump(list(map(sorted, entered)), file)
"""
"""A plugin of pytest that writes down which functions the set-up of tests enters."""


@dataclass
class Lines:
    """Lines of one file, or of many."""

    files: int = 0
    lines: int = 0
    code: int = 0
    docstrings: int = 0
    comments: int = 0

    def __add__(self, other: Lines) -> Lines:
        return Lines(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    def row(self, name: str) -> str:
        """Returns a row of the table."""
        return f"| {name} | {self.files} | {self.lines:,} | {self.code:,} | {self.docstrings:,} | {self.comments:,} |"


@dataclass
class Module:
    """One module: its lines, what it imports, and the names that it defines and uses."""

    name: str
    path: Path
    imports: set[str] = field(default_factory=set)
    lines: Lines = field(default_factory=Lines)
    import_lines: int = 0
    defined: list[str] = field(default_factory=list)
    functions: list[int] = field(default_factory=list)
    """Lines of each function's body, without its docstring."""


def main() -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1], help="a checkout (default: this one)")
    parser.add_argument("--pages", action="store_true", help="measure the pages of the documentation instead")
    parser.add_argument("--walk", action="store_true", help="also run two tests and count the files that they enter")
    options = parser.parse_args()
    root: Path = options.root.resolve()
    if options.pages:
        print(pages(root))
        return 0
    modules = read(root)
    print(table(root, modules))
    print(summary(modules))
    if options.walk:
        print(walk(root))
    return 0


def read(root: Path) -> dict[str, Module]:
    """Returns the modules of the package by their names."""
    paths = {module_name(root, path): path for path in sorted((root / PACKAGE).rglob("*.py"))}
    return {name: measure(name, path, paths) for name, path in paths.items()}


def module_name(root: Path, path: Path) -> str:
    """Returns the dotted name of a module."""
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def measure(name: str, path: Path, known: dict[str, Path]) -> Module:
    """Returns what is counted in one module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    module = Module(name, path, lines=count_lines(path))
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module.import_lines += (node.end_lineno or node.lineno) - node.lineno + 1
            module.imports |= {target for target in targets(node, package, known) if target != name}
        elif isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            module.functions.append((body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0)
    module.defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return module


def targets(node: ast.Import | ast.ImportFrom, package: str, known: dict[str, Path]) -> set[str]:
    """Returns the modules of the package that an import names."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names} & set(known)
    base = node.module or ""
    if node.level:
        parts = package.split(".")
        base = ".".join([*parts[: len(parts) - node.level + 1], *([base] if base else [])])
    imported = {f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base for alias in node.names}
    return imported & set(known)


def count_lines(path: Path) -> Lines:
    """Returns the lines of a file by kind."""
    text = path.read_text(encoding="utf-8")
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in _NO_CODE:
            code |= set(range(token.start[0], token.end[0] + 1))
    return Lines(1, text.count("\n"), len(code - docstrings), len(docstrings), len(comments - code))


def table(root: Path, modules: dict[str, Module]) -> str:
    """Returns lines by folder."""
    folders: dict[str, Lines] = defaultdict(Lines)
    for module in modules.values():
        parts = module.path.relative_to(root / PACKAGE).parts
        folders[parts[0] if len(parts) > 1 else "(top)"] += module.lines
    rows = [lines.row(name) for name, lines in sorted(folders.items(), key=lambda item: -item[1].lines)]
    tests = sum((count_lines(path) for path in (root / "tests").rglob("*.py")), Lines())
    whole = sum(folders.values(), Lines())
    head = ["| folder | files | lines | code | docstrings | comments |", "|---|--:|--:|--:|--:|--:|"]
    return "\n".join([*head, *rows, whole.row("**package**"), tests.row("tests")])


def summary(modules: dict[str, Module]) -> str:
    """Returns the figures about the package as a whole."""
    importers = Counter(target for module in modules.values() for target in module.imports)
    plain = [module for module in modules.values() if module.path.name != "__init__.py"]
    words = Counter(re.findall(r"\w+", "\n".join(module.path.read_text(encoding="utf-8") for module in modules.values())))
    private = [name for module in plain for name in module.defined if name.startswith("_")]
    functions = sorted(length for module in plain for length in module.functions)
    said = {
        "lines a file": round(sum(module.lines.lines for module in modules.values()) / len(modules)),
        "modules with one importer": sum(importers[module.name] == 1 for module in plain),
        f"files with fewer than {SHORT} lines of code": sum(module.lines.code < SHORT for module in modules.values()),
        "lines of imports": sum(module.import_lines for module in modules.values()),
        "private functions and classes used once": sum(words[name] == 2 for name in private),
        "public names of modules": sum(not name.startswith("_") for module in plain for name in module.defined),
        "functions": len(functions),
        "lines of the median function": functions[len(functions) // 2],
        "functions of more than 40 lines": sum(length > 40 for length in functions),
    }
    loops = circles(modules)
    said["modules in import circles"] = sum(map(len, loops))
    text = "\n".join(f"{name}: {value:,}" for name, value in said.items())
    return "\n".join([f"\n{text}", *(f"circle: {', '.join(sorted(loop))}" for loop in loops)])


def circles(modules: dict[str, Module]) -> list[set[str]]:
    """Returns the sets of modules that import each other; a package's own ``__init__`` is no part of one."""
    graph = {
        name: {target for target in module.imports if target in modules and modules[target].path.name != "__init__.py"}
        for name, module in modules.items()
        if module.path.name != "__init__.py"
    }
    reach = {name: reachable(graph, name) for name in graph}
    loops: list[set[str]] = []
    for name in graph:
        loop = {other for other in reach[name] if name in reach.get(other, set())}
        if loop and loop not in loops:
            loops.append(loop)
    return loops


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    """Returns what is imported from a module on, itself only where it lies on a circle."""
    seen: set[str] = set()
    left = [*graph[start]]
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += graph.get(name, ())
    return seen


def pages(root: Path) -> str:
    """Returns a table of the pages, and then each long sentence and large cell."""
    rows, faults, total = [], [], 0
    for path in [root / "README.md", root / "CHANGELOG.md", *sorted((root / "docs").rglob("*.md"))]:
        page = Page.read(path)
        name = path.relative_to(root).as_posix()
        counts = f"{page.mean_sentence:.0f} | {len(page.long_sentences)} | {len(page.large_cells)}"
        rows.append(f"| {name} | {page.words:,} | {counts} |")
        faults += [f"{name}: {count_words(text)} words: {text}" for text in (*page.long_sentences, *page.large_cells)]
        total += page.words
    head = [
        f"| page | words | a sentence | sentences above {LONGEST_SENTENCE} | cells above {LARGEST_CELL} |",
        "|---|--:|--:|--:|--:|",
    ]
    return "\n".join([*head, *rows, f"| all | {total:,} | | | |", "", *faults])


@dataclass
class Page:
    """How one page is worded."""

    words: int
    """All of the file, code included; bars and lines of tables are no words."""
    sentences: list[str]
    """Of the prose; code in them is NAME."""
    in_cells: list[str]
    """Sentences and parts of them in the cells of tables."""
    large_cells: list[str]

    @property
    def long_sentences(self) -> list[str]:
        """Returns those with more words than a sentence may have."""
        return [each for each in (*self.sentences, *self.in_cells) if count_words(each) > LONGEST_SENTENCE]

    @property
    def mean_sentence(self) -> float:
        """Returns how many words a sentence has on average."""
        return sum(map(count_words, self.sentences)) / max(len(self.sentences), 1)

    @classmethod
    def read(cls, path: Path) -> Page:
        """Returns what is counted in a page of Markdown; blocks of code count as words alone."""
        whole = path.read_text(encoding="utf-8")
        text = re.sub(r"^```.*?^```$|<!--.*?-->|^ {4,}\S.*$", "", whole, flags=re.MULTILINE | re.DOTALL)
        text = re.sub(r"(`+).*?\1", "NAME", text, flags=re.DOTALL)
        text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
        rows = [line for line in text.splitlines() if line.startswith("|")]
        cells = [cell.strip() for row in rows for cell in row.replace("\\|", "").strip("|").split("|")]
        prose = "\n".join("" if line.startswith("|") else line for line in text.splitlines())
        parts = re.split(r"\n\s*\n|^\s*(?:[-*]|\d+\.) |^#+ .*$", prose, flags=re.MULTILINE)
        prose_of, cells_of = ([each for text in texts for each in split_sentences(text)] for texts in (parts, cells))
        return cls(count_words(whole), prose_of, cells_of, [each for each in cells if count_words(each) > LARGEST_CELL])


def split_sentences(text: str) -> list[str]:
    """Returns the sentences of a paragraph."""
    return [each for each in re.split(r"(?<=[.!?])\s+", " ".join(text.split())) if each]


def count_words(text: str) -> int:
    """Returns how many words a text has: what holds a letter or a digit."""
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def walk(root: Path) -> str:
    """Returns how many files and functions the set-up of a test enters: a cell that a scripted model answers, always with A."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "entered.json"
        (Path(folder) / "walk_plugin.py").write_text(WALK.replace("OUT", repr(str(out))), encoding="utf-8")
        model = Path(folder) / "constant.yaml"
        model.write_text("rules:\n  - {text: '(?i)yes or no', answer: 'Yes'}\n  - {letter: A}\n", encoding="utf-8")
        words = [f"--vlm=scripted:{model}", "--vlm-dataset=shapes", "--vlm-sample=20", f"--vlm-store={folder}/store"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), folder])}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "walk_plugin", "-p", "no:cacheprovider", *words, *CELLS]
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
        if not out.exists() or done.returncode not in {0, 1, 10}:  # another code is no verdict
            return f"the test could not be run:\n{done.stdout}{done.stderr}"
        first, further = (
            [(file, name) for file, name in test if f"/{PACKAGE}/" in file]
            for test in json.loads(out.read_text(encoding="utf-8"))
        )
    files = Counter(Path(file).relative_to(root / PACKAGE).as_posix() for file, _ in further)
    listed = ", ".join(f"{file} {count}" for file, count in files.most_common())
    of_first = f"the first test of a run: {len({file for file, _ in first})} files, {len(first)} functions"
    return f"\nset-up of {of_first}\nset-up of a further test: {len(files)} files, {len(further)} functions\n{listed}"


if __name__ == "__main__":
    sys.exit(main())
