"""The command line: `tinglu serve`, `tinglu transcribe`, `tinglu models`."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic import ValidationError

from app.settings import Settings

if TYPE_CHECKING:
    from app.pipeline import Pipeline

_SERVING_ONLY = frozenset({"host", "port", "max_upload_bytes", "shutdown_grace_seconds"})
_FAILED = 1
_UNUSABLE = 2
"""Exit code for a call that cannot work: wrong options, no weights. argparse uses it too."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command == "models":
        return _models(_settings(parser, options))
    if options.command == "transcribe":
        return _transcribe(_settings(parser, options), options)
    return _serve(_settings(parser, options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("tinglu", description="Offline speech to text.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser("serve", help="serve HTTP and WebSocket", allow_abbrev=False)
    _add_settings(serve, set(Settings.model_fields))

    transcribe = commands.add_parser("transcribe", help="transcribe files", allow_abbrev=False)
    transcribe.add_argument("files", nargs="+", metavar="FILE", help="recordings in any common container")
    transcribe.add_argument("--format", choices=("text", "json"), default="text", help="of the lines, one a file")
    transcribe.add_argument("--language", help="code or name; detected by default")
    transcribe.add_argument("--hotwords", default="", help="words to expect, separated by commas")
    _add_settings(transcribe, set(Settings.model_fields) - _SERVING_ONLY)

    models = commands.add_parser("models", help="list the models and where their weights are", allow_abbrev=False)
    _add_settings(models, {"cache_dir"})
    return parser


def _add_settings(parser: argparse.ArgumentParser, names: set[str]) -> None:
    """An option for each setting; what is not given is left to the environment and the defaults."""
    group = parser.add_argument_group("settings", "also read from the environment, as TINGLU_ and the name in capitals")
    for name, field in Settings.model_fields.items():
        if name in names:
            default = "" if field.default_factory or field.default in (None, {}) else f" (default: {field.default})"
            group.add_argument(
                _option(name),
                dest=name,
                default=argparse.SUPPRESS,
                metavar=_metavar(field.annotation),
                help=f"{field.description}{default}".replace("%", "%%"),
            )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _metavar(annotation: Any) -> str:
    return f"{{{','.join(get_args(annotation))}}}" if get_origin(annotation) is Literal else "VALUE"


def _settings(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Settings:
    given = {name: value for name, value in vars(options).items() if name in Settings.model_fields}
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        parser.error(f"{_option(name)} (TINGLU_{name.upper()}): {first.get('ctx', {}).get('error') or first['msg']}")


def _pipeline(settings: Settings, *, in_process: bool) -> Pipeline:
    """The pipeline, or the end of the program in one line if it can never work."""
    from app.runtime import build_pipeline
    from engine.catalog import ModelNotFound

    try:
        return build_pipeline(settings, in_process=in_process)
    except (ModelNotFound, ValueError) as error:
        print(f"tinglu: {error}", file=sys.stderr)
        sys.exit(_UNUSABLE)


def _serve(settings: Settings) -> int:
    from app.server import serve

    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    serve(_pipeline(settings, in_process=False), settings)
    return 0


def _transcribe(settings: Settings, options: argparse.Namespace) -> int:
    import asyncio

    from app.batch import Batch
    from app.options import split_hotwords

    logging.basicConfig(level=logging.WARNING, format="tinglu: %(message)s")
    batch = Batch(
        _pipeline(settings, in_process=True),
        parallel=2 * settings.decode_workers,
        language=options.language,
        hotwords=split_hotwords([options.hotwords]),
    )
    failures = asyncio.run(batch.run(options.files, options.format))
    return _FAILED if failures else 0


def _models(settings: Settings) -> int:
    from engine.catalog import Catalog

    catalog = Catalog(settings.cache_dir)
    width = max(len(entry.name) for entry in catalog.entries)
    for entry in catalog.entries:
        where = "installed" if catalog.is_local(entry.name) else "from a hub"
        print(f"{entry.name:{width}}  {where:10}  {', '.join(entry.aliases)}".rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
