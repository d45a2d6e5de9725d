"""C6: what subtitles promise, whatever the transcript."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pytest

from app.formats import formats
from app.formats.format import Asked
from app.text import is_unspaced, join_texts
from app.transcript import Segment, Transcript
from engine.recognition import Word
from tests.subtitles import ReadCue, check_lines, read_srt, read_vtt

ENGLISH = (
    "And so, my fellow Americans, ask not what your country can do for you; ask what you can do for your country. "
    "My fellow citizens of the world, ask not what America will do for you, but what together we can do for the "
    "freedom of man. Finally, whether you are citizens of America or citizens of the world, ask of us the same high "
    "standards of strength and sacrifice which we ask of you."
)
CHINESE = (
    "今天我们来讨论一下语音识别的问题，大家都知道，识别的结果需要有准确的时间。字幕也是这样，每一行不能太长，也不能重叠。"
    * 3
)
MIXED = (
    "我们用 Python 写了一个 server，它可以处理 webm 和 opus 格式的 recording，然后 return 一个 transcript 给客户。" * 3
)


def tokens(text: str) -> list[str]:
    """Words as a recogniser gives them: a space in front, one CJK character each, punctuation with the word before."""
    found: list[str] = []
    for character in text:
        before = found[-1][-1] if found else " "
        spelled = not (is_unspaced(before) or is_unspaced(character) or character == " ")
        attached = before == " " or spelled or not (character.isalnum() or character == " ")
        if found and attached:
            found[-1] += character
        else:
            found.append(character)
    return found


def spoken(text: str, start: float = 0.0, *, each: float = 0.3, speaker: int | None = None) -> Segment:
    """A segment whose words take `each` seconds, without pauses."""
    words = tuple(
        Word(token, start + number * each, start + (number + 1) * each) for number, token in enumerate(tokens(text))
    )
    return Segment(start, words[-1].end, text, words, speaker=speaker)


def transcript(*segments: Segment, duration: float | None = None) -> Transcript:
    end = segments[-1].end if segments else 0.0
    text = join_texts(segment.text for segment in segments)
    return Transcript(text, segments, end if duration is None else duration, 0.0)


def read(subject: Transcript) -> list[ReadCue]:
    """Both formats say the same."""
    srt = read_srt(formats()["srt"].render(subject, Asked()))
    vtt = read_vtt(formats()["vtt"].render(subject, Asked()))
    assert [(cue.start, cue.end) for cue in srt] == [(cue.start, cue.end) for cue in vtt]
    check_lines(srt)
    if srt:
        assert srt[-1].end <= subject.duration
    return vtt


def letters(texts: Sequence[str]) -> str:
    return "".join("".join(texts).split())


def whole(cues: Sequence[ReadCue]) -> str:
    return letters([line for cue in cues for line in cue.lines])


@pytest.mark.field("C6")
@pytest.mark.parametrize("text", [ENGLISH, CHINESE, MIXED])
@pytest.mark.parametrize("timed", [True, False])
def test_a_long_segment(text: str, timed: bool) -> None:
    segment = spoken(text)
    if not timed:
        segment = Segment(0.0, 30.0, text)
    cues = read(transcript(segment))
    assert len(cues) > 3
    assert whole(cues) == letters([text])
    if timed:
        assert segment.words is not None
        starts = {round(word.start, 3) for word in segment.words}
        assert all(round(cue.start, 3) in starts for cue in cues)
    else:
        assert (cues[0].start, cues[-1].end) == (0.0, 30.0)
        for cue in cues:
            share = len(letters(cue.lines)) / len(letters([text]))
            assert cue.end - cue.start == pytest.approx(30 * share, abs=0.002)


def test_words_stay_whole_and_lines_are_balanced() -> None:
    first, *_ = read(transcript(spoken(ENGLISH)))
    assert first.lines == ("And so, my fellow Americans,", "ask not what your country can do for you;")
    for cue in read(transcript(spoken(ENGLISH))):
        assert set(" ".join(cue.lines).split()) <= set(ENGLISH.split())


def test_no_orphans() -> None:
    text = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen word"
    sizes = [len(" ".join(cue.lines)) for cue in read(transcript(spoken(text)))]
    assert len(sizes) == 2
    assert min(sizes) > 40


def test_punctuation_begins_no_line() -> None:
    for segment in (spoken(CHINESE), Segment(0.0, 60.0, CHINESE)):
        for cue in read(transcript(segment)):
            assert all(line[0] not in "，。" for line in cue.lines)


def test_opening_brackets_end_no_line() -> None:
    text = "他说：「你好，世界」（大家都笑了），" * 8
    for cue in read(transcript(Segment(0.0, 60.0, text))):
        assert all(line[-1] not in "「（" and line[0] not in "」）" for line in cue.lines)


def test_a_pause_ends_a_cue() -> None:
    words = (Word("One", 0.0, 0.5), Word(" two", 1.19, 1.5), Word(" three", 2.2, 2.5), Word(" four", 2.5, 3.0))
    cues = read(transcript(Segment(0.0, 3.0, "One two three four", words)))
    assert [(cue.start, cue.end, cue.lines) for cue in cues] == [(0.0, 1.5, ("One two",)), (2.2, 3.0, ("three four",))]


def test_segments_are_never_joined() -> None:
    cues = read(
        transcript(spoken("Yes.", 0.0, speaker=0), spoken("No.", 0.3, speaker=1), spoken("好。", 0.6, speaker=27))
    )
    assert [(cue.voice, *cue.lines) for cue in cues] == [("A", "Yes."), ("B", "No."), ("AB", "好。")]


def test_what_a_browser_would_take_for_markup() -> None:
    text = "if a < b && b > c --> <b>bold</b> &amp;"
    (cue,) = read_vtt(formats()["vtt"].render(transcript(Segment(0.0, 3.0, text)), Asked()))
    assert cue.lines == (text,)
    (cue,) = read_srt(formats()["srt"].render(transcript(Segment(0.0, 3.0, text)), Asked()))
    assert cue.lines == ("if a < b && b > c -> <b>bold</b> &amp;",)


def test_line_ends_and_control_characters_in_a_text() -> None:
    (cue,) = read(transcript(Segment(0.0, 3.0, " one\n\n2\r\ntwo\x00\x1b three\u2028four ")))
    assert cue.lines == ("one 2 two three four",)


def test_a_word_longer_than_a_line() -> None:
    text = "See https://example.org/" + "x" * 100 + " there"
    cues = read(transcript(spoken(text)))
    assert whole(cues) == letters([text])


def test_nothing_said() -> None:
    assert formats()["srt"].render(transcript(), Asked()) == ""
    assert formats()["vtt"].render(transcript(), Asked()) == "WEBVTT\n\n"
    assert read(transcript(Segment(0.0, 1.0, " \n "))) == []


def test_words_without_width() -> None:
    words = tuple(Word(f" word{number}", 1.0, 1.0) for number in range(40))
    cues = read(transcript(Segment(1.0, 1.0, "".join(word.text for word in words), words), duration=1.0))
    assert whole(cues) == "".join(f"word{number}" for number in range(40))


def test_more_cues_than_milliseconds() -> None:
    cues = read(transcript(Segment(0.0, 0.005, ENGLISH * 10), duration=0.005))
    assert [(cue.start, cue.end) for cue in cues] == [(ms / 1000, (ms + 1) / 1000) for ms in range(5)]


def test_hours() -> None:
    rendered = formats()["srt"].render(transcript(spoken("Late.", 36061.5, each=0.25)), Asked())
    assert rendered == "1\n10:01:01,500 --> 10:01:01,750\nLate.\n\n"


@pytest.mark.field("C6")
@pytest.mark.parametrize("seed", range(200))
def test_any_transcript(seed: int) -> None:
    """Times that overlap, run backwards or past the end, and texts of every script."""
    chance = random.Random(seed)
    segments = []
    for _ in range(chance.randrange(1, 5)):
        text = " ".join(chance.choices([*ENGLISH.split(), *MIXED.split(), "ภาษาไทย", "नमस्ते", "x" * 90, "?!"], k=30))
        begin = chance.uniform(0, 20)
        words = tuple(
            Word(token, start := begin + chance.uniform(0, 10), start + chance.choice([0.0, 0.2, 1.0]))
            for token in tokens(text)
        )
        segments.append(Segment(begin, begin + chance.uniform(0, 12), text, chance.choice([words, (), None])))
    subject = transcript(*segments, duration=chance.uniform(1, 30))
    assert whole(read(subject)) == letters([segment.text for segment in segments])


def test_a_long_recording_takes_little_time() -> None:
    subject = transcript(*(spoken(MIXED, number * 60.0) for number in range(180)))
    started = time.process_time()
    formats()["srt"].render(subject, Asked())
    assert time.process_time() - started < 3
