"""Numbers as people read them."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.model import units
from gpumon.model.metrics import BY_NAME, METRICS, Unit

NAN, INFINITY = float("nan"), float("inf")
MIB, GIB = 2.0**20, 2.0**30


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.97, Unit.RATIO, "97 %"),
        (0.0, Unit.RATIO, "0 %"),
        (1.0, Unit.RATIO, "100 %"),
        (0.004, Unit.RATIO, "0 %"),
        (72 * GIB, Unit.BYTES, "72.0 GiB"),
        (612.4, Unit.WATTS, "612 W"),
        (100.0, Unit.JOULES, "100 J"),
        (3600.0, Unit.JOULES, "1.0 Wh"),
        (3.6e6, Unit.JOULES, "1.00 kWh"),
        (66.0, Unit.CELSIUS, "66 °C"),
        (-3.0, Unit.CELSIUS, "−3 °C"),
        (1980e6, Unit.HERTZ, "1.98 GHz"),
        (200.0, Unit.SECONDS, "3:20"),
        (3.0, Unit.COUNT, "3"),
        (2.5, Unit.COUNT, "2.50"),
        (36.0, Unit.BITS, "0x24"),
        (0.0, Unit.BITS, "0x0"),
    ],
)
def test_each_unit_has_its_own_writing(value: float, unit: Unit, text: str) -> None:
    assert units.number(value, unit) == text


class TestShare:
    @given(st.floats(0.0, 1.0), st.integers(0, 2))
    def test_shows_a_part_neither_as_all_nor_as_nothing(self, value: float, decimals: int) -> None:
        text = units.share(value, decimals)
        assert (text == units.share(1.0, decimals)) is (value >= 1.0 - 1e-9)
        assert (text == units.share(0.0, decimals)) is (value <= 1e-9)

    @pytest.mark.parametrize(
        ("value", "text"),
        [(0.0, "0%"), (0.0001, "<1%"), (0.25, "25%"), (0.99, "99%"), (0.996, ">99%"), (1.0, "100%"), (NAN, "–")],
    )
    def test_is_rounded(self, value: float, text: str) -> None:
        assert units.share(value) == text

    def test_has_the_decimals_and_the_space_of_its_table(self) -> None:
        assert [units.share(v, 1, is_narrow=False) for v in (0.0333, 0.9999)] == ["3.3 %", ">99.9 %"]


@pytest.mark.parametrize("unit", Unit)
def test_a_missing_value_is_a_dash_in_every_unit(unit: Unit) -> None:
    assert units.number(NAN, unit) == "–"
    assert units.rate(NAN, unit) == "–"


@pytest.mark.parametrize(
    "write",
    [
        units.percent,
        units.bytes_binary,
        units.rounded,
        units.gibibytes,
        units.duration,
        units.clock,
        units.fine_duration,
        units.moment,
        units.change,
        units.points,
        units.three_digits,
    ],
)
def test_a_missing_value_is_a_dash_in_every_writer(write: object) -> None:
    assert callable(write)
    assert write(NAN) == "–"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 B"),
        (1.0, "1 B"),
        (999.0, "999 B"),
        (1000.0, "1.0 KiB"),
        (1023.0, "1.0 KiB"),
        (1024.0, "1.0 KiB"),
        (99.94 * 1024, "99.9 KiB"),
        (99.96 * 1024, "100 KiB"),
        (812 * MIB, "812 MiB"),
        (999.4 * MIB, "999 MiB"),
        (999.6 * MIB, "1.0 GiB"),
        (1023.6 * MIB, "1.0 GiB"),
        (81559 * MIB, "79.6 GiB"),
        (2.0**60, "1024 PiB"),
    ],
)
def test_bytes_step_up_before_a_fourth_digit(value: float, text: str) -> None:
    assert units.bytes_binary(value) == text


@given(st.floats(0, 2.0**59))
def test_bytes_never_take_more_than_eight_cells(value: float) -> None:
    text = units.bytes_binary(value)
    assert len(text) <= 8
    assert len(text.split(" ")[0].replace(".", "")) <= 3


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.4, "0 s"),
        (0.6, "0.6 s"),
        (8.0, "8.0 s"),
        (10.0, "10 s"),
        (59.4, "59 s"),
        (59.6, "1:00"),
        (60.0, "1:00"),
        (200.0, "3:20"),
        (3599.4, "59:59"),
        (3599.6, "1:00:00"),
        (3723.0, "1:02:03"),
        (86399.4, "23:59:59"),
        (86399.6, "1 d 0 h"),
        (3 * 86400 + 4 * 3600.0, "3 d 4 h"),
    ],
)
def test_a_duration_never_shows_a_sixtieth_second_or_minute(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text


@given(st.floats(0, 1e9))
def test_a_duration_is_true_to_its_last_digit(seconds: float) -> None:
    text = units.duration(seconds)
    if text.endswith(" s"):
        assert float(text[:-2]) == pytest.approx(seconds, abs=0.5)
    elif ":" in text:
        parts = [int(part) for part in text.split(":")]
        assert all(part < 60 for part in parts[1:])
        assert sum(part * 60**i for i, part in enumerate(reversed(parts))) == pytest.approx(seconds, abs=0.5)
    else:
        days, _, hours, _ = text.split()
        assert 0 <= seconds + 0.5 - int(days) * 86400 - int(hours) * 3600 < 3601


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (0.0004, "0.4 ms"), (0.012, "12 ms"), (0.999, "999 ms"), (0.9996, "1.0 s"), (200.0, "3:20")],
)
def test_a_small_part_of_a_second_is_in_milliseconds(seconds: float, text: str) -> None:
    assert units.fine_duration(seconds) == text


@pytest.mark.parametrize(
    ("past", "text"),
    [
        (-5, "just now"),
        (59, "just now"),
        (61, "1 min ago"),
        (3599, "59 min ago"),
        (7300, "2 h ago"),
        (86399, "23 h ago"),
    ],
)
def test_how_long_ago_is_told_within_a_day(past: float, text: str) -> None:
    assert units.age(1_790_000_000 - past, 1_790_000_000) == text


def test_what_is_longer_ago_has_its_day() -> None:
    assert units.age(1_790_000_000 - 3 * 86400, 1_790_000_000) == units.moment(1_790_000_000 - 3 * 86400)[:10]


@pytest.mark.parametrize(
    ("ratio", "text"), [(0.123, "+12 %"), (-0.0042, "−0.4 %"), (0.0, "0.0 %"), (-0.0001, "0.0 %"), (3.0, "+300 %")]
)
def test_a_change_has_its_sign(ratio: float, text: str) -> None:
    assert units.change(ratio) == text
    assert units.points(ratio) == text.replace("%", "points")


@pytest.mark.parametrize(
    ("value", "text"), [(0.5312, "0.531"), (12.13, "12.1"), (1377.4, "1377"), (12110.2, "12110"), (INFINITY, "∞")]
)
def test_a_figure_has_three_digits_or_more_and_no_exponent(value: float, text: str) -> None:
    assert units.three_digits(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "now"), (40, "-40s"), (300, "-5m"), (330, "-5m30"), (7200, "-2h"), (9000, "-2h30"), (3605, "-1h00")],
)
def test_a_mark_on_a_time_axis_is_short(seconds: float, text: str) -> None:
    assert units.ago(seconds) == text


def test_a_rate_of_joules_is_watts_and_of_seconds_a_share() -> None:
    assert units.rate(612.0, Unit.JOULES) == "612 W"
    assert units.rate(0.25, Unit.SECONDS) == "25 %"
    assert units.rate(12 * MIB, Unit.BYTES) == "12.0 MiB/s"


def test_a_counter_is_written_as_its_rate_and_a_gauge_as_it_is() -> None:
    assert units.metric(300.0, BY_NAME["gpu.energy"]) == "300 W"
    assert units.metric(300.0, BY_NAME["gpu.power"]) == "300 W"
    assert units.metric(2 * GIB, BY_NAME["gpu.pcie_sent"]) == "2.0 GiB/s"
    assert units.metric(2 * GIB, BY_NAME["gpu.memory_used"]) == "2.0 GiB"


@given(st.floats(-1e15, 1e15))
def test_every_finite_number_can_be_written_in_every_metric(value: float) -> None:
    assert all(units.metric(value, metric) for metric in METRICS)


# A ring of a stranger may hold any eight bytes as a number.
@pytest.mark.parametrize("unit", [Unit.COUNT, Unit.BITS, Unit.SECONDS])
@pytest.mark.parametrize("value", [INFINITY, -INFINITY])
def test_infinity_is_written_and_never_raises(unit: Unit, value: float) -> None:
    assert units.number(value, unit)


@pytest.mark.parametrize("unit", [unit for unit in Unit if unit not in (Unit.COUNT, Unit.BITS, Unit.SECONDS)])
@pytest.mark.parametrize("value", [INFINITY, -INFINITY])
def test_an_infinite_quantity_is_written(unit: Unit, value: float) -> None:
    assert units.number(value, unit)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.31, "0.31"), (0.0, "0"), (1e-4, "1.00e-04"), (1e6, "1.00e+06"), (999999.0, "999999"), (-2.5, "−2.5"),
        (INFINITY, "∞"), (-INFINITY, "−∞"), (NAN, "nan"), (2e-5, "2.00e-05"), (12345.678, "12346"), (9999.7, "10000"),
    ],
)  # fmt: skip
def test_a_users_own_number_has_four_significant_digits(value: float, text: str) -> None:
    assert units.logged_number(value) == text


def test_a_bare_number_leaves_its_unit_to_the_heading() -> None:
    assert (units.percent(0.975), units.rounded(611.6), units.gibibytes(72 * GIB)) == ("98%", "612", "72.0")


def test_a_time_of_day_is_that_of_the_viewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-2")
    time.tzset()
    try:
        assert units.clock(1_790_000_000.9) == "16:13:20"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_no_writer_takes_minus_zero_for_a_number() -> None:
    assert math.copysign(1, -0.0) == -1
    assert units.bytes_binary(-0.0).lstrip("-") == "0 B"


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([3000.0, 900.0], ["3,000 J", "900 J"]),
        ([3960.0, 3262.0, math.nan], ["1.10 Wh", "0.91 Wh", "–"]),
        ([90_000.0, 3262.0], ["25.0 Wh", "0.9 Wh"]),
        ([7.2e6, 3.6e5], ["2.000 kWh", "0.100 kWh"]),
        ([7.2e6, 1799.0, 1801.0, 0.0], ["2.000 kWh", "<0.001 kWh", "0.001 kWh", "0.000 kWh"]),
        ([90.0, 0.4], ["90 J", "<1 J"]),
        ([4.5e7, 3.6e5], ["12.50 kWh", "0.10 kWh"]),
        ([3.6e9, 3.6e5], ["1,000.0 kWh", "0.1 kWh"]),
        ([math.nan], ["–"]),
        ([], []),
    ],
)
def test_energies_of_a_column_are_in_the_unit_of_the_largest(values: list[float], texts: list[str]) -> None:
    assert units.energy_column(values) == texts


@pytest.mark.parametrize(
    ("rows", "beside", "texts"),
    [
        ([227_520.0, 3600.0], [227_520.0 * 6], ["63.2 Wh", "1.0 Wh", "379.2 Wh"]),
        ([227_520.0, 3600.0], [1800.0, 227_520.0 * 90], ["63.2 Wh", "1.0 Wh", "0.5 Wh", "5.688 kWh"]),
        ([1332.0], [19_116.0], ["1,332 J", "5.31 Wh"]),
        ([math.nan], [90_000.0, 3262.0], ["–", "25.0 Wh", "0.9 Wh"]),
        ([3600.0], [math.nan], ["1.00 Wh", "–"]),
    ],
)
def test_energies_of_rows_stay_as_they_are_while_their_sum_grows(
    rows: list[float], beside: list[float], texts: list[str]
) -> None:
    largest = max(rows if any(map(math.isfinite, rows)) else beside)
    assert [units.energy_in_column(value, largest) for value in (*rows, *beside)] == texts


@pytest.mark.parametrize(
    ("number", "planned", "base", "text"),
    [
        (1, 2, 0, "1 (2/2)"), (0, 90, 0, "0 (1/90)"), (2, 2, 1, "2/2"), (90, 90, 1, "90/90"), (90, 90, 0, "90"),
        (4, 0, 0, "4"), (-1, 90, 0, "–"), (0, 90, 1, "0"),
        (4999, 5000, 0, "4999 (5000/5000)"), (5000, 0, 1, "5000"),
    ],
)  # fmt: skip
def test_the_last_epoch_of_a_plan_is_its_last_whatever_the_framework_counts_from(
    number: int, planned: int, base: int, text: str
) -> None:
    assert units.epoch(number, planned, base) == text


def test_a_narrow_column_has_a_part_of_what_a_wide_one_says_of_an_epoch() -> None:
    plans = (7, 90, 0), (7, 90, 1), (7, 0, 0), (-1, 90, 0), (131, 5000, 0)
    narrow, wide = ([units.epoch_within(cells, *plan) for plan in plans] for cells in (7, 11))
    assert [units.epoch_position(*plan) for plan in plans] == ["8/90", "7/90", "7", "–", "132/5000"]
    assert narrow == ["8/90", "7/90", "7", "–", "132/5000"]
    assert wide == ["7 (8/90)", "7/90", "7", "–", "132/5000"]


@pytest.mark.parametrize("base", [0, 1])
@pytest.mark.parametrize("planned", [9, 40, 100, 1200])
@pytest.mark.parametrize("cells", [5, 7, 9, 10, 11, 14, 20])
def test_the_form_of_an_epoch_stays_the_same_for_as_long_as_a_run_goes_on(base: int, planned: int, cells: int) -> None:
    numbers = range(base, base + planned)
    texts = [units.epoch_within(cells, number, planned, base) for number in numbers]
    assert len({"(" in text for text in texts}) == 1


def test_a_plan_without_room_is_left_out_and_never_cut() -> None:
    assert [units.without_plan("10000/10000", cells) for cells in (11, 10, 7)] == ["10000/10000", "10000", "10000"]


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((4.0, 11.52, 0.25), ["4.00", "11.52", "0.25"]), ((244.91, 4.0), ["244.9", "4.0"]),
        ((1234.5, float("nan"), 3.0), ["1234", "", "3"]), ((0.25,), ["0.250"]), ((0.0123,), ["0.0123"]),
    ],
)  # fmt: skip
def test_paces_of_a_column_have_equal_decimals_and_three_digits_or_more(values: Any, texts: list[str]) -> None:
    decimals = units.pace_decimals(values)
    assert [units.pace(value, decimals) for value in values] == texts


def test_logged_numbers_of_several_runs_have_four_digits_each() -> None:
    values = 1.0, 0.98641, 12.0, 0.00012, 2048.0, 123456.0, float("nan")
    assert [units.padded_logged_number(value) for value in values] == [
        "1.000", "0.9864", "12.00", "1.20e-04", "2048", "123456", "nan",
    ]  # fmt: skip


def test_a_logged_number_below_zero_has_the_minus_sign_of_all_numbers() -> None:
    assert [units.logged_number(value) for value in (-0.5, -3e-9, -12345.6)] == ["−0.5", "−3.00e-09", "−12346"]
    assert [units.padded_logged_number(value) for value in (-0.5, -3e-9)] == ["−0.5000", "−3.00e-09"]
    assert units.logged_column([-0.5, 0.25, -12.125]) == ["−0.50", "0.25", "−12.12"]


def test_logged_numbers_of_one_column_have_equal_decimals() -> None:
    assert units.logged_column([0.9711, 0.3, 2.0, NAN]) == ["0.9711", "0.3000", "2.0000", "nan"]
    assert units.logged_column([1.0, 2e-5]) == ["1", "2.00e-05"], "a column of both kinds stays as it is"
    assert units.logged_column([]) == []


def test_thousands_are_set_apart() -> None:
    assert units.count(1_000_000) == "1,000,000"


def test_a_value_that_is_only_bounded_says_so() -> None:
    assert units.limited(5 * GIB, Unit.BYTES, "≤") == "≤5.0 GiB"
    assert units.limited(NAN, Unit.BYTES, "≤") == "–"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (70.0, "1 min"), (116.0, "2 min"), (186.0, "3 min"),
        (150.0, "3 min"), (3569.0, "59 min"), (3571.0, "1.0 h"), (4_336_200.0, "1,204.5 h"), (NAN, "–"),
    ],
)  # fmt: skip
def test_a_time_that_people_add_up_is_rounded_to_the_nearest(seconds: float, text: str) -> None:
    assert units.hours(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(3599, "59 min"), (3600, "1 h"), (3660, "1 h 1 min"), (86_400, "1 d"), (98_000, "1 d 3 h")]
)
def test_words_of_a_duration_leave_out_what_is_none(seconds: float, text: str) -> None:
    assert units.long_duration(seconds) == text


def test_logged_numbers_of_a_column_are_never_too_long_for_it() -> None:
    for values in ((33010.2, 0.5123), (9999.7, 1.0), (123456.7, 3.0), (4e-5, 0.3)):
        assert max(map(len, units.logged_column(values))) <= 8
