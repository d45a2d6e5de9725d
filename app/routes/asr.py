"""`POST /asr`: a recording in, its text with times out."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import Field

from app.errors import DOOR_ERRORS, error_answers
from app.formats.asr import AsrAnswer, asr_answer
from app.formats.format import JSON, json_text, rendered
from app.forms import form_schema, uploaded
from app.options import Hotwords, lost_words, segmentation_options, transcription_options
from app.services import ReadyServices
from app.settings import Schedule
from app.speaker_fields import SpeakerFields

router = APIRouter(tags=["asr"])


class AsrForm(SpeakerFields):
    """The fields of `POST /asr` beside the recording."""

    language: str | None = Field(None, description="such as en, zh-CN, English, 中文; auto or nothing to detect it")
    hotwords: Hotwords = Field((), description="words to expect, separated by commas")
    timestamp: bool = Field(True, description="word times where the model makes them")
    silence_ms: int | None = Field(None, description="silence that ends a segment of any length")
    silence_schedule: Schedule = Field(
        None, description="JSON rows of [segment seconds, silence ms that ends it]; null seconds in the last"
    )
    max_segment_seconds: float | None = Field(None, description="longest segment; the model's limit holds too")


@router.post(
    "/asr",
    response_class=Response,
    responses={200: {"model": AsrAnswer}, **error_answers(*DOOR_ERRORS)},
    openapi_extra=form_schema(AsrForm),
)
async def asr(request: Request, services: ReadyServices) -> Response:
    """Transcribe a recording in any common container."""
    async with uploaded(request, AsrForm) as (form, audio):
        options = transcription_options(
            services.capabilities,
            language=form.language,
            hotwords=form.hotwords,
            word_timestamps=form.timestamp,
            segmentation=segmentation_options(
                services.segmentation,
                silence_ms=form.silence_ms,
                schedule=form.silence_schedule,
                max_segment_seconds=form.max_segment_seconds,
            ),
            speakers=form.speakers(services),
            channel=form.channel,
            warnings=lost_words(form.timestamp and "timestamp" in form.model_fields_set, services.capabilities),
        )
        transcript = await services.transcribe(request, audio, options)
    body = await rendered(transcript, lambda: json_text(asr_answer(transcript, words=form.timestamp)))
    return Response(body, media_type=JSON)
