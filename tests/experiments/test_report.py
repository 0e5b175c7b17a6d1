"""The page on several runs: whole, safe and only of finished runs."""

import pytest

from torchsrk.cli import main
from torchsrk.experiments.folder import FolderError
from torchsrk.experiments.report import write_report


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text("description: <b>bold</b>\n")
    (folder / "summary.md").write_text("# a <script>\n\n- holds: 1 < 2\n\n![a](a.png)\n")
    (folder / "errors.csv").write_text("scheme,w2\nem,0.123456789\n<i>,nan\n")
    (folder / "a.png").write_bytes(b"\x89PNG")
    return folder


def test_a_page(run, tmp_path, capsys):
    page = tmp_path / "report.html"
    assert main(["report", str(run), str(run), "--output", str(page)]) == 0
    assert str(page) in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    assert text.count("<section ") == text.count("</section>") == 2
    assert '<ul><li><span class="holds">holds</span>: 1 &lt; 2</li></ul>' in text
    for number in (0, 1):
        assert text.count(f'<a href="#run-{number}">a &lt;script&gt;</a>: <span class="holds">all 1 findings') == 1
        assert text.count(f'<section id="run-{number}">') == 1
    assert "<td>0.12346</td>" in text
    assert text.count("data:image/png;base64,iVBORw==") == 2
    for markup in ("<script>", "<b>bold", "<i>"):
        assert markup not in text


def test_findings_that_do_not_hold_are_counted(run, tmp_path):
    (run / "summary.md").write_text("# a\n\nWords.\n\n- holds: b\n- DOES NOT HOLD: <c>\n- a note\n")
    write_report([run], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert '<span class="fails">1 of 2 findings do not hold</span>' in text
    assert '<li><span class="fails">DOES NOT HOLD</span>: &lt;c&gt;</li><li>a note</li></ul>' in text
    assert "<p>Words.</p>" in text


def test_unfinished_runs_are_refused(run, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    with pytest.raises(FolderError, match="holds no finished run"):
        write_report([run, tmp_path / "empty"], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
    assert main(["report", str(tmp_path / "missing"), "--output", str(tmp_path / "report.html")]) == 2
    assert "holds no finished run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("errors.csv", b""),
        ("errors.csv", b"\xff\xfe"),
        ("errors.csv", b'a\n"' + b"x" * 200_000),
        ("summary.md", b"\xff"),
        ("provenance.json", b"\xff"),
    ],
)
def test_damaged_runs_are_refused_by_name(run, tmp_path, capsys, name, content):
    (run / name).write_bytes(content)
    assert main(["report", str(run), "--output", str(tmp_path / "report.html")]) == 2
    assert str(run / name) in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


def test_nothing_but_a_report_is_overwritten(run, tmp_path, capsys):
    (tmp_path / "notes.md").write_text("mine")
    for output in (tmp_path / "notes.md", tmp_path):
        assert main(["report", str(run), "--output", str(output)]) == 2
        assert "is no report" in capsys.readouterr().err
    assert (tmp_path / "notes.md").read_text() == "mine"
    for _ in range(2):
        assert main(["report", str(run), "--output", str(tmp_path / "report.html")]) == 0
