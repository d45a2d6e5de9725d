"""The soak of `bench`, short, on a server whose engine is a fake."""

from __future__ import annotations

from bench.server import Server
from bench.soak import soak
from tests.hearing import recording
from tests.processes import number_server

REQUESTS = 400


async def test_nothing_is_left_of_any_request() -> None:
    with number_server(NUMBER_SECONDS=0.002, max_requests=32, upload_grace_seconds=3) as server:
        recordings = [recording(*range(1, 1 + seconds)) for seconds in (1, 5, 20, 40)]
        result = await soak(Server(server.url, server.process.pid, 0.0), recordings, REQUESTS)
        log = server.log
    assert result.outcomes.total() == REQUESTS
    assert result.faults == {}, result.report()
    assert result.over == {}, result.report()
    assert "Traceback" not in log
