"""The OpenAI door: `/v1/audio/transcriptions`, `/v1/audio/translations` and, of its own file, `/v1/models`."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import reduce
from operator import or_
from typing import Any

from fastapi import APIRouter, Request, Response

from app.errors import DOOR_ERRORS, error_answers
from app.formats import formats
from app.formats.events import transcript_events
from app.formats.format import JSON, rendered
from app.forms import form_schema, uploaded
from app.openai_forms import TRANSCRIPTION_FORMATS, TRANSLATION_FORMATS, SpeechForm, TranscriptionForm, TranslationForm
from app.pipeline import EncodedAudio, TranscriptionOptions
from app.routes import models
from app.services import ReadyServices, Services
from app.sse import EventStream

router = APIRouter(prefix="/v1", tags=["openai"])
router.include_router(models.router)

WARNINGS = "x-tinglu-warnings"
"""Header of answers that have no other place for warnings."""


def _content(names: tuple[str, ...], *others: str) -> dict[int | str, dict[str, Any]]:
    types = [formats()[name].media_type.partition(";")[0] for name in names]
    answer = {
        "description": "The text, in the format asked for.",
        "model": reduce(or_, (each for name in names if (each := formats()[name].answer))),
        "content": {each: {} for each in (*types, *others)},
    }
    return {200: answer, **error_answers(*DOOR_ERRORS, 404)}


@router.post(
    "/audio/transcriptions",
    response_class=Response,
    responses=_content(TRANSCRIPTION_FORMATS, EventStream.media_type),
    openapi_extra=form_schema(TranscriptionForm),
)
async def transcriptions(request: Request, services: ReadyServices) -> Response:
    """What is said in a recording, as OpenAI's endpoint answers."""
    async with AsyncExitStack() as upload:
        form, audio = await upload.enter_async_context(uploaded(request, TranscriptionForm))
        options = form.options(services)
        if not form.stream:
            return await _answer(request, services, audio, form, options)
        items = services.stream(audio, options)
        events = transcript_events(items, speakers=form.format.speakers, logprobs=bool(form.include))
        return EventStream(events, holding=upload.pop_all())


@router.post(
    "/audio/translations",
    response_class=Response,
    responses=_content(TRANSLATION_FORMATS),
    openapi_extra=form_schema(TranslationForm),
)
async def translations(request: Request, services: ReadyServices) -> Response:
    """What is said in a recording, in English, for models that translate."""
    async with uploaded(request, TranslationForm) as (form, audio):
        return await _answer(request, services, audio, form, form.options(services))


async def _answer(
    request: Request, services: Services, audio: EncodedAudio, form: SpeechForm, options: TranscriptionOptions
) -> Response:
    transcript = await services.transcribe(request, audio, options)
    body = await rendered(transcript, lambda: form.format.render(transcript, form.asked()))
    headers = {}
    if transcript.warnings and form.format.media_type != JSON:
        headers[WARNINGS] = "; ".join(transcript.warnings).encode("ascii", "backslashreplace").decode()
    return Response(body, media_type=form.format.media_type, headers=headers)
