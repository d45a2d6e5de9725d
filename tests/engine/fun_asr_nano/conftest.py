from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray

from engine.catalog import ResolvedModel
from engine.fun_asr_nano.checkpoint import Checkpoint
from engine.fun_asr_nano.recognizer import FunAsrNanoRecognizer
from engine.stage import Output

TESTS = Path(__file__).parents[2]
NANO_TINY = TESTS / "parity" / "nano-tiny"
Tensors = dict[str, torch.Tensor]
Run = Callable[[FunAsrNanoRecognizer], list[Output]]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads that fight over cores cost more than they bring on tensors this small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def nano_tiny() -> Path:
    """The random checkpoint in the published layout that the goldens were made with."""
    return NANO_TINY


@pytest.fixture(scope="session")
def golden() -> Mapping[str, Any]:
    content: Mapping[str, Any] = json.loads((TESTS / "parity" / "golden" / "nano.json").read_text(encoding="utf-8"))
    return content


@pytest.fixture(scope="session")
def arrays() -> Mapping[str, NDArray[np.float32]]:
    with np.load(TESTS / "parity" / "golden" / "nano.npz") as file:
        return {name: file[name] for name in file.files}


@pytest.fixture(scope="session")
def waveform() -> Callable[[str], NDArray[np.float32]]:
    """A recording by name, float32 at 16 kHz."""

    def read(name: str) -> NDArray[np.float32]:
        samples, rate = soundfile.read(TESTS / "data" / f"{name}.wav", dtype="float32")
        assert rate == 16000
        return np.asarray(samples)

    return read


@pytest.fixture(scope="session")
def checkpoint() -> Checkpoint:
    return Checkpoint.open(NANO_TINY)


@pytest.fixture
def model_directory(tmp_path: Path) -> Path:
    """A copy of the tiny checkpoint that a test may spoil."""
    directory = tmp_path / "model"
    shutil.copytree(NANO_TINY, directory)
    return directory


@pytest.fixture
def change_tensors(model_directory: Path) -> Callable[[Callable[[Tensors], object]], None]:
    """Rewrite `model.pt` of the copy: the change gets its tensors; what it returns, if anything, is saved instead."""

    def change(by: Callable[[Tensors], object]) -> None:
        file = model_directory / "model.pt"
        tensors: Tensors = torch.load(file, weights_only=True)["state_dict"]
        replaced = by(tensors)
        torch.save({"state_dict": tensors} if replaced is None else replaced, file)

    return change


@pytest.fixture(scope="session")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FunAsrNanoRecognizer]:
    """The tiny checkpoint with real vLLM, loaded as a server does. Its decoder may be lent to other recognisers."""
    from engine.fun_asr_nano.load import load_fun_asr_nano

    cache = tmp_path_factory.mktemp("cache")
    recognizer = load_fun_asr_nano(ResolvedModel("fun-asr-nano", "fun_asr_nano", NANO_TINY), "cpu", cache)
    yield recognizer
    recognizer.close()


@pytest.fixture(scope="session")
def run() -> Run:
    """Steps a recogniser until it has nothing to do."""

    def until_done(recognizer: FunAsrNanoRecognizer) -> list[Output]:
        outputs: list[Output] = []
        for _ in range(20_000):
            if not recognizer.busy:
                return outputs
            outputs += recognizer.step()
        raise AssertionError("the recogniser does not come to an end")

    return until_done
