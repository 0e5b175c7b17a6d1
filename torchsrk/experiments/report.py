"""One HTML page for several runs: summaries, figures, tables and settings, all in the one file."""

from __future__ import annotations

import base64
import csv
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from ..files import replace_file
from .folder import FolderError

_HEAD = '<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>torchsrk</title>'
_STYLE = """
body { font: 15px/1.5 sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; font-size: 13px } th, td { padding: .15em .7em; text-align: right }
th { border-bottom: 1px solid #888 } pre { background: #f5f5f5; padding: .7em; overflow: auto }
details { overflow: auto } section { border-top: 1px solid #ccc; margin-top: 2em }
figure { margin: 1em 0; overflow: auto } img { max-width: 100%; cursor: zoom-in }
input:checked + img { max-width: none; cursor: zoom-out }
nav li, section li { margin: .3em 0 } .holds { color: #17702a } .fails { color: #b3261e; font-weight: bold }
"""
_FAILS = "DOES NOT HOLD: "


def write_report(runs: Sequence[Path], file: Path) -> None:
    """A page on the finished runs in these folders; nothing is written if one of them is none."""
    for run in runs:
        if not (run / "summary.md").is_file() or not (run / "config.yaml").is_file():
            raise FolderError(f"{run} holds no finished run: `torchsrk run` writes its summary.md last")
    if file.exists() and not (file.is_file() and file.read_bytes().startswith(_HEAD.encode())):
        raise FolderError(f"{file} is there and is no report: give another --output")
    contents = "".join(f"<li>{_entry(run, number)}</li>" for number, run in enumerate(runs))
    parts = "\n".join(_section(run, number) for number, run in enumerate(runs))
    body = f"<h1>torchsrk</h1>\n<nav><ul>{contents}</ul></nav>\n{parts}"
    style = '<meta name="viewport" content="width=device-width, initial-scale=1">' + f"<style>{_STYLE}</style>"
    replace_file(file, f"{_HEAD}{style}\n{body}\n</html>\n".encode())


def _entry(run: Path, number: int) -> str:
    """A line of the contents: where it leads, and how many findings of the run hold."""
    title, lines = _summary(run)
    failed = sum(line.startswith(f"- {_FAILS}") for line in lines)
    held = sum(line.startswith("- holds: ") for line in lines)
    verdict = f'<span class="holds">all {held} findings hold</span>' if held else "no findings"
    if failed:
        verdict = f'<span class="fails">{failed} of {held + failed} findings do not hold</span>'
    return f'<a href="#run-{number}">{escape(title)}</a>: {verdict}'


def _section(run: Path, number: int) -> str:
    figures = "\n".join(_figure(figure) for figure in sorted(run.glob("*.png")))
    tables = "\n".join(_table(table) for table in sorted(run.glob("*.csv")))
    title, lines = _summary(run)
    settings = (
        f"<details><summary>{name}</summary><pre>{escape(_text(run / name))}</pre></details>"
        for name in ("config.yaml", "provenance.json")
        if (run / name).is_file()
    )
    head = f'<section id="run-{number}"><h2>{escape(title)}</h2>'
    return f"{head}\n{_words(lines)}\n{figures}\n{tables}\n{''.join(settings)}</section>"


def _summary(run: Path) -> tuple[str, list[str]]:
    """The title of a run's summary and its lines, without what is shown from files of its own."""
    lines = _text(run / "summary.md").splitlines() or [run.name]
    apart = ("![", "[", "|", "```")
    return lines[0].removeprefix("# "), [line for line in lines[1:] if line and not line.startswith(apart)]


def _words(lines: Sequence[str]) -> str:
    """Paragraphs, and bullets as a list."""
    html = []
    for is_list, block in groupby(lines, key=lambda line: line.startswith("- ")):
        if is_list:
            html.append(f"<ul>{''.join(map(_bullet, block))}</ul>")
        else:
            html += [f"<p>{escape(line)}</p>" for line in block]
    return "\n".join(html)


def _bullet(line: str) -> str:
    text = line.removeprefix("- ")
    kind = "fails" if text.startswith(_FAILS) else "holds" if text.startswith("holds: ") else ""
    word, colon, rest = text.partition(": ")
    return f'<li><span class="{kind}">{word}</span>{colon}{escape(rest)}</li>' if kind else f"<li>{escape(text)}</li>"


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FolderError(f"{file} is not what a run wrote ({error})") from None


def _figure(file: Path) -> str:
    content = base64.b64encode(file.read_bytes()).decode()
    image = f'<img alt="{escape(file.stem)}" src="data:image/png;base64,{content}">'
    return f'<figure><label title="enlarge"><input type="checkbox" hidden>{image}</label></figure>'  # at a click


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
