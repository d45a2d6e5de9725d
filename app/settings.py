"""Everything that can be set, in one list: environment (`TINGLU_*`), command line, constructor."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

if TYPE_CHECKING:
    from audio.decode import DecodeLimits
    from vad.options import SegmentationOptions


def parse_json(value: object) -> object:
    """Structured settings are written as JSON, in the environment as on the command line."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueError("is not valid JSON") from error


def _cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tinglu"


def split_list(value: object) -> object:
    """Lists are written with commas, in the environment as on the command line."""
    if not isinstance(value, str):
        return value
    return tuple(part.strip() for part in value.split(",") if part.strip())


def check_key(key: SecretStr) -> SecretStr:
    """A key is sent in a header."""
    if not re.fullmatch(r"[!-~]{8,}", key.get_secret_value()):
        raise ValueError("a key has 8 or more printable ASCII characters and no spaces")
    return key


def check_key_file(path: Path | None) -> Path | None:
    """A file of keys must be readable and hold some, or the server would be open to all."""
    if path is not None:
        try:
            if not read_keys(path):
                raise ValueError("holds no key")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"cannot be read: {error}") from error
    return path


def read_keys(path: Path) -> tuple[SecretStr, ...]:
    """The keys of a file, one a line; empty lines and those that begin with # do not count.

    Raises:
        OSError, UnicodeDecodeError: it cannot be read.
        ValueError: a line that is no key.
    """
    lines = (line.strip() for line in path.read_text("utf-8-sig").splitlines())
    return tuple(check_key(SecretStr(line)) for line in lines if line and not line.startswith("#"))


ApiKey = Annotated[SecretStr, AfterValidator(check_key)]
ApiKeyList = Annotated[tuple[ApiKey, ...] | None, NoDecode, BeforeValidator(split_list)]
ApiKeyFile = Annotated[Path | None, AfterValidator(check_key_file)]
Origins = Annotated[tuple[str, ...] | None, NoDecode, BeforeValidator(split_list)]
Schedule = Annotated[tuple[tuple[float | None, int], ...] | None, NoDecode, BeforeValidator(parse_json)]
EngineArgs = Annotated[dict[str, Any], NoDecode, BeforeValidator(parse_json)]


SERVING_ONLY = frozenset(
    {
        "host",
        "port",
        "max_requests",
        "max_waiting_audio_seconds",
        "max_uploads",
        "header_timeout_seconds",
        "upload_grace_seconds",
        "upload_min_bytes_per_second",
        "max_sockets",
        "ws_idle_seconds",
        "ws_max_frame_bytes",
        "ws_max_buffer_bytes",
        "api_keys",
        "api_key_file",
        "allowed_origins",
        "self_test",
        "engine_restarts",
        "engine_restart_window_seconds",
        "log_format",
        "otlp_endpoint",
        "startup_grace_seconds",
        "shutdown_grace_seconds",
    }
)
"""Settings that mean nothing without a server."""


