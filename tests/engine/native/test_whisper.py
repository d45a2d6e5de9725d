"""Whisper base in vLLM's real engine, in this process, on recorded speech."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import jiwer
import numpy as np
import pytest
import soundfile

from audio.shared import Waveform
from audio.span import SAMPLE_RATE, Span, to_seconds
from engine.catalog import Catalog
from engine.native.recognizer import NativeRecognizer
from engine.native.vllm_compat import configure_environment
from engine.recognition import DecodingOptions, Hypothesis, Recognition, Recognizer

_DATA = Path(__file__).parents[2] / "data"
_JFK = "And so my fellow Americans, ask not what your country can do for you, ask what you can do for your country."


def _load(name: str) -> Waveform:
    samples: Waveform = soundfile.read(_DATA / f"{name}.wav", dtype="float32")[0]
    return samples


def _whole(waveform: Waveform, options: DecodingOptions) -> Recognition:
    return Recognition((Span(0.0, to_seconds(len(waveform))),), options)


def _transcribe(recognizer: NativeRecognizer, waveforms: list[Waveform], options: DecodingOptions) -> list[Hypothesis]:
    for call_id, waveform in enumerate(waveforms):
        recognizer.submit(call_id, waveform, _whole(waveform, options))
    found: dict[int, Hypothesis] = {}
    while recognizer.busy:
        for output in recognizer.step():
            assert output.error is None
            found[output.call_id] = output.value
    return [found[call_id] for call_id in range(len(waveforms))]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NativeRecognizer]:
    configure_environment("cpu")
    from engine.native.load import load_native

    catalog = Catalog(tmp_path_factory.mktemp("cache"))
    recognizer = load_native(catalog.resolve("whisper-base"), "cpu")
    yield recognizer
    recognizer.close()


def test_it_says_what_it_can_do(base: NativeRecognizer) -> None:
    assert isinstance(base, Recognizer)
    capabilities = base.describe()["capabilities"]
    assert capabilities.max_segment_seconds == 30.0
    assert {"en", "zh", "de", "jv"} < set(capabilities.languages)
    assert len(capabilities.languages) == 99
    assert capabilities.word_timestamps
    assert capabilities.translation
    assert capabilities.detects_language
    assert not capabilities.hotwords


def test_kennedy_with_language_detection(base: NativeRecognizer) -> None:
    (hypothesis,) = _transcribe(base, [_load("jfk")], DecodingOptions())
    assert hypothesis.text == _JFK
    assert hypothesis.language == "en"
    assert hypothesis.finish_reason == "stop"
    assert hypothesis.avg_logprob is not None
    assert -0.3 < hypothesis.avg_logprob < 0.0
    assert hypothesis.no_speech_prob is not None
    assert hypothesis.no_speech_prob < 0.2
    assert hypothesis.warnings == ()


def test_logprobs_spell_the_text_and_average_to_what_is_told(base: NativeRecognizer) -> None:
    """The end token counts for the average, as in Whisper's own code, but is no token of the text."""
    waveforms = [_load("jfk"), _load("jfk")[: 4 * SAMPLE_RATE]]
    hypotheses = _transcribe(base, waveforms, DecodingOptions(language="en", logprobs=True))
    assert base.capabilities.logprobs
    for hypothesis in hypotheses:
        told = hypothesis.logprobs
        assert told is not None
        assert len(told) == len(hypothesis.tokens)
        assert b"".join(token.content for token in told).decode() == " " + hypothesis.text
        assert all(token.token == token.content.decode() for token in told)
        assert all(token.logprob <= 0.0 for token in told)
        assert hypothesis.avg_logprob is not None
        of_the_end = hypothesis.avg_logprob * (len(told) + 1) - sum(token.logprob for token in told)
        assert -0.5 < of_the_end <= 1e-4
    (unasked,) = _transcribe(base, waveforms[:1], DecodingOptions(language="en"))
    assert unasked.logprobs is None
    assert unasked.avg_logprob == pytest.approx(hypotheses[0].avg_logprob, abs=1e-5)


@pytest.mark.field("C1")
def test_words_begin_where_the_sound_rises_after_a_pause(base: NativeRecognizer) -> None:
    waveform = _load("jfk")
    (hypothesis,) = _transcribe(base, [waveform], DecodingOptions(language="en"))
    words = hypothesis.words
    assert words is not None
    assert "".join(word.text for word in words) == _JFK
    assert [word.text.strip(" ,.") for word in words] == re.sub("[,.]", "", _JFK).split()
    times = [time for word in words for time in (word.start, word.end)]
    assert times == sorted(times)
    assert times[-1] <= to_seconds(len(waveform))
    assert all(word.end > word.start for word in words)
    # Onsets read off the level of the recording: where it passes -30 dBFS after half a second below.
    rises = {0: 0.32, 5: 3.28, 6: 4.01, 7: 5.41, 14: 8.19}
    for number, onset in rises.items():
        assert words[number].start == pytest.approx(onset, abs=0.08)


