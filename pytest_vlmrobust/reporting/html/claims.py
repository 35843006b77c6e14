"""Claims: what a page says about its run where a reader looks first, and which records it was drawn from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html.parser import HTMLParser

from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.verdict import Decision

from .words import DECISIONS

_METAS = {"vlmrobust-decision": "decision", "vlmrobust-records": "records"}
_SHOWN = {
    "title": "its title",
    "chip": "the mark at its top",
    "decision": "its decision",
    "records": "the digest of its records",
}


@dataclass(frozen=True, slots=True)
class Claims:
    """What a page has to say of its run."""

    title: str
    chip: str
    decision: str
    records: str
    """The SHA-256 of the decision and of every record in canonical JSON, sorted by the name of its test."""

    @classmethod
    def of(cls, records: Sequence[Record], decision: Decision) -> Claims:
        """Returns the claims of a page about these records, in whatever order they are."""
        contents = [json.loads(record.to_json()) for record in sorted(records, key=lambda record: record.key)]
        return cls(
            title=f"{decision} – vision-language model robustness",  # noqa: RUF001 - a dash
            chip=f"{DECISIONS[decision].sign} {decision}",
            decision=str(decision),
            records=fingerprint({"decision": str(decision), "records": contents}),
        )


def contradictions(page: str, records: Sequence[Record], decision: Decision) -> list[str]:
    """Returns, a sentence for each, what a page claims and these records do not give.

    Looked at are the title, the mark at the top, every first heading, and the two claims for machines; what the page shows
    otherwise is not.
    """
    said = _Reader()
    said.feed(page)
    said.close()
    expected = {name: [value] for name, value in asdict(Claims.of(records, decision)).items()}
    expected["decision"] *= 2  # for people and for machines
    return [
        f"{_SHOWN[name]} is {' and '.join(map(repr, found)) or 'missing'}, and the records give {expected[name][0]!r}"
        for name, found in said.found.items()
        if found != expected[name]
    ]


class _Reader(HTMLParser):
    """Collects what the places of a page say where its claims stand, in the order of the page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[str]] = {name: [] for name in _SHOWN}
        self._inside: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "meta" and (name := _METAS.get(given.get("name") or "")):
            self.found[name].append(given.get("content") or "")
        chip = "chip" in (given.get("class") or "").split()
        place = "title" if tag == "title" else "decision" if tag == "h1" else "chip" if chip else None
        if place is not None:
            self.found[place].append("")
            self._inside = place

    def handle_endtag(self, tag: str) -> None:
        self._inside = None if tag in ("title", "h1", "span") else self._inside

    def handle_data(self, data: str) -> None:
        if self._inside is not None:
            self.found[self._inside][-1] += data
