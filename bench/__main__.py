"""python -m bench NAME [options]: run a benchmark and print its report."""

from __future__ import annotations

import argparse

from bench import cpu


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    commands = parser.add_subparsers(required=True)
    cpu.add_command(commands)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
