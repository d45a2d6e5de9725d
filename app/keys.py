"""API keys: who may use the doors."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import Refusal

OPEN = frozenset({"/", "/health", "/health/live", "/health/ready", "/docs", "/openapi.json", "/favicon.ico"})
"""What needs no key: it tells nothing of anybody's recordings, and starts no work."""

SUBPROTOCOL = "tinglu"
"""Browsers cannot set headers on a WebSocket; they offer this subprotocol, and a second one that carries the key."""

_KEY_SUBPROTOCOL = "tinglu-api-key."


class ApiKeys:
    """ASGI middleware that lets nobody without one of the keys pass, except to what is open to all."""

    def __init__(self, app: ASGIApp, *, keys: Iterable[str]) -> None:
        self._app = app
        self._digests = [_digest(key) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in OPEN or self._knows(_given(scope)):
            await self._app(scope, receive, send)
            return
        refusal = Refusal(401, "invalid_api_key", "A valid API key is needed, sent as `Authorization: Bearer KEY`.")
        await refusal.response({"www-authenticate": "Bearer"})(scope, receive, send)

    def _knows(self, key: str | None) -> bool:
        """Looks at every key whatever it finds, in the same time."""
        digest = _digest(key or "")
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return key is not None and any(matches)


def _given(scope: Scope) -> str | None:
    headers = Headers(scope=scope)
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    offered = scope.get("subprotocols", ())
    return next((name.removeprefix(_KEY_SUBPROTOCOL) for name in offered if name.startswith(_KEY_SUBPROTOCOL)), None)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
