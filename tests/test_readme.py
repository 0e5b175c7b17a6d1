"""Every snippet of the README runs, and the first comes early."""

import math
import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippet_runs(number, capsys):
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(0)
    exec(compile(SNIPPETS[number], f"README snippet {number}", "exec"), {})
    if "print(" in SNIPPETS[number]:
        assert capsys.readouterr().out


def test_first_snippet_stands_before_line_35():
    assert README[: README.index("```python")].count("\n") < 35


def test_it_is_read_in_two_minutes():
    assert README.count("\n") <= 150


def rows_of(text, cls):
    return [line for line in text.splitlines() if line.startswith(f'| `{cls.__name__}`, "{cls().name}" |')]


def test_the_scheme_tables_are_what_the_schemes_declare():
    from torchsrk import Integrator, integrators

    guide = (ROOT / "docs" / "guides" / "schemes.md").read_text(encoding="utf-8")
    exported = [getattr(integrators, name) for name in integrators.__all__]
    for cls in (cls for cls in exported if isinstance(cls, type) and cls is not Integrator):
        scheme, rows = cls(), rows_of(guide, cls)
        assert len(rows) == 1, cls.__name__
        path = "none" if scheme.strong_order is None else f"{scheme.strong_order:g}"
        law = "exact" if scheme.law_order == math.inf else f"{scheme.law_order:g}"
        for row in [*rows, *rows_of(README, cls)]:
            _, _, gradients, orders, *_ = (cell.strip() for cell in row.strip("| ").split("|"))
            assert re.match(rf"{scheme.gradients_per_step}\b", gradients), row
            assert re.fullmatch(rf"{re.escape(path)}( \(additive 1\))?, {law}", orders), row


@pytest.mark.parametrize("name", ["README.md", "REPRODUCTION.md", "CONTRIBUTING.md"])
def test_what_a_page_links_to_is_there(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    linked = [link for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text) if not link.startswith("http")]
    assert linked
    assert [link for link in linked if not (ROOT / link).is_file()] == []


def test_the_account_has_a_command_and_a_figure_for_every_config():
    text = (ROOT / "REPRODUCTION.md").read_text(encoding="utf-8")
    shipped = {file.stem for file in (ROOT / "configs").glob("*.yaml")}
    assert set(re.findall(r"torchsrk run (\w+) --profile full", text)) == shipped - {"quickstart"}
    shown = set(re.findall(r"docs/figures/([\w-]+)\.png", text))
    kept = {
        kind: {file.stem for file in (ROOT / "docs" / "figures").glob(f"*.{kind}")} for kind in ("png", "svg", "csv")
    }
    assert kept["png"] == shown
    assert kept["svg"] <= shown
    # Tables are those of a figure's run.
    assert all(any(figure.startswith(table.split("-")[0]) for figure in shown | shipped) for table in kept["csv"])
    assert all(any(figure.startswith(name) for figure in shown) for name in shipped - {"quickstart"})
