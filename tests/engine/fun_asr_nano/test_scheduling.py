"""The recogniser's own logic, with a decoder that answers from a script instead of a language model."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from audio.shared import Waveform
from audio.span import Span, to_samples
from engine.fun_asr_nano import load
from engine.fun_asr_nano.alignment import AlignmentJob, CtcAligner
from engine.fun_asr_nano.call import Call, Piece, Segment
from engine.fun_asr_nano.checkpoint import Checkpoint
from engine.fun_asr_nano.decoding import Completion, check_prompt
from engine.fun_asr_nano.errors import TensorMismatch
from engine.fun_asr_nano.load import assemble
from engine.fun_asr_nano.options import token_limit
from engine.fun_asr_nano.placing import AlignedPiece
from engine.fun_asr_nano.prompt import NanoTokenizer, Prompt
from engine.fun_asr_nano.recognizer import BatchLimits, FunAsrNanoRecognizer
from engine.fun_asr_nano.waiting import FairQueue
from engine.recognition import DecodingOptions, FinishReason, Hypothesis, Recognition
from engine.stage import Output

Run = Callable[[FunAsrNanoRecognizer], list[Output]]
Answer = Callable[[int], tuple[str, FinishReason]]
"""From the token limit, which tells the length of the sound, to what is written for it."""


class ScriptedDecoder:
    """Finishes every prompt some steps after it came."""

    def __init__(self, tokenizer: NanoTokenizer, answer: Answer, *, capacity: int, steps: int) -> None:
        self._tokenizer, self._answer, self._steps = tokenizer, answer, steps
        self.capacity, self.context, self.width = capacity, 2048, 64
        self.running: dict[str, list[int]] = {}
        self.limits: list[int] = []
        self.most_running = 0

    def add(self, key: str, prompt: Tensor, *, max_new_tokens: int, temperature: float, logprobs: bool = False) -> None:
        check_prompt(self, prompt, max_new_tokens)
        if temperature == 0.5:
            raise ValueError("refused by the decoder")
        self.limits.append(max_new_tokens)
        self.running[key] = [self._steps, max_new_tokens]
        self.most_running = max(self.most_running, len(self.running))

    def abort(self, keys: Sequence[str]) -> None:
        for key in keys:
            del self.running[key]

    def step(self) -> list[Completion]:
        done = []
        for key, state in list(self.running.items())[: self.capacity]:
            state[0] -= 1
            if state[0] <= 0:
                text, reason = self._answer(state[1])
                done.append(Completion(key, tuple(self._tokenizer.encode(text)), reason))
                del self.running[key]
        return done

    def close(self) -> None:
        self.running.clear()


class BrokenAligner(CtcAligner):
    def pieces(self, jobs: Sequence[AlignmentJob], *, probabilities: bool = True) -> list[list[AlignedPiece] | None]:
        if any(job.text != "a" for job in jobs):  # the warm-up passes
            raise RuntimeError("no memory")
        return super().pieces(jobs, probabilities=probabilities)


def say_ok(limit: int) -> tuple[str, FinishReason]:
    return "ok", "stop"


@pytest.fixture
def build(checkpoint: Checkpoint) -> Callable[..., tuple[FunAsrNanoRecognizer, ScriptedDecoder]]:
    tokenizer = NanoTokenizer(checkpoint.paths.llm / "tokenizer.json", vocabulary=checkpoint.config.llm.vocabulary)

    def make(
        answer: Answer = say_ok, *, capacity: int = 8, steps: int = 3, aligner: type[CtcAligner] = CtcAligner
    ) -> tuple[FunAsrNanoRecognizer, ScriptedDecoder]:
        decoder = ScriptedDecoder(tokenizer, answer, capacity=capacity, steps=steps)
        recognizer = assemble("fun-asr-nano", checkpoint, decoder, device="cpu", dtype=torch.float32, aligner=aligner)
        return recognizer, decoder

    return make


def speech(seconds: float) -> Waveform:
    """Noise that cannot be written to, as a waveform that the app shares."""
    noise = np.random.default_rng(0).normal(0.0, 0.1, to_samples(seconds)).astype(np.float32)
    noise.setflags(write=False)
    return noise


def whole(waveform: Waveform) -> Recognition:
    return Recognition((Span(0.0, len(waveform) / 16000),))


def only(outputs: list[Output]) -> Hypothesis:
    (output,) = outputs
    assert output.error is None
    assert output.last
    value: Hypothesis = output.value
    return value


def test_every_segment_comes_back_once_and_only_the_last_ends_the_call(build: Any, run: Run) -> None:
    recognizer, decoder = build(capacity=4)
    spans = tuple(Span(float(start), start + 0.5 + start / 10) for start in range(9))
    for call_id in range(3):
        recognizer.submit(call_id, speech(12.0), Recognition(spans))
    outputs = run(recognizer)
    for call_id in range(3):
        mine = [output for output in outputs if output.call_id == call_id]
        assert sorted(output.value.index for output in mine) == list(range(9))
        assert [output.last for output in mine] == [False] * 8 + [True]
    assert decoder.most_running <= 5
    recognizer.close()


def test_a_short_call_is_not_behind_a_long_one(build: Any) -> None:
    recognizer, _ = build(capacity=8)
    long = speech(10.0)
    recognizer.submit(1, long, Recognition(tuple(Span(0.0, 5.0 + 0.01 * n) for n in range(300))))
    for _ in range(10):
        recognizer.step()
    recognizer.submit(2, long, Recognition((Span(0.0, 1.0),)))
    outputs: list[Output] = []
    while not any(output.call_id == 2 for output in outputs):
        outputs += recognizer.step()
    assert len(outputs) < 30
    recognizer.cancel(1)
    assert not recognizer.busy
    recognizer.close()


def test_a_call_without_segments_ends_at_once(build: Any, run: Run) -> None:
    recognizer, _ = build()
    recognizer.submit(7, speech(1.0), Recognition(()))
    assert run(recognizer) == [Output(7)]


def test_clips_without_sound_say_nothing(build: Any, run: Run) -> None:
    recognizer, decoder = build()
    waveform = np.concatenate([speech(0.02), np.zeros(16000, np.float32), speech(1.0)])
    recognizer.submit(1, waveform, Recognition((Span(0, 0), Span(0, 0.02), Span(0.1, 0.9), Span(5, 6), Span(1.1, 2))))
    outputs = run(recognizer)
    texts = {output.value.index: output.value.text for output in outputs}
    assert texts == {0: "", 1: "", 2: "", 3: "", 4: "ok"}
    assert {output.value.words for output in outputs if not output.value.text} == {()}
    assert len(decoder.limits) == 1


@pytest.mark.field("B7")
def test_a_text_that_the_limit_cut_off_is_decoded_again_in_halves(build: Any, run: Run) -> None:
    recognizer, decoder = build(lambda limit: ("too much", "length") if limit > 200 else ("half", "stop"))
    waveform = speech(12.0).copy()
    waveform[to_samples(5.0) : to_samples(5.4)] *= 0.01
    recognizer.submit(1, waveform, whole(waveform))
    hypothesis = only(run(recognizer))
    assert hypothesis.text == "half half"
    assert hypothesis.finish_reason == "stop"
    assert hypothesis.warnings == ()
    assert hypothesis.words is not None
    assert "".join(word.text for word in hypothesis.words) == hypothesis.text
    assert hypothesis.words[-1].start >= 5.0
    assert decoder.limits[0] == token_limit(12.0) == 224
    assert sum(decoder.limits[1:]) == pytest.approx(224 + 32, abs=2)


@pytest.mark.field("B3")
def test_what_still_loops_is_cut_to_one_copy_and_the_tail_stays(build: Any, run: Run) -> None:
    recognizer, decoder = build(lambda limit: ("we are" + " going home" * 12 + " now", "stop"))
    recognizer.submit(1, speech(30.0), whole(speech(30.0)))
    hypothesis = only(run(recognizer))
    assert hypothesis.text.startswith("we are going home now we are")
    assert hypothesis.text.count("going home") == len(decoder.limits[7:])
    assert any("loop" in warning for warning in hypothesis.warnings)


@pytest.mark.field("B7")
def test_a_short_text_that_was_cut_off_gets_a_warning(build: Any, run: Run) -> None:
    recognizer, decoder = build(lambda limit: ("some", "length"))
    recognizer.submit(1, speech(2.0), whole(speech(2.0)))
    hypothesis = only(run(recognizer))
    assert hypothesis.finish_reason == "length"
    assert any("incomplete" in warning for warning in hypothesis.warnings)
    assert len(decoder.limits) == 1


def test_halves_in_chinese_are_joined_without_a_space(build: Any, run: Run) -> None:
    recognizer, _ = build(lambda limit: ("一", "length" if limit > 200 else "stop"))
    recognizer.submit(1, speech(12.0), whole(speech(12.0)))
    hypothesis = only(run(recognizer))
    assert hypothesis.text == "一一"
    assert hypothesis.words is not None
    assert "".join(word.text for word in hypothesis.words) == hypothesis.text


def test_what_the_decoder_refuses_ends_only_its_call(build: Any, run: Run) -> None:
    recognizer, decoder = build()
    recognizer.submit(1, speech(3.0), Recognition((Span(0, 1), Span(1, 3)), DecodingOptions(temperature=0.5)))
    recognizer.submit(2, speech(3.0), Recognition((Span(0, 1), Span(1, 3))))
    outputs = run(recognizer)
    assert [str(output.error) for output in outputs if output.error] == ["refused by the decoder"]
    assert sorted(output.value.index for output in outputs if output.call_id == 2) == [0, 1]
    assert decoder.running == {}


def test_an_aligner_that_breaks_costs_the_times_and_not_the_text(
    build: Any, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    recognizer, _ = build(aligner=BrokenAligner)
    recognizer.submit(1, speech(3.0), whole(speech(3.0)))
    hypothesis = only(run(recognizer))
    assert hypothesis.text == "ok"
    assert hypothesis.words is None
    assert any("word times" in warning for warning in hypothesis.warnings)
    assert "no memory" in caplog.text


def test_words_of_processes_are_those_of_a_thread(build: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several batches under way, and calls that are given up meanwhile."""
    request = Recognition(tuple(Span(float(start), start + 2.0) for start in range(10)))
    answers: list[dict[tuple[int, int], Hypothesis]] = []
    for count in (0, 2):
        monkeypatch.setitem(load._WORD_PROCESSES, "cpu", count)
        recognizer, _ = build(lambda limit: ("ok, 5 o'clock", "stop"), capacity=16)
        for call in range(6):
            recognizer.submit(call, speech(12.0), request)
        outputs: list[Output] = []
        while len(outputs) < 15:
            outputs += recognizer.step()
        for call in (1, 4):
            recognizer.cancel(call)
        outputs += run(recognizer)
        found = {(output.call_id, output.value.index): output.value for output in outputs}
        answers.append({key: found[key] for key in sorted(found) if key[0] not in (1, 4)})
        recognizer.close()
    assert len(answers[0]) == 40
    assert answers[0] == answers[1]
    assert all(
        "".join(word.text for word in hypothesis.words or ()) == "ok, 5 o'clock" for hypothesis in answers[1].values()
    )


