"""What a client is told when a request is not served: one exception, one JSON shape, on every door."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from typing_extensions import TypedDict

from app.record import current, note_refusal
from app.voices import InvalidReference
from audio.errors import AudioError, AudioTooLong
from engine.device import DeviceGone

logger = logging.getLogger(__name__)

CLIENT_GONE = 499
"""Status in the access log for a client that did not wait; nobody receives it."""

_RETRY_GONE_SECONDS = 10
DOOR_ERRORS = (400, 401, 408, 413, 415, 429, 503)
"""Statuses that every door for recordings has for errors."""
_CODES = {404: "not_found", 405: "method_not_allowed", 413: "request_too_large"}


class ErrorDetail(TypedDict):
    """`code` is stable and machine-readable, `param` the field at fault."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorAnswer(TypedDict):
    """OpenAI's error object."""

    error: ErrorDetail


_MEANINGS = {
    400: "Something is wrong with the request; `param` names the field.",
    401: "The server asks for an API key.",
    404: "There is no such model.",
    405: "The path takes another method.",
    408: "The body came too slowly.",
    413: "The body or the recording is too large.",
    415: "The body is no multipart form.",
    429: "Too many requests; `Retry-After` says when to come back.",
    503: "The server cannot serve now.",
}


def error_answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What an OpenAPI document says of the errors of a route."""
    return {status: {"model": ErrorAnswer, "description": _MEANINGS[status]} for status in statuses}


class Refusal(Exception):
    """A request that is not served.

    `code` is stable and machine-readable, `param` the field at fault, `retry_after` the seconds after which the same
    request may succeed.
    """

    def __init__(
        self, status: int, code: str, message: str, *, param: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.retry_after = retry_after

    @property
    def body(self) -> dict[str, Any]:
        """OpenAI's error object."""
        return {"error": {"message": self.message, "type": self._type, "param": self.param, "code": self.code}}

    @property
    def event(self) -> dict[str, Any]:
        """What a WebSocket says."""
        return {"event": "error", "code": self.code, "message": self.message}

    @property
    def _type(self) -> str:
        """As OpenAI names them; which exception its clients raise depends on the status alone."""
        if self.status == HTTPStatus.TOO_MANY_REQUESTS:
            return "rate_limit_error"
        return "invalid_request_error" if self.status < 500 else "server_error"

    def response(self, headers: Mapping[str, str] | None = None) -> JSONResponse:
        note_refusal(self.code)
        answer = JSONResponse(self.body, self.status, headers=headers)
        if self.retry_after is not None:
            answer.headers["retry-after"] = str(math.ceil(self.retry_after))
        else:
            answer.headers["x-should-retry"] = "false"  # what OpenAI's clients look at before they try again
        return answer


def refusal_for(error: Exception) -> Refusal:
    """What to tell the client about an exception of the pipeline; what is nobody's mistake but ours is logged."""
    match error:
        case Refusal():
            return error
        case AudioTooLong():
            return Refusal(413, error.code, str(error), param="file")
        case AudioError():
            return Refusal(400, error.code, str(error), param="file")
        case DeviceGone():
            logger.error("the device is gone: %s", error)
            return Refusal(
                503, "engine_unavailable", "The speech engine is not running.", retry_after=_RETRY_GONE_SECONDS
            )
        case InvalidReference():
            return Refusal(400, "invalid_value", str(error), param="known_speaker_references")
        case ValueError():
            logger.info("the recogniser refused a request", exc_info=error)
            return Refusal(400, "unsupported_option", str(error))
    return internal_error(error)


def internal_error(error: Exception) -> Refusal:
    """A fault of ours: the log has its traceback, the client does not."""
    record = current()
    request_id = record.request_id if record else "-"
    logger.error("a request failed, id=%s", request_id, exc_info=error, extra={"request_id": request_id})
    return Refusal(500, "internal_error", "The server failed on this request; its log says why.")


def invalid_fields(errors: Sequence[Any]) -> Refusal:
    """The first complaint of pydantic about a form, naming the field and what is allowed, never the value."""
    first = errors[0]
    path = [part for part in first["loc"] if isinstance(part, str) and part not in ("body", "query", "path")]
    reason = str(first.get("ctx", {}).get("error") or first["msg"])
    return Refusal(400, "invalid_value", f"Invalid `{'.'.join(path)}`: {reason}", param=path[0] if path else None)


def install_error_handlers(app: FastAPI) -> None:
    """Give every way for a request to fail the same shape; what is left over is caught in `app.access`."""
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientDisconnect, _gone)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.response()


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return invalid_fields(error.errors()).response()


async def _http(_: Request, error: Exception) -> Response:
    """Starlette's own: unknown routes and methods, forms that cannot be parsed."""
    assert isinstance(error, HTTPException)
    code = _CODES.get(error.status_code, "invalid_request")
    return Refusal(error.status_code, code, str(error.detail)).response(error.headers)


async def _gone(_: Request, __: Exception) -> Response:
    return Response(status_code=CLIENT_GONE)
