"""`WS /ws`: raw sound in, one transcript a round out.

Text frames are commands, their keywords in any case: `START`, `LANGUAGE:x`, `HOTWORDS:a,b`, `SPK:on`, `STOP`; others
are ignored. Binary frames between `START` and `STOP` are 16-bit little-endian mono samples at 16 kHz, cut anywhere,
even within a sample. Options hold for all later rounds of the socket. A command that is refused is answered with
`{"event": "error", "code", "message"}` and changes nothing; what ends the socket sends the same first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from starlette.requests import ClientDisconnect
from starlette.status import (
    WS_1009_MESSAGE_TOO_BIG,
    WS_1011_INTERNAL_ERROR,
    WS_1013_TRY_AGAIN_LATER,
)

from app.disconnect import unless
from app.errors import Refusal, refusal_for
from app.formats.ws import render_ws
from app.forms import MAX_FIELD_BYTES
from app.inbox import Inbox
from app.options import refuse_speakers, split_hotwords, transcription_options
from app.pipeline import pcm16
from app.services import AnyServices, Services
from app.transcript import Transcript
from audio.span import SAMPLE_RATE

router = APIRouter()

_SAMPLE_BYTES = 2
_SWITCH = {"true": True, "1": True, "on": True, "yes": True, "false": False, "0": False, "off": False, "no": False}


@router.websocket("/ws")
async def ws(socket: WebSocket, services: AnyServices) -> None:
    """One client, any number of rounds."""
    await socket.accept()
    session = Session(socket, services)
    with suppress(ClientDisconnect, WebSocketDisconnect):
        try:
            services.readiness.require()
            await session.serve()
        except Refusal as refusal:
            await session.send_error(refusal)
            await socket.close(_close_code(refusal))


def _close_code(refusal: Refusal) -> int:
    if refusal.status == 413:
        return WS_1009_MESSAGE_TOO_BIG
    return WS_1013_TRY_AGAIN_LATER if refusal.status == 503 else WS_1011_INTERNAL_ERROR


class Session:
    """The state of one socket: options that persist, and the sound of the round under way."""

    def __init__(self, socket: WebSocket, services: Services) -> None:
        self._socket = socket
        self._services = services
        self._max_bytes = round(services.settings.max_audio_seconds * SAMPLE_RATE) * _SAMPLE_BYTES
        self._inbox = Inbox(socket, max_bytes=self._max_bytes)
        self._language: str | None = None
        self._hotwords: tuple[str, ...] = ()
        self._sound: bytearray | None = None

    async def serve(self) -> None:
        """Until the client leaves.

        Raises:
            ClientDisconnect: it has.
            Refusal: the socket cannot go on.
        """
        async with self._inbox.reading():
            while True:
                frame = await self._inbox.next()
                if isinstance(frame, bytes):
                    self._listen(frame)
                else:
                    await self._obey(frame)

    def _listen(self, sound: bytes) -> None:
        """Sound outside a round is ignored."""
        if self._sound is None:
            return
        if len(self._sound) + len(sound) > self._max_bytes:
            limit = self._services.settings.max_audio_seconds
            raise Refusal(413, "audio_too_long", f"The recording is longer than {limit:g} s.")
        self._sound += sound

    async def _obey(self, command: str) -> None:
        if len(command) > MAX_FIELD_BYTES:
            raise Refusal(413, "request_too_large", f"A command may have at most {MAX_FIELD_BYTES} characters.")
        keyword, _, value = command.strip().partition(":")
        try:
            match keyword.strip().upper():
                case "START":
                    await self._start()
                case "STOP":
                    await self._stop()
                case "LANGUAGE":
                    await self._set_language(value.strip())
                case "HOTWORDS":
                    await self._set_hotwords(value)
                case "SPK":
                    await self._set_speakers(value.strip())
        except Refusal as refusal:
            if refusal.status >= 500:
                raise
            await self.send_error(refusal)

    async def _start(self) -> None:
        """A round that is under way starts anew."""
        self._services.readiness.require()
        self._sound = bytearray()
        await self._send({"event": "started"})

    async def _stop(self) -> None:
        """A STOP without START has nothing to answer but that it stopped."""
        sound, self._sound = self._sound, None
        if sound is not None:
            try:
                transcript = await unless(self._inbox.left(), self._transcribe(sound))
            except Refusal as refusal:
                if refusal.status >= 500:
                    raise
                await self.send_error(refusal)
            else:
                await self._socket.send_text(await asyncio.to_thread(render_ws, transcript))
        await self._send({"event": "stopped"})

    async def _transcribe(self, sound: bytearray) -> Transcript:
        options = transcription_options(self._services.capabilities, language=self._language, hotwords=self._hotwords)
        try:
            if len(sound) % _SAMPLE_BYTES:
                del sound[-1]  # half a sample
            return await self._services.pipeline.transcribe(await asyncio.to_thread(pcm16, sound), options)
        except Exception as error:
            raise refusal_for(error) from error

    async def _set_language(self, language: str) -> None:
        options = transcription_options(self._services.capabilities, language=language)
        self._language = language if options.decoding.language is not None else None
        await self._send({"event": "language_set", "language": self._language})

    async def _set_hotwords(self, hotwords: str) -> None:
        self._hotwords = split_hotwords([hotwords])
        await self._send({"event": "hotwords_set", "hotwords": list(self._hotwords)})

    async def _set_speakers(self, switch: str) -> None:
        wanted = _SWITCH.get(switch.lower())
        if wanted is None:
            raise Refusal(400, "invalid_value", f"`SPK` takes one of {', '.join(_SWITCH)}.", param="spk")
        refuse_speakers(wanted)
        await self._send({"event": "spk_set", "spk": wanted})

    async def send_error(self, refusal: Refusal) -> None:
        await self._send({"event": "error", "code": refusal.code, "message": refusal.message})

    async def _send(self, message: Mapping[str, Any]) -> None:
        await self._socket.send_json(message)
