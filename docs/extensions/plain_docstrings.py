"""Docstrings are plain text with ``code``: a star or a bar in them is no markup."""

import re
from typing import Any

_CODE_OR_MARK = re.compile(r"(``.*?``)|([*|])|(\w_)(?=\W|$)")


def escaped(line: str) -> str:
    """The line with stars, bars and trailing underscores kept, but in ``code``."""
    return _CODE_OR_MARK.sub(
        lambda found: (
            found[1] or (f"\\{found[2]}" if found[2] else f"{found[3][0]}\\_")
        ),
        line,
    )


def escape_lines(
    app: Any, what: str, name: str, thing: object, options: Any, lines: list[str]
) -> None:
    """For Sphinx, before sections such as Args are read."""
    lines[:] = [escaped(line) for line in lines]


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", escape_lines, priority=100)
    return {"parallel_read_safe": True}
