from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests import compositions
from vad.network import FsmnNetwork
from vad.scoring import Scorer
from vad.segmenter import Segmenter

Waveform = NDArray[np.float32]

_GOLDEN = Path(__file__).parent.parent / "parity" / "golden"


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """These networks are small: on a busy machine several threads wait for each other longer than one computes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def golden() -> Mapping[str, Any]:
    """`modes` and `inputs` of vad.json."""
    document: Mapping[str, Any] = json.loads((_GOLDEN / "vad.json").read_text())
    return document


@pytest.fixture(scope="session")
def golden_arrays() -> Mapping[str, NDArray[Any]]:
    with np.load(_GOLDEN / "vad.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="session")
def waveform() -> Callable[[str], Waveform]:
    """The recording or composition of a name."""
    return compositions.waveform


@pytest.fixture(scope="session")
def network() -> FsmnNetwork:
    return FsmnNetwork.load()


@pytest.fixture(scope="session")
def segmenter(network: FsmnNetwork) -> Segmenter:
    return Segmenter(network)


@pytest.fixture(scope="session")
def score(network: FsmnNetwork) -> Callable[[Waveform], Scorer]:
    """Scores a whole waveform."""

    def scored(samples: Waveform) -> Scorer:
        scorer = Scorer(network, samples)
        while not scorer.done:
            scorer.step()
        return scorer

    return scored
