"""The page of users: a month of a lab held against its truth, windows of the viewer's calendar, what was not seen."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser

from gpumon.common.clock import SECOND
from gpumon.common.config import Prices
from gpumon.cost import Charge, amount
from gpumon.model.frame import Tick
from gpumon.model.origin import HARDWARE, RECORDED, SIMULATED, Capability, Origin
from gpumon.reports import usage
from gpumon.storage.usage.account import Account
from gpumon.storage.usage.period_totals import parse_window, summary
from gpumon.storage.usage.query import read_accounts
from gpumon_web.components.costs import cost_cells
from gpumon_web.components.user_rows import account_cells
from gpumon_web.live.accounts import Accounts
from gpumon_web.pages import PAGES
from tests.activity import keep
from tests.builders import TIME, device, process, sample, tick
from tests.web.conftest import on_a_port, visit
from tests.web.served import Served

HOUR, DAY = 3600, 86400
GIB = 2.0**30
OCTOBER = datetime(2026, 10, 1, tzinfo=UTC).timestamp()
AFTER = datetime(2026, 11, 3, 12, tzinfo=UTC).timestamp()
STEP = 300
DOWN = range(12 * DAY, 13 * DAY)
"""Seconds of the month in which no daemon ran."""
MONTH = "period=month&day=2026-10-15&zone=UTC"


def lab(second: int) -> list[tuple[str, int, float, float]]:
    """User, GPU, kernel time and part of the GPU's work of those who hold one, at a second of the month.

    alice works nine of ten times, bob and carol share a GPU by two to one, dave holds one and does nothing, nobody
    has the last.
    """
    people = [("dave", 2, 0.0, 0.0)]
    if second // DAY % 4 != 2:
        works = 0.9 if second // STEP % 10 else 0.0
        people.append(("alice", 0, works, float(works > 0)))
    if second < 20 * DAY:
        people += [("bob", 1, 0.5, 2 / 3), ("carol", 1, 0.25, 1 / 3)]
    return people


def ticks() -> Iterator[Tick]:
    for second in range(0, 31 * DAY + 1, STEP):
        if second in DOWN:
            continue
        people = lab(second)
        use = {gpu: sum(share for _, on, share, _ in people if on == gpu) for gpu in range(4)}
        held = {gpu for _, gpu, _, _ in people}
        used = {gpu: GIB if gpu in held else 0.0 for gpu in range(4)}
        yield tick(
            1,
            [sample(gpu, utilization=use[gpu], memory_used=used[gpu], memory_total=80 * GIB, power=300.0)
             for gpu in range(4)],
            [process(10 + at, gpu, user=user, sm_utilization=share) for at, (user, gpu, share, _) in enumerate(people)],
            time_ns=round((OCTOBER + second) * SECOND), monotonic_ns=(50 + second) * SECOND, interval_ns=STEP * SECOND,
        )  # fmt: skip


def watched() -> Iterator[int]:
    """Seconds of which the accounts know: those that a tick begins which another one follows."""
    for second in range(0, 31 * DAY, STEP):
        if second not in DOWN and second + STEP not in DOWN:
            yield second


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("month") / "history.sqlite"
    keep(path, ticks())
    return path


@pytest.fixture
def served(history: Path) -> Served:
    """The page in November: alice holds GPU 0 and 1 now, erin GPU 2, who held none before."""
    now = [tick(second, [sample(gpu, utilization=0.5, memory_used=GIB) for gpu in range(4)],
                [process(1, 0), process(2, 1), process(3, 2, user="erin")]) for second in range(1, 9)]  # fmt: skip
    found = Served(now, devices=4, histories=[str(history)])
    found.now = AFTER
    return found


def shown(served: Served, query: str) -> dict[str, Any]:
    found: dict[str, Any] = served.json(f"/api/kept?page=users&{query}")
    return found


def hours_of(text: str) -> float:
    return float(re.sub(r"[^\d.]", "", text))


def test_hours_of_a_month_are_the_truth_within_one_percent(served: Served) -> None:
    held: Counter[str] = Counter()
    work: Counter[str] = Counter()
    for second in watched():
        for user, _, _, part in lab(second):
            held[user] += STEP / HOUR
            work[user] += STEP / HOUR * part
    rows = shown(served, MONTH)["tables"]["users"]["cells"]
    assert set(rows) == {"alice", "bob", "carol", "dave"}
    for user, row in rows.items():
        assert row["held_seconds"] / HOUR == pytest.approx(held[user], rel=0.01)
        assert row["used_ratio"] == pytest.approx(work[user] / held[user], abs=0.01), user
    assert rows["dave"]["idle_held_seconds"] / HOUR == pytest.approx(held["dave"], rel=0.01)
    assert [user for user, row in rows.items() if row["note"]] == ["dave"]
    assert rows["bob"]["energy_joules"] == pytest.approx(2 * rows["carol"]["energy_joules"], rel=0.01)


def test_the_same_month_is_the_truth_for_programs_too(history: Path) -> None:
    """The answer of `/api/v1/accounts`, and what it says nobody saw."""
    held: Counter[str] = Counter()
    work: Counter[str] = Counter()
    for second in watched():
        for user, _, _, part in lab(second):
            held[user] += STEP
            work[user] += STEP * part
    served = Served([tick(1, [sample(gpu) for gpu in range(4)], time_ns=round(AFTER * SECOND))], devices=4)
    served.live.history = str(history)
    found = served.json(f"/api/v1/accounts?by=user&from={OCTOBER:.0f}&to={OCTOBER + 31 * DAY:.0f}")
    assert found["problem"] is None
    [group] = found["groups"]
    accounts_of = {account["user"]: account for account in group["accounts"]}
    assert set(accounts_of) == {"alice", "bob", "carol", "dave"}
    for user, account in accounts_of.items():
        assert account["held"] == pytest.approx(held[user], rel=0.01), user
        assert account["busy"] == pytest.approx(work[user], rel=0.01, abs=1), user
    assert accounts_of["dave"]["idle_held"] == pytest.approx(held["dave"], rel=0.01)
    assert group["unseen"] == pytest.approx(4 * DAY, rel=0.01)


def test_a_day_without_a_daemon_is_not_seen_and_not_free(served: Served) -> None:
    found = shown(served, MONTH)
    assert hours_of(found["values"]["unseen"]) == pytest.approx(4 * 24, rel=0.01)
    strip = found["tables"]["strips"]["cells"][device(3).uuid]["strip"]
    assert strip["parts"] == [], "nobody held it"
    assert {slot for slot, share in strip["unseen"] if share == 100} == set(range(12 * 24, 13 * 24))
    busy = found["tables"]["strips"]["cells"][device(0).uuid]["strip"]
    assert not {slot for slot, *_ in busy["parts"]} & set(range(12 * 24, 13 * 24))


def test_time_before_the_first_account_is_not_seen_and_time_to_come_is_not_counted(served: Served) -> None:
    served.now = OCTOBER + DAY + 12.5 * HOUR
    found = shown(served, "period=week&day=2026-10-02&zone=UTC")
    assert hours_of(found["values"]["unseen"]) == pytest.approx(4 * 3 * 24, rel=0.01)
    assert found["values"]["unseen_below"].endswith("recorded since Thu 1 Oct 00:00")
    strip = found["tables"]["strips"]["cells"][device(3).uuid]["strip"]
    assert strip["unseen"] == [[slot, 100] for slot in range(3 * 24)]
    assert strip["label"] == "GPU 3: nobody while watched; not seen 72.0 h"
    assert strip["until"] == pytest.approx((4 * 24 + 12.5) / (7 * 24), abs=1e-3)


def test_who_shares_a_gpu_has_its_own_part_of_each_slot(served: Served) -> None:
    strip = shown(served, MONTH)["tables"]["strips"]["cells"][device(1).uuid]["strip"]
    first = [part for part in strip["parts"] if part[0] == 5]
    assert first == [[5, "bob", 100, 67], [5, "carol", 100, 33]]


def test_a_window_of_now_says_who_holds_what_now_and_one_of_the_past_does_not(served: Served) -> None:
    rows = shown(served, "period=month&zone=UTC")["tables"]["users"]["cells"]
    assert [line["line"][0]["tag"] for line in rows["erin"]["now"]] == ["GPU 2"]
    assert (rows["erin"]["used"], rows["erin"]["used_ratio"]) == ("–", None)
    assert rows["alice"]["now"][0]["line"][0]["tag"] == "0–1"
    past = shown(served, MONTH)["tables"]["users"]["cells"]
    assert all(row["count"] is None for row in past.values())
    assert [shown(served, one)["values"]["has_now"] for one in ("period=month&zone=UTC", MONTH)] == [True, False]


def test_a_user_has_a_page_of_each_gpu_and_of_nobody_else(served: Served) -> None:
    everybody = shown(served, MONTH)["tables"]["users"]["cells"]["bob"]
    assert everybody["user"][0]["line"][0]["link"] == "#/users?period=month&day=2026-10-01&user=bob"
    found = shown(served, f"{MONTH}&user=bob")
    rows = found["tables"]["users"]["cells"]
    assert list(rows) == [device(1).uuid]
    assert rows[device(1).uuid]["held_seconds"] == everybody["held_seconds"]
    assert rows[device(1).uuid]["energy_joules"] == everybody["energy_joules"]
    assert (found["values"]["title"], found["values"]["user_title"]) == ("bob", "GPU")
    assert found["values"]["tab"]["text"] == "bob, October 2026"
    strip = found["tables"]["strips"]["cells"][device(1).uuid]["strip"]
    assert [part for part in strip["parts"] if part[0] == 5] == [[5, "bob", 100, 67], [5, "", 100, 33]]
    nobody = shown(served, f"{MONTH}&user=zoe")["values"]
    assert (nobody["nobody"], nobody["held"]) == ("zoe held no GPU.", "0 s")


def test_a_user_sees_which_gpus_are_held_now(served: Served) -> None:
    served.now = OCTOBER + 31 * DAY - HOUR
    rows = shown(served, "period=month&zone=UTC&user=alice")["tables"]["users"]["cells"]
    assert rows[device(0).uuid]["now"][0]["line"][0]["tag"] == "held"


def test_a_day_of_25_hours_has_them_all(served: Served) -> None:
    strips = shown(served, "period=day&day=2026-10-25&zone=Europe/Berlin")["tables"]["strips"]["cells"]
    strip = strips[device(2).uuid]["strip"]
    assert (strip["slots"], len(strip["parts"]), strip["unseen"]) == (25, 25, [])
    week = shown(served, "period=week&day=2026-10-25&zone=Europe/Berlin")["tables"]
    assert week["strips"]["cells"][device(2).uuid]["strip"]["slots"] == 7 * 24 + 1
    assert [at for at, *_ in week["users"]["cells"]["dave"]["course"]["parts"]] == [*range(7)]


def test_a_day_that_begins_within_an_hour_of_utc_has_each_hour_where_it_was(served: Served) -> None:
    """In India the 14th of October begins at 18:30 UTC of the 13th, on which no daemon ran."""
    strips = shown(served, "period=day&day=2026-10-14&zone=Asia/Kolkata")["tables"]["strips"]["cells"]
    strip = strips[device(2).uuid]["strip"]
    assert (strip["slots"], strip["shift"]) == (24, 0.5)
    # 18:00 to 19:00 UTC was unseen, and half of it is of this day; so were the five hours after it.
    assert [slot for slot, _ in strip["unseen"]] == [*range(-1, 5)]
    assert [at for at, *_ in strip["parts"]] == [*range(5, 24)]
    assert strip["label"] == "GPU 2: dave 19.0 h; not seen 5.0 h"


DRAWN = """(canvas) => new Promise((done) => requestAnimationFrame(() => {
    const { width, height } = canvas;
    const image = canvas.getContext("2d").getImageData(0, 0, width, height).data;
    const has = (x, y) => image[4 * (y * width + x) + 3] > 0;
    const [columns, rows] = [[...Array(width).keys()], [...Array(height).keys()]];
    const x = columns.filter((x) => rows.some((y) => has(x, y)));
    const y = rows.filter((y) => columns.some((x) => has(x, y)));
    done([x[0] / width, (x[x.length - 1] + 1) / width, y[0] / height, (y[y.length - 1] + 1) / height]);
}))"""
"""The part of a canvas in which anything is drawn: left, right, top and bottom as shares."""


def test_a_strip_is_drawn_where_its_hours_were(browser: Browser, served: Served) -> None:
    """GPU 3 was free; all that is drawn of it is what was not seen, until 5:30 of that day."""
    with on_a_port(served) as link, visit(browser, link, timezone_id="Asia/Kolkata") as visitor:
        page = visitor.open("#/users?period=day&day=2026-10-14")
        strip = page.locator("#page-users .strips canvas").nth(3)
        strip.wait_for()
        assert strip.evaluate(DRAWN) == pytest.approx([0, 5.5 / 24, 0, 1], abs=0.01)


def test_a_part_of_an_hour_claims_no_place_in_it(browser: Browser, tmp_path: Path) -> None:
    """A quarter of an hour, from 10:30 on: a quarter of the height, as accounts do not know when in the hour it was."""
    path, day = tmp_path / "history.sqlite", OCTOBER + DAY
    on_it = [process(1, 0, user="zoe", sm_utilization=0.5)]
    keep(path, [
        tick(1, [sample(0, utilization=0.5, memory_used=GIB)], on_it if 37_800 <= second < 38_700 else [],
             time_ns=round((day + second) * SECOND), monotonic_ns=(50 + second) * SECOND, interval_ns=STEP * SECOND)
        for second in range(0, DAY + 1, STEP)
    ])  # fmt: skip
    served = Served([tick(1)], histories=[str(path)])
    served.now = AFTER
    with on_a_port(served) as link, visit(browser, link, timezone_id="UTC") as visitor:
        strip = visitor.open("#/users?period=day&day=2026-10-02").locator("#page-users .strips canvas")
        strip.wait_for()
        assert strip.evaluate(DRAWN) == pytest.approx([10 / 24, 11 / 24, 0.75, 1], abs=0.05)


def test_a_window_that_nothing_is_known_of_says_so(served: Served, tmp_path: Path) -> None:
    found = shown(served, "period=week&day=2020-01-01&zone=UTC")["values"]
    assert not found["known"]
    assert found["nobody"] == "No data was recorded in this window."
    without = Served([tick(1)])
    assert "'gpumon daemon' writes it" in shown(without, "zone=UTC")["values"]["nobody"]
    (tmp_path / "history.sqlite").write_bytes(b"no database" * 99)
    broken = Served([tick(1)], histories=[str(tmp_path / "history.sqlite")])
    assert "cannot be read" in shown(broken, "zone=UTC")["values"]["problem"]


def test_where_no_history_is_kept_no_window_of_it_can_be_chosen_and_one_sentence_says_why() -> None:
    origin = Origin("replay", "REPLAY night.csv.gz", capabilities=RECORDED)
    found = shown(Served([tick(1, origin=origin)]), "zone=UTC")["values"]
    assert (found["periods"], found["window"], found["holders"], found["problem"]) == ([], [], [], "")
    assert found["nobody"].startswith("No history is recorded for this source")


def test_that_somebody_idled_at_least_nothing_is_not_said_beside_a_cost_that_is_not_known() -> None:
    half = Account("ada", held=2 * HOUR, judged=HOUR, busy=HOUR, idle_held=0.0, metered=HOUR, energy=0.0)
    charge = Charge(idle_held=amount(half.idle_held, 2.0, complete=False))
    prices = Prices("EUR", gpu_hour={"": 2.0})
    cells = {**account_cells(half, {}, 2 * HOUR), **cost_cells(charge, prices)}
    assert [cells[name] for name in ("used", "idle", "idle_cost", "energy")] == ["≥ 50 %", "–", "–", "–"]
    assert [cells[name] for name in ("idle_held_seconds", "idle_money")] == [None, None]
    whole = account_cells(half._replace(judged=2 * HOUR), {}, 2 * HOUR)
    assert (whole["idle"], whole["idle_held_seconds"]) == ("0 s", 0.0), "which is known"


def test_time_of_holders_who_are_not_known_is_in_no_headline_that_judges(tmp_path: Path) -> None:
    """Of two GPUs alice works on one, and who holds the other, idle, nobody knows."""
    path = tmp_path / "history.sqlite"
    both = [sample(0, utilization=0.5, memory_used=GIB), sample(1, utilization=0.0, memory_used=40 * GIB)]
    on_them = [process(1, 0, sm_utilization=0.5), process(2, 1, user="", sm_utilization=0.0)]
    keep(path, (
        tick(1, both, on_them, time_ns=round((OCTOBER + second) * SECOND),
             monotonic_ns=(50 + second) * SECOND, interval_ns=SECOND)
        for second in range(101)
    ))  # fmt: skip
    served = Served([tick(1)], histories=[str(path)])
    served.now = OCTOBER + HOUR
    found = shown(served, "period=day&day=2026-10-01&zone=UTC")
    rows, values = found["tables"]["users"]["cells"], found["values"]
    assert (rows[" unknown"]["used"], rows[" unknown"]["idle"]) == ("–", "–")
    assert (values["used"], values["idle"]) == (rows["alice"]["used"], rows["alice"]["idle"]) == ("100 %", "0 s")
    assert values["used_below"].endswith("; excluding 2 min of unknown users")
    assert values["idle_below"] == "excluding 2 min of unknown users"


def test_hours_that_are_neither_used_nor_idle_are_told(tmp_path: Path) -> None:
    """zoe takes a GPU, does nothing for 40 s, and works for 61: only after a minute would that be idle."""
    path = tmp_path / "history.sqlite"
    keep(path, (
        tick(1, [sample(0, utilization=0.5 if second >= 40 else 0.0, memory_used=GIB)],
             [process(1, 0, user="zoe", sm_utilization=0.5)], time_ns=round((OCTOBER + second) * SECOND),
             monotonic_ns=(50 + second) * SECOND, interval_ns=SECOND)
        for second in range(102)
    ))  # fmt: skip
    served = Served([tick(1)], histories=[str(path)])
    served.now = OCTOBER + HOUR
    for query in ("", "&user=zoe"):
        values = shown(served, f"period=day&day=2026-10-01&zone=UTC{query}")["values"]
        assert (values["held"], values["idle"]) == ("2 min", "0 s")
        rest = "40 s not classified: idle for less than a minute, or not measured"
        assert values["used_below"] == f"busy for 1 min; {rest}"


def test_gpus_of_holders_who_are_not_known_are_told_of_and_nobody_else_has_them(tmp_path: Path) -> None:
    """GPU 0 is ada's, GPU 1 of somebody without a name, of GPU 2 the driver lists no process, GPU 3 is free."""
    used = (GIB, 40 * GIB, 40 * GIB, 0.0)
    all_four = [
        sample(gpu, utilization=0.5 if size else 0.0, memory_used=size, memory_total=80 * GIB)
        for gpu, size in enumerate(used)
    ]
    on_them = [process(1, 0, user="ada", sm_utilization=0.5), process(2, 1, user="", sm_utilization=0.5)]
    path = tmp_path / "history.sqlite"
    keep(path, (
        tick(1, all_four, [*on_them, process(3, 3, user="bob")], time_ns=round((OCTOBER + second) * SECOND),
             monotonic_ns=(50 + second) * SECOND, interval_ns=SECOND)
        for second in range(101)
    ))  # fmt: skip
    day = "period=day&day=2026-10-01&zone=UTC"
    for frames, known in (([tick(1, all_four, on_them)], True), ([], False)):
        served = Served(frames, devices=4, histories=[str(path)])
        served.now = OCTOBER + HOUR
        rows = shown(served, day)["tables"]["users"]["cells"]
        found = {name: row["now"][0]["line"][0] for name, row in rows.items()}
        said = {name: one.get("tag") or one["text"] for name, one in found.items()}
        expected = {"ada": "GPU 0", "bob": "none", " unknown": "1–2"} if known else dict.fromkeys(rows, "–")
        assert said == expected
        assert {name: row["count"] for name, row in rows.items()} == (
            {"ada": 1, "bob": 0, " unknown": 2} if known else dict.fromkeys(rows, None)
        )
        mine = shown(served, f"{day}&user=bob")["tables"]["users"]["cells"]
        assert [row["now"][0]["line"][0]["text"] for row in mine.values()] == ["not held" if known else "–"]