@pytest.mark.parametrize(("patience", "crowd", "batches"), [(0.0, 2, [4, 1]), (600.0, 2, [4]), (600.0, 5, [4, 1])])
def test_the_encoder_waits_for_more_only_while_many_are_decoded(
    build: Any, monkeypatch: pytest.MonkeyPatch, patience: float, crowd: int, batches: list[int]
) -> None:
    limits = BatchLimits(rows=1024, pieces=16, crowd=crowd, patience_seconds=patience)
    monkeypatch.setitem(load._LIMITS, "cpu", limits)
    recognizer, decoder = build(capacity=16, steps=50)
    for call in range(4):
        recognizer.submit(call, speech(2.0), whole(speech(2.0)))
    for _ in range(3):
        recognizer.step()
    recognizer.submit(4, speech(2.0), whole(speech(2.0)))
    for _ in range(3):
        recognizer.step()
    assert len(decoder.running) == sum(batches)
    if sum(batches) == 5:
        return
    recognizer.submit(5, speech(12.0), Recognition((Span(0, 6), Span(6, 12), Span(3, 9))))
    for _ in range(3):
        recognizer.step()
    assert len(decoder.running) == 8  # a quarter of a batch is worth it
    recognizer.submit(6, speech(2.0), whole(speech(2.0)))
    for call in range(5):
        recognizer.cancel(call)
    recognizer.cancel(5)
    recognizer.step()
    recognizer.step()
    assert len(decoder.running) == 1  # nobody is left to wait with
    recognizer.close()


