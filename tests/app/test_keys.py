from __future__ import annotations

from typing import Any

import pytest

KEYS = "first-key-of-two,second-key-of-two"
GUARDED = [
    ("POST", "/asr"),
    ("POST", "/v1/audio/transcriptions"),
    ("GET", "/v1/models"),
    ("GET", "/metrics"),
    ("GET", "/x"),
]


@pytest.mark.field("E22")
@pytest.mark.parametrize(("method", "path"), GUARDED)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong-key"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer first-key-of-tw"},
        {"authorization": "Basic first-key-of-two"},
        {"authorization": "first-key-of-two"},
        {"authorization": "Bearer \xff\xfe"},
        {"x-api-key": "first-key-of-two"},
    ],
)
async def test_no_key_no_service(build: Any, method: str, path: str, headers: dict[str, str]) -> None:
    """E22."""
    async with build(api_keys=KEYS) as house:
        encoded = {name: value.encode("latin-1") for name, value in headers.items()}
        answer = await house.client.request(method, path, headers=encoded)
        assert answer.status_code == 401
        error = answer.json()["error"]
        assert (error["code"], error["type"], error["param"]) == ("invalid_api_key", "invalid_request_error", None)
        assert "first" not in answer.text
        assert answer.headers["www-authenticate"] == "Bearer"
        assert not house.decoder.decoded


@pytest.mark.parametrize("key", KEYS.split(","))
async def test_each_key_opens(build: Any, key: str) -> None:
    async with build(api_keys=KEYS) as house:
        headers = {"authorization": f"bearer {key}"}
        assert (await house.client.post("/asr", files=house.recording(), headers=headers)).status_code == 200
        assert (await house.client.get("/metrics", headers=headers)).status_code == 200


@pytest.mark.field("E22")
@pytest.mark.parametrize("path", ["/health", "/health/live", "/health/ready", "/docs", "/openapi.json"])
async def test_what_stays_open(build: Any, path: str) -> None:
    """E22: /health tells nothing of anybody's recordings."""
    async with build(api_keys=KEYS) as house:
        assert (await house.client.get(path)).status_code == 200


async def test_without_keys_all_is_open(house: Any) -> None:
    assert (await house.client.get("/v1/models", headers={"authorization": "Bearer anything"})).status_code == 200


async def test_the_preflight_of_a_browser_needs_none(build: Any) -> None:
    async with build(api_keys=KEYS, allowed_origins="https://page.example") as house:
        headers = {
            "origin": "https://page.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization",
        }
        answer = await house.client.options("/asr", headers=headers)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://page.example"
        refused = await house.client.post("/asr", headers={"origin": "https://page.example"})
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == "https://page.example"


@pytest.mark.parametrize("origins", [None, "https://page.example"])
async def test_other_pages_are_told_nothing(build: Any, origins: str | None) -> None:
    async with build(allowed_origins=origins) as house:
        answer = await house.client.get("/v1/models", headers={"origin": "https://elsewhere.example"})
        assert "access-control-allow-origin" not in answer.headers
