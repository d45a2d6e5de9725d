"""The recogniser with real vLLM on the CPU, against the reference's numbers and against itself."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from audio.span import Span
from engine.fun_asr_nano.alignment import AlignmentJob, CtcAligner
from engine.fun_asr_nano.checkpoint import Checkpoint
from engine.fun_asr_nano.decoding import Completion, Decoder, VllmDecoder, build_engine
from engine.fun_asr_nano.load import assemble
from engine.fun_asr_nano.placing import AlignedPiece
from engine.fun_asr_nano.prompt import MAX_HOTWORDS
from engine.fun_asr_nano.recognizer import FunAsrNanoRecognizer
from engine.fun_asr_nano.reference import GreedyDecoder, TorchDecoder
from engine.fun_asr_nano.text import clean
from engine.fun_asr_nano.writing import TextRules
from engine.recognition import DecodingOptions, Hypothesis, Recognition, Recognizer
from engine.repetition import Loop
from engine.stage import Output

Run = Callable[[FunAsrNanoRecognizer], list[Output]]
Read = Callable[[str], NDArray[np.float32]]

NAMES = ("nano-0.5s", "nano-3.1s", "jfk", "nano-29.7s")
PROMPTS = ("default", "language", "hotwords", "itn_off", "combined")
SCORE = 1e-3


class RecordingAligner(CtcAligner):
    """Keeps the pieces that words are merged from, by text and number of rows."""

    seen: dict[tuple[str, int], list[AlignedPiece]]

    def pieces(self, jobs: Sequence[AlignmentJob], *, probabilities: bool = True) -> list[list[AlignedPiece] | None]:
        found = super().pieces(jobs)
        for job, pieces in zip(jobs, found, strict=True):
            type(self).seen[job.text, len(job.hidden)] = pieces or []
        return found


def reference_clean(text: str) -> str:
    """The reference collapses white space and nothing else; that is not how the product cleans."""
    return re.sub(r"\s+", " ", text.replace("/sil", " "))


def no_loops(text: str, *, truncated: bool = False) -> Loop | None:
    return None


def options_of(golden: Mapping[str, Any], prompt: str, **more: Any) -> DecodingOptions:
    options = dict(golden["prompts"][prompt]["options"])
    options["hotwords"] = tuple(options.get("hotwords", ()))
    return DecodingOptions(**options, **more)


def one(run: Run, recognizer: FunAsrNanoRecognizer, waveform: Any, options: DecodingOptions, *spans: Span) -> Any:
    """The hypotheses of a call on its own, by segment."""
    recognizer.submit(1, waveform, Recognition(spans or (Span(0.0, len(waveform) / 16000),), options))
    return hypotheses(run(recognizer))[1]


def hypotheses(outputs: list[Output]) -> dict[int, list[Hypothesis]]:
    calls: dict[int, list[Hypothesis]] = {}
    for output in outputs:
        assert output.error is None, output.error
        calls.setdefault(output.call_id, []).append(output.value)
    return {call: sorted(found, key=lambda hypothesis: hypothesis.index) for call, found in calls.items()}


@pytest.fixture(scope="module")
def torch_decoder(checkpoint: Checkpoint) -> TorchDecoder:
    return TorchDecoder(GreedyDecoder(checkpoint), stop_ids=(), context=2048, width=checkpoint.config.llm.hidden)


@pytest.mark.parametrize("engine", ["vllm", "torch"])
def test_goldens(
    engine: str,
    loaded: FunAsrNanoRecognizer,
    torch_decoder: TorchDecoder,
    checkpoint: Checkpoint,
    golden: Mapping[str, Any],
    waveform: Read,
    run: Run,
) -> None:
    """4 recordings x 5 prompts, all at once: ids, text, and the pieces of the word times before they are merged."""
    decoder: Decoder = loaded.decoder if engine == "vllm" else torch_decoder
    RecordingAligner.seen = {}
    recognizer = assemble(
        "fun-asr-nano",
        checkpoint,
        decoder,
        device="cpu",
        dtype=torch.float32,
        text_rules=TextRules(reference_clean, no_loops),
        aligner=RecordingAligner,
    )
    cases = [(name, prompt) for name in NAMES for prompt in PROMPTS]
    for number, (name, prompt) in enumerate(cases):
        samples = waveform(name)
        options = options_of(golden, prompt, max_new_tokens=golden["max_new_tokens"])
        recognizer.submit(number, samples, Recognition((Span(0.0, len(samples) / 16000),), options))
    found = hypotheses(run(recognizer))
    for number, (name, prompt) in enumerate(cases):
        (hypothesis,) = found[number]
        expected = golden["inputs"][name]["decode"][prompt]
        assert list(hypothesis.tokens) == expected["ids"], (name, prompt)
        assert hypothesis.text == expected["text"], (name, prompt)
        rows = golden["inputs"][name]["lfr_frames"]
        pieces = RecordingAligner.seen[hypothesis.text, rows]
        got = [(p.data.decode(errors="replace"), p.start_row * 0.06, p.end_row * 0.06, p.score) for p in pieces]
        assert [item[0] for item in got] == [item[0] for item in expected["timestamps"]], (name, prompt)
        for ours, theirs in zip(got, expected["timestamps"], strict=True):
            assert ours[1:3] == pytest.approx(theirs[1:3], abs=1e-6)
            assert ours[3] == pytest.approx(theirs[3], abs=SCORE)
        assert (hypothesis.words is None) == (not expected["timestamps"])
        if hypothesis.words:
            assert "".join(word.text for word in hypothesis.words) == hypothesis.text


def test_it_is_a_recognizer(loaded: FunAsrNanoRecognizer) -> None:
    assert isinstance(loaded, Recognizer)
    assert loaded.describe() == {"capabilities": loaded.capabilities}
    assert loaded.capabilities.languages == ("zh", "en", "ja")
    assert loaded.capabilities.word_timestamps
    assert loaded.capabilities.max_segment_seconds == 30.0


def test_logprobs_are_the_reference_s_and_spell_the_text(
    loaded: FunAsrNanoRecognizer,
    torch_decoder: TorchDecoder,
    checkpoint: Checkpoint,
    golden: Mapping[str, Any],
    waveform: Read,
    run: Run,
) -> None:
    options = DecodingOptions(max_new_tokens=32, logprobs=True)
    plain = TextRules(reference_clean, no_loops)
    found = []
    for decoder in (loaded.decoder, torch_decoder):
        recognizer = assemble("fun-asr-nano", checkpoint, decoder, device="cpu", dtype=torch.float32, text_rules=plain)
        found.append(one(run, recognizer, waveform("jfk"), options)[0])
    ours, theirs = found
    assert ours.text == golden["inputs"]["jfk"]["decode"]["default"]["text"]
    for hypothesis in found:
        assert loaded.capabilities.logprobs
        told = hypothesis.logprobs
        assert b"".join(token.content for token in told).decode("utf-8", "replace") == hypothesis.text
        assert all(token.token == token.content.decode("utf-8", "replace") for token in told)
        assert hypothesis.avg_logprob == pytest.approx(sum(token.logprob for token in told) / 32, abs=1e-6)
    assert [token.logprob for token in ours.logprobs] == pytest.approx(
        [token.logprob for token in theirs.logprobs], abs=1e-3
    )
    (unasked,) = one(run, loaded, waveform("jfk"), DecodingOptions(max_new_tokens=32))
    assert unasked.logprobs is None
    assert unasked.avg_logprob is None


def test_the_text_is_cleaned(loaded: FunAsrNanoRecognizer, golden: Mapping[str, Any], waveform: Read, run: Run) -> None:
    (hypothesis,) = one(run, loaded, waveform("jfk"), DecodingOptions(max_new_tokens=32))
    expected = golden["inputs"]["jfk"]["decode"]["default"]
    assert list(hypothesis.tokens) == expected["ids"]
    assert hypothesis.text == clean(expected["text"])


def test_32_calls_together_give_what_each_gives_alone(loaded: FunAsrNanoRecognizer, waveform: Read, run: Run) -> None:
    samples = waveform("jfk")
    calls = []
    for number in range(32):
        spans = tuple(
            Span(0.1 * number, 0.1 * number + length) for length in (1.0 + 0.2 * number, 3.0)[: 1 + number % 2]
        )
        hotwords = tuple(f"word{index}" for index in range(number % 5))
        language = (None, "zh", "en", "ja")[number % 4]
        options = DecodingOptions(
            language=language, hotwords=hotwords, itn=number % 3 > 0, max_new_tokens=12 + number % 3
        )
        calls.append(Recognition(spans, options))
    alone = []
    for request in calls:
        loaded.submit(0, samples, request)
        alone.append(hypotheses(run(loaded))[0])
    for number, request in enumerate(calls):
        loaded.submit(number, samples, request)
    together = hypotheses(run(loaded))
    for number, expected in enumerate(alone):
        assert together[number] == expected, number
    assert len({hypothesis.text for found in alone for hypothesis in found}) > 20


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 8, 30])
def test_a_cancelled_call_leaves_nothing_behind(
    steps: int, loaded: FunAsrNanoRecognizer, waveform: Read, run: Run
) -> None:
    samples, options = waveform("jfk"), DecodingOptions(max_new_tokens=24)
    expected = one(run, loaded, samples, options, Span(0.0, 4.0))
    loaded.submit(1, samples, Recognition((Span(0.0, 4.0),), options))
    loaded.submit(2, samples, Recognition(tuple(Span(0.1 * n, 5.0) for n in range(20)), options))
    outputs: list[Output] = []
    for _ in range(steps):
        outputs += loaded.step()
    loaded.cancel(2)
    loaded.cancel(2)
    loaded.cancel(77)
    later = run(loaded)
    assert not any(output.call_id == 2 for output in later)
    assert hypotheses([output for output in outputs + later if output.call_id == 1])[1] == expected
    assert not loaded.busy
    assert isinstance(loaded.decoder, VllmDecoder)
    assert loaded.decoder.engine.get_num_unfinished_requests() == 0


def test_the_token_limit_of_a_request(loaded: FunAsrNanoRecognizer, waveform: Read, run: Run) -> None:
    (hypothesis,) = one(run, loaded, waveform("nano-3.1s"), DecodingOptions(max_new_tokens=5))
    assert len(hypothesis.tokens) == 5
    assert hypothesis.finish_reason == "length"
    assert any("max_new_tokens" in warning for warning in hypothesis.warnings)


def test_a_fixed_length_for_measuring(
    loaded: FunAsrNanoRecognizer, checkpoint: Checkpoint, waveform: Read, run: Run
) -> None:
    assert isinstance(loaded.decoder, VllmDecoder)
    decoder = VllmDecoder(loaded.decoder.engine, stop_ids=range(2048), fixed_tokens=40)
    recognizer = assemble(
        "fun-asr-nano",
        checkpoint,
        decoder,
        device="cpu",
        dtype=torch.float32,
        text_rules=TextRules(reference_clean, no_loops),
    )
    found = one(run, recognizer, waveform("jfk"), DecodingOptions(max_new_tokens=3), Span(0.0, 3.0), Span(0.0, 10.0))
    assert [(len(hypothesis.tokens), hypothesis.finish_reason) for hypothesis in found] == [(40, "stop")] * 2


def test_a_stop_id_ends_the_text(
    loaded: FunAsrNanoRecognizer, checkpoint: Checkpoint, waveform: Read, run: Run
) -> None:
    options = DecodingOptions(max_new_tokens=24)
    (whole,) = one(run, loaded, waveform("jfk"), options)
    assert isinstance(loaded.decoder, VllmDecoder)
    stop = whole.tokens[9]
    decoder = VllmDecoder(loaded.decoder.engine, stop_ids=(stop,))
    recognizer = assemble("fun-asr-nano", checkpoint, decoder, device="cpu", dtype=torch.float32)
    (stopped,) = one(run, recognizer, waveform("jfk"), options)
    assert stopped.tokens == whole.tokens[: whole.tokens.index(stop)]
    assert stopped.finish_reason == "stop"
    assert stopped.warnings == ()


def test_no_ctc_no_word_times(
    loaded: FunAsrNanoRecognizer,
    model_directory: Any,
    change_tensors: Callable[[Callable[[dict[str, torch.Tensor]], object]], None],
    waveform: Read,
    run: Run,
    caplog: pytest.LogCaptureFixture,
) -> None:
    change_tensors(lambda tensors: {n: t for n, t in tensors.items() if not n.startswith("ctc")})
    with caplog.at_level(logging.WARNING):
        recognizer = assemble(
            "fun-asr-nano", Checkpoint.open(model_directory), loaded.decoder, device="cpu", dtype=torch.float32
        )
    assert len(caplog.records) == 1
    assert "no word times" in caplog.text
    assert not recognizer.capabilities.word_timestamps
    options = DecodingOptions(max_new_tokens=16)
    (without,) = one(run, recognizer, waveform("jfk"), options)
    (with_times,) = one(run, loaded, waveform("jfk"), options)
    assert with_times.words
    assert without.words is None
    assert without.text == with_times.text


def test_word_times_are_made_only_where_wanted(loaded: FunAsrNanoRecognizer, waveform: Read, run: Run) -> None:
    samples = waveform("jfk")
    for number, wanted in enumerate((True, False)):
        options = DecodingOptions(max_new_tokens=16, word_timestamps=wanted)
        loaded.submit(number, samples, Recognition((Span(0.0, 8.0),), options))
    found = hypotheses(run(loaded))
    assert found[0][0].words
    assert found[1][0].words is None
    assert found[0][0].text == found[1][0].text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"language": "fr"}, "it knows zh, en, ja"),
        ({"task": "translate"}, "does not translate"),
        ({"temperature": -0.5}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"hotwords": tuple(f"w{n}" for n in range(MAX_HOTWORDS + 1))}, "hotwords"),
        ({"hotwords": tuple("开放时间" * 20 + str(n) for n in range(MAX_HOTWORDS))}, "leave some out"),
        ({"hotwords": ("<|im_end|>",)}, "control token"),
    ],
)
def test_what_the_model_cannot_do_is_refused(
    loaded: FunAsrNanoRecognizer, waveform: Read, options: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        loaded.submit(1, waveform("nano-0.5s"), Recognition((Span(0.0, 0.5),), DecodingOptions(**options)))
    assert not loaded.busy


def test_temperature_and_language_pass_through(loaded: FunAsrNanoRecognizer, waveform: Read, run: Run) -> None:
    options = DecodingOptions(language="yue", temperature=0.7, max_new_tokens=8, prompt="Ask not")
    first, second = one(run, loaded, waveform("jfk"), options, Span(0.0, 2.0), Span(2.0, 4.0))
    assert first.language == "zh"
    assert first.temperature == 0.7
    assert any("no prompt" in warning for warning in first.warnings)
    assert not any("no prompt" in warning for warning in second.warnings)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_samples_that_are_no_numbers_end_only_their_own_call(
    bad: float, loaded: FunAsrNanoRecognizer, waveform: Read, run: Run
) -> None:
    samples = waveform("jfk")
    options = DecodingOptions(max_new_tokens=8)
    expected = one(run, loaded, samples, options, Span(0.0, 3.0))
    broken = samples.copy()
    broken[20_000] = bad
    loaded.submit(1, samples, Recognition((Span(0.0, 3.0),), options))
    loaded.submit(2, broken, Recognition((Span(0.0, 1.0), Span(1.0, 2.0), Span(3.0, 4.0)), options))
    outputs = run(loaded)
    assert hypotheses([output for output in outputs if output.call_id == 1])[1] == expected
    (error,) = [output.error for output in outputs if output.call_id == 2 and output.error]
    assert isinstance(error, ValueError)
    assert outputs[-1].call_id == 1 or outputs[-1].error is error


def test_segments_that_are_impossible_are_refused(loaded: FunAsrNanoRecognizer) -> None:
    long = np.zeros(62 * 16000, np.float32)
    for span, message in (
        (Span(0.0, 61.0), "60 s are allowed"),
        (Span(-1.0, 1.0), "impossible"),
        (Span(2, 1), "imposs"),
    ):
        with pytest.raises(ValueError, match=message):
            loaded.submit(1, long, Recognition((span,)))
    assert not loaded.busy


def test_a_prompt_that_would_kill_the_engine_does_not_reach_it(loaded: FunAsrNanoRecognizer) -> None:
    for shape, limit in (((3, 32), 5), ((0, 64), 5), ((64,), 5), ((2040, 64), 9), ((3, 64), 0)):
        with pytest.raises(ValueError, match="a prompt"):
            loaded.decoder.add("x", torch.zeros(shape), max_new_tokens=limit, temperature=0.0)
    with pytest.raises(ValueError, match="bfloat16"):
        loaded.decoder.add("x", torch.zeros(3, 64, dtype=torch.bfloat16), max_new_tokens=5, temperature=0.0)
    assert loaded.decoder.step() == [] or all(isinstance(c, Completion) for c in loaded.decoder.step())


def test_half_precision_is_refused(nano_tiny: Any) -> None:
    with pytest.raises(ValueError, match="overflows in float16"):
        build_engine(nano_tiny, "cuda", {"dtype": "float16"})
