"""The life of a server process: its start, its end, and the death of its engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest
import soundfile

from bench.recordings import DATA
from bench.server import running_server
from tests.encoding import CONTAINERS, encode


def tinglu(*arguments: str, timeout: float = 200) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.mark.field("A1")
def test_transcribe_reads_every_container(tmp_path: Path) -> None:
    samples, _ = soundfile.read(DATA / "jfk.wav", dtype="int16")
    files = [DATA / "jfk.wav"]
    for extension, (container, codec, rate) in CONTAINERS.items():
        files.append(tmp_path / f"jfk.{extension}")
        files[-1].write_bytes(encode(samples, container, codec, rate))
    (tmp_path / "notes.txt").write_text("no recording")
    result = tinglu("transcribe", "--format", "json", *map(str, files), str(tmp_path / "notes.txt"), "missing.wav")
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [answer["file"] for answer in answers] == [str(file) for file in files]
    assert len({answer["text"] for answer in answers}) == 1
    assert "ask not what your country can do for you" in answers[0]["text"]
    assert all(abs(answer["duration"] - 11.0) < 0.1 for answer in answers)
    assert result.returncode == 1
    failures = [line for line in result.stderr.splitlines() if line.startswith("tinglu: ")]
    assert len(failures) == 2
    assert "notes.txt" in failures[0]
    assert "missing.wav" in failures[1]


def test_an_interrupt_while_loading_ends_quickly_and_says_so() -> None:
    command = [sys.executable, "-m", "app.cli", "transcribe", str(DATA / "jfk.wav")]
    # Whoever runs the tests in the background of a script runs them with interrupts ignored, which is inherited.
    with subprocess.Popen(
        command,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        time.sleep(4)
        os.killpg(process.pid, signal.SIGINT)
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (130, "", "tinglu: interrupted\n")


def test_models_lists_the_embedded_one_as_installed() -> None:
    lines = tinglu("models").stdout.splitlines()
    assert any(line.split()[:2] == ["whisper-base", "installed"] for line in lines)


@pytest.mark.field("E24")
def test_missing_weights_are_one_line_and_exit_code_two(tmp_path: Path) -> None:
    result = tinglu("serve", "--model", str(tmp_path / "nowhere"))
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert "nowhere" in result.stderr


@pytest.mark.field("E11")
def test_a_killed_engine_is_not_ready_refuses_and_comes_back() -> None:
    """E11, with a real engine."""
    with running_server("--model", "whisper-tiny.en") as server:
        engine = max(psutil.Process(server.pid).children(), key=lambda child: child.memory_info().rss)
        engine.kill()
        deadline = time.monotonic() + 5
        while httpx.get(f"{server.url}/health", timeout=5).json()["status"] == "ok":
            assert time.monotonic() < deadline
            time.sleep(0.1)
        with (DATA / "goforward.wav").open("rb") as file:
            response = httpx.post(f"{server.url}/asr", files={"file": file}, timeout=5)
        assert response.status_code == 503
        assert "Retry-After" in response.headers
        deadline = time.monotonic() + 120
        while httpx.get(f"{server.url}/health/ready", timeout=5).status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        answer = httpx.post(f"{server.url}/asr", files={"file": (DATA / "goforward.wav").read_bytes()}, timeout=60)
        assert answer.json()["text"].lower().startswith("go forward")


@pytest.mark.parametrize("door", ["/health", "/docs"])
def test_the_server_answers_from_its_first_moment(door: str) -> None:
    with running_server("--model", "whisper-tiny.en", until="listening") as server:
        response = httpx.get(f"{server.url}{door}", timeout=1)
        assert response.status_code == 200
        if door == "/health":
            assert response.json()["status"] == "starting"
