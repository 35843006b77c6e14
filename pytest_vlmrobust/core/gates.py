"""Gates: how often the same questions decided about a release, and what the declared risk is worth after that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .conversion import from_plain, to_plain
from .words import percent, quantity


@dataclass(frozen=True, slots=True)
class GateCount:
    """The place of one gate among all that a store knows on the questions that a model was asked of a dataset."""

    model: str
    dataset: str
    policy: str
    """The SHA-256 of the policy."""
    questions: str
    """The digest of the set of questions, pictures included."""
    n: int
    """How many questions were asked."""
    number: int
    """Gates on these questions so far, this one included."""
    whole: int
    """Other gates that asked all of these questions."""
    part: int
    """Other gates that asked some of them."""
    share: float
    """The shares of the questions that those asked, added up."""
    risk: float | None = None
    """The declared risk of a wrong PASS; ``None`` where the policy judges values alone."""
    bound: float | None = None
    """What the risk of a wrong GO in any of these gates is at most; ``None`` where one of them declares no risk."""
    repeats: str = ""
    """The earlier run with the same model, policy and answers: then this is no new gate."""
    kept: bool = True
    """Whether later gates of the store count this one."""

    @property
    def name(self) -> str:
        """What it is about, as in test ids."""
        return f"{self.model}-{self.dataset}"

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> GateCount:
        """Reads what :meth:`to_plain` wrote."""
        return from_plain(dict(plain), cls)

    def to_plain(self) -> dict[str, Any]:
        """Returns it as JSON-safe values."""
        return dict(to_plain(self))

    def __str__(self) -> str:
        place = f"gate {self.number}" if self.number > 1 else "the first gate"
        again = f", the same as in run {self.repeats}" if self.repeats else ""
        parts = [f"{self.name}: {place} on these {quantity(self.n, 'question')} that the store knows{again}"]
        if self.whole or self.part:
            share = f" and {self.part} a part ({self.share:.1f} by share)" if self.part else ""
            parts.append(f"of the others {self.whole} asked all of them{share}")
        parts.append(self._worth())
        if not self.kept:
            parts.append("the store cannot be written to, so later gates do not count this one")
        return "; ".join(parts)

    def _worth(self) -> str:
        """Returns what the declared risk is worth for all gates together."""
        if self.risk is None or self.bound is None:
            return "there is no bound on the risk of a wrong GO, because a blocking rule judges the value alone"
        if self.number == 1:
            return f"the declared risk of {percent(self.risk)} holds"
        return (
            f"a wrong GO in any of them has a risk of at most {percent(self.bound)} (upper bound: the declared risks added up). "
            "This holds if nobody changed a model or policy because of answers to these questions. Otherwise use new questions"
        )
