"""The recogniser's own logic, with an engine that answers from a script instead of a model."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from audio.shared import Waveform
from audio.span import SAMPLE_RATE, Span
from engine.native.recognizer import NativeRecognizer
from engine.native.speech_model import EngineRequest, Reading, check_options
from engine.recognition import Capabilities, DecodingOptions, Hypothesis, Recognition
from engine.stage import Output

Answer = Callable[[Waveform], tuple[str, str]]


class ScriptedEngine:
    """Finishes every request in the step after it came, with the text and finish reason of the script."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.running: dict[str, EngineRequest] = {}
        self.aborted: list[str] = []
        self.most_running = 0

    def add_request(self, request_id: str, prompt: Any, params: Any) -> None:
        if params == "refused":
            raise ValueError("vLLM refuses this")
        self.running[request_id] = EngineRequest(prompt, params)
        self.most_running = max(self.most_running, len(self.running))

    def abort_request(self, request_ids: list[str]) -> None:
        self.aborted += request_ids
        for request_id in request_ids:
            del self.running[request_id]

    def step(self) -> list[Any]:
        results = []
        for request_id, request in self.running.items():
            text, reason = ("de", "length") if request.params == "detect" else self.answer(request.prompt)
            completion = SimpleNamespace(text=text, finish_reason=reason, cumulative_logprob=-2.0, token_ids=[1, 2])
            results.append(SimpleNamespace(request_id=request_id, finished=True, outputs=[completion]))
        self.running = {}
        return results


class ScriptedModel:
    def __init__(self, *, detects_language: bool = False) -> None:
        self.asked: list[str | None] = []
        self.capabilities = Capabilities("scripted", 30.0, ("en", "de", "zh"), False, False, False, detects_language)

    def check(self, options: DecodingOptions) -> None:
        check_options(options, self.capabilities)

    def detection(self, audio: Waveform, key: str) -> EngineRequest:
        return EngineRequest(audio, "detect")

    def detected(self, tokens: tuple[int, ...]) -> str:
        return "de"

    def transcription(self, audio: Waveform, key: str, language: str | None, options: DecodingOptions) -> EngineRequest:
        self.asked.append(language)
        return EngineRequest(audio, "refused" if options.prompt == "refuse me" else "text")

    def read(self, completion: Any) -> Reading:
        return Reading(completion.text, tuple(completion.token_ids))


def _seconds(audio: Waveform) -> tuple[str, str]:
    return f"{len(audio) / SAMPLE_RATE:g}", "stop"


def _recognizer(answer: Answer = _seconds, in_flight: int = 8, **model: bool) -> tuple[NativeRecognizer, Any, Any]:
    engine, scripted = ScriptedEngine(answer), ScriptedModel(**model)
    return NativeRecognizer(engine, scripted, aligner=None, tap=None, in_flight=in_flight), engine, scripted


def _run(recognizer: NativeRecognizer) -> list[Output]:
    outputs: list[Output] = []
    for _ in range(1000):
        if not recognizer.busy:
            return outputs
        outputs += recognizer.step()
    raise AssertionError("the recogniser does not come to an end")


def _speech(seconds: float) -> Waveform:
    return np.random.default_rng(0).normal(0.0, 0.1, round(seconds * SAMPLE_RATE)).astype(np.float32)


def _only(recognizer: NativeRecognizer) -> Hypothesis:
    (output,) = _run(recognizer)
    assert output.error is None
    assert output.last
    value: Hypothesis = output.value
    return value


def test_every_segment_comes_back_once_and_only_the_last_ends_the_call() -> None:
    recognizer, engine, _ = _recognizer(in_flight=5)
    spans = tuple(Span(float(start), start + 1.0 + start / 10) for start in range(9))
    for call_id in range(3):
        recognizer.submit(call_id, _speech(12.0), Recognition(spans))
    outputs = _run(recognizer)
    for call_id in range(3):
        mine = [output for output in outputs if output.call_id == call_id]
        assert sorted(output.value.index for output in mine) == list(range(9))
        assert [output.last for output in mine] == [False] * 8 + [True]
        assert all(output.value.text == f"{1.0 + output.value.index / 10:g}" for output in mine)
    assert engine.most_running <= 5


def test_a_call_without_segments_ends_at_once() -> None:
    recognizer, _, _ = _recognizer()
    recognizer.submit(7, _speech(1.0), Recognition(()))
    assert _run(recognizer) == [Output(7)]


