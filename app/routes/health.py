"""`GET /health` and its siblings: they answer at all times, start-up included."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from app.metrics import MEDIA_TYPE
from app.readiness import Status
from app.services import AnyServices, Services

router = APIRouter(tags=["health"])

_UNWELL = frozenset({"failed", "restarting"})


@router.get("/health", responses={503: {"description": "The engine failed; `reason` says why."}})
async def health(services: AnyServices) -> JSONResponse:
    """`starting`, `ok` and `stopping` come with 200, `restarting` and `failed` with 503 and the reason."""
    status = services.readiness.status
    return JSONResponse(_answer(services, status), 503 if status in _UNWELL else 200)


@router.get("/health/live")
async def live() -> JSONResponse:
    """That the process answers, whatever the state of the engine: it heals that itself, or ends."""
    return JSONResponse({"status": "ok"})


@router.get("/health/ready", responses={503: {"description": "Requests would be refused."}})
async def ready(services: AnyServices) -> JSONResponse:
    """200 once the self-test has passed, and as long as the engine is heard from."""
    status = services.readiness.status
    return JSONResponse(_answer(services, status), 200 if status == "ok" else 503)


@router.get("/metrics", response_class=Response)
async def metrics(services: AnyServices) -> Response:
    """For Prometheus."""
    return Response(services.metrics.text(), media_type=MEDIA_TYPE)


def _answer(services: Services, status: Status) -> dict[str, Any]:
    readiness = services.readiness
    answer: dict[str, Any] = {
        "status": status,
        "model": readiness.model or services.settings.model,
        "device": services.device,
    }
    if status in _UNWELL:
        answer["reason"] = readiness.reason
    return answer
