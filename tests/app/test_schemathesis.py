"""Requests made up from our own OpenAPI document, over the wire: none makes the server fail, and every answer is one
that the document foresees.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from app.pipeline import EncodedAudio
from audio.shared import SharedWaveform
from audio.span import SAMPLE_RATE

_CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
_EXAMPLES = 100


@pytest.fixture
async def url(build: Any, new_device: Any) -> AsyncIterator[str]:
    async with build(new_device(translation=True, speakers=True)) as house:

        async def decode(_: EncodedAudio, into: SharedWaveform, **__: Any) -> None:
            into.write(np.full(2 * SAMPLE_RATE, 3 / 32768, np.float32))

        async def decode_channels(audio: EncodedAudio, into: Sequence[SharedWaveform]) -> int:
            await decode(audio, into[0])
            return 1

        house.decoder.decode, house.decoder.decode_channels = decode, decode_channels
        config = uvicorn.Config(house.app, port=0, lifespan="off", http="httptools", log_config=None)
        server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn tells in no other way
            await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        server.should_exit = True
        await running


async def test_no_request_makes_the_server_fail(url: str) -> None:
    """To every operation well-formed requests, and others where there is something to get wrong."""
    statuses = await asyncio.to_thread(_fuzz, url)
    assert statuses.total() > 6 * _EXAMPLES
    assert min(statuses[200], statuses[400]) > _EXAMPLES


def _fuzz(url: str) -> Counter[int]:
    """How often each status was answered."""
    statuses: Counter[int] = Counter()
    for result in schemathesis.openapi.from_url(f"{url}/openapi.json").get_all_operations():
        operation = result.ok()
        for mode in GenerationMode if operation.method == "post" else [GenerationMode.POSITIVE]:
            strategy = operation.as_strategy(generation_mode=mode)

            @settings(
                max_examples=_EXAMPLES,
                derandomize=True,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            )
            @given(case=strategy)
            def call(case: Any) -> None:
                statuses[case.call_and_validate(checks=_CHECKS).status_code] += 1

            call()
    return statuses
