from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.formats.format import json_text
from app.pipeline import EncodedAudio
from app.recordings import Recording, recordings
from audio.errors import EmptyAudio


def listed(inputs: Any) -> list[tuple[str, str]]:
    """Key and path, or key and what is wrong."""
    return [(found.key, found.path or str(found.sound)) for found in recordings(inputs)]


def test_a_path_is_its_own_key() -> None:
    assert listed("a b.wav") == [("a b.wav", "a b.wav")]
    assert listed(Path("x/y.mp3")) == [("x/y.mp3", "x/y.mp3")]
    (found,) = recordings("a.bin")
    assert found.source() == EncodedAudio("a.bin")


def test_arrays_go_by_their_index() -> None:
    one = np.zeros(3, np.float32)
    found = list(recordings(["a.wav", one, Recording("named", one)]))
    assert [recording.key for recording in found] == ["a.wav", "1", "named"]
    assert found[1].source() is one
    assert found[1].path is None
    assert [recording.key for recording in recordings(one)] == ["0"]


def test_doubles_become_single() -> None:
    source = Recording("x", np.array([0.5, -0.5])).source()
    assert isinstance(source, np.ndarray)
    assert source.dtype == np.float32


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 8), np.float32), r"mono .* not the shape \(2, 8\)"),
        (np.zeros(8, np.int16), "not int16; 16-bit ones are to be divided by 32768"),
        (np.zeros(8, bool), "not bool"),
        (np.array([0.0, np.nan]), "loudest of these is nan"),
        (np.array([0.0, np.inf]), "loudest of these is inf"),
        (np.array([12.0, -9000.0]), "loudest of these is 9000"),
    ],
)
def test_arrays_that_are_no_waveform(array: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recording("x", array).source()


def test_an_empty_array() -> None:
    with pytest.raises(EmptyAudio):
        Recording("x", np.zeros(0, np.float32)).source()


def test_what_is_no_input() -> None:
    with pytest.raises(TypeError, match="not int"):
        list(recordings([1]))  # type: ignore[list-item]


def test_nothing_is_read_ahead() -> None:
    taken = []

    def names() -> Any:
        for number in range(100_000):
            taken.append(number)
            yield f"{number}.wav"

    found = recordings(names())
    assert [next(found).key for _ in range(3)] == ["0.wav", "1.wav", "2.wav"]
    assert len(taken) == 3


def test_a_folder(tmp_path: Path) -> None:
    for name in (
        "b.WAV",
        "a.flac",
        "notes.txt",
        "._a.wav",
        "sub/z.opus",
        "sub/deep/c.mp4",
        ".trash/t.wav",
        "sub/list.scp",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    found = [os.path.relpath(path, tmp_path) for _, path in listed(tmp_path)]
    assert found == ["a.flac", "b.WAV", "sub/z.opus", "sub/deep/c.mp4"]


def test_a_folder_without_recordings(tmp_path: Path) -> None:
    assert listed(tmp_path) == [(str(tmp_path), "there are no recordings in this folder")]


def test_names_that_are_not_utf_8(tmp_path: Path) -> None:
    os.close(os.open(os.fsencode(tmp_path) + b"/caf\xe9.wav", os.O_CREAT))
    (found,) = recordings(tmp_path)
    source = found.source()
    assert isinstance(source, EncodedAudio)
    assert os.path.exists(source.content)
    assert json.loads(json_text({"key": found.key}))["key"].endswith(r"caf\udce9.wav")
    assert found.path == found.key


def test_wav_scp(tmp_path: Path) -> None:
    scp = tmp_path / "wav.scp"
    scp.write_bytes(
        "\ufeffutt1 /data/a b.wav\r\n\n  utt2\t/data/中文.flac \nlonely\nutt3 sox /x.wav -t wav - |\n".encode()
        + b"utt4 /d/\xe9.wav"
    )
    assert listed(scp) == [
        ("utt1", "/data/a b.wav"),
        ("utt2", "/data/中文.flac"),
        (f"{scp}:4", "a line holds a key, a space and a path"),
        ("utt3", "commands in a wav.scp are not run; give the path of a file"),
        ("utt4", r"/d/\udce9.wav"),
    ]


def test_json_lines(tmp_path: Path) -> None:
    entries: list[Any] = [
        {"key": "one", "source": "/a.wav", "target": "words"},
        {"audio": "b.wav"},
        {"key": 7, "path": "c.wav"},
        {"key": "\ud800", "path": "d.wav"},
        {"text": "nothing to hear"},
        {"audio": {"bytes": None}},
        ["e.wav"],
        {"key": ["x"], "path": "f.wav"},
    ]
    lines = tmp_path / "list.JSONL"
    lines.write_text("\n".join([*map(json.dumps, entries), "{torn", "[" * 100_000]))
    missing = "a line is a JSON object with a path as audio, path, source"
    assert listed(lines) == [
        ("one", "/a.wav"),
        ("b.wav", "b.wav"),
        ("7", "c.wav"),
        (r"\ud800", "d.wav"),
        (f"{lines}:5", missing),
        (f"{lines}:6", missing),
        (f"{lines}:7", missing),
        (f"{lines}:8", "a key is a string"),
        (f"{lines}:9", "this line is not valid JSON"),
        (f"{lines}:10", "this line is not valid JSON"),
    ]


def test_a_list_that_is_not_there() -> None:
    (found,) = recordings("nowhere.scp")
    assert found.key == "nowhere.scp"
    with pytest.raises(FileNotFoundError):
        found.source()
