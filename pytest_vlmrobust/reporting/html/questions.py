"""Questions: the page of a dataset, as a single file that opens anywhere; its texts are escaped."""

from __future__ import annotations

import base64

from pytest_vlmrobust.evaluation.run.profile import Profile

from . import page


def render_questions(profile: Profile) -> str:
    """Returns the page: the same profile gives the same text."""
    script = page.asset("common.js")
    return (
        page.templates()
        .get_template("questions.html")
        .render(
            profile=profile,
            pictures=[[_url(picture) for picture in question.pictures] for question in profile.questions],
            security=page.security(page.asset("style.css"), script),
            script=script,
        )
    )


def _url(picture: bytes) -> str:
    return f"data:image/webp;base64,{base64.b64encode(picture).decode('ascii')}" if picture else ""
