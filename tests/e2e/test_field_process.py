"""A server process where the field is hard on it: no network, weights that do not fit, a first request."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.catalog import Catalog

TESTS = Path(__file__).parents[1]
CLIP = TESTS / "data" / "goforward.wav"

NO_NETWORK = """
import errno, os, socket

def allowed(host):
    return host in (None, "", b"", "localhost", "::1", socket.gethostname()) or str(host).startswith("127.")

def guarded(name):
    original = getattr(socket.socket, name)
    def method(self, address, *rest):
        internet = self.family in (socket.AF_INET, socket.AF_INET6)
        if internet and self.type == socket.SOCK_STREAM and not allowed(address[0]):
            refuse(address, OSError(errno.ENETUNREACH, "Network is unreachable"))
        return original(self, address, *rest)
    setattr(socket.socket, name, method)

def refuse(what, error):
    with open(os.environ["REFUSED"], "a") as file:
        print(what, file=file)
    raise error

def looked_up(host, *rest, original=socket.getaddrinfo, **named):
    if not allowed(host):
        refuse(host, socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"))
    return original(host, *rest, **named)

guarded("connect")
guarded("connect_ex")
socket.getaddrinfo = looked_up
"""
"""Python runs it at the start of every process that finds it: whoever wants to leave this machine cannot."""


@dataclass(frozen=True, slots=True)
class Process:
    """A server that was started, and what it says."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def health(self, *statuses: str, timeout: float = 120.0) -> Any:
        """The health, as soon as it has one of these statuses."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log.read_text()
            try:
                body = httpx.get(f"{self.url}/health", timeout=5).json()
                if body["status"] in statuses:
                    return body
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise AssertionError(self.log.read_text())

    def hear(self, content: bytes) -> Any:
        answer = httpx.post(f"{self.url}/asr", files={"file": content}, timeout=120)
        assert answer.status_code == 200, answer.text
        return answer.json()

    @property
    def family(self) -> list[psutil.Process]:
        own = psutil.Process(self.process.pid)
        return [own, *own.children(recursive=True)]


@contextmanager
def serving(directory: Path, model: str, environment: Mapping[str, str], *options: str) -> Iterator[Process]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "app.cli", "serve", "--port", str(port), "--model", model, *options]
    log = directory / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=without_hubs() | environment)
    try:
        yield Process(process, f"http://127.0.0.1:{port}", log)
    finally:
        process.terminate()
        process.wait(60)


def without_hubs() -> dict[str, str]:
    """Nothing that tells clients of hubs to stay at home."""
    return {name: value for name, value in os.environ.items() if not name.endswith("_OFFLINE")}


@pytest.fixture
def no_network(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "sitecustomize.py").write_text(NO_NETWORK)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": path, "REFUSED": str(tmp_path / "refused.txt")}


@pytest.mark.field("E24")
def test_without_a_network_it_starts_and_does_not_ask_for_one(tmp_path: Path, no_network: dict[str, str]) -> None:
    with serving(tmp_path, "whisper-tiny.en", no_network) as server:
        server.health("ok")
        assert server.hear(CLIP.read_bytes())["text"].lower().startswith("go forward")
    assert not (tmp_path / "refused.txt").exists(), (tmp_path / "refused.txt").read_text()


@pytest.mark.field("E24")
@pytest.mark.parametrize("command", ["serve", "transcribe"])
def test_without_weights_there_is_one_line(tmp_path: Path, no_network: dict[str, str], command: str) -> None:
    """A model that only a hub has, and no way to it."""
    result = subprocess.run(
        [
            *(sys.executable, "-m", "app.cli", command),
            *("--model", "whisper-small", "--cache-dir", str(tmp_path / "cache")),
            *([str(CLIP)] if command == "transcribe" else []),
        ],
        env=without_hubs() | no_network,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("tinglu: the weights of whisper-small are not here: openai/whisper-small")
    assert line.endswith("or pass a directory")
    assert (tmp_path / "refused.txt").exists()


@pytest.mark.field("B5")
def test_a_checkpoint_that_does_not_fit_is_never_ready(tmp_path: Path) -> None:
    """Whisper whose last layer norm is all zeros finds every token as likely as token 0, "!"."""
    whole = Catalog(tmp_path / "cache").resolve("whisper-tiny.en").directory
    spoiled = tmp_path / "spoiled"
    shutil.copytree(whole, spoiled)
    (weights,) = spoiled.glob("*.safetensors")
    tensors = load_file(weights)
    norms = [name for name in tensors if "decoder" in name and name.rpartition(".")[0].endswith("decoder.layer_norm")]
    assert len(norms) == 2
    save_file(tensors | {name: torch.zeros_like(tensors[name]) for name in norms}, weights, {"format": "pt"})
    with serving(tmp_path, str(spoiled), {}) as server:
        health = server.health("failed")
        assert "self-test heard '!" in health["reason"]
        assert "the weights do not fit the model" in health["reason"]
        assert httpx.get(f"{server.url}/health/ready").status_code == 503
        answer = httpx.post(f"{server.url}/asr", files={"file": CLIP.read_bytes()})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_unavailable")


@pytest.mark.field("C5")
def test_a_nano_checkpoint_without_ctc_has_text_and_no_words(tmp_path: Path) -> None:
    model = tmp_path / "nano"
    shutil.copytree(TESTS / "parity" / "nano-tiny", model)
    content = torch.load(model / "model.pt", weights_only=True)
    tensors = content.get("state_dict", content)
    torch.save({name: tensor for name, tensor in tensors.items() if not name.startswith("ctc")}, model / "model.pt")
    with serving(tmp_path, str(model), {}, "--self-test", "false") as server:
        server.health("ok")
        answer = server.hear((TESTS / "data" / "nano-3.1s.wav").read_bytes())
        assert answer["text"]
        assert not any("words" in segment for segment in answer["segments"])
        verbose = httpx.post(
            f"{server.url}/v1/audio/transcriptions",
            files={"file": (TESTS / "data" / "nano-3.1s.wav").read_bytes()},
            data={"response_format": "verbose_json", "timestamp_granularities[]": ["word", "segment"]},
            timeout=60,
        ).json()
        assert verbose["text"] == answer["text"]
        assert "words" not in verbose
        assert "words have no times: the model makes none" in verbose["warnings"]
        (told,) = httpx.get(f"{server.url}/v1/models").json()["data"]
        assert told["word_timestamps"] is False


@pytest.mark.field("E12")
def test_the_first_request_finds_everything_loaded(tmp_path: Path) -> None:
    """Modules, libraries, weights, processes: what a first request may have to wait for is there when ready is told.

    How long it takes then is a matter of `bench`.
    """
    with serving(tmp_path, "whisper-tiny.en", {"PYTHONPROFILEIMPORTTIME": "1"}) as server:
        server.health("ok")
        before = footprint(server)
        assert server.hear(CLIP.read_bytes())["text"].lower().startswith("go forward")
        after = footprint(server)
    assert after == before


def footprint(server: Process) -> Mapping[str, list[str]]:
    """Modules that were imported, files that are mapped, and processes."""
    imported = [
        line.rpartition("|")[2].strip() for line in server.log.read_text().splitlines() if "import time:" in line
    ]
    mapped: set[str] = set()
    for member in server.family:
        maps = Path(f"/proc/{member.pid}/maps").read_text().splitlines()
        mapped.update(fields[5] for line in maps if len(fields := line.split(maxsplit=5)) == 6)
    files = sorted(path for path in mapped if path.startswith("/") and not path.startswith(("/memfd:", "/dev/shm")))
    return {"modules": imported, "files": files, "processes": [str(member.pid) for member in server.family]}
