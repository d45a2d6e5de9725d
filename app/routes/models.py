"""`GET /v1/models`: what is served, and what it can do."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request
from typing_extensions import TypedDict

from app.errors import error_answers
from app.models import model_names, require_model
from app.services import ReadyServices, Services

router = APIRouter()

_MODEL: dict[str, Any] = {
    "parameters": [{"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}]
}
"""FastAPI would promise a 422 for a parameter that it reads itself."""


class ModelAnswer(TypedDict):
    """OpenAI's model object, and what the model can do."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    aliases: list[str]
    languages: list[str]
    detects_language: bool
    word_timestamps: bool
    hotwords: bool
    prompt: bool
    logprobs: bool
    translation: bool
    diarization: bool
    max_segment_seconds: float


class ModelsAnswer(TypedDict):
    """OpenAI's list of models."""

    object: Literal["list"]
    data: list[ModelAnswer]


@router.get("/models", responses=error_answers(401, 503))
async def models(services: ReadyServices) -> ModelsAnswer:
    """The one loaded model."""
    return {"object": "list", "data": [_model(services)]}


@router.get("/models/{model:path}", responses=error_answers(401, 404, 503), openapi_extra=_MODEL)
async def model(request: Request, services: ReadyServices) -> ModelAnswer:
    """The loaded model, under its name or an alias."""
    require_model(request.path_params["model"], services.capabilities)
    return _model(services)


def _model(services: Services) -> ModelAnswer:
    capabilities = services.capabilities
    name, *aliases = model_names(capabilities)
    return {
        "id": name,
        "object": "model",
        "created": services.created,
        "owned_by": "tinglu",
        "aliases": aliases,
        "languages": list(capabilities.languages),
        "detects_language": capabilities.detects_language,
        "word_timestamps": capabilities.word_timestamps,
        "hotwords": capabilities.hotwords,
        "prompt": capabilities.prompt,
        "logprobs": capabilities.logprobs,
        "translation": capabilities.translation,
        "diarization": services.pipeline.tells_speakers,
        "max_segment_seconds": capabilities.max_segment_seconds,
    }
