"""One HTML page for several runs: summaries, figures, tables and settings, all in the one file."""

from __future__ import annotations

import base64
import csv
from collections.abc import Sequence
from html import escape
from pathlib import Path

from ..files import replace_file
from .folder import FolderError

_HEAD = '<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>torchsrk</title>'
_STYLE = """
body { font: 15px/1.5 sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; font-size: 13px } th, td { padding: .15em .7em; text-align: right }
th { border-bottom: 1px solid #888 } img { max-width: 100% } pre { background: #f5f5f5; padding: .7em; overflow: auto }
section { border-top: 1px solid #ccc; margin-top: 2em }
"""


def write_report(runs: Sequence[Path], file: Path) -> None:
    """A page on the finished runs in these folders; nothing is written if one of them is none."""
    for run in runs:
        if not (run / "summary.md").is_file() or not (run / "config.yaml").is_file():
            raise FolderError(f"{run} holds no finished run: `torchsrk run` writes its summary.md last")
    if file.exists() and not (file.is_file() and file.read_bytes().startswith(_HEAD.encode())):
        raise FolderError(f"{file} is there and is no report: give another --output")
    parts = "\n".join(_section(run) for run in runs)
    replace_file(file, f"{_HEAD}<style>{_STYLE}</style>\n<h1>torchsrk</h1>\n{parts}\n</html>\n".encode())


def _section(run: Path) -> str:
    figures = "\n".join(_figure(figure) for figure in sorted(run.glob("*.png")))
    tables = "\n".join(_table(table) for table in sorted(run.glob("*.csv")))
    lines = _text(run / "summary.md").splitlines() or [run.name]
    title = lines[0].removeprefix("# ")
    apart = ("![", "[", "|", "```")  # shown below, from their own files
    words = "\n".join(f"<p>{escape(line)}</p>" for line in lines[1:] if line and not line.startswith(apart))
    settings = (
        f"<details><summary>{name}</summary><pre>{escape(_text(run / name))}</pre></details>"
        for name in ("config.yaml", "provenance.json")
        if (run / name).is_file()
    )
    return f"<section><h2>{escape(title)}</h2>\n{words}\n{figures}\n{tables}\n{''.join(settings)}</section>"


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FolderError(f"{file} is not what a run wrote ({error})") from None


def _figure(file: Path) -> str:
    return f'<img alt="{escape(file.stem)}" src="data:image/png;base64,{base64.b64encode(file.read_bytes()).decode()}">'


def _table(file: Path) -> str:
    try:
        head, *body = csv.reader(_text(file).splitlines())
    except (csv.Error, ValueError) as error:
        raise FolderError(f"{file} is no table of a run ({error})") from None
    lines = "".join(f"<tr>{''.join(f'<td>{escape(_short(cell))}</td>' for cell in row)}</tr>" for row in body)
    titles = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    return f"<details><summary>{escape(file.name)}</summary><table><tr>{titles}</tr>{lines}</table></details>"


def _short(cell: str) -> str:
    """A number in five digits; the CSV has them all."""
    try:
        return f"{float(cell):.5g}"
    except ValueError:
        return cell
