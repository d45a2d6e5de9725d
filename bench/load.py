"""A server of Fun-ASR-Nano under load: clips that it has never heard, from 1 to 128 at once, and one long recording.

The clients run in processes of their own on the same machine (`bench/clients.py`) and send the next clip as soon as the
last is answered. The runs of a point are three windows of the same load, one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from bench import clips
from bench.clients import Connection, Log, Plan, prepare, run_clients, watch_health
from bench.offline import add_model
from bench.report import gpu_facts, print_header, print_table, spread
from bench.server import Server, running_fixed_server

_WINDOWS = 3
_LEAD_SECONDS = 0.3
"""From the plan to the first request: every process has it by then."""


@dataclass(frozen=True, slots=True)
class Point:
    """What was seen in the windows of one load; latencies in seconds."""

    rates: list[float]
    latencies: list[float]
    failures: list[str]
    health: list[float]

    def row(self, clip_seconds: float, concurrency: int, server: Server) -> tuple[str, ...]:
        gpu = gpu_facts("memory.used")
        return (
            f"{clip_seconds:g} s",
            str(concurrency),
            spread(self.rates, 1),
            f"{clip_seconds * float(np.median(self.rates)):,.0f}",
            _percentiles(self.latencies),
            _percentiles(self.health),
            str(len(self.failures)),
            f"{server.resident_mib():,.0f}",
            gpu[0][0] if gpu else "-",
        )


COLUMNS = (
    "clips",
    "at once",
    "requests/s (min / median / max)",
    "RTFx",
    "ms p50 / p95 / p99",
    "/health ms p50 / p95 / p99",
    "failed",
    "host MiB",
    "GPU MiB",
)


def add_command(commands: Any) -> None:
    parser = commands.add_parser("server", help=__doc__)
    add_model(parser)
    add_server(parser)
    parser.add_argument("--seconds", type=float, nargs="+", default=[4.7, 30.0], help="lengths of clips")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--window", type=float, default=3.0, help="seconds of a window")
    parser.add_argument("--warm-up", type=float, default=2.0, help="seconds of load before the windows of a point")
    parser.add_argument(
        "--long", type=int, default=3600, help="seconds of the recording that is sent alone; 0 for none"
    )
    parser.add_argument("--processes", type=int, default=6, help="most processes of clients")
    parser.set_defaults(run=run)


def add_server(parser: argparse.ArgumentParser) -> None:
    """What every command needs that starts a server."""
    parser.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE", help="a setting of the server")
    parser.add_argument("--path", default="/asr", help="the door")
    parser.add_argument("--log", type=Path, help="what the server says goes there")


def settings(arguments: argparse.Namespace) -> dict[str, str]:
    """Settings of the server, by name."""
    given = dict(item.split("=", 1) for item in arguments.setting)
    return {
        "model": str(arguments.model),
        "device": arguments.device,
        "cache_dir": str(arguments.cache_dir),
        "engine_args": json.dumps(arguments.engine_args),
        **given,
    }


def run(arguments: argparse.Namespace) -> None:
    print_header(
        "Fun-ASR-Nano over HTTP, under load",
        f"WAV uploads to {arguments.path}, cut from the recordings in tests/data, each request another clip; "
        f"{arguments.model.name}",
        "first byte sent to last byte of the answer, word times on; model loaded and warm; clients on the same machine",
        f"settings {arguments.setting or 'as served'}, engine arguments {arguments.engine_args or 'as served'}, "
        "VAD on, answers of 130 tokens for 30 s of speech",
    )
    with running_fixed_server(settings(arguments), arguments.log) as server:
        print(f"ready after {server.start_seconds:.1f} s, {server.resident_mib():,.0f} MiB resident\n", flush=True)
        with ProcessPoolExecutor(arguments.processes + 1, get_context("spawn"), prepare) as pool:
            print_table(COLUMNS, [])
            failures: list[str] = []
            for number, (seconds, concurrency) in enumerate(
                (seconds, concurrency) for seconds in arguments.seconds for concurrency in arguments.concurrency
            ):
                point = measure(pool, server.port, arguments, seconds, concurrency, 1_000_003 * (number + 1))
                failures += point.failures[:1]
                print("| " + " | ".join(point.row(seconds, concurrency, server)) + " |", flush=True)
        for failure in failures:
            print(f"\nfailed: {failure}")
        if arguments.long:
            print()
            _alone(server, arguments)


def measure(
    pool: ProcessPoolExecutor, port: int, arguments: argparse.Namespace, seconds: float, concurrency: int, first: int
) -> Point:
    """One load for its windows; `first` is the number of its first clip."""
    count = min(arguments.processes, concurrency)
    begin = time.monotonic() + _LEAD_SECONDS
    counted = begin + arguments.warm_up
    end = counted + _WINDOWS * arguments.window
    shares = [concurrency // count + (index < concurrency % count) for index in range(count)]
    futures = [
        pool.submit(run_clients, Plan(port, arguments.path, share, seconds, first + index, count, begin, end))
        for index, share in enumerate(shares)
    ]
    health = pool.submit(watch_health, port, counted, end).result()
    logs = [future.result() for future in futures]
    spans = np.array([span for log in logs for span in log.spans] or [(0.0, 0.0)])
    rates = []
    for index in range(_WINDOWS):
        opens = counted + index * arguments.window
        answered = (spans[:, 1] >= opens) & (spans[:, 1] < opens + arguments.window)
        rates.append(int(answered.sum()) / arguments.window)
    counts = (spans[:, 1] >= counted) & (spans[:, 1] < end)
    return Point(
        rates,
        (spans[counts, 1] - spans[counts, 0]).tolist(),
        [failure for log in [*logs, health] for failure in log.failures],
        _latencies(health),
    )


def _alone(server: Server, arguments: argparse.Namespace) -> None:
    walls = [asyncio.run(send_long(server.port, arguments.path, arguments.long)) for _ in range(_WINDOWS)]
    row = (f"{arguments.long} s", spread(walls, 2), spread([arguments.long / wall for wall in walls], 0))
    print_table(("one WAV file, alone", "seconds (min / median / max)", "RTFx"), [row])


async def send_long(port: int, path: str, seconds: int) -> float:
    """Send a recording of so many seconds; wall seconds until the last byte of its answer.

    Raises:
        RuntimeError: it was refused.
    """
    connection = Connection(port)
    began = time.perf_counter()
    status, answer = await connection.post_file(path, clips.long_wav(seconds), clips.long_wav_bytes(seconds))
    wall = time.perf_counter() - began
    connection.close()
    if status != 200:
        raise RuntimeError(f"{seconds} s of sound: {status} {answer[:300].decode(errors='replace')}")
    return wall


def _latencies(log: Log) -> list[float]:
    return [done - sent for sent, done in log.spans]


def _percentiles(values: Sequence[float]) -> str:
    if not values:
        return "-"
    return " / ".join(f"{1e3 * value:.1f}" for value in np.percentile(values, (50, 95, 99)))
