"""History is a question: how values are kept is seen by `gpumon/storage/history` alone."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpumon.model.metrics import GPU_METRICS
from gpumon.storage.history.buckets import DEFAULT_WINDOW, WINDOWS, Grid
from gpumon.storage.history.file import HistoryFile
from gpumon.storage.history.open import open_history, open_tiers
from gpumon.storage.history.query import History, Query
from gpumon.storage.history.recent import RecentHistory
from gpumon.storage.history.tiered_history import StoredTier
from gpumon.storage.history.tiers import SHAPES
from gpumon.storage.history.window_totals import TOTALS
from tests.builders import device
from tests.months import fill

ROOT = Path(__file__).parents[2]
GPU = device(0).uuid
OUTSIDE = sorted(
    path
    for folder in ("gpumon", "tui/gpumon_tui", "web/gpumon_web")
    for path in (ROOT / folder).rglob("*.py")
    if "history" not in path.relative_to(ROOT).parts
)


def private_uses(source: str) -> Iterator[str]:
    """Private names of whatever is called a history, and private imports from its package."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            owner = ast.unparse(node.value).lower()
            if owner.endswith(("history", "history()")):
                yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gpumon.storage.history"):
            yield from (f"{node.lineno}: {name.name}" for name in node.names if name.name.startswith("_"))


def test_no_module_outside_touches_the_arrays_of_a_history() -> None:
    assert len(OUTSIDE) > 100
    found = {str(path.relative_to(ROOT)): list(private_uses(path.read_text())) for path in OUTSIDE}
    assert {module: uses for module, uses in found.items() if uses} == {}


@pytest.mark.parametrize(
    "source", ["view.history._times", "self.history._columns['x']", "from gpumon.storage.history.recent import _kept"]
)
def test_such_a_use_is_found(source: str) -> None:
    assert len(list(private_uses(source))) == 1


def test_a_history_shows_no_array() -> None:
    history = RecentHistory()
    assert all(isinstance(value, int) for name, value in vars(history).items() if not name.startswith("_"))
    for name, member in inspect.getmembers(RecentHistory):
        if name.startswith("_"):
            continue
        function = member.fget if isinstance(member, property) else member
        assert "array" not in str(function.__annotations__["return"]), name


def test_the_last_frames_and_every_tier_answer_as_every_history_does() -> None:
    histories: list[History] = [RecentHistory(), open_history(), StoredTier(HistoryFile(), SHAPES[0])]
    public = {name for name in dir(History) if not name.startswith("_")}
    for history in histories:
        assert public <= set(dir(history))


def test_only_the_opener_makes_the_history_of_a_view() -> None:
    for path in OUTSIDE:
        assert not re.search(r"\b(RecentHistory|TieredHistory|HistoryFile|StoredTier)\(", path.read_text()), path


def test_windows_get_longer_and_the_usual_one_is_among_those_with_a_button() -> None:
    lengths = [window.seconds for window in WINDOWS]
    assert lengths == sorted(set(lengths))
    assert DEFAULT_WINDOW.has_button


def test_small_charts_of_the_browser_show_the_usual_window() -> None:
    scripts = (ROOT / "web/gpumon_web/assets").glob("*.js")
    found = [number for path in scripts for number in re.findall(r"const WINDOW = (\d+);", path.read_text())]
    assert set(found) == {str(DEFAULT_WINDOW.seconds)}


def test_each_tier_of_the_file_answers_on_the_grid_of_a_query(tmp_path: Path) -> None:
    path, end = str(tmp_path / "history.sqlite"), 86400.0 * 365
    fill(path, [GPU], end, lambda *_: (1.0, 2.0, 3.0), [shape._replace(keep=shape.block) for shape in SHAPES])
    with closing(HistoryFile(path, now=lambda: end)) as file:
        tiers = open_tiers(file)
        assert [tier.step for tier in tiers] == sorted({tier.step for tier in tiers})
        for tier in tiers:
            grid = Grid(int(end // tier.step) - 4, tier.step, 4)
            query = Query(GPU, ["gpu.power"], end - 4 * tier.step, end, grid=grid)
            ((name, series),) = tier.query(query).items()
            assert name == "gpu.power"
            assert series.times == grid.middles()
            assert len(series.low) == len(series.mean) == len(series.high) == grid.buckets
            assert tier.begin < tier.end <= end
            assert tier.has(GPU, "gpu.power")
            assert len(tier.seconds(query, query.begin, query.end)) == grid.buckets


def test_each_total_of_a_window_has_a_name_a_heading_and_a_metric_of_its_table() -> None:
    names, headings = [kind.name for kind in TOTALS], [kind.heading for kind in TOTALS]
    assert len(set(names)) == len(names)
    assert len(set(headings)) == len(headings)
    assert all(heading.isupper() for heading in headings)
    assert {kind.metric for kind in TOTALS} <= {metric.name for metric in GPU_METRICS}
