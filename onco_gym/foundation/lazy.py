"""Lazy imports: a package's names are imported when they are first used."""

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package, from the stub (``__init__.pyi``) beside its ``__init__.py``.

    The stub is the only list of the package's names, for type checkers and for us. This follows Scientific Python's SPEC 1.
    """
    origin = {
        alias.asname or alias.name: (statement.module, alias.name)
        for statement in ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8")).body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for alias in statement.names
    }

    def get(name: str) -> Any:
        if name not in origin:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = origin[name]
        return getattr(importlib.import_module(module), attribute)

    return get, lambda: sorted(origin), sorted(origin)
