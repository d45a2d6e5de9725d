"""The language model's own directory: complete or absent, whatever happens while it is written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from engine.fun_asr_nano.checkpoint import Checkpoint
from engine.fun_asr_nano.errors import CacheError
from engine.fun_asr_nano.llm_weights import LlmCache

ROOT = Path(__file__).parents[3]
EXTRACT = """
import sys
from pathlib import Path
from engine.fun_asr_nano.checkpoint import Checkpoint
from engine.fun_asr_nano.llm_weights import LlmCache
print(LlmCache(Path(sys.argv[2])).extract(Checkpoint.open(Path(sys.argv[1]))))
"""


def directories(cache: Path) -> list[Path]:
    return sorted(path for path in cache.iterdir() if path.is_dir())


def test_what_vllm_needs_is_there(checkpoint: Checkpoint, tmp_path: Path) -> None:
    directory = LlmCache(tmp_path / "cache").extract(checkpoint)
    assert {path.name for path in directory.iterdir()} == {
        "model.safetensors",
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.json",
        "merges.txt",
    }
    written = load_file(directory / "model.safetensors")
    assert written.keys() == checkpoint.language_model.keys()
    for name, tensor in written.items():
        assert torch.equal(tensor, checkpoint.language_model[name])
        assert tensor.dtype == checkpoint.language_model[name].dtype


def test_it_is_written_once(checkpoint: Checkpoint, tmp_path: Path) -> None:
    cache = LlmCache(tmp_path)
    directory = cache.extract(checkpoint)
    before = (directory / "model.safetensors").stat()
    assert cache.extract(checkpoint) == LlmCache(tmp_path).extract(checkpoint) == directory
    assert (directory / "model.safetensors").stat().st_mtime_ns == before.st_mtime_ns
    assert directories(tmp_path) == [directory]


def test_other_weights_or_another_tokenizer_go_elsewhere(
    model_directory: Path, tmp_path: Path, change_tensors: Callable[[Callable[[dict[str, torch.Tensor]], object]], None]
) -> None:
    cache = LlmCache(tmp_path / "cache")
    first = cache.extract(Checkpoint.open(model_directory))
    norm = "model.norm.weight"
    change_tensors(lambda tensors: tensors.update({f"llm.{norm}": tensors[f"llm.{norm}"] + 1}))
    second = cache.extract(Checkpoint.open(model_directory))
    file = model_directory / "Qwen3-0.6B" / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "model_max_length": 1}))
    third = cache.extract(Checkpoint.open(model_directory))
    assert len({first, second, third}) == 3
    shifted = load_file(second / "model.safetensors")[norm]
    assert torch.equal(shifted, load_file(first / "model.safetensors")[norm] + 1)


def test_a_read_only_model_directory_stays_as_it_is(model_directory: Path, tmp_path: Path) -> None:
    for path in [*model_directory.rglob("*"), model_directory]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = sorted(str(path) for path in model_directory.rglob("*"))
    directory = LlmCache(tmp_path / "cache").extract(Checkpoint.open(model_directory))
    assert sorted(str(path) for path in model_directory.rglob("*")) == before
    shutil.rmtree(directory)  # what was copied is the owner's to delete
    for path in [model_directory, *model_directory.rglob("*")]:
        path.chmod(0o755)


def test_weights_of_the_plain_qwen_are_not_taken(model_directory: Path, tmp_path: Path) -> None:
    (model_directory / "Qwen3-0.6B" / "model.safetensors").write_bytes(b"of the base model")
    (model_directory / "Qwen3-0.6B" / "model.safetensors.index.json").write_text("{}")
    directory = LlmCache(tmp_path / "cache").extract(Checkpoint.open(model_directory))
    assert not (directory / "model.safetensors.index.json").exists()
    assert len(load_file(directory / "model.safetensors")) == 24


def test_the_checksum_is_remembered_until_the_file_changes(tmp_path: Path) -> None:
    cache, file = LlmCache(tmp_path / "cache"), tmp_path / "model.pt"
    (tmp_path / "cache").mkdir()
    file.write_bytes(b"one")
    first = cache.checksum(file)
    assert cache.checksum(file) == first
    note = next((tmp_path / "cache").glob("sha256-*.json"))
    note.write_text(note.read_text().replace(first, "remembered"))
    assert cache.checksum(file) == "remembered"
    file.write_bytes(b"other")
    assert cache.checksum(file) not in (first, "remembered")
    note.write_text("broken")
    assert len(cache.checksum(file)) == 64


def test_no_space_is_seen_before_writing(checkpoint: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(CacheError, match=r"no space left in .* MB, 0 MB are free"):
        LlmCache(tmp_path, free_bytes=lambda _: 1000).extract(checkpoint)
    assert directories(tmp_path) == []


@pytest.mark.parametrize("limit", [4096, 200_000])
def test_no_space_while_writing_leaves_nothing_half_done(nano_tiny: Path, tmp_path: Path, limit: int) -> None:
    """A limit on the size of files stands for a disk that fills up: at the tokenizer, or within the weights."""
    script = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n{EXTRACT}"
    failed = subprocess.run(
        [sys.executable, "-c", script, nano_tiny, tmp_path], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert failed.returncode == 1
    assert "CacheError: cannot write to the cache" in failed.stderr.strip().splitlines()[-1]
    assert directories(tmp_path) == []
    assert LlmCache(tmp_path).extract(Checkpoint.open(nano_tiny)).is_dir()


def test_a_cache_that_cannot_be_written(checkpoint: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="cannot write to the cache"):
        LlmCache(tmp_path / "file" / "cache").extract(checkpoint)


def test_what_a_killed_process_left_is_swept_away(checkpoint: Checkpoint, tmp_path: Path) -> None:
    cache = LlmCache(tmp_path)
    directory = cache.extract(checkpoint)
    shutil.rmtree(directory)
    left_over = tmp_path / f".{directory.name}.tmp-killed"
    left_over.mkdir()
    assert cache.extract(checkpoint) == directory
    assert directories(tmp_path) == [directory]


def test_two_processes_at_once(nano_tiny: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", EXTRACT, str(nano_tiny), str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    racers = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        for _ in range(2)
    ]
    outputs = [racer.communicate(timeout=120) for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0], outputs
    (directory,) = directories(tmp_path)
    assert {Path(out.decode().strip()) for out, _ in outputs} == {directory}
    assert len(load_file(directory / "model.safetensors")) == 24
