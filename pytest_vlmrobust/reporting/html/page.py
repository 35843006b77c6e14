"""The page: everything a reader looks for, in the order of looking, as one file that may be opened anywhere."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pytest_vlmrobust.core.decision import Decision, Outcome
from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.record import FAMILY, Record
from pytest_vlmrobust.core.words import quantity
from pytest_vlmrobust.reporting.analyses import analyses, analysis_tables
from pytest_vlmrobust.reporting.wording import QUIET, RunFacts, decision_sentence, decisions_by_model, headline, worst_first

from . import charts, groups, policy, samples, sweeps, words
from .limits import Limitation, floors, limits
from .samples import addresses, drill_down
from .words import DECISIONS, flat, mapping

# What all pages share: style, script, security policy, and the rendering of templates.


@cache
def asset(name: str) -> Markup:
    """Returns a file of the package that is written into a page as it is."""
    return Markup(files(__package__).joinpath(name).read_text(encoding="utf-8"))  # noqa: S704 - the package's own


def security(style: str, script: str) -> str:
    """Returns what a page may do: show pictures that it holds, and use its own style and script."""
    return (
        "default-src 'none'; img-src data:; "
        f"style-src '{_csp_hash(style)}'; script-src '{_csp_hash(script)}'; base-uri 'none'; form-action 'none'"
    )


def templates() -> Environment:
    """Returns what renders templates: whatever comes from outside is made readable and escaped."""
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_readable,
    )
    environment.filters |= {"points": words.points, "share": words.share, "number": words.number, "interval": words.interval}
    environment.globals |= {
        "marks": words.MARKS,
        "quantity": quantity,
        "shade": charts.shade,
        "style": asset("style.css"),
    }
    return environment


def _csp_hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _readable(value: Any) -> Any:
    """Returns a value as it is printed: text from outside is made readable before it is escaped."""
    return words.visible_text(str(value)) if isinstance(value, str) and not isinstance(value, Markup) else value


# What a page says about its decision, so that a bundle can be checked against its records.


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
    """Returns a sentence for each claim of a page that does not follow from these records.

    Compared are the title, the mark at the top, every first heading, and the two claims for machines, and nothing else.
    """
    reader = _Reader()
    reader.feed(page)
    reader.close()
    expected = {name: [value] for name, value in asdict(Claims.of(records, decision)).items()}
    expected["decision"] *= 2  # for people and for machines
    return [
        f"{_SHOWN[name]} is {' and '.join(map(repr, claims)) or 'missing'}, and the records give {expected[name][0]!r}"
        for name, claims in reader.claims.items()
        if claims != expected[name]
    ]


class _Reader(HTMLParser):
    """Collects the claims of a page from the places where they are made, in the order of the page."""

    def __init__(self) -> None:
        super().__init__()
        self.claims: dict[str, list[str]] = {name: [] for name in _SHOWN}
        self._inside: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "meta" and (name := _METAS.get(given.get("name") or "")):
            self.claims[name].append(given.get("content") or "")
        chip = "chip" in (given.get("class") or "").split()
        place = "title" if tag == "title" else "decision" if tag == "h1" else "chip" if chip else None
        if place is not None:
            self.claims[place].append("")
            self._inside = place

    def handle_endtag(self, tag: str) -> None:
        self._inside = None if tag in ("title", "h1", "span") else self._inside

    def handle_data(self, data: str) -> None:
        if self._inside is not None:
            self.claims[self._inside][-1] += data


_BREACHES = 15
"""Tests listed at the top; the table of all tests has the rest."""
_OPEN = 6
"""Sweeps that are unfolded at once; of more, only those with a breach are."""

_ELSEWHERE = ("policies", "repeatability", "command")
"""Parts of a manifest that the page shows in a section about them."""


def render_html(records: Sequence[Record], facts: RunFacts, manifest: Mapping[str, object]) -> str:
    """Returns the report: the same records, facts and manifest give the same text.

    Args:
        records: the records of a run, in any order.
        facts: what is known about the run beside them; thumbnails are read from its folder.
        manifest: what determined the run; whatever it lacks is said to be unknown.
    """
    ordered = worst_first(records)
    decision = facts.decision(records)
    names = addresses(ordered)
    again = {record.key: facts.command.for_test(record) for record in ordered} if facts.command else {}
    thumbnails = samples.embed_thumbnails(ordered, facts.pictures)
    environment = _environment()
    environment.globals["link"] = lambda record: f"#cell={quote(names[record.key], safe='')}"
    places = {name: at for at, name in enumerate(thumbnails)}
    environment.globals["place"] = lambda file: places.get(file, "none")
    environment.globals["anchor"] = lambda record: f"cell={quote(names[record.key], safe='')}"
    script = asset("common.js") + asset("script.js")
    return environment.get_template("page.html").render(
        decision=decision,
        claims=Claims.of(records, decision),
        reason=decision_sentence(decision, records, facts),
        apart=decisions_by_model(records, facts),
        records=ordered,
        outcomes=words.by_outcome(records),
        breaches=[record for record in ordered if record.deciding not in QUIET][:_BREACHES],
        loud=sum(record.deciding not in QUIET for record in records),
        facts=facts,
        limits=[*limits(ordered, facts), *_left_out(ordered, thumbnails)],
        sweeps=_sections(records),
        families=[record for record in ordered if record.test == FAMILY],
        analyses=analysis_tables(analyses(records)),
        observatory=_observatory(records),
        floors=floors(facts.repeatability),
        policies=policy.applied_policies(ordered, facts, manifest),
        manifest=_manifest(manifest),
        run=str(manifest.get("run") or ""),
        command=facts.command.whole() if facts.command else "",
        example=next(filter(None, again.values()), ""),
        data=drill_down(ordered, thumbnails, again),
        security=security(asset("style.css"), script),
        script=script,
    )


def _sections(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Returns the section of each sweep, as the template reads it."""
    all_sweeps = sweeps.sweeps(records)
    return [
        {
            "sweep": sweep,
            "outcomes": words.by_outcome(sweep.records),
            **dict(zip(("judged", "free"), sweeps.card(sweep), strict=True)),
            "overview": charts.overview(sweep),
            "charts": [
                chart for chart in (charts.worst_settings(sweep), charts.resolution_curve(sweep), charts.flips(sweep)) if chart
            ],
            "unasked": sum(record.deciding is Outcome.MEASURED and bool(record.not_asked) for record in sweep.summaries),
            "not_asked": Counter(record.not_asked for record in sweep.records if record.not_asked),
            "spatial": groups.spatial(sweep),
            "patches": groups.table(sweep),
            "open": len(all_sweeps) <= _OPEN or any(str(record.outcome) == "FAIL" for record in sweep.records),
        }
        for sweep in all_sweeps
    ]


