"""Containers, codecs, damage and limits: what arrives at the door and what the waveform then is."""

from __future__ import annotations

import io
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soxr

from audio.decode import DecodeLimits, DecodingCancelled, decode, decode_blocks, decode_into
from audio.errors import AudioError, AudioTooLong, EmptyAudio, NoAudioStream, UndecodableAudio

ROOT = Path(__file__).parents[2]

# name: container, codec, rate, muxer options
CONTAINERS = {
    "wav": ("wav", "pcm_s16le", 16_000, {}),
    "wav-44k": ("wav", "pcm_s16le", 44_100, {}),
    "flac": ("flac", "flac", 16_000, {}),
    "mp3": ("mp3", "libmp3lame", 44_100, {}),
    "mp3-headerless": ("mp3", "libmp3lame", 16_000, {"write_xing": "0"}),
    "m4a": ("ipod", "aac", 44_100, {}),
    "m4a-faststart": ("ipod", "aac", 16_000, {"movflags": "faststart"}),
    "mp4": ("mp4", "aac", 48_000, {}),
    "mp4-fragmented": ("mp4", "aac", 48_000, {"movflags": "frag_keyframe+empty_moov"}),
    "alac": ("ipod", "alac", 16_000, {}),
    "adts": ("adts", "aac", 16_000, {}),
    "webm": ("webm", "libopus", 48_000, {}),
    "webm-mediarecorder": ("webm", "libopus", 48_000, {"live": "1"}),
    "ogg-opus": ("ogg", "libopus", 48_000, {}),
    "amr": ("amr", "libopencore_amrnb", 8_000, {}),
    "3gp": ("3gp", "libopencore_amrnb", 8_000, {}),
    "avi": ("avi", "libmp3lame", 44_100, {}),
    "mpegts": ("mpegts", "aac", 48_000, {}),
}


def decoded(data: bytes, **options: object) -> np.ndarray:
    return decode(io.BytesIO(data), **options)


def likeness(a: np.ndarray, b: np.ndarray) -> float:
    """Largest correlation of two waveforms over shifts of up to 0.1 s (codecs delay)."""
    n = min(len(a), len(b))
    a, b = a[:n] - a[:n].mean(), b[:n] - b[:n].mean()
    correlation = np.fft.irfft(np.fft.rfft(a, 2 * n) * np.fft.rfft(b, 2 * n).conj())
    near = np.concatenate([correlation[:1600], correlation[-1600:]]).max()
    return float(near / np.sqrt((a @ a) * (b @ b)))


@pytest.mark.field("A1", "A3")
@pytest.mark.parametrize("name", CONTAINERS)
def test_every_container_gives_the_same_sound(name: str, clip: np.ndarray, encode: Callable[..., bytes]) -> None:
    container, codec, rate, options = CONTAINERS[name]
    waveform = decoded(encode(clip, container, codec, rate, options=options))
    assert waveform.dtype == np.float32
    assert waveform.ndim == 1
    assert len(waveform) / 16_000 == pytest.approx(3.0, abs=0.1)
    assert likeness(waveform, clip / 32768) > 0.9


@pytest.mark.parametrize("name", ["wav", "flac", "alac"])
def test_lossless_at_16_khz_is_bit_exact(name: str, clip: np.ndarray, encode: Callable[..., bytes]) -> None:
    container, codec, rate, options = CONTAINERS[name]
    waveform = decoded(encode(clip, container, codec, rate, options=options))
    np.testing.assert_array_equal(waveform, clip.astype(np.float32) / 32768)


@pytest.mark.field("A12")
@pytest.mark.parametrize("seconds", [0.01, 0.25])
@pytest.mark.parametrize("name", ["wav", "wav-44k", "mp3", "m4a", "webm", "ogg-opus"])
def test_very_short_clips(name: str, seconds: float, clip: np.ndarray, encode: Callable[..., bytes]) -> None:
    container, codec, rate, options = CONTAINERS[name]
    waveform = decoded(encode(clip[: int(16_000 * seconds)], container, codec, rate, options=options))
    assert len(waveform) / 16_000 == pytest.approx(seconds, abs=0.1)


