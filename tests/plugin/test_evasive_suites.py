"""Suites that look away from a broken model: the gate decides by its records, and whatever tests say of themselves is no GO."""

from __future__ import annotations

import pytest

from .conftest import SUITE, Project

BROKEN = {"setting": "invert", "answer": "A"}
CHECK = "    vlm_cell.check()"
MARK = '@pytest.mark.vlm_settings("clean"'
BODIES = {
    "never asks": "    pass",
    "skips": "    pytest.skip('not today')",
    "asks and skips": f"{CHECK}\n    pytest.skip('not today')",
    "catches everything": "    try:\n        vlm_cell.check()\n    except BaseException:\n        pass",
    "catches and skips": "    try:\n        vlm_cell.check()\n    except BaseException:\n        pytest.skip('not today')",
    "xfails": "    try:\n        vlm_cell.check()\n    except BaseException:\n        pytest.xfail('known')",
    "leaves pytest": "    pytest.exit('enough', returncode=0)",
    "leaves Python": "    raise SystemExit(0)",
}
MARKS = {
    "xfail": "@pytest.mark.xfail(reason='known')",
    "strict xfail": "@pytest.mark.xfail(strict=True, reason='known')",
    "xfail without a run": "@pytest.mark.xfail(run=False, reason='known')",
    "xfail of an error": "@pytest.mark.xfail(raises=BaseException, reason='known')",
    "skip": "@pytest.mark.skip(reason='not today')",
    "skipif": "@pytest.mark.skipif(True, reason='not today')",
}
FIXTURE = "@pytest.fixture(autouse=True)\ndef skips(request):\n    {}pytest.skip('not today')\n"
MODULES = {
    "skips its module": "pytestmark = pytest.mark.skip(reason='not today')\n",
    "skips in a fixture": FIXTURE.format(""),
    "skips what is broken": FIXTURE.format("'invert' in request.node.name and "),
}
SUITES = {
    **{name: SUITE.replace(CHECK, body) for name, body in BODIES.items()},
    **{name: SUITE.replace(MARK, f"{mark}\n{MARK}") for name, mark in MARKS.items()},
    **{name: SUITE.replace(MARK, f"{text}\n\n{MARK}") for name, text in MODULES.items()},
}


@pytest.mark.parametrize("name", SUITES)
def test_no_suite_turns_a_broken_model_into_a_go(project: Project, name: str) -> None:
    assert SUITES[name] != SUITE
    project.script(BROKEN)
    project.write("suite/test_suite.py", SUITES[name])
    result = project.run()
    assert result.ret not in (0, pytest.ExitCode.USAGE_ERROR)
    assert not [line for line in result.outlines if line.startswith(("GO ", "INTERNALERROR"))]
    assert [line for line in result.outlines if line.startswith(("NO-GO ", "INCOMPLETE", "INCONCLUSIVE"))]
