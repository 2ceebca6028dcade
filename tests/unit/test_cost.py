"""Charges: a month by hand, held time, idle held time and energy apart, and what is not known at least."""

from __future__ import annotations

import csv
import io
from math import isnan
from pathlib import Path

import pytest

from gpumon.common.config import Prices, read_prices
from gpumon.common.numbers import NAN
from gpumon.cost import Amount, Charge, price_hours, price_run, price_summary, sum_charges
from gpumon.model import units
from gpumon.reports import charges, run_export, run_text
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.reader import Ledger, Ledgers
from gpumon.storage.ledger.records import UNMEASURED, USAGE_INDEX, DeviceRow
from gpumon.storage.ledger.summary import EpochSummary
from gpumon.storage.usage.account import Account, DeviceUse
from gpumon.storage.usage.query import HourUse, StoredDevice
from gpumon_tui.data.run_ledger import LedgerRuns
from gpumon_tui.data.run_reader import open_run
from gpumon_tui.data.run_rows import OpenRun
from gpumon_tui.render import run_detail
from gpumon_web.pages import PAGES
from gpumon_web.stored.run_page import run_document
from tests.programs import until
from tests.runs import BEGAN, Book, training

HOUR, KWH = 3600.0, 3.6e6
PRICES = read_prices({
    "currency": "EUR", "gpu-hour": {"H100": 2.0, "A100": 1.0, "T4": 0.25}, "pue": 1.5, "co2": 400,
    "kwh": [{"from": 6, "to": 22, "price": 0.40}, {"from": 22, "to": 6, "price": 0.10}],
})  # fmt: skip
MODELS = {"GPU-h": "NVIDIA H100 80GB", "GPU-a": "NVIDIA A100", "GPU-t": "Tesla T4"}
DEVICES = [StoredDevice(uuid, number, name) for number, (uuid, name) in enumerate(MODELS.items())]


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumon.cost.local_hour", lambda moment: int(moment // HOUR) % 24)


def device(uuid: str) -> DeviceRow:
    return DeviceRow(uuid, 0, MODELS[uuid], NAN, NAN)


def stretch(
    begun: float, seconds: float, *, energy: float = NAN, idle: float = NAN, sampled: float = -1.0
) -> EpochSummary:
    values = list(UNMEASURED)
    values[USAGE_INDEX["energy"]], values[USAGE_INDEX["idle_share"]] = energy, idle
    values[USAGE_INDEX["sampled"]] = seconds if sampled < 0 else sampled
    return EpochSummary(
        ordinal=0, epoch=0, phase="", begun=begun, ended=begun + seconds, seconds=seconds, times=1, steps=1, wait=NAN,
        metrics={}, ranks=1, utilization_from="driver", values=values,
    )  # fmt: skip


def month(days: int = 30) -> list[HourUse]:
    """Each hour of a month, three GPUs: ada has all of the H100, she and bob share the A100, the T4 is free."""
    hours = []
    for number in range(days * 24):
        begin = number * HOUR
        ada = Account("ada", held=HOUR, judged=HOUR, busy=2700, idle_held=900, metered=HOUR, energy=0.5 * KWH)
        half = Account("ada", held=1800, judged=1800, busy=1800, metered=1800, energy=0.1 * KWH)
        bob = Account("bob", held=HOUR, judged=HOUR, idle_held=HOUR, metered=HOUR, energy=0.2 * KWH)
        whole = {"observed": HOUR, "identified": HOUR, "judged": HOUR, "metered": HOUR}
        hours += [
            HourUse(begin, "GPU-h", DeviceUse(**whole, held=HOUR, energy=0.5 * KWH), [ada]),
            HourUse(begin, "GPU-a", DeviceUse(**whole, held=HOUR, energy=0.3 * KWH), [bob, half]),
            HourUse(begin, "GPU-t", DeviceUse(**whole, free=HOUR, energy=0.02 * KWH, free_energy=0.02 * KWH), []),
        ]
    return hours


def test_a_month_with_day_tariffs_and_three_models_costs_what_it_does_by_hand() -> None:
    found = price_hours(month(), DEVICES, PRICES)
    hours, mean = 720, (16 * 0.40 + 8 * 0.10) / 24
    ada, bob = found.users["ada"], found.users["bob"]
    assert ada.held == Amount(pytest.approx(hours * (2.0 + 0.5 * 1.0)))
    assert ada.idle_held == Amount(pytest.approx(hours * 0.25 * 2.0))
    assert ada.energy == Amount(pytest.approx(hours * 0.6 * 1.5 * mean))
    assert ada.co2 == Amount(pytest.approx(hours * 0.6 * 1.5 * 400))
    assert bob.held == bob.idle_held == Amount(pytest.approx(hours * 1.0))
    assert bob.energy == Amount(pytest.approx(hours * 0.2 * 1.5 * mean))
    assert found.free.energy == Amount(pytest.approx(hours * 0.02 * 1.5 * mean))
    assert isnan(found.free.held.value), "nobody held it"


