from __future__ import annotations

from collections.abc import Callable
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from audio.span import SAMPLE_RATE, Span
from diarization.diarizer import Diarization, Diarizer, step_together
from diarization.options import DiarizationOptions, KnownSpeaker
from diarization.timeline import SpeakerTurn, channel_turns

Waveform = NDArray[np.float32]
Talk = Callable[..., tuple[Waveform, list[Span]]]
Speech = Callable[[str, float], Waveform]


def constant(*turns: tuple[int, float]) -> tuple[Waveform, list[Span]]:
    """What the fake network hears as voices, (voice, seconds) each, without pauses, in one span."""
    parts = [np.full(round(seconds * SAMPLE_RATE), 0.5 + voice / 100, np.float32) for voice, seconds in turns]
    waveform = np.concatenate(parts)
    return waveform, [Span(0.0, len(waveform) / SAMPLE_RATE)]


def speakers(diarization: Diarization) -> list[int]:
    """Who speaks one after the other; a long pause in what somebody says makes two turns of one speaker."""
    return [speaker for speaker, _ in groupby(turn.speaker for turn in diarization.turns)]


@pytest.mark.field("D1")
def test_two_voices_of_six_seconds_are_two(diarizer: Diarizer, talk: Talk) -> None:
    for one, other in (("kennedy", "austen"), ("allison", "kennedy"), ("austen", "allison")):
        found = diarizer.diarize(*talk((one, 6.0), (other, 6.0)))
        assert speakers(found) == [0, 1]
        assert found.speakers == 2


def test_two_voices_in_one_span_are_split_in_the_pause_between_them(diarizer: Diarizer, speech: Speech) -> None:
    """Kennedy pauses from 7.8 s; what Austen's reader says follows after 0.4 s."""
    pause = np.full(round(0.4 * SAMPLE_RATE), 1e-4, np.float32)
    waveform = np.concatenate([speech("kennedy", 7.8), pause, speech("austen", 6.0)])
    found = diarizer.diarize(waveform, [Span(0.0, 14.2)])
    assert speakers(found) == [0, 1]
    before, after = next((turn, following) for turn, following in pairwise(found.turns) if following.speaker == 1)
    assert 7.6 < before.end <= after.start < 8.4


def test_a_change_without_a_pause_is_found_within_a_shift(diarizer: Diarizer, speech: Speech) -> None:
    waveform = np.concatenate([speech("kennedy", 6.0), speech("austen", 6.0)])
    found = diarizer.diarize(waveform, [Span(0.0, 12.0)])
    assert speakers(found) == [0, 1]
    assert next(turn.start for turn in found.turns if turn.speaker == 1) == pytest.approx(6.0, abs=0.75)


def test_one_voice_of_a_minute_is_one(diarizer: Diarizer, speech: Speech) -> None:
    for voice in ("austen", "allison"):
        waveform = speech(voice, 60.0)
        spans = [Span(start, start + 11.5) for start in range(0, 60, 12)]
        assert diarizer.diarize(waveform, spans).speakers == 1


@pytest.mark.field("D3")
def test_three_asked_of_two_voices_are_three(diarizer: Diarizer, talk: Talk) -> None:
    waveform, spans = talk(("kennedy", 5.0), ("austen", 6.0), ("kennedy", 5.0), ("austen", 6.0))
    found = diarizer.diarize(waveform, spans, DiarizationOptions(num_speakers=3))
    assert found.speakers == 3
    assert found.warnings == ()
    assert diarizer.diarize(waveform, spans, DiarizationOptions(max_speakers=1)).speakers == 1


@pytest.mark.field("D3")
def test_more_speakers_than_speech_is_a_warning(diarizer: Diarizer, speech: Speech) -> None:
    found = diarizer.diarize(speech("kennedy", 3.0), [Span(0.0, 1.0)], DiarizationOptions(num_speakers=2))
    assert found.speakers == 1
    assert found.warnings == ("asked for at least 2 speakers, found speech of 1",)


@pytest.mark.parametrize("spans", [[], [Span(1.0, 1.0)], [Span(9.0, 10.0)]])
def test_no_speech_no_speakers(diarizer: Diarizer, spans: list[Span]) -> None:
    assert diarizer.diarize(np.zeros(SAMPLE_RATE * 3, np.float32), spans) == Diarization()


def test_a_recording_sounds_alike_at_any_level(diarizer: Diarizer, talk: Talk) -> None:
    waveform, spans = talk(("kennedy", 5.0), ("allison", 6.0), ("kennedy", 5.0))
    for gain in (0.02, 0.3, 1.0):
        assert speakers(diarizer.diarize(waveform * np.float32(gain), spans)) == [0, 1, 0]


