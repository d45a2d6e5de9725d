"""`GET /docs`: the OpenAPI document to read, without scripts and without the network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

router = APIRouter(include_in_schema=False)

_STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h2 { font: 600 1.1rem ui-monospace, monospace; margin-top: 2.5rem }
table { border-collapse: collapse; width: 100% }
td, th { border-bottom: 1px solid #8886; padding: .3rem .8rem .3rem 0; text-align: left; vertical-align: top }
td:first-child { font-family: ui-monospace, monospace; white-space: nowrap }
"""


@router.get("/docs", response_class=HTMLResponse)
async def docs(request: Request) -> HTMLResponse:
    """Every route, its parameters and its answers."""
    return HTMLResponse("".join(_page(request.app.openapi(), request.app.openapi_url)))


def _page(document: Mapping[str, Any], url: str) -> Iterator[str]:
    title = escape(document["info"]["title"])
    yield f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    yield f'<h1>{title} {escape(document["info"]["version"])}</h1><p>As a document: <a href="{url}">{url}</a></p>'
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"<h2>{method.upper()} {escape(path)}</h2><p>{escape(operation.get('description', ''))}</p>"
            yield from _table("Parameter", _parameters(operation))
            yield from _table("Answer", _answers(operation))
    yield "</html>"


def _table(heading: str, rows: list[tuple[str, str]]) -> Iterator[str]:
    if rows:
        yield f"<table><tr><th>{heading}</th><th></th></tr>"
        yield from (f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>" for name, text in rows)
        yield "</table>"


def _parameters(operation: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Those of the path, and the fields of the form."""
    rows = [(parameter["name"], f"in the {parameter['in']}") for parameter in operation.get("parameters", ())]
    for media in operation.get("requestBody", {}).get("content", {}).values():
        for name, schema in media["schema"].get("properties", {}).items():
            rows.append((name, _field(schema)))
    return rows


def _field(schema: Mapping[str, Any]) -> str:
    parts = [schema.get("description", "")]
    if "enum" in schema:
        parts.append(", ".join(map(str, schema["enum"])))
    if schema.get("default") not in (None, "", [], ()):
        parts.append(f"default {schema['default']}")
    return "; ".join(part for part in parts if part)


def _answers(operation: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (status, " ".join(part for part in (answer["description"], ", ".join(answer.get("content", ()))) if part))
        for status, answer in operation["responses"].items()
    ]
