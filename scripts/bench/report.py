"""Results on disk: one JSON a table, and the markdown that is made from all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tables import TABLES


class Report:
    """Keeps rows under a folder and writes the markdown anew after each.

    Args:
        folder: of the JSON files.
        markdown: the file to write.
        machine: what the rows of this run are measured on.
    """

    def __init__(self, folder: Path, markdown: Path, machine: dict[str, str]) -> None:
        self.folder, self.machine, self._markdown = folder, machine, markdown
        folder.mkdir(parents=True, exist_ok=True)
        # Of tables whose rows are not on this disk: `--only` keeps what others say.
        self._earlier = _sections(markdown.read_text(encoding="utf-8"), machine) if markdown.exists() else {}

    def save(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Replace a table's rows."""
        from torchsrk.files import replace_file  # see __main__.py: not where workers import it

        replace_file(self._file(name), json.dumps({"machine": self.machine, "rows": rows}, indent=1).encode())
        self.write()

    def write(self) -> None:
        """The markdown of every table that has rows, or that the file has already."""
        parts = [
            "# Benchmarks\n",
            "Written by `make bench`: don't edit. Contenders take turns in one run, each in a process of its own that\n"
            "may use all cores. Numbers are medians over the rounds with their quartiles; ratios are taken round by\n"
            "round.\n",
            "\n".join(f"- {name}: {value}" for name, value in self.machine.items()) + "\n",
        ]
        for name, module in TABLES.items():
            if self._file(name).exists():
                kept = json.loads(self._file(name).read_text(encoding="utf-8"))
                parts.append(f"## {module.TITLE}\n")
                if kept["machine"] != self.machine:
                    parts.append(_measured_with(kept["machine"]))
                try:
                    parts.append(module.render(kept["rows"]))
                except KeyError:  # rows that an earlier version of this script left
                    parts.append(f"To be measured again, by `--only {name}`.\n")
            elif module.TITLE in self._earlier:
                parts.append(self._earlier[module.TITLE])
        self._markdown.write_text("\n".join(parts), encoding="utf-8")

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.json"


def _measured_with(machine: Mapping[str, str]) -> str:
    return "Measured with: " + "; ".join(machine.values()) + ".\n"


def _sections(markdown: str, machine: Mapping[str, str]) -> dict[str, str]:
    """The parts of a page, heading included, by their titles; each says so if it was measured with another machine."""
    head, *parts = markdown.split("\n## ")
    theirs = dict(line[2:].split(": ", 1) for line in head.splitlines() if line.startswith("- "))
    sections = {}
    for part in parts:
        title, _, text = part.partition("\n")
        if theirs != machine and not text.lstrip().startswith("Measured with: "):
            text = f"\n{_measured_with(theirs)}{text}"
        sections[title] = f"## {title}\n{text.rstrip()}\n"
    return sections
