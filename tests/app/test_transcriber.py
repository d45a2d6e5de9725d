from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from app.decoder import DecoderPool
from app.pipeline import Pipeline
from app.recordings import Recording
from app.settings import Settings
from app.transcriber import Outcome, Transcriber
from audio.decode import DecodeLimits
from audio.errors import UndecodableAudio
from engine.device import DeviceGone

ROOT = Path(__file__).parents[2]


@pytest.fixture
def device(new_device: Any) -> Any:
    return new_device()


@pytest.fixture
def decoder(new_decoder: Any) -> Any:
    """A decoder that holds every path in `held` until its event is set; "bug" is one in the decoder."""

    class Decoder(new_decoder):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.held: dict[str, threading.Event] = {}

        async def decode(self, audio: Any, into: Any, *, channel: Any) -> None:
            if str(audio.content).endswith("bug"):
                raise RuntimeError("a bug")
            if event := self.held.get(audio.content):
                await asyncio.to_thread(event.wait, 10)
            await super().decode(audio, into, channel=channel)

    return Decoder()


@pytest.fixture
def transcriber(device: Any, decoder: Any) -> Iterator[Transcriber]:
    with Transcriber(Pipeline(decoder=decoder, device=device), parallel=2) as transcriber:
        yield transcriber


@pytest.fixture
def files(tmp_path: Path, pcm: Callable[..., bytes]) -> list[str]:
    paths = []
    for number in range(1, 9):
        paths.append(str(tmp_path / f"{number}.wav"))
        Path(paths[-1]).write_bytes(b"FAKE" + pcm(number))
    return paths


def sound(number: int, seconds: int = 1) -> np.ndarray[Any, np.dtype[np.float32]]:
    """What the fake device hears as "number <number>" a second."""
    return np.full(16_000 * seconds, number / 32768, np.float32)


def texts(outcomes: Iterator[Outcome]) -> list[str]:
    return [outcome.transcript.text if outcome.transcript else f"! {outcome.error}" for outcome in outcomes]


def test_a_path_or_an_array(transcriber: Transcriber, files: list[str]) -> None:
    assert transcriber.transcribe(files[1]).text == "number 2."
    assert transcriber.transcribe(Path(files[1])).text == "number 2."
    transcript = transcriber.transcribe(sound(3, seconds=2).astype(np.float64))
    assert transcript.text == "number 3. number 3."
    assert transcript.duration == 2.0
    assert transcriber.capabilities.model == "whisper-base"


def test_one_that_fails_raises(transcriber: Transcriber, tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"junk")
    with pytest.raises(UndecodableAudio):
        transcriber.transcribe(tmp_path / "junk")
    with pytest.raises(FileNotFoundError):
        transcriber.transcribe(tmp_path / "missing")
    with pytest.raises(ValueError, match="divided by 32768"):
        transcriber.transcribe(np.zeros(100, np.int16))
    assert transcriber.transcribe(sound(1)).text == "number 1."


def test_options_reach_the_recogniser(transcriber: Transcriber, device: Any) -> None:
    transcript = transcriber.transcribe(
        sound(1), language="German", hotwords="a，b", itn=False, max_new_tokens=7, word_timestamps=False
    )
    list(transcriber.transcribe_all(sound(1), hotwords=["c", "d,c"]))
    first, second = device.asked
    assert (first.language, first.hotwords, first.itn, first.max_new_tokens) == ("de", ("a", "b"), False, 7)
    assert transcript.segments[0].words is None
    assert (second.language, second.hotwords, second.itn, second.max_new_tokens) == (None, ("c", "d"), True, None)
    assert second.word_timestamps


def test_options_that_cannot_be_honoured_are_told_at_once(transcriber: Transcriber) -> None:
    for options, message in (({"language": "klingon"}, "Invalid `language`"), ({"max_new_tokens": 0}, "at least 1")):
        with pytest.raises(ValueError, match=message):
            transcriber.transcribe_all(["x"], **options)  # type: ignore[arg-type]


