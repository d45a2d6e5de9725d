"""The conversation on a WebSocket: commands, sound, and a transcript a round."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fastapi import WebSocket
from starlette.requests import ClientDisconnect

from app.access import record_of
from app.disconnect import unless
from app.errors import CLIENT_GONE, Refusal, refusal_for
from app.formats.ws import render_ws
from app.forms import MAX_FIELD_BYTES
from app.inbox import Frame, Inbox
from app.options import split_hotwords, transcription_options
from app.pipeline import pcm16
from app.record import note_gone, note_refusal
from app.services import Services
from app.sockets import Hold
from app.speaker_fields import require_speakers
from app.transcript import Transcript
from app.voices import SpeakerOptions
from audio.span import SAMPLE_RATE

_SAMPLE_BYTES = 2
_UNREAD_BYTES = 32 * 1024 * 1024
_SEND_SECONDS = 60.0
"""A client that reads nothing for this long has left."""
_SWITCH = {"true": True, "1": True, "on": True, "yes": True, "false": False, "0": False, "off": False, "no": False}


class Session:
    """The state of one socket: options that hold for all its rounds."""

    def __init__(self, socket: WebSocket, services: Services, hold: Hold) -> None:
        settings = services.settings
        self._socket = socket
        self._services = services
        self._hold = hold
        self._idle_seconds = settings.ws_idle_seconds
        self._max_frame = settings.ws_max_frame_bytes
        self._max_seconds = settings.max_audio_seconds
        self._max_bytes = round(settings.max_audio_seconds * SAMPLE_RATE) * _SAMPLE_BYTES
        self._inbox = Inbox(socket, max_bytes=min(self._max_bytes, _UNREAD_BYTES))
        self._language: str | None = None
        self._hotwords: tuple[str, ...] = ()
        self._speakers: SpeakerOptions | None = None

    async def serve(self) -> None:
        """Until the client leaves. Sound outside of a round is ignored, and a STOP there has nothing to answer.

        Raises:
            ClientDisconnect: it has left.
            Refusal: the socket cannot go on.
        """
        async with self._inbox.reading():
            while True:
                frame = await self._next()
                keyword = await self._obey(frame) if isinstance(frame, str) else ""
                if keyword == "STOP":
                    await self._send({"event": "stopped"})
                while keyword == "START":
                    self._services.readiness.require()
                    with self._entered():
                        keyword = await self._round()

    async def _round(self) -> str:
        """From START to STOP, or to another START, which begins anew: the one that ended it."""
        sound = bytearray()
        await self._send({"event": "started"})
        try:
            while True:
                frame = await self._next()
                if isinstance(frame, bytes):
                    self._hear(sound, frame)
                elif (keyword := await self._obey(frame)) == "STOP":
                    await self._answer(sound)
                    return keyword
                elif keyword == "START":
                    return keyword
        finally:
            self._hold.set(0)

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """A round in the ledger: a request of its own."""
        ledger, record = self._services.ledger, record_of(self._socket.scope)
        record.route = record.path
        status = 500
        with ledger.open(record):
            try:
                yield
                status = 200 if record.code is None else 400
            except ClientDisconnect:
                note_gone()
                status = CLIENT_GONE
                raise
            except Refusal as refusal:
                note_refusal(refusal.code)
                status = refusal.status
                raise
            finally:
                ledger.enter(record, status)

    async def _next(self) -> Frame:
        try:
            async with asyncio.timeout(self._idle_seconds):
                frame = await self._inbox.next()
        except TimeoutError:
            raise Refusal(408, "idle_timeout", f"Nothing came for {self._idle_seconds:g} s.") from None
        if len(frame) > self._max_frame:
            raise Refusal(
                413, "frame_too_large", f"A frame has {len(frame)} bytes; this server takes at most {self._max_frame}."
            )
        return frame

    def _hear(self, sound: bytearray, more: bytes) -> None:
        size = len(sound) + len(more)
        if size > self._max_bytes:
            raise Refusal(413, "audio_too_long", f"The recording is longer than {self._max_seconds:g} s.")
        self._hold.set(size)
        sound += more

    async def _obey(self, command: str) -> str:
        """Carry out a command other than START and STOP; its keyword."""
        if len(command) > MAX_FIELD_BYTES:
            raise Refusal(413, "request_too_large", f"A command may have at most {MAX_FIELD_BYTES} characters.")
        keyword, _, value = command.strip().partition(":")
        keyword = keyword.strip().upper()
        try:
            match keyword:
                case "LANGUAGE":
                    await self._set_language(value.strip())
                case "HOTWORDS":
                    await self._set_hotwords(value)
                case "SPK":
                    await self._set_speakers(value.strip())
        except Refusal as refusal:
            await self._send(refusal.event)
        return keyword

    async def _answer(self, sound: bytearray) -> None:
        try:
            transcript = await unless(self._inbox.left(), self._transcribe(sound))
        except Refusal as refusal:
            if refusal.status >= 500:
                raise
            note_refusal(refusal.code)
            await self._send(refusal.event)
        else:
            await self._send_text(await asyncio.to_thread(render_ws, transcript))
        await self._send({"event": "stopped"})

    async def _transcribe(self, sound: bytearray) -> Transcript:
        try:
            options = transcription_options(
                self._services.capabilities,
                language=self._language,
                hotwords=self._hotwords,
                speakers=self._speakers,
            )
            if len(sound) % _SAMPLE_BYTES:
                del sound[-1]  # half a sample
            return await self._services.transcript(await asyncio.to_thread(pcm16, sound), options)
        except Exception as error:
            raise refusal_for(error) from error

    async def _set_language(self, language: str) -> None:
        self._services.readiness.require()
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
        if wanted:
            self._services.readiness.require()
            require_speakers(self._services, "spk")
        self._speakers = SpeakerOptions() if wanted else None
        await self._send({"event": "spk_set", "spk": wanted})

    async def _send(self, message: Mapping[str, Any]) -> None:
        await self._within(self._socket.send_json(message))

    async def _send_text(self, text: str) -> None:
        await self._within(self._socket.send_text(text))

    @staticmethod
    async def _within(sending: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(_SEND_SECONDS):
                await sending
        except TimeoutError:
            raise ClientDisconnect from None