def test_what_is_known_of_unknown_holders_is_the_same_in_the_cells_the_bar_and_the_file(
    browser: Browser, tmp_path: Path
) -> None:
    path = tmp_path / "history.sqlite"
    on_it = [sample(0, utilization=0.5, memory_used=40 * GIB, power=300.0)]
    keep(path, (
        tick(1, on_it, [process(1, 0, user="", sm_utilization=0.5)], time_ns=round((OCTOBER + second) * SECOND),
             monotonic_ns=(50 + second) * SECOND, interval_ns=SECOND)
        for second in range(601)
    ))  # fmt: skip
    served = Served([tick(1)], histories=[str(path)])
    served.now = OCTOBER + HOUR
    row = shown(served, "period=day&day=2026-10-01&zone=UTC")["tables"]["users"]["cells"][" unknown"]
    assert (row["used"], row["energy"]) == ("10 min busy", "50.0 Wh")
    solid, tint = row["held"][0]["line"][1]["bar"]
    assert (solid["share"], tint["share"]) == (0, 1), "which part of their hours was used is not known"
    with on_a_port(served) as link, visit(browser, link, timezone_id="UTC") as visitor:
        page = visitor.open("#/users?period=day&day=2026-10-01")
        page.get_by_text("10 min busy").wait_for()
        with page.expect_download() as saved:
            page.get_by_role("button", name="Users as CSV").click()
        [told] = csv.DictReader(io.StringIO(Path(saved.value.path()).read_text(encoding="utf-8-sig")))
        assert float(told["energy_joules"]) == pytest.approx(600 * 300)


