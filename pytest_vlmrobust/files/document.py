"""YAML files of users, as a tree of entries with line numbers for error messages.

Thresholds, models, benchmark records, settings of a folder of identities and scripted answers are all read here. A file may have
anything: each mistake is an error of the caller's class, with ``file:line``, the shortened value and what was
expected. Only texts, numbers, booleans and dates are constructed.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml
from yaml.composer import Composer

from pytest_vlmrobust.core.errors import UsageError, did_you_mean, why_no_path
from pytest_vlmrobust.core.words import invisible

Choice = TypeVar("Choice", bound=StrEnum)
Value = TypeVar("Value")

ID_PATTERN = "[A-Za-z0-9][A-Za-z0-9_.-]*"
"""The form of ids."""
LARGEST_FILE = 8 * 2**20
"""Maximum bytes of a file. PyYAML reads about a megabyte in five seconds."""
LARGEST_TREE = 2 * LARGEST_FILE
"""Limit for the characters of all values, with aliases expanded and ``_COST_OF_VALUE`` more per value: a few lines of
nested aliases can expand to more values than fit in memory."""
DEEPEST = 40
"""The deepest allowed nesting of lists and mappings. No format needs more than eight."""
LONGEST_NUMBER = 1000
"""Characters of a value that is not text: Python reads integers in quadratic time and cannot print very long ones."""

_COST_OF_VALUE = 32
_MOST_MISTAKES = 20
_SHOWN = 60
_TEXT = "tag:yaml.org,2002:str"
_NULL = "tag:yaml.org,2002:null"
_DAY = "tag:yaml.org,2002:timestamp"
_MERGE = "tag:yaml.org,2002:merge"
_SCALARS = (_TEXT, _NULL, _DAY, *(f"tag:yaml.org,2002:{name}" for name in ("bool", "int", "float")))
_DAY_PATTERN = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_NO_SUCH_DAY = "a day that exists, such as 2027-06-30: there is no such day"
_PLACE = re.compile(r"(?P<file>[^\n]+?):(?P<line>\d+):")
_HALF_PAIR = re.compile("[\ud800-\udfff]")


def read_all(error: type[UsageError], reads: Iterable[Callable[[], Value]]) -> list[Value]:
    """Runs all reads and returns their results. All mistakes become one error with a line for each, in the order of the file."""
    values: list[Value] = []
    mistakes: dict[str, UsageError] = {}
    for read in reads:
        try:
            values.append(read())
        except UsageError as problem:
            mistakes |= dict.fromkeys(problem.mistakes or (str(problem),), problem)
    if len(mistakes) == 1:
        raise next(iter(mistakes.values()))
    if mistakes:
        more, ordered = len(mistakes) - _MOST_MISTAKES, _in_order(mistakes)
        lines = ordered[:_MOST_MISTAKES] + ([f"... and {more} more mistakes"] if more > 0 else [])
        together = error("\n".join(lines))
        together.mistakes = tuple(ordered)
        raise together
    return values


def _in_order(mistakes: Iterable[str]) -> list[str]:
    """Returns mistakes by file and line; files, and mistakes without a line, keep their order."""
    placed = [(_PLACE.match(mistake), mistake) for mistake in mistakes]
    files = list(dict.fromkeys(place["file"] for place, _ in placed if place))
    lines = [((files.index(place["file"]), int(place["line"])) if place else (-1, 0), mistake) for place, mistake in placed]
    return [mistake for _, mistake in sorted(lines, key=lambda line: line[0])]


def read_keys(entries: Mapping[str, Entry], readers: Mapping[str, Callable[[Entry], Any]]) -> dict[str, Any]:
    """Reads the keys of a mapping with their readers. All mistakes become one error."""
    given = {key: entry for key, entry in entries.items() if key in readers}
    error = next((entry.error for entry in given.values()), UsageError)
    return dict(zip(given, read_all(error, [partial(readers[key], entry) for key, entry in given.items()]), strict=True))


@dataclass(frozen=True, slots=True)
class Entry:
    """A value of a file. Each method returns it in the expected form or raises ``error`` with ``file:line``."""

    node: yaml.Node
    file: str
    error: type[UsageError]
    line: int
    """The line of its key, or of the value if it has no key; from 1."""
    path: str = ""
    """Its path of keys and positions, such as ``rules[1].max``; empty at the top."""

    @property
    def where(self) -> str:
        """``file:line`` of the value."""
        return f"{self.file}:{self.line}"

    @property
    def name(self) -> str:
        """Its path, as its name in messages."""
        return self.path or "the file"

    @property
    def is_mapping(self) -> bool:
        """Whether it is a mapping."""
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_list(self) -> bool:
        """Whether it is a list."""
        return isinstance(self.node, yaml.SequenceNode)

    @property
    def is_empty(self) -> bool:
        """Whether it is empty or ``null``."""
        return bool(self.node.tag == _NULL)

    def refuse(self, expected: str) -> NoReturn:
        """Raises an error with the value and what was expected."""
        self.fail(f"is {_describe_node(self.node)}. Expected {expected}")

    def fail(self, problem: str) -> NoReturn:
        """Raises an error about this value: its path, then the problem."""
        raise self.error(f"{self.where}: {self.name} {problem}")

    def mapping(self, keys: Collection[str], *, required: Iterable[str] = ()) -> dict[str, Entry]:
        """Returns the entries by key; refuses keys that are unknown, written twice or missing."""
        if not self.is_mapping:
            self.refuse(f"a mapping with the keys {', '.join(keys)}")
        entries = self._entries(lambda node: self._known_key(node, keys))
        for key in required:
            if key not in entries:
                self.fail(f"lacks {key!r}. Required: {', '.join(required)}")
        return entries

    def known(self, keys: Collection[str]) -> dict[str, Entry]:
        """Returns the entries with these keys: :meth:`mapping` refuses what else there is, and says so beside their mistakes."""
        entries: dict[str, Entry] = {}
        for key, value in self.node.value if self.is_mapping else ():
            if isinstance(key, yaml.ScalarNode) and key.value in keys:
                entries.setdefault(key.value, self._entry(key.value, key, value))
        return entries

    def table(self, expected: str = "a mapping from texts to values") -> dict[str, Entry]:
        """Returns the entries by key, for any keys; refuses keys that are not text or are repeated."""
        if not self.is_mapping:
            self.refuse(expected)
        return self._entries(self._text_key)

    def items(self) -> list[Entry]:
        """Returns the entries of a list."""
        if not self.is_list:
            self.refuse("a list")
        return [
            Entry(node, self.file, self.error, _line(node), f"{self.path}[{number}]")
            for number, node in enumerate(self.node.value, start=1)
        ]

    def text(self, expected: str = "", *, empty: bool = False) -> str:
        """Returns a text; a blank text only if it may be ``empty``."""
        value = self.scalar()
        if not isinstance(value, str):
            if value is None:
                self.refuse(expected or "text")
            quoted = f"'{shorten(self.node.value)}'"
            self.refuse(f"{expected}, in quotes: {quoted}" if expected else f"text: put it in quotes, {quoted}")
        if not empty and not value.strip():
            self.refuse(expected or "text that is not empty")
        return value

    def visible_text(self) -> str:
        """Returns text without invisible characters."""
        text = self.text()
        if hidden := invisible(text):
            self.refuse(f"text without characters that nobody sees, and it has {hidden}: delete it")
        return text

    def person(self) -> str:
        """Returns the name of a person: it contains letters or digits, and is normalised (Unicode NFKC)."""
        name = unicodedata.normalize("NFKC", self.visible_text())
        if not any(map(str.isalnum, name)):
            self.refuse("the name of somebody, with letters or digits")
        return name

    def texts(self, *, empty: bool = False) -> tuple[str, ...]:
        """Returns a text, or a non-empty list of texts, as a tuple."""
        if not self.is_list:
            return (self.text(empty=empty),)
        if not self.node.value:
            self.refuse("text, or a list of texts")
        return tuple(entry.text(empty=empty) for entry in self.items())

    def identifier(self) -> str:
        """Returns text made of letters, digits, ``_``, ``.`` and ``-``."""
        text = self.text()
        if not re.fullmatch(ID_PATTERN, text):
            self.refuse("letters, digits, '_', '.' and '-', beginning with a letter or digit")
        return text

    def pattern(self) -> str:
        """Returns text that is a regular expression."""
        text = self.text(empty=True)
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            self.refuse(f"a regular expression ({error})")
        return text

    def file_below(self, folder: Path, expected: str = "") -> Path:
        """Returns a path, written relative to ``folder`` or absolute; it need not exist."""
        text = self.text(expected)
        if problem := why_no_path(text, folder):
            self.refuse(f"a path that this machine can have ({problem})")
        return folder / Path(text).expanduser()

    def choice(self, options: type[Choice]) -> Choice:
        """Returns one of the options."""
        return options(self.one_of([option.value for option in options]))

    def one_of(self, names: Collection[str]) -> str:
        """Returns one of the names."""
        value = self.scalar()
        if value not in names:
            self.refuse(f"one of {', '.join(names)}.{did_you_mean(shorten(str(value)), names)}")
        return str(value)

    def truth(self) -> bool:
        """Returns whether it is true."""
        value = self.scalar()
        if not isinstance(value, bool):
            self.refuse("true or false")
        return value

    def number(self, expected: str, *, low: float = -math.inf, high: float = math.inf) -> float:
        """Returns a finite number in [``low``, ``high``]."""
        value = self.scalar()
        largest = sys.float_info.max  # a larger whole number has no float value
        if isinstance(value, bool) or not isinstance(value, int | float) or not max(low, -largest) <= value <= min(high, largest):
            self.refuse(expected)
        return float(value)

    def whole_number(self, expected: str, *, low: int, high: int = 2**63 - 1) -> int:
        """Returns a whole number in [``low``, ``high``]."""
        value = self.scalar()
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.refuse(expected)
        return value

    def quantity(self) -> float | str:
        """Returns a number, or the text of a quantity with its unit."""
        value = self.scalar()
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            self.refuse("a number such as 0.05, 5pp or 5%")
        return value

    def date(self) -> dt.date:
        """Returns a day, written 2027-06-30."""
        value = self.scalar()
        if isinstance(value, str):
            try:
                return dt.date.fromisoformat(value)
            except ValueError:
                self.refuse(_NO_SUCH_DAY if _DAY_PATTERN.fullmatch(value) else "a day such as 2027-06-30")
        if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
            self.refuse("a day such as 2027-06-30")
        return value

    def scalar(self) -> Any:
        """Returns the YAML value: text, number, boolean, date or ``None``."""
        if not isinstance(self.node, yaml.ScalarNode):
            self.refuse("a single value")
        if self.node.tag not in _SCALARS:
            self.refuse(f"text, a number, true, false or a day, without the tag {shorten(self.node.tag)}")
        if self.node.tag != _TEXT and len(self.node.value) > LONGEST_NUMBER:
            self.refuse(f"at most {LONGEST_NUMBER} characters; {len(self.node.value)} given")
        try:
            return yaml.constructor.SafeConstructor().construct_object(self.node)
        except (yaml.YAMLError, ValueError, LookupError, AttributeError, OverflowError):
            # PyYAML trusts tags: `!!bool x` is a KeyError there, and `!!timestamp x` an AttributeError
            self.refuse(_NO_SUCH_DAY if self.node.tag == _DAY else "text, a number or a day")

    def _entries(self, key_of: Callable[[yaml.Node], str]) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}

        def add(key_node: yaml.Node, value_node: yaml.Node) -> None:
            key = key_of(key_node)
            entry = self._entry(key, key_node, value_node)
            if key in entries:
                raise self.error(
                    f"{entry.where}: {entry.path} is written twice, first in line {entries[key].line}. Keep one of them"
                )
            entries[key] = entry

        read_all(self.error, [partial(add, *pair) for pair in self.node.value])
        return entries

    def _entry(self, key: str, key_node: yaml.Node, value: yaml.Node) -> Entry:
        path = f"{self.path}.{shorten(key)}" if self.path else shorten(key)
        return Entry(value, self.file, self.error, _line(key_node), path)

    def _known_key(self, node: yaml.Node, known: Collection[str]) -> str:
        name = str(node.value) if isinstance(node, yaml.ScalarNode) else _describe_node(node)
        if name not in known:
            shown = shorten(name)
            raise self.error(
                f"{self.file}:{_line(node)}: unknown key {shown!r} in {self.name}.{did_you_mean(shown, known)} "
                f"Known: {', '.join(known)}"
            )
        return name

    def _text_key(self, node: yaml.Node) -> str:
        if node.tag == _MERGE:
            self._refuse_key(node, "is not read here", "Write the keys of the other mapping out")
        if not isinstance(node, yaml.ScalarNode) or node.tag != _TEXT:
            self._refuse_key(node, "is not text", "Put numbers, days, yes and no in quotes")
        return str(node.value)

    def _refuse_key(self, node: yaml.Node, problem: str, advice: str) -> NoReturn:
        shown = _describe_node(node)
        raise self.error(f"{self.file}:{_line(node)}: the key {shown} in {self.name} {problem}. {advice}")


def read_document(path: Path, *, what: str, error: type[UsageError], expected: str, file: str = "") -> Entry:
    """Returns the root entry of a YAML file.

    ``what`` (``models file``) is its name in messages, ``file`` (by default its path) its citation. ``error`` is the class
    of all errors; ``expected`` says what the file should begin with.
    """
    content = read_bytes(path, what=what, error=error, file=file)
    return parse_document(content, file or str(path), error=error, expected=expected)


def read_bytes(path: Path, *, what: str, error: type[UsageError], file: str = "") -> bytes:
    """Returns a file's bytes."""
    try:
        with path.open("rb") as stream:
            content = stream.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise error(f"{file or path}: cannot read the {what}: {reason}. Expected a YAML file") from problem
    if len(content) > LARGEST_FILE:
        raise error(f"{file or path}: the {what} is larger than {LARGEST_FILE // 2**20} MiB. Expected a smaller YAML file")
    return content