def test_what_was_not_judged_or_metered_makes_the_sum_a_lower_bound() -> None:
    partly = Account("ada", held=HOUR, judged=1800, idle_held=900, metered=1800, energy=0.1 * KWH)
    never = Account("bob", held=HOUR)
    found = price_hours([HourUse(0.0, "GPU-h", DeviceUse(), [partly, never])], DEVICES, PRICES)
    assert found.users["ada"].idle_held == Amount(0.5, complete=False)
    assert not found.users["ada"].energy.complete
    assert found.users["ada"].held == Amount(2.0)
    assert isnan(found.users["bob"].idle_held.value)
    assert isnan(found.users["bob"].energy.value)
    assert charges.text(found.users["ada"].idle_held, "idle_held", PRICES) == "≥ 0.50 EUR"
    assert charges.text(found.users["bob"].energy, "energy", PRICES) == "–"


def test_a_gpu_whose_model_has_no_price_makes_the_sum_of_others_a_lower_bound() -> None:
    one = Account("ada", held=HOUR, judged=HOUR, metered=HOUR, energy=KWH)
    hours = [HourUse(0.0, uuid, DeviceUse(), [one]) for uuid in ("GPU-h", "GPU-unheard-of")]
    assert price_hours(hours, DEVICES, PRICES).users["ada"].held == Amount(2.0, complete=False)


def test_an_hour_without_a_tariff_is_not_free() -> None:
    prices = read_prices({"currency": "EUR", "kwh": [{"from": 0, "to": 1, "price": 1}]})
    one = Account("ada", held=HOUR, judged=HOUR, metered=HOUR, energy=KWH)
    hours = [HourUse(number * HOUR, "GPU-h", DeviceUse(), [one]) for number in range(2)]
    assert price_hours(hours, DEVICES, prices).users["ada"].energy == Amount(1.0, complete=False)


def test_a_run_costs_the_time_of_each_of_its_gpus_and_its_energy_by_the_tariff_of_each_hour() -> None:
    evening = 21 * HOUR  # until 22 it is dear
    epochs = [stretch(evening + n * 1800, 1800, energy=KWH, idle=0.2) for n in range(4)]
    total = stretch(evening, 4 * 1800, energy=4 * KWH, idle=0.2)
    cost = price_run(total, epochs, [device("GPU-h"), device("GPU-a")], PRICES)
    assert cost.held == Amount(pytest.approx(2 * (2.0 + 1.0)))
    assert cost.idle_held == Amount(pytest.approx(0.2 * 6.0))
    assert cost.energy == Amount(pytest.approx((2 * 0.40 + 2 * 0.10) * 1.5))
    assert cost.co2 == Amount(pytest.approx(4 * 1.5 * 400))


def test_an_epoch_across_a_change_of_tariff_pays_each_for_its_part() -> None:
    cost = price_summary(stretch(21.5 * HOUR, HOUR, energy=KWH), [device("GPU-h")], PRICES)
    assert cost.energy == Amount(pytest.approx(1.5 * (0.5 * 0.40 + 0.5 * 0.10)))


def test_energy_outside_the_epochs_is_paid_too() -> None:
    total = stretch(0.0, 2 * HOUR, energy=3 * KWH)
    cost = price_run(total, [stretch(0.0, HOUR, energy=KWH)], [device("GPU-h")], PRICES)
    assert cost.energy == Amount(pytest.approx(3 * 1.5 * 0.10))


def test_a_run_that_was_not_sampled_in_full_has_known_time_and_idle_time_of_at_least() -> None:
    total = stretch(0.0, 2 * HOUR, energy=KWH, idle=0.5, sampled=HOUR)
    cost = price_run(total, [], [device("GPU-h")], PRICES)
    assert cost.held == Amount(4.0)
    assert not cost.idle_held.complete
    assert not cost.energy.complete


def test_a_run_of_which_nothing_was_measured_has_no_cost_of_energy() -> None:
    cost = price_run(stretch(0.0, HOUR), [], [device("GPU-h")], PRICES)
    assert isnan(cost.energy.value)
    assert charges.sentence(cost, PRICES) == "Cost: 2.00 EUR for GPU time."


def test_nothing_is_said_of_what_has_no_price() -> None:
    prices = Prices("EUR", co2=400)
    cost = price_run(stretch(0.0, HOUR, energy=KWH, idle=0.1), [], [device("GPU-h")], prices)
    assert charges.sentence(cost, prices) == "Cost: 400 g of CO₂."
    assert [column.heading for column in charges.columns(prices)] == ["CO2"]


def test_held_time_and_energy_are_never_one_number() -> None:
    cost = Charge(Amount(1.0), Amount(0.5), Amount(0.25), Amount(9.0))
    assert sum_charges([cost, cost]) == Charge(Amount(2.0), Amount(1.0), Amount(0.5), Amount(18.0))
    told = charges.as_json(cost, PRICES)
    assert told.keys() == {"currency", "held", "idle_held", "energy", "co2"}


