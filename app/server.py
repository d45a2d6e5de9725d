"""The HTTP application: the doors around one pipeline, and the life of its server."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from types import FrameType

import uvicorn
from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from app.access import Access, Ledger
from app.admission import Admission
from app.errors import error_answers, install_error_handlers
from app.heads import BoundedHeads
from app.keys import ApiKeys
from app.limits import BodyLimit, UploadLimits, Uploads
from app.metrics import Metrics
from app.pipeline import Pipeline
from app.readiness import Readiness
from app.routes import asr, docs, health, openai, ws
from app.runtime import device_kind
from app.selftest import self_test
from app.services import Services
from app.settings import Settings
from app.sockets import Sockets
from app.state import State
from app.tracing import tracer_to

EXIT_ENGINE_LOST = 4
EXIT_FORCED = 143
"""What a shell says of a process that SIGTERM has ended: 128 + 15."""

_LOOK_SECONDS = 0.05
_M_ARENA_MAX = -8
_CANCEL_SECONDS = 1

logger = logging.getLogger(__name__)


def serve(pipeline: Pipeline, settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code.

    0 is an orderly end: requests under way had the grace time to finish. `EXIT_ENGINE_LOST` says that the device died
    too often: whoever supervises the server starts it again. A second signal ends the process at once.
    """
    _share_arenas()
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # warns of every broken form
    app = create_app(pipeline, settings, on_lost=lambda: server.lose())
    services: Services = app.state.services
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=partial(BoundedHeads, head_seconds=settings.header_timeout_seconds),  # type: ignore[arg-type]
        ws="websockets-sansio",
        ws_max_size=2 * settings.ws_max_frame_bytes,  # ours comes first, and says so to the client
        log_config=None,
        log_level=settings.log_level,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_CANCEL_SECONDS,
    )
    server = Server(config, services.readiness.stop, lambda: services.ledger.under_way, settings.shutdown_grace_seconds)
    gc.collect()
    gc.freeze()  # what is there now stays, and is not looked through again while requests wait
    server.run()
    return EXIT_ENGINE_LOST if server.lost else 0


class Server(uvicorn.Server):
    """One that goes on listening while it drains, so that late clients get an answer instead of a closed port."""

    def __init__(
        self, config: uvicorn.Config, stop: Callable[[], None], under_way: Callable[[], int], grace_seconds: float
    ) -> None:
        """`stop` makes the app refuse requests, `under_way` tells how many are left."""
        super().__init__(config)
        self._stop = stop
        self._under_way = under_way
        self._grace_seconds = grace_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None
        self._signalled = False
        self.lost = False

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    def lose(self) -> None:
        """The device is gone for good: end, with what that means for the exit code."""
        self.lost = True
        self._drain()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal. The first drains; the second does not wait for anybody."""
        if self._signalled:
            os._exit(EXIT_FORCED)  # the device and the decoders notice that they are alone
        self._signalled = True
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        if self._draining is None:
            self._draining = asyncio.get_running_loop().create_task(self._drained())

    async def _drained(self) -> None:
        self._stop()
        logger.info("draining: %d requests under way", self._under_way())
        try:
            async with asyncio.timeout(self._grace_seconds):
                while self._under_way():  # noqa: ASYNC110 - a few times in the life of a server
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            logger.warning("%d requests did not finish in time", self._under_way())
        self.should_exit = True


def create_app(pipeline: Pipeline, settings: Settings, *, on_lost: Callable[[], None] | None = None) -> FastAPI:
    """An app that answers from its first moment and serves as soon as the pipeline is ready.

    The app owns the pipeline from now on and closes it when it shuts down. `on_lost` is called when the pipeline will
    never serve again.

    Raises:
        ValueError: traces are wanted and their extra is not installed.
    """
    readiness = Readiness(
        pipeline,
        grace_seconds=settings.startup_grace_seconds,
        self_test=partial(self_test, pipeline) if settings.self_test else None,
        on_lost=on_lost,
    )
    admission = Admission(max_requests=settings.max_requests, max_audio_seconds=settings.max_waiting_audio_seconds)
    sockets = Sockets(max_sockets=settings.max_sockets, max_bytes=settings.ws_max_buffer_bytes)
    uploads = Uploads(
        UploadLimits(
            max_bytes=settings.max_upload_bytes,
            max_uploads=settings.max_uploads,
            grace_seconds=settings.upload_grace_seconds,
            min_bytes_per_second=settings.upload_min_bytes_per_second,
        )
    )
    metrics = Metrics(State(pipeline, readiness, admission, sockets, uploads))
    ledger = Ledger(metrics, tracer_to(settings.otlp_endpoint))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            async with readiness.following():
                yield
        finally:
            await pipeline.close()
            await asyncio.to_thread(ledger.close)

    app = FastAPI(
        title="Tinglu",
        version=_version(),
        description="Offline speech to text.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own page needs the network
        redoc_url=None,
        responses=error_answers(405),
    )
    app.state.services = Services(
        pipeline, settings, readiness, admission, sockets, uploads, ledger, metrics, device_kind(settings)
    )
    # The last to be added is the outermost.
    if keys := settings.keys():
        app.add_middleware(ApiKeys, keys=keys)
    app.add_middleware(BodyLimit, uploads=uploads)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "x-request-id"],
            expose_headers=["x-request-id", "x-tinglu-warnings", "retry-after"],
        )
    app.add_middleware(Access, ledger=ledger)
    install_error_handlers(app)
    for door in (health, asr, openai, ws, docs):
        app.include_router(door.router)
    return app


def _share_arenas() -> None:
    """Let glibc's malloc use two arenas instead of eight a core.

    Uploads are written and answers rendered in threads; with an arena each, memory grew by 6 MiB in 1,000 requests.
    """
    with contextlib.suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


def _version() -> str:
    try:
        return version("tinglu")
    except PackageNotFoundError:  # run from a checkout
        return "0"
