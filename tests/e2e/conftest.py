"""A real server with real weights, started once: everything here goes over the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from bench.server import Server, running_server

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with running_server("--max-audio-seconds", "120", "--max-upload-bytes", "20MB") as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.url, timeout=300) as client:
        yield client
