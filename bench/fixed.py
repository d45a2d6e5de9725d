"""The loader of `bench/fixed_model.py`, in the place of `app.runtime.load_recognizer`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.runtime import DeviceKind
from engine.catalog import ResolvedModel
from engine.stage import Stage


def load_recognizer(model: ResolvedModel, kind: DeviceKind, cache_dir: Path, options: Mapping[str, Any]) -> Stage:
    """Runs in the device process; as there, torch is imported once its threads are set in the environment."""
    from engine.native.vllm_compat import configure_environment

    configure_environment(kind)
    from bench.fixed_model import load_fixed

    return load_fixed(model, kind, cache_dir, options)