def test_clips_without_a_sample_say_nothing() -> None:
    recognizer, _, model = _recognizer(detects_language=True)
    recognizer.submit(1, _speech(0.0), Recognition((Span(0.0, 0.0), Span(3.0, 4.0))))
    outputs = _run(recognizer)
    assert [output.value.text for output in outputs] == ["", ""]
    assert outputs[-1].last
    assert model.asked == []


def test_the_language_of_the_first_speech_is_everyones() -> None:
    recognizer, _, model = _recognizer(detects_language=True)
    recognizer.submit(1, _speech(10.0), Recognition((Span(0.0, 0.5), Span(1.0, 4.0), Span(5.0, 9.0))))
    assert {output.value.language for output in _run(recognizer)} == {"de"}
    assert model.asked == ["de"] * 3


def test_a_given_language_is_not_detected() -> None:
    recognizer, _, model = _recognizer(detects_language=True)
    request = Recognition((Span(0.0, 1.0),), DecodingOptions(language="zh"))
    recognizer.submit(1, _speech(1.0), request)
    assert _only(recognizer).language == "zh"
    assert model.asked == ["zh"]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            Recognition((Span(0.0, 1.0),), DecodingOptions(language="xx")),
            "does not know the language 'xx'; it knows en",
        ),
        (Recognition((Span(0.0, 1.0),), DecodingOptions(task="translate")), "cannot translate"),
        (Recognition((Span(0.0, 1.0),), DecodingOptions(temperature=3.0)), "temperature"),
        (Recognition((Span(0.0, 1.0),), DecodingOptions(max_new_tokens=0)), "max_new_tokens"),
        (Recognition((Span(0.0, 30.5),)), r"30.500 s is too long, 30 s"),
        (Recognition((Span(2.0, 1.0),)), "impossible"),
    ],
)
def test_what_cannot_be_served_is_refused_and_hurts_nobody(request_: Recognition, message: str) -> None:
    recognizer, _, _ = _recognizer()
    recognizer.submit(1, _speech(2.0), Recognition((Span(0.0, 2.0),)))
    with pytest.raises(ValueError, match=message):
        recognizer.submit(2, _speech(40.0), request_)
    assert _only(recognizer).text == "2"


def test_an_error_ends_its_own_call_only() -> None:
    recognizer, engine, _ = _recognizer()
    spans = (Span(0.0, 1.0), Span(1.0, 2.0))
    broken = _speech(2.0)
    broken[20_000] = np.nan
    recognizer.submit(1, broken, Recognition(spans))
    recognizer.submit(2, _speech(2.0), Recognition(spans, DecodingOptions(prompt="refuse me")))
    recognizer.submit(3, _speech(2.0), Recognition(spans))
    outputs = _run(recognizer)
    assert {output.call_id for output in outputs if output.error} == {1, 2}
    assert [output.value.text for output in outputs if output.call_id == 3] == ["1", "1"]
    assert not engine.running


def test_cancelling_frees_the_engine_and_silences_the_call() -> None:
    recognizer, engine, _ = _recognizer(in_flight=6)
    recognizer.submit(1, _speech(20.0), Recognition(tuple(Span(float(i), i + 1.0) for i in range(20))))
    recognizer.submit(2, _speech(1.0), Recognition((Span(0.0, 1.0),)))
    recognizer.step()
    (other,) = [key for key in engine.running if key.startswith("clip-20-")]
    running = sorted(set(engine.running) - {other})
    recognizer.cancel(1)
    assert engine.aborted == running
    assert list(engine.running) == [other]
    assert [output.call_id for output in _run(recognizer)] == [2]
    recognizer.cancel(1)
    recognizer.cancel(99)
    recognizer.submit(1, _speech(1.0), Recognition((Span(0.0, 1.0),)))
    assert _only(recognizer).text == "1"


def test_an_id_cannot_run_twice() -> None:
    recognizer, _, _ = _recognizer()
    recognizer.submit(1, _speech(1.0), Recognition((Span(0.0, 1.0),)))
    with pytest.raises(ValueError, match="still running"):
        recognizer.submit(1, _speech(1.0), Recognition((Span(0.0, 1.0),)))


@pytest.mark.field("B3")
def test_a_loop_is_decoded_again_in_halves() -> None:
    def answer(audio: Waveform) -> tuple[str, str]:
        return ("and so on " * 40, "stop") if len(audio) > 12 * SAMPLE_RATE else _seconds(audio)

    recognizer, _, _ = _recognizer(answer)
    recognizer.submit(1, _speech(20.0), Recognition((Span(0.0, 20.0),), DecodingOptions(language="en")))
    hypothesis = _only(recognizer)
    parts = [float(part) for part in hypothesis.text.split()]
    assert len(parts) in (2, 3)
    assert sum(parts) == pytest.approx(20.0, abs=1e-3)
    assert hypothesis.warnings == ()


