"""Content: a policy as a manifest holds it: its files, its rules and waivers, and what later ones replace."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from .policy import Policy
from .rules import Rule, Scope, Waiver


def policy_content(policy: Policy) -> dict[str, object]:
    """Returns the files, rules and waivers of a policy with their reasons, and what later files change of earlier ones."""
    replaced = [str(one) for one in policy.replaced if not one.only_tightens]
    return {
        **({"replaced": replaced} if replaced else {}),
        "sha256": policy.sha256,
        "files": [dataclasses.asdict(file) for file in policy.files],
        "rules": [_rule(rule) for rule in policy.rules],
        "waivers": [_waiver(waiver) for waiver in policy.waivers],
    }


def _rule(rule: Rule) -> dict[str, object]:
    said = {"id": rule.id, "metric": rule.metric, "bound": str(rule.bound), "source": rule.source}
    unless = _scope(rule.unless) if rule.unless else {}
    return {**said, "where": _scope(rule.where), "unless": unless, "reason": rule.reason, "evidence": rule.evidence}


def _waiver(waiver: Waiver) -> dict[str, object]:
    said = {"id": waiver.id, "owner": waiver.owner, "reason": waiver.reason, "ticket": waiver.ticket, "metric": waiver.metric}
    more = {"where": _scope(waiver.where), "cap": waiver.cap, "expires": waiver.expires.isoformat(), "source": waiver.source}
    return {**said, **more}


def _scope(scope: Scope) -> Mapping[str, Any]:
    return {name: list(globs) for name, globs in dataclasses.asdict(scope).items() if globs}
