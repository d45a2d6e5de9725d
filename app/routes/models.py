"""`GET /v1/models`: what is served, and what it can do."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from app.errors import error_answers
from app.models import model_names, require_model
from app.services import ReadyServices, Services

router = APIRouter()


@router.get("/models", responses=error_answers(401, 503))
async def models(services: ReadyServices) -> dict[str, Any]:
    """The one loaded model."""
    return {"object": "list", "data": [_model(services)]}


@router.get("/models/{model:path}", responses=error_answers(401, 404, 503))
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
        "diarization": services.pipeline.tells_speakers,
        "max_segment_seconds": capabilities.max_segment_seconds,
    }
