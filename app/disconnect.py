"""Work that ends when the client that asked for it has left."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

from app.record import note_gone

T = TypeVar("T")


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled as soon as the client closes the connection.

    The body must have been read: what comes next from the client can only be its leave.

    Raises:
        ClientDisconnect: the client is gone and the work has stopped.
    """
    return await unless(_left(request), work)


async def unless(leaving: Coroutine[Any, Any, object], work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled, and waited for, if `leaving` ends first.

    Raises:
        ClientDisconnect: it did.
    """
    working, waiting = asyncio.create_task(work), asyncio.create_task(leaving)
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        note_gone()
        raise ClientDisconnect
    finally:
        working.cancel()
        waiting.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