@pytest.mark.field("B3")
def test_what_stays_a_loop_is_cut_to_one_copy_with_a_warning() -> None:
    recognizer, _, _ = _recognizer(lambda _: ("Well. " + "Thank you for watching. " * 100 + "Goodbye.", "stop"))
    recognizer.submit(1, _speech(3.0), Recognition((Span(0.0, 3.0),)))
    hypothesis = _only(recognizer)
    assert hypothesis.text == "Well. Thank you for watching. Goodbye."
    assert any("loop" in warning for warning in hypothesis.warnings)


@pytest.mark.field("B6")
def test_a_refrain_is_no_loop() -> None:
    refrain = "我们一起唱，" * 4 + "再见。"
    recognizer, _, _ = _recognizer(lambda _: (refrain, "stop"))
    recognizer.submit(1, _speech(3.0), Recognition((Span(0.0, 3.0),)))
    assert _only(recognizer).text == refrain


@pytest.mark.field("B7")
def test_a_text_cut_off_at_the_limit_is_decoded_again_and_never_silent() -> None:
    recognizer, _, _ = _recognizer(lambda audio: (_seconds(audio)[0], "length"))
    recognizer.submit(1, _speech(8.0), Recognition((Span(0.0, 8.0),), DecodingOptions(language="zh")))
    hypothesis = _only(recognizer)
    assert hypothesis.finish_reason == "length"
    assert len(hypothesis.warnings) == 1
    assert "may be incomplete" in hypothesis.warnings[0]
    assert len(hypothesis.tokens) > 2


def test_a_limit_that_the_user_set_is_not_worked_around() -> None:
    recognizer, _, model = _recognizer(lambda _: ("and so", "length"))
    recognizer.submit(1, _speech(8.0), Recognition((Span(0.0, 8.0),), DecodingOptions(max_new_tokens=2)))
    hypothesis = _only(recognizer)
    assert (hypothesis.text, hypothesis.finish_reason) == ("and so", "length")
    assert "max_new_tokens" in hypothesis.warnings[0]
    assert len(model.asked) == 1


def test_closing_ends_what_runs() -> None:
    recognizer, engine, _ = _recognizer()
    engine.engine_core = SimpleNamespace(shutdown=lambda: engine.aborted.append("shut down"))
    recognizer.submit(1, _speech(1.0), Recognition((Span(0.0, 1.0),)))
    recognizer.step()
    recognizer.close()
    assert not recognizer.busy
    assert engine.aborted[-1] == "shut down"


def test_a_short_call_does_not_wait_for_a_long_one() -> None:
    recognizer, _, _ = _recognizer(in_flight=4)
    recognizer.submit(0, _speech(200.0), Recognition(tuple(Span(float(start), start + 1.0) for start in range(200))))
    recognizer.step()
    for call_id in range(1, 9):
        recognizer.submit(call_id, _speech(2.0), Recognition((Span(0.0, 1.0), Span(1.0, 2.0))))
    finished = [output.call_id for output in _run(recognizer)]
    assert sorted(finished) == [0] * 200 + sorted([*range(1, 9)] * 2)
    assert max(finished.index(call_id) for call_id in range(1, 9)) < 20
    assert finished[32:] == [0] * (len(finished) - 32)


def test_it_counts_what_it_does() -> None:
    recognizer, _, _ = _recognizer()
    recognizer.submit(0, _speech(4.0), Recognition((Span(0.0, 1.0), Span(2.0, 4.0))))
    _run(recognizer)
    assert recognizer.counters["clips"] == 2
    assert recognizer.counters["llm_seconds"] > 0
    assert recognizer.gauges == {"waiting_clips": 0}


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_recording_is_let_go_of_at_once(cancelled: bool) -> None:
    recognizer, _, _ = _recognizer(lambda audio: ("so " * 30, "length") if len(audio) > 80_000 else ("ok", "stop"))
    audio = _speech(9.0)
    held = weakref.ref(audio)
    gc.disable()  # it may come hours later
    try:
        recognizer.submit(0, audio, Recognition((Span(0.0, 1.0), Span(1.0, 9.0))))
        del audio
        if cancelled:
            for _ in range(4):
                recognizer.step()
            recognizer.cancel(0)
        else:
            _run(recognizer)
        assert held() is None
    finally:
        gc.enable()
