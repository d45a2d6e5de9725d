from __future__ import annotations

import pytest
from pydantic import ValidationError

from app.cli import main
from app.settings import Settings


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
    for name in set(Settings.model_fields) - {"host", "port", "startup_grace_seconds", "shutdown_grace_seconds"}:
        assert f"--{name.replace('_', '-')}" in shown


def test_a_wrong_option_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["serve", "--max-audio-seconds", "-1"])
    assert end.value.code == 2
    assert "--max-audio-seconds (TINGLU_MAX_AUDIO_SECONDS)" in capsys.readouterr().err