def test_whoever_held_a_gpu_in_the_last_month_may_say_who_they_are(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    begins = {"zoe": OCTOBER - 40 * DAY, "bob": OCTOBER - 5 * DAY, "alice": OCTOBER - HOUR}
    keep(path, (
        tick(1, [sample(0, utilization=0.5, memory_used=GIB)], [process(1, 0, user=user, sm_utilization=0.5)],
             time_ns=round((begin + second) * SECOND), interval_ns=SECOND,
             monotonic_ns=round((begin - OCTOBER + 60 * DAY + second) * SECOND))
        for user, begin in begins.items() for second in range(30)
    ))  # fmt: skip
    served = Served([tick(1, [sample(0)])], histories=[str(path)])
    served.now = OCTOBER
    assert served.json("/api/kept?page=fleet")["people"] == ["alice", "bob"]
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open("#/fleet")
        page.get_by_role("option", name="bob").wait_for(state="attached")
        page.get_by_label("I am").select_option("bob")
        page.get_by_role("link", name="my hours").wait_for()


def test_of_a_simulation_the_pages_promise_no_history_as_the_api_does_not() -> None:
    served = Served([tick(1, origin=Origin("sim", "SIMULATED", capabilities=SIMULATED))])
    said = served.json("/api/v1/events")["problem"]
    assert said == "no history is recorded for this source"
    for told in (
        shown(served, "zone=UTC")["values"]["nobody"],
        served.json("/api/kept?page=events")["values"]["nothing"],
    ):
        assert said[1:] in told["text"]
        assert told["text"].endswith("Its charts go back to")
        assert told["time"] == TIME / 1e9 + 1, "which the scripts write in the viewer's time zone"


@pytest.mark.parametrize(("capabilities", "advice"), [(SIMULATED, "a simulation"), (RECORDED, "a recording"),
                                                      (HARDWARE, "a daemon does")])  # fmt: skip
def test_only_of_hardware_a_daemon_is_said_to_keep_history(capabilities: Capability, advice: str) -> None:
    served = Served([tick(1, origin=Origin("it", "", capabilities=capabilities))])
    accounts = Accounts(served.feed, list, missing="This source keeps no history: a daemon does.")
    for page in (PAGES["users"], PAGES["events"]):
        told = json.loads(gzip.decompress(accounts.kept(page, {}).result().body))["values"]
        assert advice in str(told.get("nobody") or told.get("nothing")), page.name


def test_the_table_is_that_of_the_command_by_day(served: Served, history: Path) -> None:
    answer = served.client().get(f"/api/users.csv?{MONTH}")
    assert "users-by-day-October-2026.csv" in answer.headers["Content-Disposition"]
    kept = read_accounts(str(history), OCTOBER, OCTOBER + 31 * DAY)
    expected = usage.csv(summary(kept, OCTOBER, OCTOBER + 31 * DAY, "day", UTC))
    assert answer.get_data(as_text=True) == "".join(expected)
    rows = list(csv.DictReader(io.StringIO(answer.get_data(as_text=True))))
    assert {row["user"] for row in rows if row["kind"] == "user"} == {"alice", "bob", "carol", "dave"}


def test_the_tables_of_a_user_are_of_that_user_alone(served: Served) -> None:
    found = shown(served, f"{MONTH}&user=bob")
    answer = served.client().get(f"/{found['values']['csv']['href']}")
    assert "user-by-day-October-2026.csv" in answer.headers["Content-Disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.get_data(as_text=True))))
    assert {row["kind"]: row["user"] for row in rows} == {"user": "bob", "unseen": ""}
    held = sum(float(row["held_seconds"]) for row in rows if row["kind"] == "user")
    assert held == pytest.approx(found["tables"]["users"]["cells"][device(1).uuid]["held_seconds"])


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/St_Johns", "Pacific/Apia", "Europe/Berlin"])
@pytest.mark.parametrize("period", ["day", "week", "month"])
def test_a_window_is_one_of_the_viewers_calendar_and_leads_to_those_beside_it(zone: str, period: str) -> None:
    now = datetime(2026, 10, 25, 12, tzinfo=ZoneInfo(zone)).timestamp()  # clocks are set back in Berlin
    window = parse_window(period, "", zone, now)
    assert window.begin <= now < window.end
    for edge in (window.begin, window.end):
        assert (window.local_time(edge).hour, window.local_time(edge).minute) == (0, 0)
    before, after = window.neighbor(-1), window.neighbor(1)
    assert (before.end, after.begin) == (window.begin, window.end)
    assert parse_window(period, before.first_day, zone, now) == before


@pytest.mark.parametrize(
    ("period", "title"), [("day", "Sun 25 Oct 2026"), ("week", "19–25 Oct 2026"), ("month", "October 2026")]
)
def test_a_window_has_a_title(period: str, title: str) -> None:
    assert parse_window(period, "2026-10-25", "UTC", AFTER).title == title
    assert parse_window("week", "2027-01-01", "UTC", AFTER).title == "28 Dec 2026 – 3 Jan 2027"


@pytest.mark.parametrize(
    "query", ["period=year", "day=9999-12-31", "day=0001-01-01", "day=31-12-2026", "day=%00", "zone=../../etc/passwd",
              "zone=posixrules%00", "zone=" + "A" * 199, "zone=/etc", "day=2026-02-30&zone=Mars/Base", "at=1"]
)  # fmt: skip
def test_no_address_gets_more_than_a_window(served: Served, query: str) -> None:
    found = shown(served, query)
    assert found["values"]["window"]
    assert served.client().get(f"/api/users.csv?{query}").status_code == 200


def test_without_the_viewers_zone_the_page_says_whose_days_these_are(served: Served) -> None:
    assert "where the server is" in shown(served, "zone=Mars/Base")["values"]["problem"]
    assert shown(served, "zone=Asia/Tokyo")["values"]["problem"] == ""


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1440, "dark"),
        pytest.param(1024, "light", marks=pytest.mark.slow),
        pytest.param(768, "dark", marks=pytest.mark.slow),
        (400, "light"),
    ],
)
def test_the_page_shows_its_users_on_any_screen(browser: Browser, served: Served, width: int, scheme: str) -> None:
    """Not slow: the widest and the narrowest one; what lies between them is in the matrix."""
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme, "timezone_id": "Asia/Kolkata"}
    with on_a_port(served) as link, visit(browser, link, **options) as visitor:
        page = visitor.open("#/users?period=month&day=2026-10-15")
        page.get_by_text("October 2026").wait_for()
        page.locator("canvas.strip:not(.bars)").first.wait_for()
        assert page.locator("table.users tbody tr").count() == 4
        assert page.locator("table.strips tbody tr").count() == 4
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        ink = "(one) => one.getContext('2d').getImageData(0, 0, one.width, one.height).data.some((byte) => byte)"
        assert page.locator("canvas.strip:not(.bars)").first.evaluate(ink), "the strip is drawn"
        page.get_by_label("Earlier").click()
        page.get_by_text("September 2026").wait_for()
        page.get_by_text("No data was recorded in this window.").wait_for()
        page.go_back()
        page.get_by_text("October 2026").wait_for()
        page.get_by_role("button", name="Week").click()
        page.get_by_text("12–18 Oct 2026").wait_for()