def _observatory(records: Sequence[Record]) -> list[charts.Chart]:
    all_sweeps = sweeps.sweeps(records)
    return [chart for chart in (groups.scores(all_sweeps), groups.gaps(all_sweeps)) if chart is not None]


def _left_out(records: Sequence[Record], thumbnails: Mapping[str, str]) -> list[Limitation]:
    files = samples.picture_files(records)
    lacking = len(files - set(thumbnails))
    text = (
        f"{lacking} of {len(files)} thumbnails are not on this page: "
        "they are no longer in the store, or would make the page too large"
    )
    return [Limitation(text)] if lacking else []


def _manifest(manifest: Mapping[str, object]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Returns the manifest by part, without what has a place of its own in the page."""
    left = {name: value for name, value in manifest.items() if name not in _ELSEWHERE}
    parts: dict[str, Mapping[str, object]] = {
        "run": {name: value for name, value in left.items() if not isinstance(value, Mapping)}
    }
    parts |= {name: mapping(value) for name, value in left.items() if isinstance(value, Mapping)}
    return [(name, list(flat(value))) for name, value in parts.items() if value]


def _environment() -> Environment:
    environment = templates()
    environment.filters |= {"bound": words.bound, "bound_text": words.bound_text, "named": words.metric_name}
    environment.globals |= {"decisions": words.DECISIONS, "kinds": groups.KINDS, "headline": headline}
    return environment