def test_an_exported_row_has_the_cost_of_its_device_where_there_are_prices(tmp_path: Path) -> None:
    book = Book(tmp_path)
    training(book, "net-1a2b", 3, gpus=2)
    with Ledger(str(book.path)) as ledger:
        record = ledger.record("net-1a2b")
    prices = PRICES._replace(gpu_hour={"default": 3.0})
    assert "held_cost" not in next(iter(run_export.lines(record)))
    rows = list(csv.DictReader(io.StringIO("".join(run_export.lines(record, prices)))))
    epochs = [row for row in rows if row["device"] and row["part"] == "epoch" and not row["phase"]]
    assert len(epochs) == 6
    for row in epochs:
        assert float(row["held_cost"]) == pytest.approx(float(row["seconds"]) / HOUR * 3.0, abs=1e-6)
        assert row["currency"] == "EUR"
    assert run_export.document(record, [], BEGAN, prices)["total"]["cost"]["held"]["value"] > 0
    assert "cost" not in run_export.document(record, [], BEGAN)["total"]
    book.db.close()


def test_the_pages_of_a_run_show_its_cost_and_that_of_each_epoch_where_there_are_prices(tmp_path: Path) -> None:
    book = Book(tmp_path)
    training(book, "net-1a2b", 3, gpus=2)
    prices = PRICES._replace(gpu_hour={"default": 3.0})
    for given in (None, prices):
        document, _ = run_document([str(book.path)], "net-1a2b", "", None, None, BEGAN + 9999, None, given)
        assert document
        values = PAGES["run"].kept({**document, "id": "net-1a2b", "now": document["run"]["ended"] + 3600}).values  # type: ignore[misc]
        assert values["has_held_cost"] == (given is not None)
        assert values["cost"].startswith("Cost: ") == (given is not None)
        first = next(row for row in values["epochs"] if row["key"] == "0")
        assert (first["held_cost"] != "–") == (given is not None)
    book.db.close()


def test_the_text_of_a_run_has_costs_of_each_epoch_only_where_there_are_prices(tmp_path: Path) -> None:
    book = Book(tmp_path)
    training(book, "net-1a2b", 3, gpus=2)
    with Ledger(str(book.path)) as ledger:
        record = ledger.record("net-1a2b", phases=False, times=True)
    book.db.close()
    assert not any("COST" in line for line in run_text.lines(record, BEGAN + 9999, 0))
    prices = read_prices({"currency": "EUR", "gpu-hour": 3.0})
    told = list(run_text.lines(record, BEGAN + 9999, 0, prices=prices))
    heading = next(line for line in told if line.startswith("EPOCH"))
    assert "COST" in heading
    assert "POWER COST" not in heading
    epochs = aggregate.epoch_summaries(record)
    of_all = price_run(aggregate.run_total(record, epochs), epochs, record.devices, prices)
    for title, charge in (("0", price_summary(epochs[0], record.devices, prices)), ("all", of_all)):
        line = next(line for line in told if line.startswith(f"{title} "))
        end = heading.index("  COST") + len("  COST")
        assert line[:end].endswith(charges.text(charge.held, "held", prices))


def test_the_terminal_view_of_a_run_begins_its_particulars_with_the_cost_where_there_are_prices(tmp_path: Path) -> None:
    book = Book(tmp_path)
    training(book, "net-1a2b", 3, gpus=2)
    kept = LedgerRuns(lambda: Ledgers([str(book.path)]), lambda: BEGAN + 9999)
    assert not [line for line in _opened(kept).about if line.startswith("Cost")]
    kept = LedgerRuns(lambda: Ledgers([str(book.path)]), lambda: BEGAN + 9999)
    kept.prices = PRICES._replace(gpu_hour={"default": 3.0})
    assert _opened(kept).about[0].startswith("Cost: ")
    book.db.close()


def test_the_terminal_views_table_of_epochs_has_columns_of_costs_only_where_there_are_prices(tmp_path: Path) -> None:
    book = Book(tmp_path)
    training(book, "net-1a2b", 3, gpus=2)
    with Ledger(str(book.path)) as ledger:
        record = ledger.record("net-1a2b", phases=False, times=True)
    book.db.close()
    without, priced = open_run(record, BEGAN + 9999), open_run(record, BEGAN + 9999, read_prices({
        "currency": "EUR", "gpu-hour": 3.0}))  # fmt: skip
    plain = [column.title for column in run_detail.columns(without, 160)]
    assert "cost" not in plain
    assert [one.title for one in run_detail.columns(priced, 160) if one.title not in plain] == ["cost", "idle cost"]
    scale = run_detail.row_scale(priced)
    by_title = [
        dict(zip((one.title for one in run_detail.columns(priced, 160)), row, strict=True))
        for row in (
            *(run_detail.row(one, scale) for one in priced.rows),
            run_detail.summary_row(priced.whole, scale, 160, is_whole=True),
        )
    ]
    hours = [*(one.summary.seconds / HOUR for one in priced.rows), priced.seconds / HOUR]
    assert [row["cost"].text for row in by_title] == [units.money(2 * 3.0 * one, "EUR") for one in hours]


def _opened(kept: LedgerRuns) -> OpenRun:
    """The run, once it was read beside the view."""
    found = until(lambda: kept.opened("net-1a2b", is_over=True).result)
    assert found is not None
    return found
