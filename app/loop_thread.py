"""An event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for callers who have no event loop, or who are called inside one that is not theirs."""

    def __init__(self, name: str, *, at_end: Callable[[], Awaitable[None]]) -> None:
        """`at_end` is awaited on the loop when everything else has been cancelled."""
        self._loop = asyncio.new_event_loop()
        self._at_end = at_end
        self._over: Future[None] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine; cancelling the future cancels it.

        Raises:
            RuntimeError: the loop was told to end.
        """
        if self._over is not None:
            work.close()
            raise RuntimeError("this has been closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def end(self) -> Future[None]:
        """Cancel what runs and end the loop; the future is done when `at_end` is, and raises what it raises."""
        if self._over is None:
            self._over = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
            self._over.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
        return self._over

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._at_end()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()
