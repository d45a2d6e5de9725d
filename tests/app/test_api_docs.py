"""Every example of docs/api.md, run as it stands there but for the port."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn

from app.pipeline import EncodedAudio
from audio.span import SAMPLE_RATE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/api.md").read_text()
EXAMPLES = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = {
    "sh": ["bash", "-euc"],
    "python": [sys.executable, "-c"],
    "js": ["node", "--input-type=module", "-e"],
}
BROWSER = """
import { openAsBlob } from "node:fs";
const file = new File([await openAsBlob("tests/data/jfk.wav")], "jfk.wav");
"""


@pytest.fixture
async def port(build: Any, new_device: Any) -> AsyncIterator[int]:
    """Where the fakes serve; they take any file for 2 s of the number 3."""
    async with build(new_device(translation=True, speakers=True)) as house:

        async def decode(_: EncodedAudio, into: Any, **__: Any) -> None:
            with into.ref().writer() as out:
                out.write(np.full(2 * SAMPLE_RATE, 3 / 32768, np.float32).tobytes())

        async def decode_channels(audio: EncodedAudio, into: Any) -> int:
            await decode(audio, into[0])
            return 1

        house.decoder.decode, house.decoder.decode_channels = decode, decode_channels
        config = uvicorn.Config(
            house.app, port=0, lifespan="off", http="httptools", ws="websockets-sansio", log_config=None
        )
        server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn tells in no other way
            await asyncio.sleep(0.005)
        yield server.servers[0].sockets[0].getsockname()[1]
        server.should_exit = True
        await running


@pytest.mark.parametrize(
    ("language", "example"), EXAMPLES, ids=[f"{language}-{number}" for number, (language, _) in enumerate(EXAMPLES)]
)
async def test_examples(port: int, language: str, example: str, tmp_path: Path) -> None:
    if language == "js" and shutil.which("node") is None:
        pytest.skip("no node on this machine to stand for a browser")
    (tmp_path / ".curlrc").write_text("fail\nsilent\nshow-error\n")
    code = (BROWSER if language == "js" else "") + example.replace("127.0.0.1:8899", f"127.0.0.1:{port}")
    process = await asyncio.create_subprocess_exec(
        *COMMANDS[language],
        code,
        cwd=ROOT,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin", "CURL_HOME": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    assert re.search(r"number -?\d+\.|whisper-base", out.decode()), out.decode()


def test_every_door_and_format_has_an_example() -> None:
    code = "\n".join(example for _, example in EXAMPLES)
    for door in ("/asr", "/v1/audio/transcriptions", "/v1/audio/translations", "/v1/models", "/ws", "/health"):
        assert f":8899{door}" in code
    for name in ("text", "verbose_json", "srt", "vtt"):
        assert f"response_format={name}" in code
    assert {language for language, _ in EXAMPLES} == set(COMMANDS)


async def test_docs_need_no_network(house: Any) -> None:
    page = await house.client.get("/docs")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert not re.search(r"<script|(?:src|href)=.https?:|@import|url\(", page.text)
    for path in (await house.client.get("/openapi.json")).json()["paths"]:
        assert path in page.text
    assert "chunking_strategy" in page.text


async def test_the_document_refers_to_what_is_in_it(house: Any) -> None:
    document = (await house.client.get("/openapi.json")).json()
    for reference in re.findall(r"'\$ref': '#/([^']+)'", str(document)):
        part = document
        for name in reference.split("/"):
            part = part[name]


async def test_the_document_foresees_every_answer(house: Any) -> None:
    """All JSON has a type, all errors are the one object, and there are those that a door can answer."""
    document = (await house.client.get("/openapi.json")).json()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            answers = operation["responses"]
            expected = {"200", "405"} if path.startswith("/health") else {"200", "401", "405"}
            if method == "post":
                expected |= {"400", "408", "413", "415", "429", "503"}
            assert expected <= set(answers)
            assert "422" not in answers
            assert all(
                content.get("schema")
                for kind, content in answers["200"]["content"].items()
                if kind == "application/json"
            )
            for status in set(answers) - {"200"}:
                name = "HealthAnswer" if (path, status) in _UNWELL else "ErrorAnswer"
                schema = answers[status]["content"]["application/json"]["schema"]
                assert schema == {"$ref": f"#/components/schemas/{name}"}


_UNWELL = {("/health", "503"), ("/health/ready", "503")}
