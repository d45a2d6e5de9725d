"""`tinglu serve` over answers of fixed length (`bench/fixed_model.py`), in a process that `bench/server.py` starts.

Settings come from the environment alone, as the server reads them: TINGLU_MODEL, TINGLU_PORT ...
"""

from __future__ import annotations

import logging

import app.runtime
from app.server import serve
from app.settings import Settings
from bench import fixed


def main() -> None:
    settings = Settings()
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    app.runtime.load_recognizer = fixed.load_recognizer  # the device process imports it by its own name
    serve(app.runtime.build_pipeline(settings), settings)


if __name__ == "__main__":
    main()
