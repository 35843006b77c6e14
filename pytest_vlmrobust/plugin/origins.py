"""Origins: what determined a run, as far as it is known before anything is inferred; JSON-safe."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_vlmrobust.core.model import ModelRef
    from pytest_vlmrobust.policies import Policy, Rule, Scope, Waiver

    from .gate import Gate


def origins(gate: Gate) -> dict[str, object]:
    """Returns versions, options, the command line, models and policies of a run; no weights are loaded for it."""
    import pytest_vlmrobust

    return {
        "run": gate.run_id,
        "date": gate.today.isoformat(),
        "version": pytest_vlmrobust.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "settings": dataclasses.asdict(gate.settings),
        "command": gate.command.to_dict() if gate.command else {},
        "models": {name: model_origin(ref) for name, ref in gate.models.items()},
        "policies": {name: policy_content(policy) for name, policy in gate.policies.items()},
    }


def model_origin(ref: ModelRef) -> dict[str, object]:
    """Returns where a model is from and how it is asked."""
    return {"backend": ref.backend, "location": ref.location, "revision": ref.revision, "prompt_mode": ref.prompt_mode}


def policy_content(policy: Policy) -> dict[str, object]:
    """Returns the files, rules and waivers of a policy, with their reasons."""
    return {
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
