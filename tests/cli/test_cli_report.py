"""`-o report.html`, `-o figure.svg` and `--open`: what is written, what is opened, what is refused."""

import pytest

from cli.shell import SMALL, run, run_json
from report.page.read_page import assert_sound
from report.reference_optimum import optimum


@pytest.fixture
def search(monkeypatch):
    monkeypatch.setattr("energymodel.search.optimize.optimize", lambda scenario, *, progress: optimum())


@pytest.fixture
def opened(monkeypatch):
    asked = []
    monkeypatch.setattr("webbrowser.open", asked.append)
    return asked


def test_a_page_has_the_numbers_of_the_json_and_opens(tmp_path, opened):
    page = tmp_path / "a report.html"
    tree = run_json("evaluate", SMALL, "-o", str(page), "--open")
    energy = {row["part"]: row["energy"]["value"] for row in tree["tables"]["energy_parts"]["rows"]}
    read = assert_sound(page.read_text(encoding="utf-8"), data=False)
    assert energy["cooling"] in read.numbers("cooling")
    assert opened == [page.resolve().as_uri()]


def test_a_figure_is_drawn(search, tmp_path, opened):
    pytest.importorskip("matplotlib", reason="figures need the extra `plot`")
    path = tmp_path / "best.pdf"
    assert run("optimize", SMALL, "-o", str(path)).exit_code == 0
    assert path.read_bytes().startswith(b"%PDF")
    assert not opened


@pytest.mark.parametrize(
    "command",
    [
        ("evaluate", SMALL),
        ("optimize", SMALL),
        ("pareto", SMALL),
        ("sensitivity", SMALL),
        ("sweep", SMALL, "--axis", "plan.clock=0.5:1:2"),
        ("predict", "--model", "test-1b", "--accelerator", "h100-sxm", "--chips", "8"),
        ("calibrate", "power", "runs.csv"),
        ("limits", SMALL),
        ("monitor", SMALL, "--log", "train.log"),
    ],
)
def test_bad_requests_are_refused_before_the_work(command, tmp_path, monkeypatch):
    missing = run(*command, "--open")
    assert missing.exit_code == 2
    assert "--open shows a page, and none is written. Add -o report.html." in missing.stderr
    other = run(*command, "-o", "report.docx")
    assert other.exit_code == 2
    assert ".html" in other.stderr
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    undrawn = run(*command, "-o", str(tmp_path / "figure.png"))
    assert undrawn.exit_code == 2
    assert 'figures need matplotlib. Install it: pip install "energymodel[plot]".' in undrawn.stderr


def test_a_count_of_points_is_no_page(tmp_path):
    words = ("sweep", SMALL, "--axis", "plan.clock=0.5:1:2", "--dry-run", "-o", str(tmp_path / "report.html"))
    result = run(*words)
    assert result.exit_code == 2
    assert "--dry-run computes nothing that could be drawn" in result.stderr
