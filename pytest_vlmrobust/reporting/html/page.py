"""The page: everything a reader looks for, in that order, as a single file that opens anywhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import Environment
from markupsafe import Markup

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import BY_VALUE, BY_VALUE_MARK, PARTIAL, PARTIAL_MARK
from pytest_vlmrobust.core.words import quantity
from pytest_vlmrobust.evaluation.run.profile import Profile
from pytest_vlmrobust.reporting.analyses import analysis_tables
from pytest_vlmrobust.reporting.facts import flat, mapping, noise_by_metric, why_unmeasured
from pytest_vlmrobust.reporting.sweeps import Sweep
from pytest_vlmrobust.reporting.view import Limit, RunView
from pytest_vlmrobust.reporting.writing import template_environment

from . import charts, samples, words

# Common to all pages: style, script, security policy, and templates.


@cache
def asset(name: str) -> Markup:
    """Returns a file of the package for a page, unescaped."""
    return Markup(files(__package__).joinpath(name).read_text(encoding="utf-8"))  # noqa: S704 - the package's own


def security(style: str, script: str) -> str:
    """Returns the content security policy of a page: embedded images, and its own style and script."""
    return (
        "default-src 'none'; img-src data:; "
        f"style-src '{_csp_hash(style)}'; script-src '{_csp_hash(script)}'; base-uri 'none'; form-action 'none'"
    )


def templates() -> Environment:
    """Returns the template environment, which makes foreign text printable and escapes it."""
    environment = template_environment(__package__, _readable)
    environment.filters |= {"points": words.points, "share": words.share, "number": words.number, "interval": words.interval}
    environment.globals |= {
        "marks": words.MARKS,
        "quantity": quantity,
        "shade": charts.shade,
        "by_value": BY_VALUE,
        "star": BY_VALUE_MARK,
        "part": PARTIAL_MARK,
        "partial": PARTIAL,
        "style": asset("style.css"),
    }
    return environment


def render_page(template: str, **content: Any) -> str:
    """Returns a page without a drill-down; the same content gives the same text."""
    script = asset("common.js")
    shared = {"security": security(asset("style.css"), script), "script": script}
    return templates().get_template(template).render(**content, **shared)


def render_questions(profile: Profile) -> str:
    """Returns the page of a dataset."""
    pictures = [[_picture_url(picture) for picture in question.pictures] for question in profile.questions]
    return render_page("questions.html", profile=profile, pictures=pictures)


def _picture_url(picture: bytes) -> str:
    return f"data:image/webp;base64,{base64.b64encode(picture).decode('ascii')}" if picture else ""


def _csp_hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _readable(value: Any) -> Any:
    """Returns a printable value; foreign text is made printable before it is escaped."""
    return words.visible_text(str(value)) if isinstance(value, str) and not isinstance(value, Markup) else value


# The page of a run.


_BREACHES = 15
"""Tests listed at the top; the table of all tests has the rest."""
_OPEN = 6
"""The most sweeps unfolded at first; with more, only those with a breach are."""

_ELSEWHERE = ("policies", "repeatability", "command")
"""Parts of a manifest that the page shows in a section about them."""


def render_html(view: RunView, thumbnails: Mapping[str, str] | None = None) -> str:
    """Returns the report; thumbnails are read from the folder of the run, unless they are given."""
    facts = view.facts
    names = samples.addresses(view.tests)
    thumbnails = samples.embed_thumbnails(view.tests, facts.pictures) if thumbnails is None else thumbnails
    lacking = samples.left_out(view.tests, thumbnails)
    environment = _environment()
    environment.globals["link"] = lambda record: f"#cell={quote(names[record.key], safe='')}"
    places = samples.places(view.tests, thumbnails)
    environment.globals["place"] = lambda file: places.get(file, "none")
    environment.globals["anchor"] = lambda record: f"cell={quote(names[record.key], safe='')}"
    script = asset("common.js") + asset("script.js")
    tasks, tables = charts.observatory(view.sweeps), analysis_tables(view.analyses)
    return environment.get_template("page.html").render(
        view=view,
        mark=words.decision_mark(view.decision, view.word),
        parts=_parts(sweeps=view.sweeps, analyses=tables, observatory=tasks, families=view.families, noise=facts.repeatability),
        breaches=view.explained[:_BREACHES],
        waived=Outcome.WAIVED,
        facts=facts,
        limits=[*view.limits, *([Limit("page", lacking)] if lacking else [])],
        sweeps=[_section(sweep, few=len(view.sweeps) <= _OPEN) for sweep in view.sweeps],
        analyses=tables,
        observatory=tasks,
        manifest=_manifest(facts.origins),
        command=facts.command.whole() if facts.command else "",
        example=next((test.command for test in view.tests if test.command), ""),
        data=samples.drill_down(view.tests, thumbnails),
        security=security(asset("style.css"), script),
        script=script,
    )


def rendered_again(page: str, view: RunView) -> str:
    """Returns what a run renders to, with the thumbnails of a page, which may be any."""
    shown = zip(samples.thumbnail_names(view.tests), samples.thumbnails_on(page), strict=False)
    return render_html(view, {name: thumbnail for name, thumbnail in shown if thumbnail})


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the page: its anchor, short title and full title."""

    anchor: str
    short: str
    title: str


_PARTS = (
    Part("limits", "Limits", "What limits this evidence"),
    Part("sweeps", "Sweeps", "Sweeps: one model on one dataset"),
    Part("analyses", "Analyses", "Analyses of the papers"),
    Part("observatory", "Observatory", "The Perceptual Observatory"),
    Part("families", "Families", "Families of models"),
    Part("noise", "Noise", "Noise: some of the questions asked twice (A/A)"),
    Part("policy", "Policy", "Policy and waivers, as applied"),
    Part("manifest", "Manifest", "Manifest: what determined these answers"),
    Part("tests", "All tests", "All tests, worst first"),
)


def _parts(**contents: Sequence[object]) -> list[Part]:
    """Returns the parts of a page; the named parts are left out if empty."""
    return [part for part in _PARTS if contents.get(part.anchor, True)]


def _section(sweep: Sweep, *, few: bool) -> dict[str, Any]:
    return {
        "sweep": sweep,
        "charts": charts.charts(sweep),
        "patches": samples.patch_table(sweep),
        "open": few or any(outcome is Outcome.FAIL for outcome, _ in sweep.outcomes),
    }


def _manifest(manifest: Mapping[str, object]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Returns the manifest by part, without facts shown elsewhere on the page."""
    left = {name: value for name, value in manifest.items() if name not in _ELSEWHERE}
    parts: dict[str, Mapping[str, object]] = {
        "run": {name: value for name, value in left.items() if not isinstance(value, Mapping)}
    }
    parts |= {name: mapping(value) for name, value in left.items() if isinstance(value, Mapping)}
    return [(name, list(flat(value))) for name, value in parts.items() if value]


@cache
def _environment() -> Environment:
    environment = templates()
    environment.filters |= {"bound_text": words.bound_text}
    environment.globals |= {
        "kinds": samples.KINDS,
        "share_shade": charts.share_shade,
        "noise_by_metric": noise_by_metric,
        "why_unmeasured": why_unmeasured,
    }
    return environment
