"""Docstrings are plain text with ``code``: a star or a bar in them is no markup."""

import re
import sys
from collections.abc import Iterable
from enum import Enum
from typing import Any

from sphinx.domains.python import PyObject

_CODE_OR_MARK = re.compile(r"(``.*?``)|([*|])|(\w_)(?=\W|$)")
_GROUP = re.compile(r"^( +)((?:\w+, )+\w+): (.*)$")
_BY_NAME = re.compile(r"=(_?[A-Z][A-Z_]+)\b")
_LETTER = re.compile(r"^( +[\w, ]+: \w)\.(?= |$)")  # "W." would begin a list
_SHORT = 60  # what is said of several names at once is said of each, if it is shorter


def escaped(line: str) -> str:
    """The line with stars, bars and trailing underscores kept, but in ``code``."""
    return _CODE_OR_MARK.sub(
        lambda found: (
            found[1] or (f"\\{found[2]}" if found[2] else f"{found[3][0]}\\_")
        ),
        line,
    )


def one_by_one(lines: Iterable[str]) -> list[str]:
    """Args and Attributes with ``a, b: text`` as an entry for a and one for b."""
    out: list[str] = []
    inside, rest = False, list(lines)
    while rest:
        line = rest.pop(0)
        if line and not line.startswith(" "):
            inside = line in ("Args:", "Attributes:")
        found = _GROUP.match(line) if inside else None
        if found is None or len(found[1]) > 4:
            out.append(line)
            continue
        more = []
        while rest and rest[0].startswith(found[1] + " "):
            more.append(rest.pop(0))
        first, *others = found[2].split(", ")
        out += [f"{found[1]}{first}: {found[3]}", *more]
        for name in others:
            same = not more and len(found[3]) < _SHORT and " and " not in found[3]
            out.append(f"{found[1]}{name}: {found[3] if same else f'see ``{first}``.'}")
    return out


def escape_lines(
    app: Any, what: str, name: str, thing: object, options: Any, lines: list[str]
) -> None:
    """For Sphinx, before sections such as Args are read."""
    plain = [_LETTER.sub(r"\1\\.", line) for line in one_by_one(map(escaped, lines))]
    if what == "property" and plain and ": " in plain[0]:
        # what stands before a colon on a property's first line is read as its type
        before, _, after = plain[0].partition(": ")
        plain[:1] = [f"{before}:", after]
    lines[:] = plain


def told(
    app: Any,
    what: str,
    name: str,
    thing: Any,
    options: Any,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None] | None:
    """A signature without what tells a reader nothing."""
    if signature is None:
        return None
    if signature.startswith("(*args, **kwargs)"):
        return "", returns
    if isinstance(thing, type) and issubclass(thing, Enum):
        return "", returns
    module = sys.modules[thing.__module__]
    by_value = _BY_NAME.sub(
        lambda found: f"={getattr(module, found[1], found[1])!r}", signature
    )
    return by_value.replace("=<factory>", "=..."), returns


def setup(app: Any) -> dict[str, bool]:
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"
    app.connect("autodoc-process-docstring", escape_lines, priority=100)
    app.connect("autodoc-process-signature", told)
    return {"parallel_read_safe": True}
