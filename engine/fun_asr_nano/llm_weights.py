"""The language model on its own, as vLLM loads it: extracted once from a checkpoint into a cache directory."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from engine.fun_asr_nano.checkpoint import Checkpoint
from engine.fun_asr_nano.errors import CacheError

_COPIED = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
)
_FORMAT = b"1"  # part of the key: raise it when what is written changes
_SPARE_BYTES = 64 << 20


def _free_bytes(directory: Path) -> int:
    return shutil.disk_usage(directory).free


class LlmCache:
    """Directories of extracted language models, named by a checksum of what they were made from.

    The model directory itself is only read. A directory in the cache is complete: it is written elsewhere, flushed and
    renamed. Processes that want the same one wait for each other.
    """

    def __init__(self, directory: Path, *, free_bytes: Callable[[Path], int] = _free_bytes) -> None:
        self._directory = directory
        self._free_bytes = free_bytes

    def extract(self, checkpoint: Checkpoint) -> Path:
        """The directory of a checkpoint's language model, written now if it is not there yet.

        Raises:
            CacheError: it cannot be written; nothing half-written is left.
        """
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            target = self._directory / f"qwen3-{self._key(checkpoint)[:20]}"
            if not target.is_dir():
                with self._lock(target.name):
                    if not target.is_dir():
                        self._write(checkpoint, target)
        except OSError as error:
            raise CacheError(f"cannot write to the cache {self._directory}: {error.strerror or error}") from error
        return target

    def checksum(self, file: Path) -> str:
        """The sha256 of a file: read once, then remembered for as long as its size, time and inode stay."""
        real = file.resolve()
        stat = real.stat()
        facts = {"path": str(real), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "inode": stat.st_ino}
        note = self._directory / f"sha256-{hashlib.sha256(str(real).encode()).hexdigest()[:20]}.json"
        with suppress(OSError, ValueError):
            known = json.loads(note.read_text())
            if isinstance(known, dict) and {**known, "sha256": None} == {**facts, "sha256": None}:
                return str(known["sha256"])
        with real.open("rb") as source:
            digest = hashlib.file_digest(source, "sha256").hexdigest()
        self._remember(note, {**facts, "sha256": digest})
        return digest

    def _key(self, checkpoint: Checkpoint) -> str:
        """A checksum over everything that the directory is made from."""
        key = hashlib.sha256(_FORMAT + self.checksum(checkpoint.paths.weights).encode())
        key.update(repr(checkpoint.config.lora_alpha).encode())
        for name in _COPIED:
            file = checkpoint.paths.llm / name
            key.update(name.encode() + (hashlib.sha256(file.read_bytes()).digest() if file.is_file() else b""))
        return key.hexdigest()

    def _remember(self, note: Path, facts: Mapping[str, object]) -> None:
        """Best effort: without the note the next start reads the file again."""
        draft = note.with_suffix(f".{os.getpid()}")
        try:
            draft.write_text(json.dumps(facts))
            draft.replace(note)
        except OSError:
            draft.unlink(missing_ok=True)

    @contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        """Held by one process of this machine at a time; the kernel lets go of it when its holder dies."""
        with (self._directory / f".{name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _write(self, checkpoint: Checkpoint, target: Path) -> None:
        for left_over in self._directory.glob(
            f".{target.name}.tmp-*"
        ):  # of a process that was killed: we hold the lock
            shutil.rmtree(left_over, ignore_errors=True)
        tensors = dict(checkpoint.language_model)
        needed = sum(tensor.nbytes for tensor in tensors.values()) + _SPARE_BYTES
        free = self._free_bytes(self._directory)
        if free < needed:
            raise CacheError(
                f"no space left in {self._directory}: the language model needs {needed >> 20} MB, "
                f"{free >> 20} MB are free"
            )
        draft = Path(tempfile.mkdtemp(dir=self._directory, prefix=f".{target.name}.tmp-"))
        try:
            _fill(draft, checkpoint.paths.llm, tensors)
            draft.chmod(0o755)
            draft.rename(target)
        except SafetensorError as error:
            raise CacheError(f"cannot write to the cache {self._directory}: {error}") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _fill(draft: Path, source: Path, tensors: Mapping[str, Tensor]) -> None:
    for name in _COPIED:
        if (source / name).is_file():
            shutil.copyfile(source / name, draft / name)
    weights = draft / "model.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, weights, metadata={"format": "pt"})
    for path in draft.iterdir():
        path.chmod(0o644)
        with path.open("rb") as file:
            os.fsync(file.fileno())
