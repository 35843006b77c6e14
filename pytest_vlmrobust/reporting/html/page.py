"""The page: everything a reader looks for, in the order of looking, as one file that may be opened anywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from jinja2 import Environment

from pytest_vlmrobust.core.record import FAMILY, Record
from pytest_vlmrobust.core.verdict import Outcome

from ..wording import QUIET, RunFacts, apart, because, headline, worst_first
from . import charts, gaps, heatmap, noise, parts, patches, pictures, policy, sweeps, words
from .claims import Claims
from .data import addresses, drill_down
from .limits import Limit, limits
from .reading import flat, mapping

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
    again = {record.key: facts.command.one(record) for record in ordered} if facts.command else {}
    thumbnails = pictures.embedded(ordered, facts.pictures)
    environment = _environment()
    environment.globals["link"] = lambda record: f"#cell={quote(names[record.key], safe='')}"
    places = {name: at for at, name in enumerate(thumbnails)}
    environment.globals["place"] = lambda file: places.get(file, "none")
    environment.globals["anchor"] = lambda record: f"cell={quote(names[record.key], safe='')}"
    script = parts.asset("common.js") + parts.asset("script.js")
    return environment.get_template("page.html").render(
        decision=decision,
        claims=Claims.of(records, decision),
        reason=because(decision, records, facts),
        apart=apart(records, facts),
        records=ordered,
        outcomes=words.by_outcome(records),
        breaches=[one for one in ordered if one.deciding not in QUIET][:_BREACHES],
        loud=sum(one.deciding not in QUIET for one in records),
        facts=facts,
        limits=[*limits(ordered, facts), *_left_out(ordered, thumbnails)],
        sweeps=_sections(records),
        families=[one for one in ordered if one.test == FAMILY],
        observatory=_observatory(records),
        floors=noise.floors(facts.repeatability),
        policies=policy.applied(ordered, facts, manifest),
        manifest=_manifest(manifest),
        run=str(manifest.get("run") or ""),
        command=facts.command.whole() if facts.command else "",
        example=next(filter(None, again.values()), ""),
        data=drill_down(ordered, thumbnails, again),
        security=parts.security(parts.asset("style.css"), script),
        script=script,
    )


def _sections(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Returns what stands about each sweep."""
    found = sweeps.sweeps(records)
    return [
        {
            "sweep": sweep,
            "outcomes": words.by_outcome(sweep.records),
            **dict(zip(("judged", "free"), sweeps.card(sweep), strict=True)),
            "overview": heatmap.overview(sweep),
            "charts": [one for one in (charts.worst_settings(sweep), charts.resolution_curve(sweep), charts.flips(sweep)) if one],
            "unasked": sum(one.deciding is Outcome.MEASURED and bool(one.not_asked) for one in sweep.summaries),
            "not_asked": Counter(one.not_asked for one in sweep.records if one.not_asked),
            "spatial": patches.spatial(sweep),
            "patches": patches.table(sweep),
            "open": len(found) <= _OPEN or any(str(one.outcome) == "FAIL" for one in sweep.records),
        }
        for sweep in found
    ]


def _observatory(records: Sequence[Record]) -> list[charts.Chart]:
    found = sweeps.sweeps(records)
    return [chart for chart in (gaps.scores(found), gaps.gaps(found)) if chart is not None]


def _left_out(records: Sequence[Record], thumbnails: Mapping[str, str]) -> list[Limit]:
    named = pictures.named(records)
    lacking = len(named - set(thumbnails))
    said = (
        f"{lacking} of {len(named)} thumbnails are not in this page: not in the store any more, or more than a page should carry"
    )
    return [Limit(said)] if lacking else []


def _manifest(manifest: Mapping[str, object]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Returns the manifest by part, without what has a place of its own in the page."""
    left = {name: value for name, value in manifest.items() if name not in _ELSEWHERE}
    found: dict[str, Mapping[str, object]] = {
        "run": {name: value for name, value in left.items() if not isinstance(value, Mapping)}
    }
    found |= {name: mapping(value) for name, value in left.items() if isinstance(value, Mapping)}
    return [(name, list(flat(value))) for name, value in found.items() if value]


def _environment() -> Environment:
    environment = parts.environment()
    environment.filters |= {"bound": words.bound, "bound_text": words.bound_text, "named": words.named}
    environment.globals |= {"decisions": words.DECISIONS, "kinds": patches.KINDS, "headline": headline}
    return environment
