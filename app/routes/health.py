"""`GET /health`: answers at all times, start-up included."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from app.services import AnyServices

router = APIRouter(tags=["health"])


@router.get("/health", responses={503: {"description": "The engine failed; `reason` says why."}})
async def health(services: AnyServices) -> JSONResponse:
    """`starting` and `ok` come with 200, `failed` with 503 and the reason."""
    readiness = services.readiness
    reason = await readiness.reason()
    answer: dict[str, Any] = {
        "status": readiness.status,
        "model": readiness.model or services.settings.model,
        "device": services.device,
    }
    if reason is not None:
        answer["reason"] = reason
    return JSONResponse(answer, 503 if reason is not None else 200)
