"""How cost grows with length: one request of 1 minute, 10 minutes ... hours, its seconds and the server's memory."""

from __future__ import annotations

import argparse
import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.load import add_server, send_long, settings
from bench.offline import add_model
from bench.report import gpu_facts, print_header, print_table
from bench.server import Server, running_fixed_server

_LOOK_SECONDS = 0.2


def add_command(commands: Any) -> None:
    parser = commands.add_parser("growth", help=__doc__)
    add_model(parser)
    add_server(parser)
    parser.add_argument("--hours", type=float, default=10.0, help="the longest recording")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    longest = round(3600 * arguments.hours)
    lengths = sorted({length for length in (60, 600, 3600) if length < longest} | {longest})
    print_header(
        "Fun-ASR-Nano over HTTP, one long recording",
        f"one WAV upload to {arguments.path} of the recordings in tests/data, repeated; {arguments.model.name}",
        "first byte sent to last byte of the answer, word times on; model loaded and warm; nothing else runs",
        "VAD on, answers of 130 tokens for 30 s of speech; limits of the server raised for the longest",
    )
    room = {"max_upload_bytes": str(2**32), "max_pcm_bytes": str(2**34), "max_audio_seconds": str(longest + 60)}
    with running_fixed_server({**room, **settings(arguments)}, arguments.log) as server:
        asyncio.run(send_long(server.port, arguments.path, 60))
        before = server.resident_mib()
        rows = [_row(server, arguments.path, length, before) for length in lengths]
    columns = ("sound", "seconds", "RTFx", "host MiB at most", "beyond before", "MiB an hour", "GPU MiB")
    print_table(columns, rows)


def _row(server: Server, path: str, length: int, before: float) -> tuple[str, ...]:
    with _most_memory(server) as peak:
        wall = asyncio.run(send_long(server.port, path, length))
    gpu = gpu_facts("memory.used")
    more = peak[0] - before
    return (
        f"{length} s",
        f"{wall:.2f}",
        f"{length / wall:,.0f}",
        f"{peak[0]:,.0f}",
        f"{more:,.0f}",
        f"{more * 3600 / length:,.0f}",
        gpu[0][0] if gpu else "-",
    )


@contextmanager
def _most_memory(server: Server) -> Iterator[list[float]]:
    """A list with the most memory that the server held meanwhile, in MiB."""
    peak = [server.resident_mib()]
    over = threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_SECONDS):
            peak[0] = max(peak[0], server.resident_mib())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()
