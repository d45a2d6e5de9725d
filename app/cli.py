"""The command line: `tinglu serve`, `tinglu transcribe`, `tinglu models`."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError

from app.settings import SERVING_ONLY, Settings

_UNUSABLE = 2
"""Exit code of a call that cannot work: wrong options, no weights. argparse uses it too."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command == "models":
        return _models(_settings(parser, options))
    if options.command == "transcribe":
        return _transcribe(parser, _settings(parser, options), options)
    return _serve(_settings(parser, options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("tinglu", description="Offline speech to text.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser("serve", help="serve HTTP and WebSocket", allow_abbrev=False)
    _add_settings(serve, set(Settings.model_fields))

    transcribe = commands.add_parser("transcribe", help="transcribe files", allow_abbrev=False)
    _add_wanted(transcribe)
    _add_settings(transcribe, set(Settings.model_fields) - SERVING_ONLY)

    models = commands.add_parser("models", help="list the models and where their weights are", allow_abbrev=False)
    _add_settings(models, {"cache_dir"})
    return parser


def _add_wanted(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="a recording in any common container, a folder of them, a list: wav.scp (Kaldi) or .jsonl",
    )
    parser.add_argument("--format", choices=("text", "json"), help="of the lines on stdout (default: text)")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="JSON lines go there; a second run goes on where the first ended"
    )
    parser.add_argument("--language", type=_language, help="code or name; detected by default")
    parser.add_argument(
        "--hotwords", type=_hotwords, default=(), help="words to expect, separated by commas, or @ and a file of them"
    )
    parser.add_argument("--no-itn", action="store_true", help="numbers as they were spoken, where the model can")
    parser.add_argument("--no-words", action="store_true", help="JSON without the times of words, a little faster")
    parser.add_argument("--max-new-tokens", type=_count, metavar="N", help="most tokens of a segment")
    parser.add_argument("--parallel", type=_count, metavar="N", help="recordings under way at once, each in memory")


def _language(text: str) -> str:
    from app.languages import language_code

    try:
        language_code(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _hotwords(text: str) -> tuple[str, ...]:
    from app.options import split_hotwords

    if not text.startswith("@"):
        return split_hotwords([text])
    try:
        return split_hotwords(Path(text[1:]).read_text("utf-8-sig").splitlines())
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text[1:]}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise argparse.ArgumentTypeError(f"{text[1:]} is not UTF-8 text") from error


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("must be a whole number, at least 1")
    return int(text)


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


@contextmanager
def _or_end() -> Iterator[None]:
    """What can never work ends the program, in one line."""
    from engine.catalog import ModelNotFound

    try:
        yield
    except (ModelNotFound, ValueError) as error:
        print(f"tinglu: {error}", file=sys.stderr)
        sys.exit(_UNUSABLE)


def _serve(settings: Settings) -> int:
    from app.runtime import build_pipeline
    from app.server import serve
    from engine.logs import configure_logging

    configure_logging(settings.log_level, settings.log_format)
    with _or_end():
        pipeline = build_pipeline(settings)
    return serve(pipeline, settings)


def _transcribe(parser: argparse.ArgumentParser, settings: Settings, options: argparse.Namespace) -> int:
    from app.transcribe import Wanted, transcribe
    from app.transcriber import Transcriber

    if options.output is not None and options.format == "text":
        parser.error("--output takes JSON lines, not --format text")
    _log_for_a_person(verbose=settings.log_level == "debug")
    wanted = Wanted(
        inputs=tuple(options.inputs),
        form=options.format or "text",
        output=options.output,
        language=options.language,
        hotwords=options.hotwords,
        itn=not options.no_itn,
        max_new_tokens=options.max_new_tokens,
        words=not options.no_words,
    )

    def load() -> Transcriber:
        with _or_end():
            return Transcriber.load(settings, parallel=options.parallel)

    return transcribe(load, wanted)


def _log_for_a_person(*, verbose: bool) -> None:
    """Warnings alone; how a device died is for who asks, that it did is said at the end."""
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="tinglu: %(message)s")
    for name in () if verbose else ("engine.client", "engine.transport"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


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
