"""The names under which the loaded model may be asked for."""

from __future__ import annotations

from app.errors import Refusal
from engine.catalog import ENTRIES
from engine.recognition import Capabilities

OPENAI_ALIAS = "whisper-1"
"""What clients written for OpenAI send when nobody told them otherwise."""


def model_names(capabilities: Capabilities) -> tuple[str, ...]:
    """The model's own name, then its aliases."""
    aliases = (alias for entry in ENTRIES if entry.name == capabilities.model for alias in entry.aliases)
    return tuple(dict.fromkeys((capabilities.model, *aliases, OPENAI_ALIAS)))


def require_model(name: str | None, capabilities: Capabilities) -> None:
    """Nothing, if the name, in any case, is one of the loaded model, or None.

    Raises:
        Refusal: 404.
    """
    names = model_names(capabilities)
    if name is not None and name.casefold() not in {own.casefold() for own in names}:
        raise Refusal(
            404, "model_not_found", f"This server does not have that model; it has {', '.join(names)}.", param="model"
        )
