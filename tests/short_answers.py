"""`tinglu serve` with Fun-ASR-Nano whose answers all have twelve tokens: `python -m tests.short_answers`.

The noise that random weights write is far longer than any sound can hold, so that it gets no word times; twelve tokens
of it fit into a few seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import app.runtime
from app.server import serve
from app.settings import Settings
from engine.catalog import ResolvedModel
from engine.stage import Stage

TOKENS = 12


def load_short(
    model: ResolvedModel, kind: app.runtime.DeviceKind, cache_dir: Path, options: Mapping[str, Any]
) -> Stage:
    """Runs in the device process, in the place of `app.runtime.load_recognizer`."""
    from engine.native.vllm_compat import configure_environment

    configure_environment(kind)
    from engine.fun_asr_nano.load import load_fun_asr_nano

    return load_fun_asr_nano(model, kind, cache_dir, options, fixed_tokens=TOKENS)


def main() -> None:
    from tests.short_answers import load_short as importable  # not of __main__, which the device process does not have

    settings = Settings()
    app.runtime.load_recognizer = importable
    serve(app.runtime.build_pipeline(settings), settings)


if __name__ == "__main__":
    main()