def test_in_the_order_of_the_inputs(transcriber: Transcriber, decoder: Any, files: list[str]) -> None:
    """The first comes first though it gets ready last, and the others go on meanwhile."""
    decoder.held[files[0]] = threading.Event()
    threading.Timer(0.2, decoder.held[files[0]].set).start()
    outcomes = list(transcriber.transcribe_all(files))
    assert [outcome.key for outcome in outcomes] == files
    assert [outcome.path for outcome in outcomes] == files
    assert texts(iter(outcomes)) == [f"number {number}." for number in range(1, 9)]
    assert len(decoder.decoded) == 8
    assert decoder.decoded[-1].content == files[0], "the rest was done in the meantime"


def test_as_they_get_ready(transcriber: Transcriber, decoder: Any, files: list[str]) -> None:
    held = decoder.held[files[0]] = threading.Event()
    outcomes = transcriber.transcribe_all(files, in_order=False)
    keys = [next(outcomes).key for _ in files[1:]]
    held.set()
    assert sorted(keys) == files[1:]
    assert next(outcomes).key == files[0]
    assert next(outcomes, None) is None


@pytest.mark.parametrize("in_order", [True, False])
def test_the_run_waits_for_whoever_takes_its_outcomes(transcriber: Transcriber, in_order: bool) -> None:
    pulled = []

    def archive() -> Iterator[Recording]:
        for number in range(100_000):
            pulled.append(number)
            yield Recording(str(number), sound(1 + number % 9))

    with closing(transcriber.transcribe_all(archive(), in_order=in_order)) as outcomes:
        for taken in range(1, 50):
            next(outcomes)
            assert len(pulled) <= taken + 8


def test_a_slow_first_one_bounds_what_waits_behind_it(
    transcriber: Transcriber, decoder: Any, files: list[str], tmp_path: Path
) -> None:
    held = decoder.held[files[0]] = threading.Event()
    pulled = []

    def inputs() -> Iterator[Any]:
        yield files[0]
        for number in range(1000):
            pulled.append(number)
            yield sound(1)

    threading.Timer(0.5, held.set).start()
    with closing(transcriber.transcribe_all(inputs())) as outcomes:
        assert next(outcomes).key == files[0]
        assert len(pulled) <= 8


def test_a_slow_source_holds_up_no_outcome(transcriber: Transcriber) -> None:
    """What is ready is handed out though the inputs could be asked for more."""
    ahead = []

    def inputs() -> Iterator[Any]:
        for number in range(1, 5):
            ahead.append(number)
            yield sound(number)
            time.sleep(0.05)

    found = [(texts(iter([outcome])), len(ahead)) for outcome in transcriber.transcribe_all(inputs())]
    assert [text for text, _ in found] == [[f"number {number}."] for number in range(1, 5)]
    assert found[0][1] < 4


def test_errors_do_not_end_a_run(
    transcriber: Transcriber, files: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "junk").write_bytes(b"junk")
    (tmp_path / "bug").touch()
    scp = tmp_path / "wav.scp"
    scp.write_text(f"one {files[0]}\ntwo cat {files[1]} |\nthree {files[2]}")
    inputs = [tmp_path / "junk", tmp_path / "missing", sound(1)[:0], sound(1).reshape(2, -1), tmp_path / "bug", scp]
    found = texts(transcriber.transcribe_all(inputs))
    assert found == [
        "! this is no recording",
        f"! [Errno 2] No such file or directory: '{tmp_path}/missing'",
        "! the array holds no samples",
        "! a waveform is mono and has one dimension, not the shape (2, 8000)",
        "! a bug",
        "number 1.",
        "! commands in a wav.scp are not run; give the path of a file",
        "number 3.",
    ]
    assert [record.levelname for record in caplog.records] == ["ERROR"], "our own fault is logged"


