"""python -m tests.number_server: a real server over stages that hear numbers; settings from the environment.

NUMBER_SECONDS is how long a segment takes; NUMBER_BROKEN makes loading fail.
"""

from __future__ import annotations

import functools
import os
import sys

from app.decoder import DecoderPool
from app.pipeline import RECOGNIZER, VAD, Pipeline
from app.runtime import supervised_device
from app.server import serve
from app.settings import Settings
from engine.logs import configure_logging
from tests.hearing import NumberRecognizer, NumberVad, load_broken


def main() -> int:
    settings = Settings()
    configure_logging(settings.log_level, settings.log_format)
    seconds = float(os.environ.get("NUMBER_SECONDS", "0"))
    vad = load_broken if "NUMBER_BROKEN" in os.environ else NumberVad
    device = supervised_device({RECOGNIZER: functools.partial(NumberRecognizer, seconds), VAD: vad}, settings)
    decoder = DecoderPool(workers=settings.decode_workers, limits=settings.decode_limits())
    return serve(Pipeline(decoder=decoder, device=device, segmentation=settings.segmentation()), settings)


if __name__ == "__main__":
    sys.exit(main())
