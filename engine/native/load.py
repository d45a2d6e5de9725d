"""Loading a native recogniser: the one door to this folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.catalog import ResolvedModel
from engine.native.vllm_compat import Device, configure_environment

if TYPE_CHECKING:
    from engine.native.recognizer import NativeRecognizer


def load_native(
    model: ResolvedModel, device: Device, engine_options: Mapping[str, Any] | None = None
) -> NativeRecognizer:
    """Load a model of the family `native` into vLLM in this process, warm.

    Args:
        engine_options: arguments of vLLM's `EngineArgs` that override ours.

    Raises:
        ValueError: vLLM does not serve this model for transcription.
        ImportError: vLLM is not installed.
    """
    configure_environment(device)
    from engine.native.assembly import assemble

    return assemble(model, device, engine_options or {})
