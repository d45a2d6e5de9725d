"""The stage of the device that tells speakers apart, in the step and in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from app.speakers import SpeakerRequest, SpeakerStage
from audio.shared import Waveform
from audio.span import SAMPLE_RATE, Span
from diarization.diarizer import Diarizer
from diarization.embedding import GE2E_CALIBRATION, NetworkEmbedder
from engine.stage import Output


class Network(nn.Module):
    """Voice n is the constant sample value n; works while the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.threads: set[str] = set()

    def forward(self, samples: Tensor) -> Tensor:
        assert self.gate.wait(10.0)
        self.threads.add(threading.current_thread().name)
        voice = samples.median(1).values
        rows = nn.functional.one_hot(voice.nan_to_num().long(), 8).float()
        rows[voice.isnan()] = torch.nan
        return rows


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture(params=[False, True], ids=["in the step", "in a thread"])
def stage(network: Network, request: pytest.FixtureRequest) -> Iterator[SpeakerStage]:
    embedder = NetworkEmbedder("fake", network, GE2E_CALIBRATION)
    stage = SpeakerStage(Diarizer(embedder), background=request.param)
    yield stage
    network.gate.set()
    stage.close()


@pytest.fixture
def background(network: Network) -> Iterator[SpeakerStage]:
    stage = SpeakerStage(Diarizer(NetworkEmbedder("fake", network, GE2E_CALIBRATION)), background=True)
    yield stage
    network.gate.set()
    stage.close()


def talk(*voices: float, seconds: float = 6.0) -> tuple[Waveform, SpeakerRequest]:
    parts = [np.full(round(seconds * SAMPLE_RATE), voice, np.float32) for voice in voices]
    return np.concatenate(parts), SpeakerRequest((Span(0.0, seconds * len(voices)),))


def drained(stage: SpeakerStage) -> dict[int, Output]:
    found = {}
    while stage.busy:
        for output in stage.step():
            found[output.call_id] = output
    return found


def test_every_call_has_its_answer(stage: SpeakerStage) -> None:
    """More of them than share a batch, a long one first."""
    stage.submit(0, *talk(1, 2, 1, 2, seconds=60.0))
    for call_id in range(1, 40):
        stage.submit(call_id, *talk(1, *[3, 4][: call_id % 3]))
    order = list(found := drained(stage))
    assert [found[call_id].value.speakers for call_id in range(1, 40)] == [1 + call_id % 3 for call_id in range(1, 40)]
    assert found[0].value.speakers == 2
    assert order[-1] == 0


def test_broken_samples_end_their_own_call(stage: SpeakerStage) -> None:
    stage.submit(1, *talk(np.nan))
    stage.submit(2, *talk(1, 2))
    found = drained(stage)
    assert isinstance(found[1].error, ValueError)
    assert found[2].value.speakers == 2


def test_cancelled_calls_are_forgotten(stage: SpeakerStage) -> None:
    for call_id in range(3):
        stage.submit(call_id, *talk(1, 2, seconds=30.0))
    assert list(stage.step()) == []
    stage.cancel(1)
    stage.cancel(7)
    assert sorted(drained(stage)) == [0, 2]
    stage.submit(1, *talk(1))
    stage.cancel(1)
    assert drained(stage) == {}


def test_no_step_waits_for_the_network(background: SpeakerStage, network: Network) -> None:
    """While the thread is at it, steps come back, and calls can be made and cancelled."""
    network.gate.clear()
    background.submit(1, *talk(1, 2))
    for _ in range(5):
        assert list(background.step()) == []
    background.submit(2, *talk(1))
    background.cancel(1)
    background.submit(1, *talk(1, 2, 3))
    network.gate.set()
    found = drained(background)
    assert {call_id: output.value.speakers for call_id, output in found.items()} == {1: 3, 2: 1}
    assert all(name.startswith("speakers") for name in network.threads)


def test_what_breaks_in_the_thread_breaks_the_stage(background: SpeakerStage, network: Network) -> None:
    background.submit(1, *talk(99))
    with pytest.raises(RuntimeError):
        drained(background)


def test_closing_waits_for_the_thread(background: SpeakerStage, network: Network) -> None:
    background.submit(1, *talk(1, 2))
    background.step()
    background.close()
    assert network.threads