class Settings(BaseSettings):
    """Settings of a server. The order of precedence: arguments, environment, defaults."""

    model_config = SettingsConfigDict(env_prefix="TINGLU_", frozen=True)

    host: str = Field(default="127.0.0.1", description="address to listen on; 0.0.0.0 for all")
    port: int = Field(default=8899, ge=0, le=65535, description="port to listen on")
    model: str | None = Field(
        default=None, description="name in the catalogue, or a directory; chosen by device if unset"
    )
    speaker_model: str | None = Field(
        default=None,
        description="ge2e, campplus, eres2netv2, a directory of one of the last two, or none; ge2e if its package is "
        "installed",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="where the models run")
    cache_dir: Path = Field(default_factory=_cache_dir, description="where downloaded and converted weights are kept")

    max_upload_bytes: ByteSize = Field(
        default=ByteSize(1_000_000_000), gt=0, description="largest request body, such as 500MB"
    )
    max_audio_seconds: PositiveFloat = Field(default=4 * 3600.0, description="longest recording")
    max_pcm_bytes: ByteSize = Field(
        default=ByteSize(6_000_000_000), gt=0, description="most sound decoded of one recording"
    )
    decode_workers: PositiveInt = Field(
        default_factory=lambda: min(4, len(os.sched_getaffinity(0))), description="processes that decode containers"
    )

    vad_mode: Literal["graded", "compat"] = Field(
        default="graded", description="how the silence that ends a segment is chosen"
    )
    vad_schedule: Schedule = Field(
        default=None,
        description="JSON rows of [segment seconds, silence ms] in place of the default; null seconds in the last",
    )
    vad_silence_ms: NonNegativeInt | None = Field(default=None, description="silence that ends a segment of any length")
    vad_speech_threshold: float | None = Field(
        default=None, description="by how much speech must outweigh silence in a frame"
    )
    max_segment_seconds: PositiveFloat = Field(
        default=60.0, description="longest segment; the recogniser's limit holds too"
    )

    max_requests: PositiveInt = Field(default=256, description="requests served at a time")
    max_waiting_audio_seconds: PositiveFloat = Field(
        default=8 * 3600.0,
        description="sound decoded and not yet transcribed, of all requests; 64 kB of memory a second",
    )
    max_uploads: PositiveInt = Field(default=256, description="request bodies that arrive at a time")
    header_timeout_seconds: PositiveFloat = Field(
        default=20.0, description="time for the head of a request to arrive on an open connection"
    )
    upload_grace_seconds: PositiveFloat = Field(default=30.0, description="time for a request body to arrive, and then")
    upload_min_bytes_per_second: ByteSize = Field(
        default=ByteSize(16_000), gt=0, description="the pace below which it is too slow"
    )
    max_sockets: PositiveInt = Field(default=64, description="WebSockets at a time")
    ws_idle_seconds: PositiveFloat = Field(default=300.0, description="silence after which a WebSocket is closed")
    ws_max_frame_bytes: ByteSize = Field(
        default=ByteSize(16_000_000), gt=0, description="largest frame of a WebSocket; 8 minutes of sound"
    )
    ws_max_buffer_bytes: ByteSize = Field(
        default=ByteSize(2_000_000_000), gt=0, description="sound that all WebSockets hold together"
    )

    api_keys: ApiKeyList = Field(
        default=None, description="keys that may use the server, separated by commas; better in a file"
    )
    api_key_file: ApiKeyFile = Field(default=None, description="file of such keys, one a line")
    allowed_origins: Origins = Field(
        default=None,
        description="web pages that may use the server, separated by commas, such as https://example.com; * for all",
    )

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="precision of the recogniser"
    )
    gpu_memory_utilization: float | None = Field(
        default=None, gt=0, le=1, description="share of the GPU's memory to take"
    )
    max_model_len: PositiveInt | None = Field(default=None, description="most tokens of a prompt and its answer")
    tensor_parallel_size: PositiveInt = Field(default=1, description="GPUs that share one model")
    engine_args: EngineArgs = Field(default={}, description="JSON object of further vLLM engine arguments")

    self_test: bool = Field(default=True, description="be ready only once a known recording has been understood")
    engine_restarts: NonNegativeInt = Field(
        default=3, description="how often the device process is started again within the window before the server ends"
    )
    engine_restart_window_seconds: PositiveFloat = Field(default=600.0, description="the window of the restarts")

    log_format: Literal["text", "json"] = Field(default="text", description="form of the lines that are logged")
    otlp_endpoint: str | None = Field(
        default_factory=lambda: os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"),
        description="collector that traces are sent to, such as http://localhost:4318; needs the extra otel",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="least severity that is logged"
    )
    startup_grace_seconds: PositiveFloat = Field(default=1800.0, description="loading that takes longer has failed")
    shutdown_grace_seconds: PositiveInt = Field(
        default=30, description="time for running requests to finish at the end"
    )

    def keys(self) -> tuple[str, ...]:
        """The API keys; none means that none is asked for."""
        listed = self.api_keys or ()
        filed = read_keys(self.api_key_file) if self.api_key_file else ()
        return tuple(key.get_secret_value() for key in (*listed, *filed))

    def segmentation(self) -> SegmentationOptions:
        """The server's own way of cutting recordings into segments.

        Raises:
            ValueError: options that do not go together.
        """
        from vad.options import SegmentationOptions

        return SegmentationOptions(
            mode=self.vad_mode,
            max_segment_seconds=self.max_segment_seconds,
            schedule=self.vad_schedule,
            fixed_silence_ms=self.vad_silence_ms,
            speech_threshold=self.vad_speech_threshold,
        )

    def decode_limits(self) -> DecodeLimits:
        """How much of a recording is decoded before it is refused."""
        from audio.decode import DecodeLimits

        return DecodeLimits(
            max_bytes=self.max_upload_bytes, max_seconds=self.max_audio_seconds, max_pcm_bytes=self.max_pcm_bytes
        )
