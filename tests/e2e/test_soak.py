"""The soak of `bench`, short, on the tiny checkpoint: a real engine, and requests of every kind."""

from __future__ import annotations

from pathlib import Path

from bench.server import running_server
from bench.soak import soak

TESTS = Path(__file__).parents[1]
CLIPS = ("goforward", "something", "nano-3.1s")
REQUESTS = 120
MODEL = str(TESTS / "parity" / "nano-tiny")


async def test_nothing_is_left_of_any_request(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    recordings = [(TESTS / "data" / f"{name}.wav").read_bytes() for name in CLIPS]
    options = ("--model", MODEL, "--self-test", "false", "--upload-grace-seconds", "3")
    with running_server(*options, environment={"TMPDIR": str(spool)}, log=tmp_path / "log") as server:
        result = await soak(server, recordings, REQUESTS, spool=spool)
    report = result.report()
    assert result.outcomes.total() == REQUESTS
    assert len({outcome.split(": ")[0] for outcome in result.outcomes}) > 20, report
    assert result.faults == {}, report
    assert result.over == {}, report
    assert "Traceback" not in (tmp_path / "log").read_text()