def test_of_a_daemon_that_only_just_began_nothing_has_a_share(tmp_path: Path) -> None:
    """Two ticks a tenth of a second apart, of a GPU that alice works on: neither "100 % of 0 s" nor a full bar."""
    path = tmp_path / "history.sqlite"
    at_work = (
        [sample(0, utilization=0.5, memory_used=GIB, power=300.0)],
        [process(1, 0, user="alice", sm_utilization=0.5)],
    )
    step = SECOND // 10
    keep(path, [tick(1, *at_work, time_ns=(OCTOBER * 10 + tenth) * step, monotonic_ns=(500 + tenth) * step,
                     interval_ns=step) for tenth in range(2)])  # fmt: skip
    for frames in ([tick(1, *at_work)], []):
        served = Served(frames, histories=[str(path)])
        served.now = OCTOBER + HOUR
        found = shown(served, "period=day&day=2026-10-01&zone=UTC")
        values, rows = found["values"], found["tables"]["users"]["cells"]
        assert [values[name] for name in ("known", "held", "used", "idle")] == [False, None, None, None]
        assert "No history yet" in values["problem" if frames else "nobody"]
        assert {name: row["held"][0]["line"][0]["text"] for name, row in rows.items()} == (
            {"alice": "–"} if frames else {}
        )