def test_no_inputs(transcriber: Transcriber) -> None:
    assert list(transcriber.transcribe_all([])) == []


def test_silence(transcriber: Transcriber, device: Any) -> None:
    assert transcriber.transcribe(sound(0)).text == ""
    assert device.asked == []


def test_progress(transcriber: Transcriber) -> None:
    heard: list[tuple[str, float]] = []
    list(transcriber.transcribe_all(Recording("x", sound(1, seconds=3)), progress=lambda *told: heard.append(told)))
    assert heard == [("x", 1.0), ("x", 2.0), ("x", 3.0)]


async def test_inside_a_running_loop(transcriber: Transcriber) -> None:
    """As in a notebook."""
    assert texts(transcriber.transcribe_all([sound(1), sound(2)])) == ["number 1.", "number 2."]


def test_from_many_threads(transcriber: Transcriber) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda number: transcriber.transcribe(sound(number)).text, range(1, 33)))
    assert found == [f"number {number}." for number in range(1, 33)]


def test_closing_ends_what_waits_in_another_thread(transcriber: Transcriber, device: Any, decoder: Any) -> None:
    device.running.clear()
    outcomes = transcriber.transcribe_all(sound(1) for _ in range(1000))

    def take() -> None:
        with pytest.raises(RuntimeError, match="closed meanwhile"):
            next(outcomes)

    thread = threading.Thread(target=take)
    thread.start()
    while device.under_way < 2:
        thread.join(0.001)
    transcriber.close()
    thread.join()
    assert device.under_way == 0
    assert device.cancelled == 2
    assert device.closed
    assert decoder.closed


def test_leaving_a_run_early_cancels_the_rest(transcriber: Transcriber, device: Any) -> None:
    with closing(transcriber.transcribe_all([sound(0)] + [sound(1)] * 100)) as outcomes:
        device.running.clear()
        assert next(outcomes).transcript
        while device.under_way < 1:
            time.sleep(0.001)
    while device.under_way:
        time.sleep(0.001)
    assert 1 <= device.cancelled <= 2
    device.running.set()
    assert transcriber.transcribe(sound(3)).text == "number 3."


def test_after_the_end(transcriber: Transcriber) -> None:
    transcriber.close()
    transcriber.close()
    with pytest.raises(RuntimeError, match="closed"):
        transcriber.transcribe(sound(1))
    assert not [thread for thread in threading.enumerate() if thread.name == "tinglu-transcriber"]


def test_models_that_do_not_load(device: Any, decoder: Any) -> None:
    device.failure = "out of memory"
    with pytest.raises(DeviceGone, match="out of memory"):
        Transcriber(Pipeline(decoder=decoder, device=device))
    assert decoder.closed


def test_a_device_that_dies_ends_the_run(transcriber: Transcriber, device: Any) -> None:
    outcomes = transcriber.transcribe_all(sound(1) for _ in range(1000))
    next(outcomes)
    device.failure = "crashed"
    with pytest.raises(DeviceGone, match="crashed"):
        list(outcomes)


def test_the_examples_of_the_documentation(
    device: Any, runtime: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On real recordings, by a device that hears numbers."""
    asked: list[Settings] = []

    def build_pipeline(settings: Settings, *, in_process: bool) -> Pipeline:
        assert in_process
        asked.append(settings)
        return Pipeline(decoder=DecoderPool(workers=1, limits=DecodeLimits()), device=device)

    monkeypatch.setattr(runtime, "build_pipeline", build_pipeline, raising=False)
    monkeypatch.chdir(ROOT)
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "library.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    for example in examples:
        exec(compile(example, "docs/library.md", "exec"), names)
    out = capsys.readouterr().out
    assert len(examples) >= 2
    assert asked[0].model == "whisper-base"
    assert "number" in out
    assert "nowhere.wav: [Errno 2]" in out
