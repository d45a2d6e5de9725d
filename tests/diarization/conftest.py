from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from audio.span import SAMPLE_RATE, Span
from diarization.diarizer import Diarizer
from diarization.embedding import NetworkEmbedder, SpeakerEmbedder, load_embedder
from tests import compositions

Waveform = NDArray[np.float32]

_PARITY = Path(__file__).parent.parent / "parity"
VOICES: Mapping[str, Sequence[str]] = {
    "kennedy": ("jfk",),
    "austen": ("austen-0870", "austen-0880", "austen-0890", "austen-0920", "austen-0930"),
    "allison": ("ivr-main",),
}
"""The recordings of tests/data by who speaks; the short commands are left out: their speaker is not documented."""


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """These networks are small: on a busy machine several threads wait for each other longer than one computes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def golden() -> Mapping[str, Any]:
    document: Mapping[str, Any] = json.loads((_PARITY / "golden" / "speaker.json").read_text())
    return document


@pytest.fixture(scope="session")
def golden_arrays() -> Mapping[str, NDArray[np.float32]]:
    with np.load(_PARITY / "golden" / "speaker.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory, golden: Mapping[str, Any]) -> Path:
    """Random CAM++ and ERes2NetV2 checkpoints in the published layout, the ones that the goldens were made with."""
    directory = tmp_path_factory.mktemp("speaker-models")
    assert _maker().write(directory) == golden["checkpoints"]
    return directory


def _maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_speaker_checkpoint", _PARITY / "make_speaker_checkpoint.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def embedder() -> SpeakerEmbedder:
    return load_embedder()


@pytest.fixture(scope="session")
def diarizer(embedder: SpeakerEmbedder) -> Diarizer:
    return Diarizer(embedder)


@pytest.fixture(scope="session")
def speech() -> Callable[[str, float], Waveform]:
    """So many seconds of a voice's recordings, one after the other, again from the start where they do not suffice."""

    def of(voice: str, seconds: float) -> Waveform:
        recordings = [compositions.waveform(name) for name in VOICES[voice]]
        return np.resize(np.concatenate(recordings), round(seconds * SAMPLE_RATE))

    return of


@pytest.fixture(scope="session")
def talk(speech: Callable[[str, float], Waveform]) -> Callable[..., tuple[Waveform, list[Span]]]:
    """Turns of (voice, seconds), 0.3 s of silence between them, and the span of each."""

    def of(*turns: tuple[str, float]) -> tuple[Waveform, list[Span]]:
        used = dict.fromkeys(VOICES, 0.0)
        parts: list[Waveform] = []
        spans = []
        at = 0.0
        for voice, seconds in turns:
            begun = round(used[voice] * SAMPLE_RATE)
            parts += [speech(voice, used[voice] + seconds)[begun:], np.zeros(round(0.3 * SAMPLE_RATE), np.float32)]
            used[voice] += seconds
            spans.append(Span(at, at + seconds))
            at += seconds + 0.3
        return np.concatenate(parts), spans

    return of


class FakeNetwork(torch.nn.Module):
    """Voice n is the constant sample value 0.5 + n / 100, so that all are equally loud; batches are remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        self.batches.append(len(samples))
        voice = ((samples.median(1).values - 0.5) * 100).round().nan_to_num(nan=-1.0)
        rows = torch.nn.functional.one_hot(voice.clamp_min(0).long(), 12).float()
        rows[voice < 0] = torch.nan
        return rows


@pytest.fixture
def fake_network() -> FakeNetwork:
    return FakeNetwork()


@pytest.fixture
def fake_diarizer(fake_network: FakeNetwork, embedder: SpeakerEmbedder) -> Diarizer:
    return Diarizer(NetworkEmbedder("fake", fake_network, embedder.calibration))
