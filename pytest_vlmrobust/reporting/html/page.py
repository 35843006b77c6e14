"""The page: everything a reader looks for, in the order of looking, as one file that may be opened anywhere."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pytest_vlmrobust.core.record import FAMILY, Record

from ..wording import QUIET, RunFacts, because, headline, worst_first
from . import charts, drawing, gaps, heatmap, patches, pictures, policy, rerun, sweeps, words
from .data import addresses, drill_down
from .limits import Limit, limits
from .reading import flat, mapping

_BREACHES = 15
"""Tests listed at the top; the table of all tests has the rest."""
_OPEN = 6
"""Sweeps that are unfolded at once; of more, only those with a breach are."""


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
    again = rerun.commands(ordered, facts, manifest)
    thumbnails = pictures.embedded(ordered, facts.pictures)
    environment = _environment()
    environment.globals["link"] = lambda record: f"#cell={quote(names[record.key], safe='')}"
    places = {name: at for at, name in enumerate(thumbnails)}
    environment.globals["place"] = lambda file: places.get(file, "none")
    environment.globals["anchor"] = lambda record: f"cell={quote(names[record.key], safe='')}"
    return environment.get_template("page.html").render(
        decision=decision,
        reason=because(decision, records, facts),
        records=ordered,
        outcomes=words.by_outcome(records),
        breaches=[one for one in ordered if one.deciding not in QUIET][:_BREACHES],
        loud=sum(one.deciding not in QUIET for one in records),
        facts=facts,
        limits=[*limits(ordered, facts), *_left_out(ordered, thumbnails)],
        sweeps=_sections(records),
        families=[one for one in ordered if one.test == FAMILY],
        observatory=_observatory(records),
        policies=policy.applied(ordered, facts, manifest),
        manifest=_manifest(manifest),
        run=str(manifest.get("run") or ""),
        command=rerun.whole(manifest),
        example=next(iter(again.values()), ""),
        data=drill_down(ordered, thumbnails, again),
        drawable=drawing.available(),
        security=_security(),
        style=_asset("style.css"),
        script=_asset("script.js"),
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
    """Returns the manifest by part; the policies have a place of their own."""
    parts: dict[str, Mapping[str, object]] = {
        "run": {name: value for name, value in manifest.items() if not isinstance(value, Mapping)}
    }
    parts |= {name: mapping(value) for name, value in manifest.items() if isinstance(value, Mapping) and name != "policies"}
    return [(name, list(flat(value))) for name, value in parts.items() if value]


@cache
def _asset(name: str) -> Markup:
    """Returns a file of the package that is written into the page as it is."""
    return Markup(files(__package__).joinpath(name).read_text(encoding="utf-8"))  # noqa: S704 - the package's own


def _security() -> str:
    """Returns what the page may do: show pictures that it holds, and use its own style and script."""
    hashed = {name: _hashed(_asset(name)) for name in ("style.css", "script.js")}
    return (
        "default-src 'none'; img-src data:; "
        f"style-src '{hashed['style.css']}'; script-src '{hashed['script.js']}'; base-uri 'none'; form-action 'none'"
    )


def _hashed(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_readable,
    )
    environment.filters |= {
        "points": words.points,
        "share": words.share,
        "number": words.number,
        "interval": words.interval,
        "bound": words.bound,
        "bound_text": words.bound_text,
        "named": words.named,
    }
    environment.globals |= {
        "marks": words.MARKS,
        "decisions": words.DECISIONS,
        "kinds": patches.KINDS,
        "shade": heatmap.shade,
        "headline": headline,
        "extra": drawing.EXTRA,
    }
    return environment


def _readable(value: Any) -> Any:
    """Returns a value as it is printed: text from outside is made readable before it is escaped."""
    return words.shown(str(value)) if isinstance(value, str) and not isinstance(value, Markup) else value