def parse_document(content: bytes, file: str, *, error: type[UsageError], expected: str) -> Entry:
    """Returns the root entry of a YAML document.

    The arguments are those of :func:`read_document`. It refuses encodings other than UTF-8, no or several documents, deep
    nesting, and aliases that expand to too much.
    """
    node = _compose(_decode(content, file, error), file, error)
    if node is None:
        raise error(f"{file}: the file is empty. Expected {expected}")
    _check(node, file, error)
    return Entry(node, file, error, _line(node))


def _decode(content: bytes, file: str, error: type[UsageError]) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        raise error(f"{file}:{line}: byte 0x{content[problem.start]:02x} is not UTF-8. Save the file as UTF-8") from problem


class _Loader(yaml.SafeLoader):
    """Stops at too deep nesting of brackets, which takes PyYAML quadratic time."""

    def fetch_flow_collection_start(self, TokenClass: type[yaml.Token]) -> None:  # noqa: N803 - PyYAML's name
        if self.flow_level > DEEPEST:
            raise RecursionError
        super().fetch_flow_collection_start(TokenClass)


def _compose(text: str, file: str, error: type[UsageError]) -> yaml.Node | None:
    try:
        return _compose_fast(text)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        return _compose_in_words(text, file, error)


def _compose_fast(text: str) -> yaml.Node | None:
    """Composes nodes from libyaml's parser, in a fifth of the time. libyaml's composer would crash on deep lists."""
    if not yaml.__with_libyaml__:
        raise yaml.YAMLError

    class Loader(Composer, yaml.CSafeLoader):
        def __init__(self, text: str) -> None:
            yaml.CSafeLoader.__init__(self, text)
            Composer.__init__(self)

    node: yaml.Node | None = Loader(text).get_single_node()
    return node


