"""Figures that a page shows smaller than they are lead to the whole of them."""

from pathlib import Path
from typing import Any

from docutils import nodes
from PIL import Image

_SHOWN = 800  # the width of a page, in pixels


def widths(app: Any, doctree: nodes.document) -> None:
    """Tell Sphinx of the width: it links an image that has one to its file."""
    for image in doctree.findall(nodes.image):
        file = Path(app.srcdir, image["uri"])
        if file.suffix == ".png" and file.is_file():
            with Image.open(file) as opened:
                width = opened.size[0]
            if width > _SHOWN and "width" not in image:
                image["width"] = f"{width}px"


def setup(app: Any) -> dict[str, bool]:
    app.connect("doctree-read", widths)
    return {"parallel_read_safe": True}
