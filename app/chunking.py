"""OpenAI's `chunking_strategy`: how its clients say where a recording is cut."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from app.errors import Refusal
from vad.options import SegmentationOptions
from vad.schedule import MAX_SILENCE_MS

_ALLOWED = "allowed are auto and an object with type server_vad"


class ServerVad(BaseModel):
    """The detector's settings, each left to the server where it is missing."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: Literal["server_vad"]
    prefix_padding_ms: int | None = Field(None, ge=0, description="has no effect here")
    silence_duration_ms: int | None = Field(
        None, ge=0, le=MAX_SILENCE_MS, description="silence that ends a segment of any length"
    )
    threshold: float | None = Field(None, ge=0, le=1, description="how sure speech must be")

    def segmentation(self, server: SegmentationOptions) -> SegmentationOptions:
        """The server's segmentation with these settings in it.

        OpenAI's threshold, 0.5 unless said otherwise, stands for ours, which has the same middle and excludes 1.

        Raises:
            Refusal: 400, options that the detector does not take.
        """
        changes: dict[str, Any] = {}
        if self.silence_duration_ms is not None:
            changes |= {"fixed_silence_ms": self.silence_duration_ms, "schedule": None}
        if self.threshold is not None:
            changes["speech_threshold"] = min(self.threshold, math.nextafter(1, 0))
        try:
            return replace(server, **changes)
        except ValueError as error:
            raise Refusal(400, "invalid_value", f"`chunking_strategy`: {error}", param="chunking_strategy") from error

    @property
    def warnings(self) -> tuple[str, ...]:
        if self.prefix_padding_ms is None:
            return ()
        return ("prefix_padding_ms has no effect: the detector itself chooses how much it takes before speech",)


def _parsed(value: object) -> object:
    """Nothing for `auto`, which is what the server does anyway; a JSON object as it is sent in one field."""
    if value == "auto":
        return None
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError(_ALLOWED) from None
    if not isinstance(value, dict) or value.get("type") != "server_vad":
        raise ValueError(_ALLOWED)
    return value


ChunkingStrategy = Annotated[
    ServerVad | None,
    BeforeValidator(_parsed),
    WithJsonSchema({"anyOf": [{"type": "string", "const": "auto"}, ServerVad.model_json_schema()]}),
]
"""A form field: `auto`, the object as JSON, or its members as fields of their own, `chunking_strategy[type]` ..."""
