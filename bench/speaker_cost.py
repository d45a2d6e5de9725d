"""What telling speakers apart costs: seconds of each stage of the diarization of one long recording."""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from audio.shared import Waveform
from audio.span import SAMPLE_RATE, Span
from bench import clips
from bench.report import print_header, print_table
from diarization.clustering import WindowSequence, cluster
from diarization.diarizer import Diarizer, step_windows
from diarization.embedding import NetworkEmbedder, load_embedder
from diarization.pauses import split_at_pauses
from diarization.timeline import turns_of
from diarization.windows import Window, gather, windows_of

_MAKER = Path(__file__).parent.parent / "tests" / "parity" / "make_speaker_checkpoint.py"
_SPAN_SECONDS, _PAUSE_SECONDS = 13.0, 0.6
_VOICES = 4
_RUNS = 3


def run_cost(seconds: int, embedder: str, device: str) -> None:
    """Print seconds of each stage, the fastest of three runs, and of the whole as the server calls it."""
    with tempfile.TemporaryDirectory() as directory:
        loaded = _load(embedder, device, Path(directory))
    waveform = clips.waveform(-(-seconds // 30), 30.0)[: seconds * SAMPLE_RATE]
    step = _SPAN_SECONDS + _PAUSE_SECONDS
    spans = [Span(at, at + _SPAN_SECONDS) for at in np.arange(0.0, seconds - step, step).tolist()]
    print_header(
        f"Cost of speakers, {embedder} on {device}",
        f"{seconds} s of the recordings in tests/data as {len(spans)} spans of {_SPAN_SECONDS:g} s",
        f"one recording alone, model loaded and warm; {_VOICES} drawn voices for the clustering",
        f"{torch.get_num_threads()} CPU threads, {step_windows(loaded.device)} windows a batch",
    )
    watch = _Watch()
    for _ in range(_RUNS):
        windows = _stages(watch.run(), loaded, waveform, spans)
    print_table(("stage", "seconds", "CPU seconds of its thread"), watch.rows())
    print(f"\n{windows} windows; an hour of sound is {3600 / seconds:.3g} times this\n")


def _load(name: str, device: str, directory: Path) -> NetworkEmbedder:
    """GE2E from its package, the others with random weights."""
    if name != "ge2e":
        spec = importlib.util.spec_from_file_location("make_speaker_checkpoint", _MAKER)
        assert spec is not None
        assert spec.loader is not None
        maker = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(maker)
        maker.write(directory)
    embedder = load_embedder(None if name == "ge2e" else directory / name, device)
    assert isinstance(embedder, NetworkEmbedder)
    return embedder


class _Watch:
    """The fastest run of each stage: seconds on the clock, and those its thread computed."""

    def __init__(self) -> None:
        self._best: dict[str, tuple[float, float]] = {}
        self._now: dict[str, tuple[float, float]] = {}

    def run(self) -> _Watch:
        """Before a run."""
        self._keep()
        return self

    def rows(self) -> list[tuple[str, str, str]]:
        self._keep()
        return [(name, f"{wall:.4f}", f"{cpu:.4f}") for name, (wall, cpu) in self._best.items()]

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        wall, cpu = time.perf_counter(), time.thread_time()
        yield
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        before = self._now.get(name, (0.0, 0.0))
        self._now[name] = (before[0] + time.perf_counter() - wall, before[1] + time.thread_time() - cpu)

    def _keep(self) -> None:
        for name, found in self._now.items():
            self._best[name] = min(found, self._best.get(name, found))
        self._now = {}


def _stages(watch: _Watch, embedder: NetworkEmbedder, waveform: Waveform, spans: Sequence[Span]) -> int:
    with watch.stage("split at pauses, windows"):
        parts = split_at_pauses(waveform, spans)
        windows = windows_of(parts, len(waveform))
    room = step_windows(embedder.device)
    for at in range(0, len(windows), room):
        _embed(watch, embedder, waveform, windows[at : at + room])
    embeddings, truth = _drawn(len(windows))
    with watch.stage("cluster"):
        labels = cluster(WindowSequence.of(windows, embeddings), embedder.calibration)
    with watch.stage("timeline"):
        turns_of(waveform, parts, windows, truth, np.ones(len(labels), bool))
    with watch.stage("all, as served"):
        Diarizer(embedder).diarize(waveform, spans)
    return len(windows)


def _embed(watch: _Watch, embedder: NetworkEmbedder, waveform: Waveform, windows: Sequence[Window]) -> None:
    with watch.stage("gather samples"):
        pieces, firsts = gather(waveform, windows)
    with watch.stage("to the device, features, embed"):
        embedder.embed(pieces, firsts)
    network: Any = embedder._network
    with torch.inference_mode(), watch.stage("of which to the device, features"):
        network.features(embedder._windows(pieces, firsts))


def _drawn(count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Embeddings of voices that change every eight windows, and whose they are: random weights know no voices."""
    random = np.random.default_rng(0)
    truth = np.arange(count) // 8 % _VOICES
    points = _unit(random.standard_normal((_VOICES, 192)))[truth] + _unit(random.standard_normal((count, 192))) * 0.65
    return _unit(points).astype(np.float32), truth


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    unit: NDArray[np.float64] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def add_cost_options(parser: argparse.ArgumentParser) -> None:
    group: Any = parser.add_argument_group("seconds of each stage instead of errors")
    group.add_argument("--cost", action="store_true")
    group.add_argument("--seconds", type=int, default=3600)
    group.add_argument("--embedder", choices=("ge2e", "campplus", "eres2netv2"), default="ge2e")
    group.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