@pytest.mark.field("A2")
def test_m4a_cut_off_before_its_index_is_refused(clip: np.ndarray, encode: Callable[..., bytes]) -> None:
    data = encode(clip, "ipod", "aac")
    with pytest.raises(UndecodableAudio, match="cut off"):
        decoded(data[: len(data) // 2])


@pytest.mark.parametrize("name", ["wav", "flac", "mp3", "mp3-headerless", "m4a-faststart", "webm", "ogg-opus", "adts"])
def test_what_is_left_of_a_cut_file_is_decoded(name: str, clip: np.ndarray, encode: Callable[..., bytes]) -> None:
    container, codec, rate, options = CONTAINERS[name]
    data = encode(clip, container, codec, rate, options=options)
    waveform = decoded(data[: len(data) // 2 + 11])
    assert 0.9 < len(waveform) / 16_000 < 2.2  # an Ogg page holds a second and is whole or lost
    assert likeness(waveform, clip[: len(waveform)] / 32768) > 0.9


@pytest.mark.parametrize("name", ["flac", "mp3", "ogg-opus", "adts"])
def test_sound_after_a_damaged_stretch_is_kept(name: str, clip: np.ndarray, encode: Callable[..., bytes]) -> None:
    container, codec, rate, options = CONTAINERS[name]
    data = bytearray(encode(clip, container, codec, rate, options=options))
    data[len(data) // 2 : len(data) // 2 + 3000] = bytes(3000)
    waveform = decoded(bytes(data))
    assert len(waveform) / 16_000 >= 1.9  # an Ogg page holds a second and is whole or lost
    assert likeness(waveform[-16_000:], clip[-16_000:] / 32768) > 0.9


def test_flac_streamed_without_a_length(clip: np.ndarray, encode: Callable[..., bytes]) -> None:
    data = bytearray(encode(clip, "flac", "flac"))
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    assert len(decoded(bytes(data))) == len(clip)


@pytest.mark.parametrize("name", ["flac", "mp3", "mp3-headerless"])
def test_joined_files_are_decoded_to_the_end(name: str, clip: np.ndarray, encode: Callable[..., bytes]) -> None:
    container, codec, rate, options = CONTAINERS[name]
    data = encode(clip, container, codec, rate, options=options)
    assert len(decoded(data + data)) / 16_000 == pytest.approx(6.0, abs=0.2)


def test_the_sample_rate_may_change_on_the_way(clip: np.ndarray, encode: Callable[..., bytes]) -> None:
    stereo = encode(np.stack([clip, clip]), "mp3", "libmp3lame", 44_100, layout="stereo")
    waveform = decoded(encode(clip, "mp3", "libmp3lame", 16_000) + stereo)
    assert len(waveform) / 16_000 == pytest.approx(6.0, abs=0.2)
    assert likeness(waveform[-48_000:], clip / 32768) > 0.9


@pytest.mark.field("A4")
@pytest.mark.parametrize(("riff_size", "data_size"), [(0xFFFFFFFF, 0xFFFFFFFF), (0, 0), (0xFFFFFFFF, 0), (None, 2**31)])
def test_wav_written_to_a_pipe(riff_size: int, data_size: int, clip: np.ndarray, wav: Callable[..., bytes]) -> None:
    tracemalloc.start()
    waveform = decoded(wav(clip.tobytes(), riff_size=riff_size, data_size=data_size))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(waveform, clip.astype(np.float32) / 32768)
    assert peak < 4_000_000


@pytest.mark.field("A10")
@pytest.mark.parametrize(
    "subtype", ["ULAW", "ALAW", "PCM_U8", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "IMA_ADPCM", "GSM610"]
)
def test_wav_sample_formats(subtype: str, clip: np.ndarray, sound_file: Callable[..., bytes]) -> None:
    half = (clip / 65536).astype(np.float64)
    waveform = decoded(sound_file(half, 8_000, subtype))
    assert len(waveform) / 16_000 == pytest.approx(6.0, abs=0.1)
    expected = soxr.resample(half, 8_000, 16_000)
    assert likeness(waveform, expected) > 0.98
    assert np.abs(waveform).max() == pytest.approx(np.abs(expected).max(), rel=0.15)


def test_wav_with_a_codec_that_libsndfile_refuses(clip: np.ndarray, encode: Callable[..., bytes]) -> None:
    assert likeness(decoded(encode(clip, "wav", "libmp3lame")), clip / 32768) > 0.9


def test_resampling_in_blocks_has_no_seams(sound_file: Callable[..., bytes]) -> None:
    tone = 0.5 * np.sin(2 * np.pi * 440 * np.arange(96_000 * 5) / 96_000)
    blocks = list(decode_blocks(io.BytesIO(sound_file(tone, 96_000, "PCM_24"))))
    assert len(blocks) > 3
    assert all(len(block) for block in blocks)
    waveform = np.concatenate(blocks)
    expected = 0.5 * np.sin(2 * np.pi * 440 * np.arange(16_000 * 5) / 16_000)
    assert len(waveform) == len(expected)
    np.testing.assert_allclose(waveform[200:-200], expected[200:-200], atol=1e-4)


@pytest.mark.field("A9")
def test_channels_of_a_stereo_recording(clip: np.ndarray, sound_file: Callable[..., bytes]) -> None:
    speech = clip.astype(np.float32) / 32768
    data = sound_file(np.stack([clip, np.zeros_like(clip)], 1), 16_000, "PCM_16")
    np.testing.assert_array_equal(decoded(data), speech / 2)
    np.testing.assert_array_equal(decoded(data, channel="mix"), speech / 2)
    np.testing.assert_array_equal(decoded(data, channel="left"), speech)
    np.testing.assert_array_equal(decoded(data, channel="right"), np.zeros_like(speech))


@pytest.mark.parametrize("channel", ["mix", "left", "right"])
def test_a_mono_recording_is_each_of_its_channels(channel: str, clip: np.ndarray, wav: Callable[..., bytes]) -> None:
    np.testing.assert_array_equal(decoded(wav(clip.tobytes()), channel=channel), clip.astype(np.float32) / 32768)


@pytest.mark.parametrize(("codec", "container"), [("pcm_s16le", "wav"), ("flac", "flac"), ("aac", "mp4")])
@pytest.mark.parametrize(("layout", "channels"), [("5.1", 6), ("7.1", 8)])
def test_surround_sound(codec: str, container: str, layout: str, channels: int, clip: np.ndarray,
                        encode: Callable[..., bytes]) -> None:  # fmt: skip
    waveform = decoded(encode(np.stack([clip] * channels), container, codec, 48_000, layout=layout))
    assert len(waveform) / 16_000 == pytest.approx(3.0, abs=0.1)
    assert likeness(waveform, clip / 32768) > 0.9


def test_floats_beyond_full_scale_are_clipped(sound_file: Callable[..., bytes]) -> None:
    loud = np.array([0.25, 1.5, -7.0, 3e38, 1.0] * 1000, np.float32)
    np.testing.assert_array_equal(decoded(sound_file(loud, 16_000, "FLOAT")), np.clip(loud, -1, 1))
    resampled = decoded(sound_file(loud, 44_100, "FLOAT"))
    assert np.isfinite(resampled).all()
    assert np.abs(resampled).max() <= 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_that_are_no_numbers_are_refused(bad: float, channels: int, sound_file: Callable[..., bytes]) -> None:
    samples = np.zeros((32_000, channels), np.float32)
    samples[31_000] = bad
    with pytest.raises(UndecodableAudio, match="not a finite number"):
        decoded(sound_file(samples, 16_000, "FLOAT"))


@pytest.mark.field("A11")
def test_no_bytes() -> None:
    with pytest.raises(EmptyAudio, match="0 bytes"):
        decoded(b"")


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\2\0\0\0\x90wS\xde" + bytes(64)
NOT_SOUND = {
    "text": b"Dear all, please find the recording attached.\n" * 40,
    "pdf": b"%PDF-1.4\n" + bytes(range(256)) * 40,
    "png": PNG,
    "subtitles": b"1\n00:00:00,000 --> 00:00:01,000\nhello\n\n" * 20,
    "one byte": b"x",
    "riff alone": b"RIFF\0\0\0\0WAVE",
    "zeros": bytes(100_000),
}


@pytest.mark.field("A11")
@pytest.mark.parametrize("name", NOT_SOUND)
def test_files_that_are_no_sound(name: str) -> None:
    with pytest.raises(UndecodableAudio, match="WAV, FLAC, MP3"):
        decoded(NOT_SOUND[name])


@pytest.mark.field("A11")
def test_random_bytes_are_no_sound() -> None:
    source = random.Random(7)
    for size in [10, 1_000, 60_000] * 10:
        with pytest.raises(UndecodableAudio):
            decoded(source.randbytes(size))


@pytest.mark.field("A11")
@pytest.mark.parametrize("data_size", [0, 0xFFFFFFFF])
def test_a_header_without_samples(data_size: int, wav: Callable[..., bytes]) -> None:
    with pytest.raises(UndecodableAudio, match="no sound"):
        decoded(wav(b"", data_size=data_size))


def test_playlists_do_not_open_other_files(tmp_path: Path, clip: np.ndarray, wav: Callable[..., bytes]) -> None:
    target = tmp_path / "secret.wav"
    target.write_bytes(wav(clip.tobytes()))
    playlists = [
        f"#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\nfile://{target}\n#EXT-X-ENDLIST\n",
        f"ffconcat version 1.0\nfile '{target}'\n",
        f"ffconcat version 1.0\nfile 'subfile,,start,0,end,0,,:{target}'\n",
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n",
        f'<?xml version="1.0"?><MPD><Period><BaseURL>{target}</BaseURL></Period></MPD>',
    ]
    for number, playlist in enumerate(playlists):
        path = tmp_path / f"{number}.m3u8"
        path.write_text(playlist)
        with path.open("rb") as file, pytest.raises(UndecodableAudio):
            decode(file)


@pytest.mark.field("A13")
def test_video_with_sound(clip: np.ndarray, encode: Callable[..., bytes]) -> None:
    waveform = decoded(encode(clip, "mp4", "aac", 48_000, video=True))
    assert likeness(waveform, clip / 32768) > 0.9


@pytest.mark.field("A13")
@pytest.mark.parametrize("container", ["mp4", "matroska", "avi"])
def test_video_without_sound(container: str, clip: np.ndarray, encode: Callable[..., bytes]) -> None:
    with pytest.raises(NoAudioStream, match="it holds video"):
        decoded(encode(clip, container, "", video=True))


@pytest.mark.parametrize(("channels", "rate"), [(0, 16_000), (65, 16_000), (1024, 16_000), (65_535, 16_000), (1, 0),
                                               (1, 1), (1, 2_000_000_000), (1, 4_000_000_000)])  # fmt: skip
def test_headers_that_claim_the_impossible(
    channels: int, rate: int, clip: np.ndarray, wav: Callable[..., bytes]
) -> None:
    with pytest.raises(UndecodableAudio):
        decoded(wav(clip.tobytes(), channels=channels, rate=rate))


def test_damaged_headers_raise_nothing_but_audio_errors(clip: np.ndarray, encode: Callable[..., bytes]) -> None:
    source = random.Random(11)
    for container, codec, rate, options in CONTAINERS.values():
        whole = encode(clip[:8_000], container, codec, rate, options=options)
        for _ in range(10):
            data = bytearray(whole)
            for _ in range(source.choice([1, 5, 50])):
                data[source.randrange(min(len(data), source.choice([200, len(data)])))] = source.randrange(256)
            try:
                assert np.isfinite(decoded(bytes(data), limits=DecodeLimits(max_seconds=60))).all()
            except AudioError:
                continue


def test_limits_that_are_met_exactly_are_kept(clip: np.ndarray, wav: Callable[..., bytes]) -> None:
    data = wav(clip.tobytes())
    limits = DecodeLimits(max_bytes=len(data), max_seconds=3.0, max_pcm_bytes=4 * len(clip))
    assert len(decoded(data, limits=limits)) == len(clip)


@pytest.mark.parametrize(("limits", "message"), [
    (DecodeLimits(max_bytes=96_043), r"96044 bytes; the limit is 96043"),
    (DecodeLimits(max_seconds=2.5), r"limit of 2\.5 s .* at 3\.0 s"),
    (DecodeLimits(max_pcm_bytes=191_999), r"limit of 191999 bytes .* at 192000 bytes"),
])  # fmt: skip
def test_limits_name_themselves(
    limits: DecodeLimits, message: str, clip: np.ndarray, wav: Callable[..., bytes]
) -> None:
    with pytest.raises(AudioTooLong, match=message):
        decoded(wav(clip.tobytes()), limits=limits)


def test_pcm_bytes_count_all_channels(clip: np.ndarray, sound_file: Callable[..., bytes]) -> None:
    data = sound_file(np.stack([clip] * 6, 1), 16_000, "PCM_16")
    with pytest.raises(AudioTooLong, match="max_pcm_bytes"):
        decoded(data, limits=DecodeLimits(max_pcm_bytes=6 * 4 * len(clip) - 1), channel="left")


@pytest.mark.field("A6")
def test_hours_of_silence_in_a_small_file_stop_at_the_limit(encode: Callable[..., bytes]) -> None:
    silence = np.zeros(48_000 * 240, np.int16)
    data = encode(silence, "ogg", "libopus", 48_000, source_rate=48_000,
                  codec_options={"b": "6000", "frame_duration": "60"})  # fmt: skip
    assert len(data) < 100_000
    file, limits = io.BytesIO(data * 40), DecodeLimits(max_seconds=60)
    tracemalloc.start()
    with pytest.raises(AudioTooLong, match="limit of 60 s"):
        for _ in decode_blocks(file, limits=limits):
            pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert file.tell() < len(data)
    assert peak < 4_000_000


@pytest.mark.parametrize("name", ["wav", "flac", "ogg-opus"])
def test_a_caller_can_go(name: str, clip: np.ndarray, encode: Callable[..., bytes]) -> None:
    container, codec, rate, options = CONTAINERS[name]
    file = io.BytesIO(encode(np.tile(clip, 10), container, codec, rate, options=options))
    with pytest.raises(DecodingCancelled):
        decode(file, cancelled=lambda: True)
    gone = False
    blocks = decode_blocks(file, cancelled=lambda: gone)
    next(blocks)
    gone = True
    with pytest.raises(DecodingCancelled):
        next(blocks)


def test_decoding_into_a_file(tmp_path: Path, clip: np.ndarray, encode: Callable[..., bytes]) -> None:
    data = encode(clip, "mp3", "libmp3lame", 44_100)
    with (tmp_path / "out").open("wb") as out:
        written = decode_into(io.BytesIO(data), out)
    waveform = np.fromfile(tmp_path / "out", np.float32)
    assert written == len(waveform)
    np.testing.assert_array_equal(waveform, decoded(data))


def test_a_file_is_read_from_its_beginning(clip: np.ndarray, wav: Callable[..., bytes]) -> None:
    file = io.BytesIO(wav(clip.tobytes()))
    first = decode(file)
    np.testing.assert_array_equal(decode(file), first)


def test_worker_processes_start_without_torch() -> None:
    code = "import sys, audio.decode; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