def test_librivox_word_error_rate(base: NativeRecognizer) -> None:
    lines = [line.split(maxsplit=1) for line in (_DATA / "librivox.txt").read_text().splitlines()]
    hypotheses = _transcribe(base, [_load(name) for name, _ in lines], DecodingOptions())
    heard = []
    for hypothesis in hypotheses:
        text = hypothesis.text.lower().replace("mr.", "mister").replace("-", " ")
        heard.append(re.sub(r"[^a-z' ]", "", text))
    assert jiwer.wer([text for _, text in lines], heard) <= 0.03
    for hypothesis in hypotheses:
        assert hypothesis.words is not None
        assert "".join(word.text for word in hypothesis.words) == hypothesis.text


@pytest.mark.field("B4", "E7")
def test_together_gives_what_each_gives_alone_and_again(base: NativeRecognizer) -> None:
    waveforms = [_load(name) for name in ("austen-0880", "jfk", "austen-0930")]
    together = _transcribe(base, waveforms, DecodingOptions(language="en"))
    for waveform, mixed in zip(waveforms, together, strict=True):
        (alone,) = _transcribe(base, [waveform], DecodingOptions(language="en"))
        assert (alone.text, alone.tokens) == (mixed.text, mixed.tokens)
        assert alone.words is not None
        assert mixed.words is not None
        starts = [word.start for word in alone.words]
        assert starts == pytest.approx([word.start for word in mixed.words], abs=0.021)


def test_many_segments_of_one_call(base: NativeRecognizer) -> None:
    names = ("austen-0880", "austen-0930", "austen-0890")
    parts = [_load(name) for name in names]
    ends = np.cumsum([len(part) for part in parts]) / SAMPLE_RATE
    spans = tuple(Span(float(start), float(end)) for start, end in zip([0.0, *ends[:-1]], ends, strict=True))
    base.submit(5, np.concatenate(parts), Recognition(spans, DecodingOptions(word_timestamps=False)))
    outputs = []
    while base.busy:
        outputs += base.step()
    assert [output.last for output in outputs] == [False, False, True]
    found = {output.value.index: output.value for output in outputs}
    assert found[0].text.startswith("He was not an ill")
    assert found[1].text == "He might even have been made amiable himself."
    assert found[2].text.startswith("Unless to be rather cold")
    assert {hypothesis.language for hypothesis in found.values()} == {"en"}
    assert {hypothesis.words for hypothesis in found.values()} == {None}


def test_cancelling_leaves_the_engine_empty_and_others_untouched(base: NativeRecognizer) -> None:
    waveform = _load("austen-0880")
    for call_id in range(4):
        base.submit(call_id, waveform, _whole(waveform, DecodingOptions(language="en")))
    base.step()
    base.cancel(0)
    base.step()
    for call_id in (1, 2):
        base.cancel(call_id)
    outputs = []
    while base.busy:
        outputs += base.step()
    assert [output.call_id for output in outputs] == [3]
    assert outputs[0].value.text.startswith("He was not")
    assert not base._engine.has_unfinished_requests()


def test_a_prompt_sets_the_spelling(base: NativeRecognizer) -> None:
    options = DecodingOptions(language="en", prompt="mister john dashwood lived there")
    (hypothesis,) = _transcribe(base, [_load("austen-0870")], options)
    assert "john dashwood" in hypothesis.text


def test_a_token_limit_is_told(base: NativeRecognizer) -> None:
    (hypothesis,) = _transcribe(base, [_load("jfk")], DecodingOptions(language="en", max_new_tokens=5))
    assert hypothesis.finish_reason == "length"
    assert _JFK.startswith(hypothesis.text)
    assert len(hypothesis.warnings) == 1


def test_silence_is_held_for_no_speech(base: NativeRecognizer) -> None:
    noise = np.random.default_rng(0).normal(0.0, 1e-3, 3 * SAMPLE_RATE).astype(np.float32)
    (hypothesis,) = _transcribe(base, [noise], DecodingOptions(language="en"))
    assert hypothesis.no_speech_prob is not None
    assert hypothesis.no_speech_prob > 0.3


def test_clips_are_encoded_once_and_alignment_agrees_with_transformers(base: NativeRecognizer) -> None:
    from engine.native.alignment import Aligner, Utterance
    from engine.native.cross_attention import SeparateDecoder
    from engine.native.whisper import WhisperModel

    model, aligner = base._model, base._aligner
    assert isinstance(model, WhisperModel)
    assert aligner is not None
    assert base._tap is not None
    encoded: list[int] = []
    encode = base._tap._encode
    base._tap._encode = lambda **features: encoded.append(len(features["input_features"])) or encode(**features)
    (hypothesis,) = _transcribe(base, [_load("jfk")], DecodingOptions())
    base._tap._encode = encode
    assert encoded == [1]

    import torch

    directory = Path(base._engine.model_config.model)
    separate = Aligner(
        SeparateDecoder(directory, model.heads, "cpu", torch.float32), model.tokens.end, model.tokens.no_speech
    )
    prompt = model.tokens.prompt("en", "transcribe")
    (alignment,) = separate.align([Utterance(_load("jfk"), prompt, hypothesis.tokens, None)])
    assert alignment.no_speech_prob == pytest.approx(hypothesis.no_speech_prob, abs=1e-4)
    words = model.words(hypothesis.tokens, alignment.boundaries.tolist())
    assert hypothesis.words is not None
    ends = [word.end for word in hypothesis.words]
    assert np.median(np.abs(np.array(ends) - [word.end for word in words])) < 0.011
