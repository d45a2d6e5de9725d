"""Every case of the list of what goes wrong in the field is shown by a test that names it: `@pytest.mark.field("A1")`.

Cases that speak of a text are shown with a real model at least once, as a fake hears whatever it was made to hear.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CASES = (
    *("A1", "A2", "A3", "A4", "A6", "A9", "A10", "A11", "A12", "A13"),
    *("B1", "B2", "B3", "B4", "B5", "B6", "B7"),
    *("C1", "C3", "C4", "C5", "C6", "C7", "C8"),
    *("D1", "D3", "D4", "D5", "D6"),
    *("E1", "E2", "E3", "E4", "E5", "E6", "E7", "E9", "E10", "E11", "E12", "E14", "E22", "E23", "E24", "E25"),
)
REAL = ("e2e/test_bad_input.py", "e2e/test_doors.py", "e2e/test_field_audio.py", "e2e/test_field_process.py",
        "e2e/test_field_text.py", "e2e/test_openai.py", "e2e/test_process.py", "e2e/test_speakers.py",
        "engine/native/test_whisper.py")  # fmt: skip
HEARD = ("A1", "A2", "A3", "A4", "A9", "A10", "A12", "A13", "B1", "B2", "B4", "B5", "B7", "C1", "C3", "C4", "C5", "C6",
         "C7", "C8", "D1", "D3", "D6", "E1", "E2", "E7", "E24")  # fmt: skip


@cache
def shown() -> Mapping[str, tuple[str, ...]]:
    """Where each case is marked: files, from the folder of the tests."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        if path != Path(__file__):
            for case in _marked(ast.parse(path.read_text())):
                found.setdefault(case, []).append(path.relative_to(TESTS).as_posix())
    return {case: tuple(files) for case, files in found.items()}


def _marked(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.field":
            for argument in node.args:
                assert isinstance(argument, ast.Constant)
                yield argument.value


@pytest.mark.parametrize("case", CASES)
def test_a_case_has_a_test(case: str) -> None:
    assert case in shown()


@pytest.mark.parametrize("case", HEARD)
def test_a_case_about_text_has_one_with_a_real_model(case: str) -> None:
    assert set(REAL).intersection(shown()[case])


def test_marks_name_cases_of_the_list() -> None:
    assert set(shown()) <= set(CASES)
