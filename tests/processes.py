"""A server of `tests.number_server` in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

ROOT = Path(__file__).parents[1]


class NumberServer:
    """The running server: its address, its process, its log."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def engine(self) -> psutil.Process:
        """The device process."""
        return next(child for child in self._spawned if child.rlimit(psutil.RLIMIT_DATA)[0] == psutil.RLIM_INFINITY)

    @property
    def decoders(self) -> list[psutil.Process]:
        """The decode workers; they are limited in memory, and the device is not."""
        return [child for child in self._spawned if child.rlimit(psutil.RLIMIT_DATA)[0] != psutil.RLIM_INFINITY]

    @property
    def _spawned(self) -> list[psutil.Process]:
        return [child for child in self.children if "spawn_main" in " ".join(child.cmdline())]

    @property
    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def post(self, content: bytes, timeout: float = 20.0, **fields: str) -> httpx.Response:
        return httpx.post(f"{self.url}/asr", files={"file": content}, data=fields, timeout=timeout)

    def health(self) -> dict[str, Any]:
        answer: dict[str, Any] = httpx.get(f"{self.url}/health", timeout=5).json()
        return answer

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        lines = httpx.get(f"{self.url}/metrics", timeout=5).text.splitlines()
        found = [line for line in lines if line.split(" ")[0].partition("{")[0] == name]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    def wait_for(self, *statuses: str, timeout: float = 30.0) -> None:
        deadline = time.monotonic() + timeout
        while True:
            try:
                if self.health()["status"] in statuses:
                    return
            except httpx.TransportError:
                pass
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)


@contextmanager
def number_server(*, ready: bool = True, **settings: object) -> Iterator[NumberServer]:
    """Start one with settings such as `max_requests=2` or, in capitals, `NUMBER_SECONDS=0.1`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    named = {name if name.isupper() else f"TINGLU_{name.upper()}": str(value) for name, value in settings.items()}
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TINGLU_", "OTEL_"))}
    environment = {**own, "TINGLU_DEVICE": "cpu", "TINGLU_DECODE_WORKERS": "2", "TINGLU_PORT": str(port), **named}
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        command = [sys.executable, "-m", "tests.number_server"]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        server = NumberServer(process, port, Path(log.name))
        try:
            server.wait_for("ok") if ready else server.wait_for("starting", "restarting", "failed", "ok")
            yield server
        finally:
            process.kill()
            process.wait()
