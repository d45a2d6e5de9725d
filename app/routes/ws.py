"""`WS /ws`: raw sound in, one transcript a round out.

Text frames are commands, their keywords in any case: `START`, `LANGUAGE:x`, `HOTWORDS:a,b`, `SPK:on`, `STOP`; others
are ignored. Binary frames between `START` and `STOP` are 16-bit little-endian mono samples at 16 kHz, cut anywhere,
even within a sample. Options hold for all later rounds of the socket. A command that is refused is answered with
`{"event": "error", "code", "message"}` and changes nothing; what ends the socket sends the same first. A browser, which
cannot send headers, offers the subprotocols `tinglu` and `tinglu-api-key.KEY` where a key is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from starlette.requests import ClientDisconnect
from starlette.status import (
    WS_1008_POLICY_VIOLATION,
    WS_1009_MESSAGE_TOO_BIG,
    WS_1011_INTERNAL_ERROR,
    WS_1013_TRY_AGAIN_LATER,
)

from app.errors import Refusal, internal_error
from app.keys import SUBPROTOCOL
from app.services import AnyServices
from app.session import Session

router = APIRouter()

_CLOSE_CODES = {
    408: WS_1008_POLICY_VIOLATION,
    413: WS_1009_MESSAGE_TOO_BIG,
    429: WS_1013_TRY_AGAIN_LATER,
    503: WS_1013_TRY_AGAIN_LATER,
}


@router.websocket("/ws")
async def ws(socket: WebSocket, services: AnyServices) -> None:
    """One client, any number of rounds."""
    if not _same_site(socket, services.settings.allowed_origins or ()):
        refusal = Refusal(403, "origin_not_allowed", "Pages of this origin may not use the server.")
        await socket.send_denial_response(refusal.response())
        return
    await socket.accept(SUBPROTOCOL if SUBPROTOCOL in socket.scope.get("subprotocols", ()) else None)
    with suppress(ClientDisconnect, WebSocketDisconnect):
        try:
            services.readiness.require()
            with services.sockets.one() as hold:
                await Session(socket, services, hold).serve()
        except Refusal as refusal:
            await _close(socket, refusal)
        except (ClientDisconnect, WebSocketDisconnect):
            raise
        except Exception as error:
            await _close(socket, internal_error(error))


async def _close(socket: WebSocket, refusal: Refusal) -> None:
    await socket.send_json(refusal.event)
    await socket.close(_CLOSE_CODES.get(refusal.status, WS_1011_INTERNAL_ERROR))


def _same_site(socket: WebSocket, allowed: Sequence[str]) -> bool:
    """Browsers let any page open a socket to any server, and say which page it is; other clients do not say."""
    origin = socket.headers.get("origin")
    if origin is None or "*" in allowed or origin in allowed:
        return True
    return urlsplit(origin).netloc == socket.headers.get("host")
