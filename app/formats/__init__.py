"""Response formats: every module here that defines `FORMAT` is one, and nothing else has to know."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from app.formats.format import Format


@cache
def formats() -> Mapping[str, Format]:
    """The formats that `response_format` may name, by name."""
    modules = (importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    found = [module.FORMAT for module in modules if hasattr(module, "FORMAT")]
    return {each.name: each for each in found}
