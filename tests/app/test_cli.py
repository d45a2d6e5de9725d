from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.pipeline import Pipeline
from app.settings import Settings
from app.transcribe import Wanted, transcribe
from app.transcriber import Transcriber
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
def device(new_device: Any) -> Any:
    return new_device()


@pytest.fixture
def run(device: Any, new_decoder: Any) -> Callable[..., int]:
    """`run(inputs, **wanted)` on the fake device."""

    def run(inputs: list[str], **wanted: Any) -> int:
        def load() -> Transcriber:
            return Transcriber(Pipeline(decoder=new_decoder(), device=device), parallel=2)

        return transcribe(load, Wanted(tuple(inputs), **wanted))

    return run


def text(number: int) -> str:
    return " ".join([f"number {number}."] * number)


def test_text_in_the_order_of_the_files(
    run: Any, device: Any, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(list(reversed(files)), language="German", hotwords=("a",), itn=False, max_new_tokens=9) == 0
    out, err = capsys.readouterr()
    expected = [f"{path}\t{text(number)}" for number, path in enumerate(files, 1)]
    assert out.splitlines() == list(reversed(expected))
    assert err == "", "no progress bar where stderr is no terminal"
    assert device.closed
    asked = {(asked.language, asked.hotwords, asked.itn, asked.max_new_tokens) for asked in device.asked}
    assert asked == {("de", ("a",), False, 9)}
    assert not any(asked.word_timestamps for asked in device.asked), "nobody sees them"


def test_one_file_is_bare_text(run: Any, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run(files[:1])
    assert capsys.readouterr().out == "number 1.\n"


def test_a_list_of_one_has_a_name(
    run: Any, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wav.scp").write_text(f"utt {files[0]}")
    run([str(tmp_path / "wav.scp")])
    assert capsys.readouterr().out == "utt\tnumber 1.\n"


def test_json(run: Any, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run(files, form="json")
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer["file"] for answer in answers] == files
    assert [answer["key"] for answer in answers] == files
    assert answers[1]["duration"] == 2.0
    assert answers[1]["segments"][1]["words"][0] == {"word": "number", "start": 1.1, "end": 1.5}


def test_json_without_words(run: Any, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run(files[:1], form="json", words=False)
    assert "words" not in json.loads(capsys.readouterr().out)["segments"][0]


def test_failures_are_one_line_each(
    run: Any, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "junk.wav").write_bytes(b"junk")
    (tmp_path / "empty").mkdir()
    bad = [str(tmp_path / name) for name in ("missing.wav", "empty", "junk.wav", "missing.scp")]
    assert run([bad[0], files[0], *bad[1:]]) == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1
    assert err.splitlines() == [
        f"tinglu: {bad[0]}: No such file or directory",
        f"tinglu: {bad[1]}: there are no recordings in this folder",
        f"tinglu: {bad[2]}: this is no recording",
        f"tinglu: {bad[3]}: No such file or directory",
    ]


def test_a_language_that_the_model_does_not_know(
    run: Any, device: Any, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(files, language="French") == 1
    assert capsys.readouterr().err.startswith("tinglu: Invalid `language`")
    assert device.closed


def test_the_device_dies(run: Any, device: Any, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    device.failure = "out of memory"
    assert run(files) == 1
    assert capsys.readouterr().err == "tinglu: out of memory\n"


def test_a_results_file_goes_on_where_it_ended(
    run: Any, device: Any, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "results.jsonl"
    assert run([files[1], "nowhere.wav"], output=output) == 1
    with output.open("a") as file:
        file.write('{"key":"torn')
    assert run([str(tmp_path), files[0], "nowhere.wav"], output=output) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "tinglu: nowhere.wav: No such file or directory",
        "tinglu: 1 transcribed, 0 done before, 1 failed",
        "tinglu: nowhere.wav: No such file or directory",
        "tinglu: 2 transcribed, 1 done before, 1 failed",
    ]
    answers = [json.loads(line) for line in output.read_text().splitlines()]
    assert sorted(answer["file"] for answer in answers) == files
    assert {answer["file"]: answer["text"] for answer in answers}[files[2]] == text(3)
    assert answers[0]["segments"][0]["words"]
    assert len(device.asked) == 3


def test_nothing_to_do_loads_no_model(files: list[str], tmp_path: Path, run: Any) -> None:
    def load() -> Transcriber:
        raise AssertionError

    output = tmp_path / "results.jsonl"
    run(files, output=output)
    assert transcribe(load, Wanted(tuple(files), output=output)) == 0


def test_one_key_for_two_files_is_a_failure(
    run: Any, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wav.scp").write_text(f"a {files[0]}\na {files[1]}\na {files[0]}")
    assert run([str(tmp_path / "wav.scp")], output=tmp_path / "results.jsonl") == 1
    assert f"tinglu: a: this key stands for {files[0]} already" in capsys.readouterr().err.splitlines()
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 1


def test_an_output_of_something_else_is_left_alone(
    run: Any, device: Any, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = Path(files[0]).read_bytes()
    assert run(files, output=Path(files[0])) == 2
    assert capsys.readouterr().err == f"tinglu: {files[0]}: line 1 is not a result of `tinglu transcribe`\n"
    assert Path(files[0]).read_bytes() == before


def test_an_interrupted_run_says_what_it_keeps(
    run: Any, device: Any, files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Ctrl-C while the second result is written."""
    from app.results import ResultsFile

    write = ResultsFile.write
    lines: list[str] = []

    def interrupted(file: ResultsFile, line: str) -> None:
        if lines:
            raise KeyboardInterrupt
        lines.append(line)
        write(file, line)

    monkeypatch.setattr(ResultsFile, "write", interrupted)
    assert run(files, output=tmp_path / "results.jsonl") == 130
    assert (tmp_path / "results.jsonl").read_text().splitlines() == lines
    assert capsys.readouterr().err == "tinglu: interrupted; 1 transcribed, 0 done before, 0 failed\n"
    assert device.closed


def test_a_reader_that_has_seen_enough(
    run: Any, files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def closed(_: str) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(sys.stdout, "write", closed)
    assert run(files) == 1
    monkeypatch.undo()
    assert capsys.readouterr().err == ""


def test_the_progress_bar(
    run: Any, files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "results.jsonl"
    run(files[:1], output=output)
    capsys.readouterr()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    run(files, output=output)
    drawn = capsys.readouterr().err
    assert "loading the model" in drawn
    assert "1/3" in drawn
    assert "3/3" in drawn
    assert "00:05 of sound" in drawn


@pytest.mark.parametrize("command", [["serve"], ["transcribe", "x.wav"]])
@pytest.mark.parametrize("error", [ModelNotFound("the weights are not here: pip install them"), ValueError("bad mode")])
def test_what_can_never_work_ends_with_one_line(
    runtime: Any, command: list[str], error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    def build_pipeline(_: Settings, *, in_process: bool = False) -> Pipeline:
        raise error

    runtime.build_pipeline = build_pipeline
    with pytest.raises(SystemExit) as end:
        main(command)
    assert end.value.code == 2
    assert capsys.readouterr().err == f"tinglu: {error}\n"


def test_transcribe(
    runtime: Any, device: Any, new_decoder: Any, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Settings] = []

    def build_pipeline(settings: Settings, *, in_process: bool) -> Pipeline:
        assert in_process
        seen.append(settings)
        return Pipeline(decoder=new_decoder(), device=device)

    runtime.build_pipeline = build_pipeline
    (tmp_path / "words.txt").write_text("\ufeff阿里,通义\n Tinglu \n", "utf-8")
    hotwords = ["--hotwords", f"@{tmp_path}/words.txt"]
    assert main(["transcribe", "--model", "whisper-base", "--max-audio-seconds", "9", *hotwords, files[0]]) == 0
    assert main(["transcribe", files[0], "nowhere.wav"]) == 1
    assert (seen[0].model, seen[0].max_audio_seconds) == ("whisper-base", 9.0)
    assert device.asked[0].hotwords == ("阿里", "通义", "Tinglu")
    assert capsys.readouterr().out.splitlines()[0] == "number 1."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--language", "klingon"], "no language is called so"),
        (["--hotwords", "@nowhere.txt"], "nowhere.txt: No such file or directory"),
        (["--max-new-tokens", "0"], "at least 1"),
        (["--parallel", "many"], "at least 1"),
        (["--format", "text", "--output", "x.jsonl"], "--output takes JSON lines"),
    ],
)
def test_options_that_cannot_work(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["transcribe", *arguments, "x.wav"])
    assert end.value.code == 2
    assert message in capsys.readouterr().err


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
