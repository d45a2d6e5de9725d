"""Fun-ASR-Nano without HTTP: arrays in memory to text and word times, answers of fixed length."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import clips
from bench.report import print_header, print_table, spread

TITLE = "Fun-ASR-Nano, offline"


@dataclass(frozen=True, slots=True)
class Result:
    """One setting and the wall seconds of its runs."""

    clips: int
    clip_seconds: float
    words: bool
    tokens: int
    timed_words: int
    walls: list[float]

    @property
    def audio_seconds(self) -> float:
        return self.clips * self.clip_seconds

    def row(self) -> tuple[str, ...]:
        return (
            f"{self.clips} x {self.clip_seconds:g} s",
            "on" if self.words else "off",
            spread(self.walls, 3),
            spread([self.audio_seconds / wall for wall in self.walls], 0),
            spread([self.tokens / wall for wall in self.walls], 0),
            f"{self.tokens} / {self.timed_words}",
        )


COLUMNS = ("clips", "word times", "seconds (min / median / max)", "RTFx", "tokens/s", "tokens / words with times")


def add_command(commands: Any) -> None:
    parser = commands.add_parser("offline", help=__doc__)
    add_model(parser)
    parser.add_argument("--clips", type=int, nargs="+", default=[1, 16, 385], help="clips at once, a row each")
    parser.add_argument("--seconds", type=float, nargs="+", default=[30.0, 4.7], help="their lengths, up to 30 s")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the results there too")
    parser.set_defaults(run=run)


def add_model(parser: argparse.ArgumentParser) -> None:
    """What every command needs that loads a model."""
    parser.add_argument(
        "--model", type=_path, required=True, help="a Fun-ASR-Nano checkpoint; its weights may be noise"
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--cache-dir", type=_path, default=Path.home() / ".cache" / "tinglu")
    parser.add_argument("--engine-args", type=json.loads, default={}, help="JSON object of vLLM engine arguments")


def _path(text: str) -> Path:
    return Path(text).resolve()


def load(arguments: argparse.Namespace) -> Any:
    """The recogniser that the arguments ask for, and its device."""
    from app.runtime import device_kind
    from app.settings import Settings
    from bench import fixed
    from engine.catalog import ResolvedModel

    kind = device_kind(Settings(device=arguments.device))
    model = ResolvedModel(arguments.model.name, "fun_asr_nano", arguments.model)
    return fixed.load_recognizer(model, kind, arguments.cache_dir, arguments.engine_args), kind


def run(arguments: argparse.Namespace) -> None:
    print_header(
        TITLE,
        f"clips of the recordings in tests/data, all different; {arguments.model.name}, answers of 130 tokens for 30 s",
        "float32 arrays in memory to text (and word times), one call; model loaded and warm, nothing else runs",
        f"engine arguments {arguments.engine_args or 'as served'}, VAD off, greedy",
    )
    recognizer, _ = load(arguments)
    results = [
        measure(recognizer, count, seconds, words=words, runs=arguments.runs)
        for seconds in arguments.seconds
        for count in arguments.clips
        for words in (True, False)
    ]
    print_table(COLUMNS, [result.row() for result in results])
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(result) for result in results]))
    recognizer.close()


def measure(recognizer: Any, count: int, seconds: float, *, words: bool, runs: int) -> Result:
    """Transcribe `count` clips at once, once to warm up and then `runs` times."""
    sound = clips.waveform(count, seconds)
    transcribe(recognizer, sound[: len(sound) // count], 1, seconds, words=words)
    walls: list[float] = []
    tokens = timed = 0
    for _ in range(runs):
        began = time.perf_counter()
        hypotheses = transcribe(recognizer, sound, count, seconds, words=words)
        walls.append(time.perf_counter() - began)
        tokens = sum(len(hypothesis.tokens) for hypothesis in hypotheses)
        timed = sum(len(hypothesis.words or ()) for hypothesis in hypotheses)
    return Result(count, seconds, words, tokens, timed, walls)


def transcribe(recognizer: Any, sound: Any, count: int, seconds: float, *, words: bool) -> list[Any]:
    """The hypotheses of `count` clips that lie one after the other in `sound`."""
    from audio.span import Span
    from engine.recognition import DecodingOptions, Recognition

    spans = tuple(Span(number * seconds, (number + 1) * seconds) for number in range(count))
    recognizer.submit(1, sound, Recognition(spans, DecodingOptions(word_timestamps=words)))
    hypotheses = []
    while recognizer.busy:
        for output in recognizer.step():
            if output.error is not None:
                raise output.error
            hypotheses.append(output.value)
    assert len(hypotheses) == count
    return hypotheses
