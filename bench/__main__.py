"""python -m bench NAME [options]: run a benchmark and print its report."""

from __future__ import annotations

import argparse
import importlib
import sys

_MODULES = {
    "cpu": "cpu",
    "diarization": "diarization",
    "growth": "growth",
    "offline": "offline",
    "peer": "peer",
    "server": "load",
    "soak": "soak",
    "stages": "stages",
}


def main() -> None:
    """Only the command that runs is imported: what torch reads from the environment must be set before it is."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    commands = parser.add_subparsers(required=True)
    wanted = [name for name in _MODULES if name in sys.argv[1:2]] or list(_MODULES)
    for name in wanted:
        importlib.import_module(f"bench.{_MODULES[name]}").add_command(commands)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
