"""Everything that can be set, in one list: environment (`TINGLU_*`), command line, constructor."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, ByteSize, Field, NonNegativeInt, PositiveFloat, PositiveInt
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
    except ValueError as error:
        raise ValueError("is not valid JSON") from error


def _cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tinglu"


Schedule = Annotated[tuple[tuple[float | None, int], ...] | None, NoDecode, BeforeValidator(parse_json)]
EngineArgs = Annotated[dict[str, Any], NoDecode, BeforeValidator(parse_json)]


class Settings(BaseSettings):
    """Settings of a server. The order of precedence: arguments, environment, defaults."""

    model_config = SettingsConfigDict(env_prefix="TINGLU_", frozen=True)

    host: str = Field(default="127.0.0.1", description="address to listen on; 0.0.0.0 for all")
    port: int = Field(default=8899, ge=0, le=65535, description="port to listen on")
    model: str | None = Field(
        default=None, description="name in the catalogue, or a directory; chosen by device if unset"
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

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="precision of the recogniser"
    )
    gpu_memory_utilization: float | None = Field(
        default=None, gt=0, le=1, description="share of the GPU's memory to take"
    )
    max_model_len: PositiveInt | None = Field(default=None, description="most tokens of a prompt and its answer")
    tensor_parallel_size: PositiveInt = Field(default=1, description="GPUs that share one model")
    engine_args: EngineArgs = Field(default={}, description="JSON object of further vLLM engine arguments")

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="least severity that is logged"
    )
    startup_grace_seconds: PositiveFloat = Field(default=1800.0, description="loading that takes longer has failed")
    shutdown_grace_seconds: PositiveInt = Field(
        default=30, description="time for running requests to finish at the end"
    )

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
