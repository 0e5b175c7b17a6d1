"""Every snippet of the README runs, and the first comes early."""

import re
from pathlib import Path

import pytest
import torch

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
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


def test_the_scheme_table_is_what_the_schemes_declare():
    from torchsrk import SRKID, SRKLD, EulerMaruyama

    for scheme in (EulerMaruyama, SRKLD, SRKID):
        row = next(line for line in README.splitlines() if line.startswith(f"| `{scheme.__name__}`"))
        assert f'"{scheme.name}"' in row
        assert f"{scheme.strong_order:g}" in row
        assert f"| {scheme.gradients_per_step} |" in row
