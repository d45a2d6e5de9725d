"""FunASR beside us: its batch path over vLLM and its PyTorch path, same checkpoint, same clips, one after the other.

FunASR is imported by the interpreter that `--python` names; what it needs is in `requirements/peers-gpu.txt`. Every
system runs in a process of its own, so that each has the whole device. It writes the language model into the directory
of the checkpoint: give it one that may be written to.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bench.offline import COLUMNS, Result, add_model
from bench.report import print_header, print_table

_PEER = Path(__file__).with_name("funasr_peer.py")
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def add_command(commands: Any) -> None:
    parser = commands.add_parser("peer", help=__doc__)
    add_model(parser)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="interpreter that can import funasr")
    parser.add_argument("--clips", type=int, nargs="+", default=[1, 16, 385])
    parser.add_argument("--seconds", type=float, nargs="+", default=[30.0])
    parser.add_argument("--torch-clips", type=int, default=2, help="clips for the PyTorch path; 0 leaves it out")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--log", type=Path, help="what the systems say goes there")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    print_header(
        "Fun-ASR-Nano: Tinglu and FunASR",
        f"clips of the recordings in tests/data, all different; {arguments.model.name}",
        "float32 arrays in memory to text and times; loaded and warm; a process after the other on the same device",
        "FunASR as it comes: vLLM path bfloat16, encoder float32 in groups of 8; PyTorch path float32; dither on",
    )
    print_table(("system", *COLUMNS), [])
    _print("Tinglu", _ours(arguments))
    _print("FunASR, vLLM", _theirs(arguments, "vllm", arguments.clips))
    if arguments.torch_clips:
        _print("FunASR, PyTorch", _theirs(arguments, "torch", [arguments.torch_clips]))


def _print(system: str, results: Iterable[Result]) -> None:
    """Rows as they come: a run that is cut short keeps those that it had."""
    for result in results:
        print("| " + " | ".join((system, *result.row())) + " |", flush=True)


def _ours(arguments: argparse.Namespace) -> list[Result]:
    with tempfile.TemporaryDirectory() as directory:
        answer = Path(directory) / "ours.json"
        command = [sys.executable, "-m", "bench", "offline", "--model", arguments.model, "--device", arguments.device]
        command += ["--cache-dir", arguments.cache_dir, "--engine-args", json.dumps(arguments.engine_args)]
        command += ["--clips", *map(str, arguments.clips), "--seconds", *map(str, arguments.seconds)]
        command += ["--runs", str(arguments.runs), "--json", answer]
        for _ in _lines(command, arguments.log):
            pass
        return [Result(**line) for line in json.loads(answer.read_text())] if answer.exists() else []


def _theirs(arguments: argparse.Namespace, path: str, count: list[int]) -> Iterator[Result]:
    from app.runtime import device_kind
    from app.settings import Settings

    wanted = {
        "path": path,
        "model": str(arguments.model),
        "device": device_kind(Settings(device=arguments.device)),
        "clips": count,
        "seconds": arguments.seconds,
        "runs": arguments.runs,
    }
    for line in _lines([arguments.python, _PEER, json.dumps(wanted)], arguments.log):
        if line.startswith('{"clips"'):
            yield Result(**json.loads(line))


def _lines(command: list[str | Path], log: Path | None) -> Iterator[str]:
    """What a system prints; one that fails leaves out its rows, not those of the others."""
    with open(log or os.devnull, "ab") as errors:
        environment = {**os.environ, **_OFFLINE}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True)
        assert process.stdout is not None
        yield from process.stdout
        if process.wait():
            print(f"failed with exit code {process.returncode}: {' '.join(map(str, command))[:200]}", flush=True)
