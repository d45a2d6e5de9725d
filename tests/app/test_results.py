from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.results import ResultsFile


def test_what_is_written_is_found(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with ResultsFile(path) as file:
        assert file.done == frozenset()
        for key in ("a", "中\\n文"):
            file.write(f'{{"key":"{key}","text":"{{}}"}}')
            assert path.read_bytes().endswith(b"}\n"), "at once, not at the end"
    with ResultsFile(path) as file:
        assert file.done == {"a", "中\n文"}
        file.write('{"key":"c"}')
    assert path.read_text().count("\n") == 3


@pytest.mark.parametrize("torn", ['{"key":"b","te', '{"key":"b"}', '{"k', "{", '{"key":"中'.encode()[:-1]])
def test_a_torn_last_line_is_taken_away(tmp_path: Path, torn: str | bytes) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(b'{"key":"a"}\n' + (torn if isinstance(torn, bytes) else torn.encode()))
    with ResultsFile(path) as file:
        assert file.done == {"a"}
        file.write('{"key":"b"}')
    assert path.read_text() == '{"key":"a"}\n{"key":"b"}\n'


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"RIFF\x00\x00", 1),
        (b"# Notes\n", 1),
        (b'{"key":"a"}\nsomething of mine', 2),
        (b'{"key":"a"}\n{"key":"b"\n{"key":"c"}\n', 2),
        (b'{"key":7}\n', 1),
        (b'{"key":"\xff"}\n', 1),
    ],
)
def test_other_files_are_left_alone(tmp_path: Path, content: bytes, line: int) -> None:
    path = tmp_path / "precious"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"line {line} is not a result"):
        ResultsFile(path)
    assert path.read_bytes() == content


def test_one_run_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with ResultsFile(path), pytest.raises(ValueError, match="another run is writing to it"):
        ResultsFile(path)
    with ResultsFile(path) as file:
        assert not file.done


def test_what_cannot_be_a_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        ResultsFile(tmp_path)
    with pytest.raises(FileNotFoundError):
        ResultsFile(tmp_path / "no" / "where.jsonl")
    with pytest.raises(ValueError, match="not a regular file"):
        ResultsFile(Path("/dev/null"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="not a regular file"):
        ResultsFile(tmp_path / "pipe")


def test_a_full_disk_is_an_error() -> None:
    """`/dev/full` is none, so its file is put in place of a regular one."""
    file = ResultsFile.__new__(ResultsFile)
    file._file = os.open("/dev/full", os.O_WRONLY)
    with file, pytest.raises(OSError, match="No space left"):
        file.write('{"key":"a"}')


def test_stdout_holds_results_alone() -> None:
    code = (
        "import os, sys\n"
        "from app.results import results_alone\n"
        "with results_alone() as out:\n"
        "    print('python'); sys.stdout.flush(); os.write(1, b'c\\n'); out.write('result 中\\n')\n"
        "print('after')"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, timeout=60, check=True)
    assert done.stdout.decode() == "result 中\nafter\n"
    assert done.stderr.decode() == "python\nc\n"
