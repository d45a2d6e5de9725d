"""`GET /health` and its siblings: they answer at all times, start-up included."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NotRequired

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from typing_extensions import TypedDict

from app.errors import error_answers
from app.metrics import MEDIA_TYPE
from app.readiness import Status
from app.services import AnyServices, Services

router = APIRouter(tags=["health"])

_TEXT: dict[str, Any] = {"content": {"text/plain": {"schema": {"type": "string"}}}}
_UNWELL = frozenset({"failed", "restarting"})


class LiveAnswer(TypedDict):
    """That the process answers."""

    status: Literal["ok"]


class HealthAnswer(TypedDict):
    """The state of the server, the model that it serves or is to serve, and what is wrong with it."""

    status: Status
    model: str | None
    device: str
    reason: NotRequired[str | None]


def _answers(unwell: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": HealthAnswer}, 503: {"model": HealthAnswer, "description": unwell}}


@router.get("/health", responses=_answers("The engine failed; `reason` says why."))
async def health(services: AnyServices) -> JSONResponse:
    """`starting`, `ok` and `stopping` come with 200, `restarting` and `failed` with 503 and the reason."""
    status = services.readiness.status
    return JSONResponse(_answer(services, status), 503 if status in _UNWELL else 200)


@router.get("/health/live", responses={200: {"model": LiveAnswer}})
async def live() -> JSONResponse:
    """That the process answers, whatever the state of the engine: it heals that itself, or ends."""
    return JSONResponse({"status": "ok"})


@router.get("/health/ready", responses=_answers("Requests would be refused."))
async def ready(services: AnyServices) -> JSONResponse:
    """200 once the self-test has passed, and as long as the engine is heard from."""
    status = services.readiness.status
    return JSONResponse(_answer(services, status), 200 if status == "ok" else 503)


@router.get("/metrics", response_class=Response, responses={200: _TEXT, **error_answers(401)})
async def metrics(services: AnyServices) -> Response:
    """For Prometheus."""
    return Response(services.metrics.text(), media_type=MEDIA_TYPE)


def _answer(services: Services, status: Status) -> HealthAnswer:
    readiness = services.readiness
    answer: HealthAnswer = {
        "status": status,
        "model": readiness.model or _name(services.settings.model),
        "device": services.device,
    }
    if status in _UNWELL:
        answer["reason"] = readiness.reason
    return answer


def _name(model: str | None) -> str | None:
    """What a client may know of a model that is not loaded: not where its directory lies."""
    return None if model is None else Path(model).name
