"""Multipart forms: fields checked against a model, the recording handed on without another copy."""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, TypeVar, get_origin

from fastapi import Request
from pydantic import BaseModel, ConfigDict, ValidationError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from app.errors import Refusal, invalid_fields, refusal_for
from app.pipeline import EncodedAudio
from audio.errors import EmptyAudio

FILE = "file"
MAX_FILES = 4
MAX_FIELDS = 64
MAX_FIELD_BYTES = 64 * 1024
_LARGE_FIELDS = {"known_speaker_references": 4 * 1024 * 1024}
"""Fields that carry a recording as text: ten seconds of stereo at 48 kHz are 2.6 MB of base64."""
_NO_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
"""Codecs of Python's that are no charset of any client. Some raise what nobody expects, or take a time that grows with
the square of the text.
"""
_IN_MEMORY_BYTES = 1024 * 1024
_RETRY_FULL_SECONDS = 60

logger = logging.getLogger(__name__)


class Form(BaseModel):
    """Base of the forms: fields that are not known are ignored, empty ones count as left out.

    Those named in `objects` may also come member by member: `name[member]`.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
    objects: ClassVar[frozenset[str]] = frozenset()


F = TypeVar("F", bound=Form)


@asynccontextmanager
async def uploaded(request: Request, model: type[F]) -> AsyncIterator[tuple[F, EncodedAudio]]:
    """The fields and the recording of a multipart request. The recording lives as long as the context.

    Recordings beyond 1 MB lie in an unlinked temporary file.

    Raises:
        Refusal: 400 or 415, naming the field at fault.
    """
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise Refusal(415, "invalid_content_type", f"Send multipart/form-data with the recording as `{FILE}`.")
    form = await _parse(request)
    try:
        yield _fields(form, model), await _recording(form)
    finally:
        await form.close()


class _Parser(MultiPartParser):
    """Takes the recording for a file, which may go to disk, even where the client gave it no file name.

    A field may have 64 kB, and those that carry recordings more.
    """

    def on_part_begin(self) -> None:
        super().on_part_begin()
        if self._charset in _NO_CHARSETS:
            self._charset = "utf-8"

    def on_headers_finished(self) -> None:
        part = self._current_part
        _, options = parse_options_header(part.content_disposition)
        if options.get(b"name") == FILE.encode() and b"filename" not in options:
            part.content_disposition = (part.content_disposition or b"") + b'; filename=""'
        super().on_headers_finished()
        name = part.field_name.removesuffix("[]")
        self.max_part_size = _LARGE_FIELDS.get(name, MAX_FIELD_BYTES)


async def _parse(request: Request) -> FormData:
    parser = _Parser(
        request.headers,
        request.stream(),
        max_files=MAX_FILES,
        max_fields=MAX_FIELDS,
        max_part_size=MAX_FIELD_BYTES,
    )
    try:
        return await parser.parse()
    except MultiPartException as error:
        raise Refusal(400, "invalid_form", error.message) from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        logger.error("no room for an upload: %s", error)
        raise Refusal(
            503, "storage_full", "The server has no room for the recording.", retry_after=_RETRY_FULL_SECONDS
        ) from error


def form_schema(model: type[Form]) -> dict[str, Any]:
    """The request body for the OpenAPI document, which cannot see forms that are read by hand."""
    schema = model.model_json_schema()
    fields = {name: _without_null(field) for name, field in schema["properties"].items()}
    schema["properties"] = {FILE: {"type": "string", "format": "binary"}, **fields}
    schema["required"] = [FILE, *schema.get("required", [])]
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A field that may be left out: a form has no null, and the word "null" is a text."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key != "anyOf" and (key, value) != ("default", None)}
    return rest if not kinds else rest | (kinds[0] if len(kinds) == 1 else {"anyOf": kinds})


def _fields(form: FormData, model: type[F]) -> F:
    """Lists may be repeated, and written with or without `[]`; of anything else the last value counts."""
    values: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        given = [value for key, value in form.multi_items() if key in (name, f"{name}[]") and value != ""]
        if any(isinstance(value, UploadFile) for value in given):
            raise Refusal(400, "invalid_value", f"Invalid `{name}`: it must be text, not a file", param=name)
        if given:
            values[name] = given if get_origin(field.annotation) in (list, tuple) else given[-1]
        elif name in model.objects and (members := _members(form, name)):
            values[name] = members
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise invalid_fields(error.errors()) from None


def _members(form: FormData, name: str) -> dict[str, Any]:
    """The members of an object whose fields are called `name[member]`."""
    pattern = re.compile(rf"{re.escape(name)}\[(\w+)\]")
    matches = ((pattern.fullmatch(key), value) for key, value in form.multi_items() if value != "")
    return {match[1]: value for match, value in matches if match}


async def _recording(form: FormData) -> EncodedAudio:
    upload = form.get(FILE)
    if upload is None:
        raise Refusal(400, "missing_required_parameter", f"The recording is missing: send it as `{FILE}`.", param=FILE)
    assert isinstance(upload, UploadFile)
    if not upload.size:
        raise refusal_for(EmptyAudio("The recording has no bytes."))
    if upload.size <= _IN_MEMORY_BYTES:
        return EncodedAudio(await upload.read())
    upload.file.flush()
    return EncodedAudio(f"/proc/{os.getpid()}/fd/{upload.file.fileno()}")
