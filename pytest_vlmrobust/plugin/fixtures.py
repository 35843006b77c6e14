"""The fixtures of suites. Evaluation happens in set-up, so that infrastructure failures are errors."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pytest_vlmrobust.core.decision import NotDecided, Outcome, ThresholdExceeded
from pytest_vlmrobust.core.errors import BackendError, BudgetSpent, VlmRobustError
from pytest_vlmrobust.core.record import Record

from .options import only_sets_up
from .outcome import RECORD, failed_record
from .run import RUN, Run
from .selection import selected_test

if TYPE_CHECKING:
    from pytest_vlmrobust.testing.properties import CheckMemory


@dataclass(frozen=True, slots=True)
class GatedTest:
    """The result of a gated test."""

    record: Record
    again: str = ""
    """The command line that reruns only this test; empty if unknown."""

    def check(self) -> None:
        """Ends the test by its verdict: pass, fail, xfail if waived, skip if not applicable."""
        __tracebackhide__ = True
        from pytest_vlmrobust.reporting.explanation import explain

        record = self.record
        if record.outcome is Outcome.FAIL:
            raise ThresholdExceeded(explain(record, self.again))
        if record.outcome is Outcome.INCONCLUSIVE:
            raise NotDecided(explain(record, self.again))
        if record.outcome is Outcome.WAIVED:
            pytest.xfail(record.reason)
        if record.outcome is Outcome.NOT_APPLICABLE:
            pytest.skip(record.reason)


@pytest.fixture
def vlm_cell(_vlm_judged: GatedTest) -> GatedTest:
    """One cell (model x dataset x setting), evaluated and judged; call ``.check()`` on it."""
    return _vlm_judged


@pytest.fixture
def vlm_sweep(_vlm_judged: GatedTest) -> GatedTest:
    """One summary metric of a sweep, computed over the settings of the test's mark and judged; call ``.check()`` on it."""
    return _vlm_judged


@pytest.fixture
def vlm_family(_vlm_judged: GatedTest) -> GatedTest:
    """One property of a family of models of different sizes, judged; call ``.check()`` on it."""
    return _vlm_judged


@pytest.fixture(scope="session")
def vlm_check_memory(pytestconfig: pytest.Config) -> CheckMemory:
    """Which property checks of the package's metrics passed before, as the store says; without ``--vlm``, too."""
    from pytest_vlmrobust.testing.properties import CheckMemory, installation

    return CheckMemory(pytestconfig.stash[RUN].inputs.directories.store, installation())


@pytest.fixture
def _vlm_judged(request: pytest.FixtureRequest) -> GatedTest:
    """What was measured and concluded about a test; a BackendError where too many inferences failed for a verdict."""
    from pytest_vlmrobust.reporting.explanation import explain
    from pytest_vlmrobust.reporting.junit import properties

    if only_sets_up(request.config):
        pytest.skip("no model is asked where pytest runs no test")
    node, run = request.node, request.config.stash[RUN]
    test = selected_test(node)

    def note(record: Record) -> None:
        node.stash[RECORD] = record
        if not run.inputs.settings.vlm_junit_plain:
            others = [pair for pair in node.user_properties if not pair[0].startswith("vlm.")]  # a plugin may run a test again
            node.user_properties[:] = [*others, *properties(record)]

    def failed(error: VlmRobustError, outcome: Outcome) -> Record:
        record = failed_record(test.about, str(error), node.nodeid, outcome)
        inferred, recalled = _counts(run)
        return dataclasses.replace(record, n_inferred=inferred - before[0], n_recalled=recalled - before[1])

    before = _counts(run)
    try:
        with run.evaluation.evidence_writer.joined():
            settings = run.evaluation.tests.settings_of(test)
            record = dataclasses.replace(run.evaluation.judge.run(test.about, settings), nodeid=node.nodeid)
    except BudgetSpent as error:
        record = failed(error, Outcome.INCONCLUSIVE)
    except VlmRobustError as error:
        note(failed(error, Outcome.ERROR))
        raise
    note(record)
    again = run.inputs.command.for_test(record.nodeid) if run.inputs.command else ""
    if record.outcome is Outcome.ERROR:
        raise BackendError(explain(record, again))
    return GatedTest(record, again)


def _counts(run: Run) -> tuple[int, int]:
    """Returns how many answers this process got from a model and from the store so far."""
    return (run.evaluation.evaluator.inferred, run.evaluation.evaluator.recalled) if run.evaluation.is_open else (0, 0)