def _compose_in_words(text: str, file: str, error: type[UsageError]) -> yaml.Node | None:
    loader = None
    try:
        loader = _Loader(text)
        node: yaml.Node | None = loader.get_single_node()
    except yaml.MarkedYAMLError as problem:
        raise error(_syntax_message(problem, file)) from problem
    except yaml.reader.ReaderError as problem:
        line = text.count("\n", 0, problem.position) + 1
        raise error(
            f"{file}:{line}: not YAML: unacceptable character #x{ord(text[problem.position]):04x}. Remove it"
        ) from problem
    except (ValueError, OverflowError) as problem:  # "\UFFFFFFFF", which is not a character
        raise error(f"{file}:{_line_of(loader)}: not YAML: {problem}") from problem
    except RecursionError as problem:
        raise error(_too_deep(file, _line_of(loader))) from problem
    return node


def _line_of(loader: yaml.SafeLoader | None) -> int:
    return 1 if loader is None else loader.line + 1


def _syntax_message(error: yaml.MarkedYAMLError, file: str) -> str:
    mark = error.problem_mark or error.context_mark
    line = f":{mark.line + 1}" if mark else ""
    problem = shorten(error.problem or "not YAML", 200)
    advice = "Check the indentation, colons and quotes of this line and the one before"
    if "'\\t'" in problem:
        advice = "Indent with spaces: YAML does not allow tabs"
    context = f" ({shorten(error.context, 200)})" if error.context else ""
    return f"{file}{line}: not YAML: {problem}{context}. {advice}"


