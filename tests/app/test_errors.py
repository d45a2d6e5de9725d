"""Whatever is wrong with a request, the answer has one shape and says what is allowed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

DOORS = ("/asr", "/v1/audio/transcriptions")
SECRET = "zq-secret-name"


def assert_error(answer: httpx.Response, status: int, code: str, param: str | None = None) -> str:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"error"}
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == (code, param)
    assert error["type"] == ("invalid_request_error" if status < 500 else "server_error")
    assert SECRET not in answer.text
    assert "Traceback" not in answer.text
    message: str = error["message"]
    assert message
    return message


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"", 400, "empty_file"),
        (b"%PDF-1.7", 400, "invalid_audio"),
        (b"MUTE", 400, "no_audio_stream"),
    ],
)
async def test_bad_recordings(house: Any, door: str, content: bytes, status: int, code: str) -> None:
    answer = await house.client.post(door, files={"file": (f"{SECRET}.wav", content)})
    assert_error(answer, status, code, "file")
    assert (await house.client.post(door, files=house.recording())).status_code == 200


@pytest.mark.field("E14")
@pytest.mark.parametrize("door", DOORS)
async def test_too_long(house: Any, door: str) -> None:
    house.decoder.max_seconds = 2.0
    answer = await house.client.post(door, files=house.recording(1, 3))
    assert "2 s" in assert_error(answer, 413, "audio_too_long", "file")


@pytest.mark.field("E4")
@pytest.mark.parametrize("name", ["会议 ę.m4a", "", "../../etc/passwd", "x" * 1000, 'a"b\r\n.wav'])
async def test_file_names_do_not_matter(house: Any, name: str) -> None:
    files = {"file": (name, house.recording(1, 5)["file"][1])}
    answer = await house.client.post("/asr", files=files)
    assert answer.status_code == 200
    assert answer.json()["duration"] == 5


@pytest.mark.field("E4")
@pytest.mark.parametrize(
    "disposition", ['name="file"', 'name="file"; filename=""', "name=file; filename*=utf-8''%e4.wav"]
)
async def test_recordings_without_a_proper_name(house: Any, disposition: str) -> None:
    sound = house.recording(1, 5)["file"][1]
    head = f"--x\r\nContent-Disposition: form-data; {disposition}\r\n\r\n".encode()
    answer = await house.client.post(
        "/asr",
        content=head + sound + b"\r\n--x--\r\n",
        headers={"content-type": "multipart/form-data; boundary=x"},
    )
    assert answer.status_code == 200
    assert answer.json()["duration"] == 5


@pytest.mark.parametrize("door", DOORS)
async def test_the_file_is_missing(house: Any, door: str) -> None:
    nothing = {"language": (None, "en")}
    assert_error(await house.client.post(door, files=nothing), 400, "missing_required_parameter", "file")
    text = {"file": (None, "no upload")}
    assert_error(await house.client.post(door, files=text), 400, "invalid_audio", "file")


@pytest.mark.parametrize("door", DOORS)
async def test_not_a_form(house: Any, door: str) -> None:
    assert_error(await house.client.post(door), 415, "invalid_content_type")
    assert_error(await house.client.post(door, data={"file": "x"}), 415, "invalid_content_type")
    assert_error(await house.client.post(door, json={"file": "x"}), 415, "invalid_content_type")


@pytest.mark.parametrize("content_type", ["multipart/form-data", "multipart/form-data; boundary=x"])
@pytest.mark.parametrize("body", [b"", b"garbage", b"--x\r\nContent-Disposition: form-data\r\n\r\nx\r\n--x--\r\n"])
async def test_broken_forms(house: Any, content_type: str, body: bytes) -> None:
    answer = await house.client.post("/asr", content=body, headers={"content-type": content_type})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] in ("invalid_form", "missing_required_parameter")


@pytest.mark.parametrize("charset", ["undefined", "idna", "PUNYCODE", "unicode_escape", "raw_unicode_escape"])
async def test_codecs_that_are_no_charset_are_not_listened_to(house: Any, charset: str) -> None:
    """Decoded as punycode, these 60 kB would take seconds of the event loop."""
    request = house.client.build_request(
        "POST", "/asr", files=house.recording(), data={"hotwords": "-" + "é9" * 20_000, "language": "中文"}
    )
    request.headers["content-type"] += f"; charset={charset}"
    answer = await house.client.send(request)
    assert answer.status_code == 200, answer.text
    assert house.device.asked[0].language == "zh"
    assert house.device.asked[0].hotwords == ("-" + "é9" * 20_000,)


@pytest.mark.parametrize("charset", ["hex", "no-such", "gbk", "utf-16"])
async def test_charsets_that_do_not_fit_the_text(house: Any, charset: str) -> None:
    request = house.client.build_request("POST", "/asr", files=house.recording(), data={"hotwords": "é9"})
    request.headers["content-type"] += f"; charset={charset}"
    assert (await house.client.send(request)).status_code in (200, 400)


async def test_the_charset_of_a_form(house: Any) -> None:
    head = '--x\r\nContent-Disposition: form-data; name="{}"\r\n\r\n'
    fields = head.format("hotwords") + "听录\r\n" + head.format("file")
    answer = await house.client.post(
        "/asr",
        content=fields.encode("gbk") + house.recording()["file"][1] + b"\r\n--x--\r\n",
        headers={"content-type": "multipart/form-data; charset=GBK; boundary=x"},
    )
    assert answer.status_code == 200
    assert house.device.asked[0].hotwords == ("听录",)


@pytest.mark.parametrize(("door", "field"), [(DOORS[0], "silence_schedule"), (DOORS[1], "chunking_strategy")])
async def test_json_without_end(house: Any, door: str, field: str) -> None:
    answer = await house.client.post(door, files=house.recording(), data={field: "[" * 60_000})
    assert_error(answer, 400, "invalid_value", field)


@pytest.mark.field("E14")
@pytest.mark.parametrize(
    ("door", "fields", "param", "said"),
    [
        ("/asr", {"spk": "maybe"}, "spk", "boolean"),
        ("/asr", {"timestamp": "maybe"}, "timestamp", "boolean"),
        (DOORS[1], {"response_format": "docx"}, "response_format", "diarized_json, json, srt, text, verbose_json, vtt"),
        (DOORS[1], {"response_format": "asr"}, "response_format", "diarized_json, json, srt, text, verbose_json, vtt"),
        (DOORS[1], {"temperature": "2"}, "temperature", "less than or equal to 1"),
        (DOORS[1], {"temperature": "nan"}, "temperature", "finite|greater than or equal to 0|less"),
        (
            DOORS[1],
            {"timestamp_granularities[]": "letter", "response_format": "verbose_json"},
            "timestamp_granularities",
            "'word' or 'segment'",
        ),
        (DOORS[1], {"timestamp_granularities[]": "word"}, "timestamp_granularities", "verbose_json"),
    ],
)
async def test_wrong_values(house: Any, door: str, fields: dict[str, str], param: str, said: str) -> None:
    answer = await house.client.post(door, files=house.recording(), data={**fields, "note": SECRET})
    message = assert_error(answer, 400, "invalid_value", param)
    assert any(part in message for part in said.split("|"))


async def test_a_value_that_is_a_file(house: Any) -> None:
    files = {**house.recording(), "language": ("x", b"en")}
    assert_error(await house.client.post("/asr", files=files), 400, "invalid_value", "language")


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("language", ["klingon", "fr"])
async def test_languages_that_the_model_does_not_know(house: Any, door: str, language: str) -> None:
    answer = await house.client.post(door, files=house.recording(), data={"language": language})
    message = assert_error(answer, 400, "invalid_language", "language")
    assert language == "klingon" or "en, zh, de" in message


@pytest.mark.parametrize("door", DOORS)
async def test_speakers_are_not_pretended(house: Any, door: str) -> None:
    answer = await house.client.post(door, files=house.recording(), data={"spk": "true"})
    assert_error(answer, 400, "unsupported_parameter", "spk")


async def test_unknown_routes_and_methods(house: Any) -> None:
    assert_error(await house.client.get("/nowhere"), 404, "not_found")
    answer = await house.client.get("/asr")
    assert_error(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"


async def test_the_recogniser_refuses(house: Any) -> None:
    house.device.refusal = ValueError("these are more hotwords than the model takes: 200 of 100")
    answer = await house.client.post("/asr", files=house.recording())
    assert "200 of 100" in assert_error(answer, 400, "unsupported_option")


async def test_the_device_dies(house: Any) -> None:
    house.device.failure = "out of memory"
    answer = await house.client.post("/asr", files=house.recording())
    assert_error(answer, 503, "engine_unavailable")
    assert int(answer.headers["retry-after"]) > 0


@pytest.mark.field("E14")
async def test_a_fault_of_ours(house: Any, caplog: pytest.LogCaptureFixture) -> None:
    house.device.refusal = KeyError(SECRET)
    answer = await house.client.post("/asr", files=house.recording())
    assert_error(answer, 500, "internal_error")
    assert answer.headers["x-should-retry"] == "false"
    assert SECRET in caplog.text, "the log has the traceback"


async def test_a_fault_outside_the_pipeline(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(house.app.state.services), "capabilities", property(lambda _: 1 / 0))
    assert_error(await house.client.post("/asr", files=house.recording()), 500, "internal_error")


async def test_bodies_above_the_limit(build: Any) -> None:
    async with build(max_upload_bytes=100_000) as house:
        assert (await house.client.post("/asr", files=house.recording(1, 3))).status_code == 200
        answer = await house.client.post("/asr", files=house.recording(1, 4))
        assert "100000" in assert_error(answer, 413, "request_too_large")

        request = house.client.build_request("POST", "/asr", files=house.recording(1, 4))

        async def chunks() -> AsyncIterator[bytes]:
            body = await request.aread()
            for start in range(0, len(body), 10_000):
                yield body[start : start + 10_000]

        headers = {"content-type": request.headers["content-type"]}
        answer = await house.client.post("/asr", content=chunks(), headers=headers)
        assert "100000" in assert_error(answer, 413, "request_too_large")
        assert answer.headers["connection"] == "close"


async def test_too_many_or_too_large_fields(house: Any) -> None:
    many = {f"field{number}": "x" for number in range(70)}
    assert_error(await house.client.post("/asr", files=house.recording(), data=many), 400, "invalid_form")
    large = {"hotwords": "x" * 70_000}
    assert_error(await house.client.post("/asr", files=house.recording(), data=large), 400, "invalid_form")
