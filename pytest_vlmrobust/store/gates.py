"""Gates of a store: model, policy and questions of each decision, a row each; rows are never removed."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_vlmrobust.core.words import percent, quantity

TABLES = (
    """
    create table question_sets (
        digest text primary key,
        members blob not null
    ) without rowid
    """,
    """
    create table gates (
        run text not null,
        model text not null,
        dataset text not null,
        day text not null,
        fingerprint text not null,
        policy text not null,
        questions text not null references question_sets (digest),
        answers blob not null,
        risk real,
        decision text not null,
        primary key (run, model, dataset)
    ) without rowid
    """,
)
_BYTES = 8
"""Bytes kept of a digest: among a million questions, two collide with a probability of 1 in 37 million."""


def members(contents: Iterable[bytes]) -> bytes:
    """Returns a set as the sorted, concatenated prefixes of its members' SHA-256."""
    return b"".join(sorted({hashlib.sha256(content).digest()[:_BYTES] for content in contents}))


def set_digest(joined: bytes) -> str:
    """Returns the digest of a set."""
    return hashlib.sha256(joined).hexdigest()


def count_of(joined: bytes) -> int:
    """Returns how many things a set has."""
    return len(joined) // _BYTES


def _set_of(joined: bytes) -> frozenset[bytes]:
    return frozenset(joined[start : start + _BYTES] for start in range(0, len(joined), _BYTES))


@dataclass(frozen=True, slots=True)
class GateCount:
    """The number of a gate among all gates of a store on the same questions."""

    model: str
    dataset: str
    policy: str
    """The SHA-256 of the policy."""
    questions: str
    """The digest of the set of questions, images included."""
    n: int
    """The number of questions."""
    number: int
    """Gates on these questions so far, this one included."""
    whole: int
    """Other gates that asked all of these questions."""
    part: int
    """Other gates that asked some of them."""
    share: float
    """The sum of the shares of the questions that these gates used."""
    risk: float | None = None
    """The declared risk of a wrong PASS; ``None`` if the policy only judges values."""
    bound: float | None = None
    """The upper bound of the risk of a wrong GO in any of these gates; ``None`` if one of them declares no risk."""
    repeats: str = ""
    """The earlier run with the same model, policy and answers: then this is no new gate."""
    kept: bool = True
    """Whether later gates of the store count this one."""

    @property
    def name(self) -> str:
        """Model and dataset as in test ids."""
        return f"{self.model}-{self.dataset}"

    def __str__(self) -> str:
        place = f"gate {self.number}" if self.number > 1 else "the first gate"
        again = f", the same as in run {self.repeats}" if self.repeats else ""
        parts = [f"{self.name}: {place} on these {quantity(self.n, 'question')} that the store knows{again}"]
        if self.whole or self.part:
            share = f", {self.part} a part ({self.share:.1f} in sum)" if self.part else ""
            parts.append(f"earlier ones: {self.whole} used all of them{share}")
        parts.append(self._worth())
        if not self.kept:
            parts.append("the store cannot be written to, so later gates do not count this one")
        return "; ".join(parts)

    @property
    def brief(self) -> str:
        """The short form on the end page of a run; reports have the whole sentence."""
        by_value = "no bound on its risk: judged by value"
        risk = by_value if self.bound is None else f"risk of a wrong GO: {percent(self.bound)} at most"
        again = " (as an earlier run)" if self.repeats else ""
        return f"{self.name}: gate {self.number} on these {quantity(self.n, 'question')}{again}; {risk}"

    def _worth(self) -> str:
        """Returns the meaning of the declared risk for all gates together."""
        if self.risk is None or self.bound is None:
            return "there is no bound on the risk of a wrong GO, because a blocking rule judges the value alone"
        if self.number == 1:
            return f"the declared risk of {percent(self.risk)} holds"
        return (
            f"a wrong GO in any of them has a risk of at most {percent(self.bound)} (upper bound: the declared risks added up). "
            "This holds if nobody changed a model or policy because of answers to these questions. Otherwise use new questions"
        )


@dataclass(frozen=True, slots=True)
class Gate:
    """The decision of a run about a model on the questions of a dataset."""

    run: str
    model: str
    dataset: str
    day: str
    fingerprint: str
    """The fingerprint of the model: weights, settings, libraries."""
    policy: str
    questions: bytes
    """The :func:`members` of its questions: text, options and pixels."""
    answers: bytes
    """The :func:`members` of its cells, each with all answers and scores."""
    risk: float | None
    decision: str

    @property
    def digest(self) -> str:
        """The digest of its questions."""
        return set_digest(self.questions)


def count_gate(connection: sqlite3.Connection, gate: Gate, *, keep: bool) -> GateCount:
    """Counts the gates of a store on the questions of this one, and adds it if ``keep`` and it is new.

    A gate with the same model, policy and answers as an earlier one is not new. Call it within a transaction.
    """
    sets = {digest: _set_of(blob) for digest, blob in connection.execute("select digest, members from question_sets")}
    mine, cells = _set_of(gate.questions), _set_of(gate.answers)
    whole, shares, risks, repeats = 0, [], [], ""
    rows = connection.execute(
        "select run, model, dataset = ?, fingerprint, policy, questions, answers, risk from gates where run != ? or model != ? "
        "order by run, model, dataset",
        (gate.dataset, gate.run, gate.model),
    )
    nearest: dict[tuple[str, str], tuple[int, bool, tuple[str, str, bytes, float | None]]] = {}
    for run, model, is_same, fingerprint, policy, digest, answers, risk in rows:  # datasets of a gate may share questions
        near = (len(mine & sets[digest]), bool(is_same))
        if near[0] and near > nearest.get((run, model), (0, False))[:2]:
            nearest[run, model] = (*near, (fingerprint, policy, answers, risk))
    for (run, _), (common, _, (fingerprint, policy, answers, risk)) in nearest.items():
        risks.append(risk)
        if not repeats and (fingerprint, policy) == (gate.fingerprint, gate.policy) and cells <= _set_of(answers):
            repeats = run
        elif common == len(mine):
            whole += 1
        else:
            shares.append(common / len(mine))
    if not repeats:
        risks.append(gate.risk)
    declared = [risk for risk in risks if risk is not None]
    if keep and not repeats:
        connection.execute("insert or ignore into question_sets (digest, members) values (?, ?)", (gate.digest, gate.questions))
        connection.execute(
            "insert into gates (run, model, dataset, day, fingerprint, policy, questions, answers, risk, decision) "
            "values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(gate.run, gate.model, gate.dataset, gate.day, gate.fingerprint, gate.policy),
                *(gate.digest, gate.answers, gate.risk, gate.decision),
            ),
        )
    return GateCount(
        gate.model,
        gate.dataset,
        gate.policy,
        gate.digest,
        len(mine),
        number=len(risks),
        whole=whole,
        part=len(shares),
        share=sum(shares),
        risk=gate.risk,
        bound=min(1.0, sum(declared)) if len(declared) == len(risks) else None,
        repeats=repeats,
        kept=keep or bool(repeats),
    )
