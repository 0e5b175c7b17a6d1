"""Every link between built pages leads somewhere: ``python links.py FOLDER``."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

GENERATED = {
    "genindex.html",
    "search.html",
    "py-modindex.html",
    "_modules",
}  # Sphinx's own, whose links are not ours


class Page(HTMLParser):
    """What a page can be linked at, and what it links to and shows."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.update(
            given[name] or "" for name in ("id", "name") if name in given
        )
        wanted = {"a": "href", "img": "src", "script": "src", "link": "href"}.get(tag)
        if wanted and given.get(wanted):
            self.links.append(given[wanted] or "")


def broken(folder: Path) -> list[str]:
    """What leads nowhere, as lines."""
    pages = {file.resolve(): Page(file) for file in sorted(folder.rglob("*.html"))}
    found = []
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            goal = file
            if parts.path:
                goal = (file.parent / unquote(parts.path)).resolve()
            if GENERATED.intersection((*file.parts, *goal.parts)):
                continue
            anchor = unquote(parts.fragment)
            if not goal.exists() or (
                anchor and goal in pages and anchor not in pages[goal].anchors
            ):
                found.append(f"{file.relative_to(folder.resolve())}: {link}")
    return found


if __name__ == "__main__":
    lines = broken(Path(sys.argv[1]))
    sys.exit("\n".join(["these links lead nowhere:", *lines]) if lines else None)
