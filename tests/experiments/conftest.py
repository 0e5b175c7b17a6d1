"""Figures for tests that are about the rest of a run."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from torchsrk.experiments import plots, posterior


def _save_plainly(figure: Any, file: Any) -> None:
    """The same artists, coarsely and where they fall: to find their places takes longer than a small run."""
    figure.set_layout_engine("none")
    for kind, one in file.items() if isinstance(file, Mapping) else (("png", file),):
        if kind == "png":
            figure.savefig(one, format="png", dpi=20)
        else:
            one.write(b"<svg/>")


@pytest.fixture(scope="module")
def plain_figures() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (plots, posterior):
            patch.setattr(module, "save", _save_plainly)
        yield
