from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from app.cli import main
from app.settings import SERVING_ONLY, Settings


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINGLU_PORT", "1234")
    monkeypatch.setenv("TINGLU_VAD_SCHEDULE", "[[5, 2000], [null, 200]]")
    monkeypatch.setenv("TINGLU_ENGINE_ARGS", '{"enforce_eager": true}')
    monkeypatch.setenv("TINGLU_MAX_UPLOAD_BYTES", "2GB")
    settings = Settings(port=99)
    assert settings.port == 99
    assert settings.vad_schedule == ((5.0, 2000), (None, 200))
    assert settings.engine_args == {"enforce_eager": True}
    assert settings.max_upload_bytes == 2_000_000_000


@pytest.mark.parametrize(
    "bad",
    [
        {"port": "70000"},
        {"device": "tpu"},
        {"max_audio_seconds": "0"},
        {"engine_args": "{"},
        {"engine_args": "[]"},
        {"vad_schedule": "[[1]]"},
        {"max_upload_bytes": "lots"},
        {"api_keys": "short"},
        {"api_keys": "with a space in it"},
        {"api_key_file": "/nowhere/keys"},
        {"engine_restarts": "-1"},
    ],
)
def test_refused(bad: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        Settings(**bad)  # type: ignore[arg-type]


def test_rooms_get_their_options() -> None:
    settings = Settings(vad_mode="compat", vad_silence_ms=700, max_segment_seconds=20, max_audio_seconds=60)
    assert settings.segmentation().fixed_silence_ms == 700
    assert settings.segmentation().max_segment_seconds == 20
    assert settings.decode_limits().max_seconds == 60


@pytest.mark.parametrize("command", ["serve", "transcribe"])
def test_every_setting_is_an_option(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    for name in set(Settings.model_fields) - (SERVING_ONLY if command == "transcribe" else set()):
        assert f"--{name.replace('_', '-')}" in shown


def test_a_wrong_option_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["serve", "--max-audio-seconds", "-1"])
    assert end.value.code == 2
    assert "--max-audio-seconds (TINGLU_MAX_AUDIO_SECONDS)" in capsys.readouterr().err


def test_keys_come_from_the_environment_and_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# two\nkey-number-one\n\n  key-number-two\n")
    monkeypatch.setenv("TINGLU_API_KEYS", "key-number-three, key-number-four")
    settings = Settings(api_key_file=file)
    assert settings.keys() == ("key-number-three", "key-number-four", "key-number-one", "key-number-two")
    assert "key-number" not in repr(settings)
    assert Settings(api_keys=None).keys() == ()


def test_a_file_without_keys_does_not_open_the_server_to_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "keys"
    file.write_text("# none yet\n")
    with pytest.raises(SystemExit) as end:
        main(["serve", "--api-key-file", str(file)])
    assert end.value.code == 2
    assert "--api-key-file (TINGLU_API_KEY_FILE): holds no key" in capsys.readouterr().err


def test_origins() -> None:
    assert Settings(allowed_origins="https://a.example, https://b.example").allowed_origins == (  # type: ignore[arg-type]
        "https://a.example",
        "https://b.example",
    )
