"""The OpenAI door: `/v1/audio/transcriptions` and `/v1/models`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import AfterValidator, Field

from app.errors import Refusal
from app.formats import formats
from app.formats.format import Asked
from app.forms import Form, form_schema, uploaded
from app.models import model_names, require_model
from app.options import Hotwords, refuse_speakers, transcription_options
from app.services import ReadyServices, Services

router = APIRouter(prefix="/v1", tags=["openai"])


def _known_format(name: str) -> str:
    if name not in formats():
        raise ValueError(f"allowed are {', '.join(formats())}")
    return name


class TranscriptionForm(Form):
    """The fields of a transcription beside the recording."""

    model: str | None = Field(None, description="the served model or one of its aliases")
    language: str | None = Field(None, description="such as en, zh-CN, English, 中文; auto or nothing to detect it")
    prompt: str = Field("", description="text before the recording, or words to expect")
    response_format: Annotated[str, AfterValidator(_known_format)] = Field(
        "json", json_schema_extra={"enum": list(formats())}
    )
    temperature: float = Field(0.0, ge=0, le=1)
    timestamp_granularities: tuple[Literal["word", "segment"], ...] = Field((), description="verbose_json only")
    hotwords: Hotwords = Field((), description="words to expect, separated by commas")
    spk: bool = Field(False, description="tell speakers apart")
    stream: bool = Field(False, description="server-sent events")

    def asked(self) -> Asked:
        """Segments unless only words are asked for, as at OpenAI."""
        granularities = self.timestamp_granularities
        return Asked(segments=not granularities or "segment" in granularities, words="word" in granularities)


@router.post(
    "/audio/transcriptions",
    response_class=Response,
    responses={
        200: {
            "description": "The transcript in the format asked for.",
            "content": {each.media_type: {} for each in formats().values()},
        }
    },
    openapi_extra=form_schema(TranscriptionForm),
)
async def transcriptions(request: Request, services: ReadyServices) -> Response:
    """OpenAI's transcription endpoint."""
    async with uploaded(request, TranscriptionForm) as (form, audio):
        _check(form, services)
        asked = form.asked()
        options = transcription_options(
            services.capabilities,
            language=form.language,
            hotwords=form.hotwords,
            prompt=form.prompt,
            temperature=form.temperature,
            word_timestamps=asked.words,
        )
        transcript = await services.transcribe(request, audio, options)
    chosen = formats()[form.response_format]
    return Response(await asyncio.to_thread(chosen.render, transcript, asked), media_type=chosen.media_type)


def _check(form: TranscriptionForm, services: Services) -> None:
    """What no field can know alone.

    Raises:
        Refusal: 400 or 404.
    """
    require_model(form.model, services.capabilities)
    refuse_speakers(form.spk)
    if form.stream:
        raise Refusal(400, "unsupported_parameter", "`stream`: this server does not stream yet.", param="stream")
    if form.timestamp_granularities and not formats()[form.response_format].timed:
        timed = ", ".join(each.name for each in formats().values() if each.timed)
        raise Refusal(
            400,
            "invalid_value",
            f"`timestamp_granularities` needs a `response_format` with times: {timed}.",
            param="timestamp_granularities",
        )


@router.get("/models")
async def models(services: ReadyServices) -> dict[str, Any]:
    """The one loaded model."""
    return {"object": "list", "data": [_model(services)]}


@router.get("/models/{model:path}")
async def model(model: str, services: ReadyServices) -> dict[str, Any]:
    """The loaded model, under its name or an alias."""
    require_model(model, services.capabilities)
    return _model(services)


def _model(services: Services) -> dict[str, Any]:
    """OpenAI's model object, and what the model can do."""
    capabilities = services.capabilities
    name, *aliases = model_names(capabilities)
    return {
        "id": name,
        "object": "model",
        "created": services.created,
        "owned_by": "tinglu",
        "aliases": aliases,
        "languages": capabilities.languages,
        "detects_language": capabilities.detects_language,
        "word_timestamps": capabilities.word_timestamps,
        "hotwords": capabilities.hotwords,
        "translation": capabilities.translation,
    }
