"""Origins: what determined a run, as far as it is known before anything is inferred; JSON-safe."""

from __future__ import annotations

import dataclasses
import platform
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_vlmrobust.core.prediction import ModelRef

    from .gate import Gate


def origins(gate: Gate) -> dict[str, object]:
    """Returns versions, options, the command line, models and policies of a run; no weights are loaded for it."""
    import pytest_vlmrobust
    from pytest_vlmrobust.policies.policy import policy_content

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