def test_known_speakers_have_their_names(diarizer: Diarizer, talk: Talk, speech: Speech) -> None:
    waveform, spans = talk(("allison", 6.0), ("kennedy", 5.0), ("austen", 6.0))
    known = (
        KnownSpeaker("Jane", speech("austen", 24.0)[-10 * SAMPLE_RATE :]),
        KnownSpeaker("Jack", speech("kennedy", 10.9)[-3 * SAMPLE_RATE :]),
    )
    found = diarizer.diarize(waveform, spans, DiarizationOptions(known_speakers=known))
    assert speakers(found) == [0, 1, 2]
    assert found.names == (None, "Jack", "Jane")


def test_a_silent_reference_is_nobody(diarizer: Diarizer, talk: Talk) -> None:
    known = (KnownSpeaker("Nobody", np.zeros(3 * SAMPLE_RATE, np.float32)),)
    found = diarizer.diarize(*talk(("kennedy", 5.0)), DiarizationOptions(known_speakers=known))
    assert found.names == (None,)


def test_speakers_are_numbered_by_appearance(fake_diarizer: Diarizer) -> None:
    found = fake_diarizer.diarize(*constant((5, 6.0), (2, 6.0), (5, 6.0), (9, 6.0)))
    assert speakers(found) == [0, 1, 0, 2]
    assert found.turns[0].start == 0.0
    assert found.turns[-1].end == 24.0
    assert all(one.end == other.start for one, other in pairwise(found.turns))


def test_short_turns_stay_where_they_are_certain(fake_diarizer: Diarizer) -> None:
    """0.4 s in a span of its own: whole windows of one voice, far from the other."""
    long, _ = constant((1, 6.0), (2, 0.4), (1, 6.0))
    spans = [Span(0.0, 6.0), Span(6.0, 6.4), Span(6.4, 12.4)]
    found = fake_diarizer.diarize(long, spans, DiarizationOptions(num_speakers=2))
    assert speakers(found) == [0, 1, 0]
    assert found.turns[1] == SpeakerTurn(6.0, 6.4, 1)


def test_jobs_share_batches_and_answer_as_alone(fake_diarizer: Diarizer, fake_network: Any) -> None:
    talks = [constant((voice, 7.0 + voice), (0, 5.0)) for voice in range(1, 9)]
    alone = [fake_diarizer.diarize(*talk) for talk in talks]
    fake_network.batches.clear()
    jobs = [fake_diarizer.start(*talk) for talk in talks]
    steps = 0
    while not all(job.done for job in jobs):
        step_together(jobs)
        steps += 1
    assert [job.result for job in jobs] == alone
    assert max(fake_network.batches) == 32
    assert len(fake_network.batches) <= steps
    assert sum(fake_network.batches) == sum(len(job.windows) for job in jobs)
    step_together(jobs)
    jobs[0].step()


def test_a_long_recording_takes_many_bounded_steps(fake_diarizer: Diarizer, fake_network: Any) -> None:
    job = fake_diarizer.start(*constant(*[(1, 30.0), (2, 30.0)] * 5))
    with pytest.raises(RuntimeError, match="not done"):
        _ = job.result
    while not job.done:
        job.step()
    assert set(fake_network.batches[:-1]) == {32}
    assert job.result.speakers == 2


def test_broken_samples_end_their_own_job_only(fake_diarizer: Diarizer) -> None:
    broken, spans = constant((1, 5.0))
    broken[:] = np.nan
    bad, good = fake_diarizer.start(broken, spans), fake_diarizer.start(*constant((1, 5.0), (2, 5.0)))
    while not (bad.done and good.done):
        step_together([bad, good])
    assert good.result.speakers == 2
    assert bad.error is not None
    with pytest.raises(ValueError, match="NaN or infinite"):
        _ = bad.result


@pytest.mark.parametrize(
    "waveform", [np.zeros((2, 16_000), np.float32), np.zeros(16_000, np.float64), np.zeros(16_000, np.int16)]
)
def test_not_a_waveform(diarizer: Diarizer, waveform: Any) -> None:
    with pytest.raises(ValueError, match="1-D float32"):
        diarizer.start(waveform, [])


def test_spans_out_of_order(diarizer: Diarizer) -> None:
    with pytest.raises(ValueError, match=r"out of order at 1\.000 s"):
        diarizer.start(np.zeros(48_000, np.float32), [Span(0.0, 2.0), Span(1.0, 3.0)])


def test_channels_are_speakers() -> None:
    turns = channel_turns([[], [Span(2.0, 3.0), Span(4.0, 5.0)], [Span(0.5, 2.5)]])
    assert turns == [SpeakerTurn(0.5, 2.5, 0), SpeakerTurn(2.0, 3.0, 1), SpeakerTurn(4.0, 5.0, 1)]
    assert channel_turns([[], []]) == []