def test_pieces_join_the_language_model_together(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every fifth of its steps, and at once while it stands still; who has left meanwhile does not join."""
    monkeypatch.setitem(load._LIMITS, "cpu", BatchLimits(rows=1024, pieces=16, steps_between=5))
    recognizer, decoder = build(capacity=16, steps=12)
    running = []
    for call in range(8):
        recognizer.submit(call, speech(2.0), whole(speech(2.0)))
        recognizer.step()
        if call == 3:
            recognizer.cancel(2)
        running.append(len(decoder.running))
    assert running == [0, 1, 1, 1, 1, 1, 5, 5]
    assert {output.call_id for output in run_all(recognizer)} == {0, 1, 3, 4, 5, 6, 7}
    recognizer.submit(9, speech(2.0), whole(speech(2.0)))
    recognizer.step()
    recognizer.step()
    assert len(decoder.running) == 1
    recognizer.close()


def run_all(recognizer: FunAsrNanoRecognizer) -> list[Output]:
    outputs: list[Output] = []
    while recognizer.busy:
        outputs += recognizer.step()
    return outputs


def test_a_call_that_still_runs_cannot_be_submitted_again(build: Any) -> None:
    recognizer, decoder = build()
    recognizer.submit(1, speech(1.0), whole(speech(1.0)))
    with pytest.raises(ValueError, match="still running"):
        recognizer.submit(1, speech(1.0), whole(speech(1.0)))
    recognizer.step()
    recognizer.close()
    assert not recognizer.busy
    assert decoder.running == {}


def test_the_fair_queue_gives_every_call_its_turn() -> None:
    def piece(call: Call, index: int) -> Piece:
        return Piece(Segment(call, index), 0.0, speech(0.1), 2, f"{call.id}.{index}")

    calls = [Call(number, DecodingOptions(), Prompt((), ()), None, 3) for number in range(3)]
    queue = FairQueue()
    for call in calls:
        for index in range(3 if call.id == 0 else 1):
            queue.add(piece(call, index))
    queue.add_first(piece(calls[0], 9))
    assert (len(queue), queue.rows) == (6, 12)
    due = queue.candidates(5)
    assert [p.key for p in due] == ["0.9", "1.0", "2.0", "0.0", "0.1"]
    queue.take(due[:1])
    assert [p.key for p in queue.candidates(9)] == ["1.0", "2.0", "0.0", "0.1", "0.2"]
    queue.drop(0)
    queue.drop(7)
    assert [p.key for p in queue.candidates(9)] == ["1.0", "2.0"]
    assert (len(queue), queue.rows) == (2, 4)


def test_token_limits() -> None:
    assert token_limit(30.0) == 512
    assert token_limit(60.0) == 992
    assert token_limit(30.0, 200) == 200
    assert token_limit(1.0, 200) == 48


def test_a_decoder_of_another_model_or_with_too_little_context_is_refused(build: Any, checkpoint: Checkpoint) -> None:
    _, decoder = build()
    decoder.width = 96
    with pytest.raises(TensorMismatch, match="96 wide, the checkpoint's 64"):
        assemble("fun-asr-nano", checkpoint, decoder, device="cpu", dtype=torch.float32)
    decoder.width, decoder.context = 64, 1024
    with pytest.raises(ValueError, match="max_model_len is 1024, at least 11"):
        assemble("fun-asr-nano", checkpoint, decoder, device="cpu", dtype=torch.float32)


def test_the_name_tells_which_languages_a_model_knows(build: Any, checkpoint: Checkpoint) -> None:
    _, decoder = build()
    multilingual = assemble("Fun-ASR-MLT-Nano-2512", checkpoint, decoder, device="cpu", dtype=torch.float32)
    assert len(multilingual.capabilities.languages) == 31
    multilingual.submit(1, speech(1.0), Recognition((Span(0, 1),), DecodingOptions(language="ko")))
    multilingual.cancel(1)


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_recording_is_let_go_of_at_once(build: Any, run: Run, cancelled: bool) -> None:
    recognizer, _ = build(lambda limit: ("la " * 30, "length") if limit > token_limit(4.0) else ("ok", "stop"))
    audio = speech(9.0)
    held = weakref.ref(audio)
    gc.disable()  # it may come hours later
    try:
        recognizer.submit(0, audio, Recognition((Span(0.0, 1.0), Span(1.0, 9.0))))
        del audio
        if cancelled:
            for _ in range(8):
                recognizer.step()
            recognizer.cancel(0)
            recognizer.submit(1, speech(0.5), whole(speech(0.5)))  # what was on its way is dropped with the next
        run(recognizer)
        assert held() is None
    finally:
        gc.enable()
    recognizer.close()


def test_it_counts_what_it_does(build: Any, run: Run) -> None:
    recognizer, _ = build()
    recognizer.submit(0, speech(4.0), Recognition((Span(0.0, 1.0), Span(2.0, 4.0))))
    run(recognizer)
    counters = recognizer.counters
    assert (counters["clips"], counters["encoder_clips"]) == (2, 2)
    assert min(counters[name] for name in ("encode_seconds", "llm_seconds", "align_seconds")) > 0
    assert recognizer.gauges == {"waiting_clips": 0}
    recognizer.close()
