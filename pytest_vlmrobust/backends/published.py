"""Published models: the built-in names, where each model is, and what it needs; written down in ``published.yaml``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pytest_vlmrobust.core.errors import ModelError
from pytest_vlmrobust.core.prediction import ModelRef

_LISTED: dict[str, Any] = yaml.load(Path(__file__).with_name("published.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
_BYTES = {"bfloat16": 2, "float32": 4}


@dataclass(frozen=True, slots=True)
class Published:
    """A published model: where it is, its family, its size in billions of parameters as its name says it, all experts counted."""

    hub_id: str
    """Empty for a model whose weights nobody has: it answers by the API of its makers."""
    family: str
    billions: float = 0.0
    """0 where its makers do not say."""
    prompt_mode: str = "direct"

    @property
    def brings_code(self) -> bool:
        """Whether it runs by code in its checkpoint, which is never run here: such a model has to be served."""
        return _of_family(self.family, "needs") == "code"

    @property
    def is_served(self) -> bool:
        """Whether it can only be asked at a server."""
        return self.brings_code or not self.hub_id

    @property
    def extra(self) -> str:
        """The extra of this package that it needs; empty for none."""
        return "openai" if self.is_served else _of_family(self.family, "needs")

    @property
    def weights(self) -> dict[str, float]:
        """How many GB (10^9 bytes) the weights take by dtype: parameters times bytes, without activations and caches."""
        return {dtype: self.billions * size for dtype, size in _BYTES.items()} if self.billions else {}

    def ref(self, name: str) -> ModelRef:
        """Returns it as a model that runs in this process; raises ModelError where it does not."""
        if not self.hub_id:
            raise ModelError(
                f"--vlm {name!r}: its weights are not published. Gate it where its makers serve it, or at any proxy that speaks "
                f"the protocol of OpenAI: --vlm=openai:BASE_URL#{name}@REVISION"
            )
        if self.brings_code:
            raise ModelError(
                f"--vlm {name!r}: {self.hub_id} runs by Python code in its checkpoint, and no code of a checkpoint is run "
                f"in this process. Serve it where that is allowed, such as by 'vllm serve {self.hub_id} --trust-remote-code'; "
                f"then gate it there: --vlm=openai:BASE_URL#{self.hub_id}@REVISION"
            )
        return ModelRef(
            name=name,
            backend="transformers",
            location=self.hub_id,
            prompt_mode=self.prompt_mode,
            box_convention=_of_family(self.family, "boxes"),
            family=self.family,
            parameters_billion=self.billions,
        )


def _of_family(family: str, fact: str) -> str:
    return str(_LISTED["families"].get(family, {}).get(fact, ""))


def _members(name: str, family: str, id: str = "", sizes: str = "0", mode: str = "direct") -> Iterator[tuple[str, Published]]:  # noqa: A002 - the key of the file
    for size in sizes.split():
        billions = float(size.upper().partition("B")[0])
        yield name.format(size.lower()), Published(id.format(size), family, billions, mode)


PUBLISHED: dict[str, Published] = dict(member for entry in _LISTED["models"] for member in _members(**entry))
"""Built-in names."""


def published_at(hub_id: str) -> tuple[str, Published] | None:
    """Returns the published model of a hub id with its built-in name; None where there is none."""
    return next(((name, about) for name, about in PUBLISHED.items() if hub_id and about.hub_id == hub_id), None)


def described(name: str, about: Published) -> tuple[str, ...]:
    """Returns a line about a model: name, where it is, weights by dtype, what it needs, prompt mode, whether it was run here."""
    size = "not known" if not about.weights else " / ".join(f"{count:.3g}" for count in about.weights.values())
    needs = [f"[{about.extra}]" if about.extra else "", "a server: brings code" if about.brings_code else ""]
    needs += ["a server: API of its makers"] if not about.hub_id else []
    return name, about.hub_id, size, ", ".join(filter(None, needs)), about.prompt_mode, "not run here"


HEADER = ("name", "hub id", f"GB of weights in {' / '.join(_BYTES)}", "needs", "prompt mode", "tested")
