"""Runs in the peers' own environment: faster-whisper over the recordings, one JSON line per setting.

argv: model directory, then the recordings. Scope: path in, text and word times out, model loaded and warm.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from faster_whisper import BatchedInferencePipeline, WhisperModel

RUNS = 3


def measure(name: str, paths: list[str], transcribe: Callable[[str], str]) -> None:
    transcribe(paths[0])
    seconds = []
    for _ in range(RUNS):
        started = time.perf_counter()
        texts = [transcribe(path) for path in paths]
        seconds.append(time.perf_counter() - started)
    print(json.dumps({"name": name, "seconds": seconds, "texts": texts}), flush=True)


def main(directory: str, paths: list[str]) -> None:
    for compute_type in ("float32", "int8"):
        model = WhisperModel(directory, device="cpu", compute_type=compute_type, cpu_threads=2)

        def one(path: str, model: WhisperModel = model) -> str:
            segments, _ = model.transcribe(path, beam_size=1, word_timestamps=True)
            return "".join(segment.text for segment in segments)

        pipeline = BatchedInferencePipeline(model)

        def batched(path: str, pipeline: BatchedInferencePipeline = pipeline) -> str:
            segments, _ = pipeline.transcribe(path, beam_size=1, word_timestamps=True, batch_size=8)
            return "".join(segment.text for segment in segments)

        measure(f"faster-whisper {compute_type}, batch 1", paths, one)
        measure(f"faster-whisper {compute_type}, batched", paths, batched)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