def _too_deep(file: str, line: int) -> str:
    return f"{file}:{line}: lists or mappings are nested too deeply. Expected at most {DEEPEST} levels"


def _check(top: yaml.Node, file: str, error: type[UsageError]) -> None:
    """Refuses nodes that contain themselves, alias bombs, and text that cannot be encoded."""
    sizes: dict[int, int] = {}
    _add_size(top, sizes, 0, file, error)
    if sizes[id(top)] > LARGEST_TREE:
        largest = _first_too_large(top, sizes)
        raise error(
            f"{file}:{_line(largest)}: the aliases (*) stand for more than {LARGEST_TREE // 2**20} million characters. "
            "Write fewer of them, or fewer aliases of aliases"
        )


def _add_size(node: yaml.Node, sizes: dict[int, int], depth: int, file: str, error: type[UsageError]) -> int:
    """Returns the expanded size of a node and caches it by id: 0 while it is being counted."""
    if depth > DEEPEST:
        raise error(_too_deep(file, _line(node)))
    if id(node) in sizes:
        if not sizes[id(node)]:
            raise error(f"{file}:{_line(node)}: {_describe_node(node)} contains itself (&). Write its values out")
        return sizes[id(node)]
    sizes[id(node)] = 0
    if isinstance(node, yaml.ScalarNode):
        node.value = _node_text(node, file, error)
        size = len(node.value)
    else:
        size = sum(_add_size(child, sizes, depth + 1, file, error) for child in _children(node))
    sizes[id(node)] = size + _COST_OF_VALUE
    return sizes[id(node)]


def _first_too_large(node: yaml.Node, sizes: Mapping[int, int]) -> yaml.Node:
    """Returns the innermost node that is too large."""
    inner = next((child for child in _children(node) if sizes[id(child)] > LARGEST_TREE), None)
    return node if inner is None else _first_too_large(inner, sizes)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _node_text(node: yaml.ScalarNode, file: str, error: type[UsageError]) -> str:
    r"""Returns the text of a node; surrogate pairs, JSON's spelling of characters beyond ``\uffff``, are joined."""
    text = str(node.value)
    if _HALF_PAIR.search(text):
        try:
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError as problem:
            raise error(
                f"{file}:{_line(node)}: {shorten(text)!r} holds half a surrogate pair, which is no character. Remove it"
            ) from problem
    if "\0" in text:
        raise error(f"{file}:{_line(node)}: {shorten(text)!r} holds the character NUL. Remove it")
    return text


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _describe_node(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if node.tag == _NULL:
        return "empty"
    text = shorten(node.value)
    return f"the text {text!r}" if node.tag == _TEXT else repr(text)


def shorten(text: str, most: int = _SHOWN) -> str:
    """Returns the beginning of a long text."""
    return text if len(text) <= most else text[: most - 3] + "..."
