from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest

from app.batch import Batch
from app.cli import main
from app.pipeline import Pipeline
from app.settings import Settings
from engine.catalog import ModelNotFound


@pytest.fixture
def files(tmp_path: Path, pcm: Any) -> list[str]:
    paths = []
    for number in (1, 2, 3):
        path = tmp_path / f"{number}.wav"
        path.write_bytes(b"FAKE" + pcm(number, number))
        paths.append(str(path))
    return paths


@pytest.fixture
def fakes(build: Any, new_device: Any) -> Any:
    """A device, and a pipeline over it."""

    async def make() -> tuple[Any, Pipeline]:
        async with build() as house:
            decoder = house.decoder
        device = new_device()
        return device, Pipeline(decoder=decoder, device=device)

    return make


def run(fakes: Any, files: list[str], form: Literal["text", "json"], **options: Any) -> tuple[int, Any]:
    async def runs() -> tuple[int, Any]:
        device, pipeline = await fakes()
        return await Batch(pipeline, parallel=2, **options).run(files, form), device

    return asyncio.run(runs())


def test_text_in_the_order_of_the_files(fakes: Any, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    failures, device = run(fakes, list(reversed(files)), "text", language="German", hotwords=("a",))
    out, err = capsys.readouterr()
    expected = [f"{path}\t{' '.join([f'number {number}.'] * number)}" for number, path in enumerate(files, 1)]
    assert out.splitlines() == list(reversed(expected))
    assert err == "", "no progress bar where stderr is no terminal"
    assert failures == 0
    assert device.closed
    assert {(asked.language, asked.hotwords) for asked in device.asked} == {("de", ("a",))}


def test_one_file_is_bare_text(fakes: Any, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run(fakes, files[:1], "text")
    assert capsys.readouterr().out == "number 1.\n"


def test_json(fakes: Any, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run(fakes, files, "json")
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer["file"] for answer in answers] == files
    assert answers[1]["duration"] == 2.0
    assert answers[1]["segments"][1]["words"][0] == {"word": "number", "start": 1.1, "end": 1.5}


def test_failures_are_one_line_each(
    fakes: Any, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "junk.wav").write_bytes(b"junk")
    bad = [str(tmp_path / "missing.wav"), str(tmp_path), str(tmp_path / "junk.wav")]
    failures, _ = run(fakes, [bad[0], files[0], *bad[1:]], "text")
    out, err = capsys.readouterr()
    assert failures == 3
    assert len(out.splitlines()) == 1
    assert err.splitlines() == [
        f"tinglu: {bad[0]}: No such file or directory",
        f"tinglu: {bad[1]}: Is a directory",
        f"tinglu: {bad[2]}: this is no recording",
    ]


def test_a_language_that_is_none(fakes: Any, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    failures, device = run(fakes, files, "text", language="klingon")
    assert failures == 3
    assert capsys.readouterr().err.startswith("tinglu: Invalid `language`")
    assert device.closed


def test_the_device_dies(fakes: Any, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    async def runs() -> int:
        device, pipeline = await fakes()
        device.failure = "out of memory"
        return await Batch(pipeline, parallel=2).run(files, "text")

    assert asyncio.run(runs()) == 3
    assert capsys.readouterr().err == "tinglu: out of memory\n"


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Stands for the module that starts real models."""
    module = ModuleType("app.runtime")
    monkeypatch.setitem(sys.modules, "app.runtime", module)
    return module


@pytest.mark.parametrize("command", [["serve"], ["transcribe", "x.wav"]])
@pytest.mark.parametrize("error", [ModelNotFound("the weights are not here: pip install them"), ValueError("bad mode")])
def test_what_can_never_work_ends_with_one_line(
    runtime: Any, command: list[str], error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    def build_pipeline(_: Settings, *, in_process: bool) -> Pipeline:
        raise error

    runtime.build_pipeline = build_pipeline
    with pytest.raises(SystemExit) as end:
        main(command)
    assert end.value.code == 2
    assert capsys.readouterr().err == f"tinglu: {error}\n"


def test_transcribe(runtime: Any, fakes: Any, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Settings] = []

    def build_pipeline(settings: Settings, *, in_process: bool) -> Pipeline:
        assert in_process
        seen.append(settings)
        pipeline: Pipeline = asyncio.run(fakes())[1]
        return pipeline

    runtime.build_pipeline = build_pipeline
    assert main(["transcribe", "--model", "whisper-base", "--max-audio-seconds", "9", files[0]]) == 0
    assert main(["transcribe", files[0], "nowhere.wav"]) == 1
    assert (seen[0].model, seen[0].max_audio_seconds) == ("whisper-base", 9.0)
    assert capsys.readouterr().out.splitlines()[0] == "number 1."


def test_models(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["models", "--cache-dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("whisper-base ") for line in lines)


def test_help_is_quick() -> None:
    code = (
        "import sys\n"
        "from app.cli import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit:\n    pass\n"
        "heavy = {'torch', 'vllm', 'numpy', 'numba', 'av', 'fastapi', 'uvicorn'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "transcribe" in done.stdout
