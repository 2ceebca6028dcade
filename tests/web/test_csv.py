"""Tables as files: what is in view, in base units, and nothing that a spreadsheet would run."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.builders import process, sample, tick
from tests.runs import Book, training
from tests.web.conftest import Visitor, on_a_port, visit
from tests.web.served import Served

HOSTILE = '=HYPERLINK("http://x.example","y")'
GIB = 2.0**30


def saved(page: Page, name: str, path: Path) -> Sequence[Mapping[str, str]]:
    """The rows of the file that a button gives."""
    button = page.locator(".page:not([hidden])").get_by_role("button", name=f"{name} as CSV")
    with page.expect_download() as expected:
        button.click()
    expected.value.save_as(path)
    assert expected.value.suggested_filename.endswith(".csv")
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file, strict=True))


def lab(directory: Path) -> Served:
    """Two GPUs with processes of hostile names, and two runs of one name."""
    with Book(directory) as book:
        training(book, "net-1a2b", 3, user="ada")
        training(book, "net-3c4d", 3, user="bob")
    samples = [sample(0, utilization=0.5, memory_used=600 * 2.0**20, memory_total=80 * GIB, power=312.5), sample(1)]
    on_it = [
        process(7, 0, user="ada", name=HOSTILE, memory_used=130 * 2.0**20),
        process(8, 0, user="bob", name="python, or so"),
    ]
    return Served([tick(n, samples, on_it) for n in range(1, 5)], [str(book.path)])


def test_each_table_is_saved_as_it_is_in_view(browser: Browser, tmp_path: Path) -> None:
    with on_a_port(lab(tmp_path)) as link, visit(browser, link) as visitor:
        page = visitor.open("#/fleet?sort=-now")
        expect(page.locator("#page-fleet tbody tr")).to_have_count(2)
        rows = saved(page, "GPUs", tmp_path / "gpus.csv")
        assert [row["gpu"] for row in rows] == ["0", "1"]
        assert [row["users"].split(";") for row in rows] == [["ada", "bob"], [""]]
        assert float(rows[0]["utilization_ratio"]) == 0.5
        assert rows[0]["memory_used_bytes"] == str(600 * 2**20), "bytes are exact in a file"
        assert float(rows[0]["power_watts"]) == 312.5
        assert rows[0]["uuid"] != rows[1]["uuid"]

        page = visitor.open("#/gpu/0")
        rows = saved(page, "Processes", tmp_path / "processes.csv")
        assert {row["pid"]: row["memory_bytes"] for row in rows}["7"] == str(130 * 2**20)
        assert {(row["user"], row["pid"]) for row in rows} == {("ada", "7"), ("bob", "8")}
        assert {row["name"] for row in rows} == {f"'{HOSTILE}", "python, or so"}

        page = visitor.open("#/runs?q=bob")
        expect(page.locator("#page-runs tbody tr")).to_have_count(1)
        [row] = saved(page, "Runs", tmp_path / "runs.csv")
        assert (row["id"], row["user"], row["epochs_done"]) == ("net-3c4d", "bob", "3")
        assert float(row["energy_joules"]) > 0


def test_rows_that_nobody_scrolled_to_are_saved_too(browser: Browser, tmp_path: Path) -> None:
    count = 130
    with Book(tmp_path) as book:
        for number in range(count):
            training(book, f"net{number}-1a2b", 1, course=False)
    served = Served([tick(n, [sample(0)]) for n in range(1, 5)], [str(book.path)])
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/runs")
        expect(page.locator("#page-runs tbody tr").first).to_be_visible()
        assert page.locator("#page-runs tbody tr").count() < count
        assert len(saved(page, "Runs", tmp_path / "runs.csv")) == count


def test_gpus_of_a_closed_group_are_saved_one_by_one_and_by_keys(viewer: Visitor, tmp_path: Path) -> None:
    page = viewer.open("#/fleet")
    opener = page.locator("#page-fleet button.row").first
    opener.click()
    expect(opener).to_have_attribute("aria-expanded", "false")
    rows = saved(page, "GPUs", tmp_path / "gpus.csv")
    assert sorted(row["gpu"] for row in rows) == [str(number) for number in range(8)]
    page.get_by_role("button", name="GPUs as CSV").focus()
    with page.expect_download() as expected:
        page.keyboard.press("Enter")
    assert expected.value.suggested_filename.startswith("gpus-")


def test_a_chart_as_a_file_says_all_that_stands_beside_it(browser: Browser, tmp_path: Path) -> None:
    with on_a_port(lab(tmp_path)) as link, visit(browser, link) as visitor:
        page = visitor.open("#/run/net-1a2b")
        expect(page.locator("#page-run .plot[data-drawn]")).to_be_visible()
        below = [text for text in page.locator("#page-run .gutter .below").all_inner_texts() if text]
        assert any("peak" in text for text in below)
        titles = page.locator("#page-run .gutter .what").all_inner_texts()
        assert titles
        assert all(title.endswith(", last") for title in titles), "the run is over, and its means are others"
        page.locator("#page-run .files > .button").click()
        with page.expect_download() as saved:
            page.locator("#page-run .menu").get_by_role("button", name="SVG", exact=True).click()
        drawing = Path(saved.value.path()).read_text(encoding="utf-8")
        words = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", drawing))
        assert [text for text in (*titles, *below) if text not in words] == []
