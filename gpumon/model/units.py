"""Formats values in base units as text for people. No other module does this.

A missing value (NaN) becomes "–". An infinite measurement also becomes "–", because no sensor can have measured it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import localtime, strftime

from gpumon.common.numbers import NAN, is_known
from gpumon.model.metrics import Kind, Metric, Unit

MISSING = "–"
AT_MOST, AT_LEAST, ABOUT = "≤", "≥", "≈"
"""Prefixes of an upper bound, of a lower bound, and of a value that may still change or was measured for only part of
the time."""
BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def number(value: float, unit: Unit) -> str:
    """Format a measured value with its unit, such as `97 %`, `72.0 GiB`, `1,214 W`, `66 °C` or `1.98 GHz`."""
    return signed(_WRITERS[unit](value)) if math.isfinite(value) else MISSING


def signed(text: str) -> str:
    """Replace the hyphen at the beginning of a formatted number by a minus sign: `−0.5`."""
    return f"−{text[1:]}" if text.startswith("-") else text


def _non_finite(value: float) -> str:
    """Return the text for NaN or an infinity; empty for a finite number. Untrusted input may contain such numbers."""
    if not is_known(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return ""


def metric(value: float, metric: Metric) -> str:
    """Format a value of a metric. For a counter, `value` is its rate per second."""
    if metric.kind is Kind.COUNTER:
        return rate(value, metric.unit)
    return number(value, metric.unit)


def rate(value: float, unit: Unit) -> str:
    """Format a rate of `value` units per second.

    Joules become watts, seconds become a ratio, bytes become `12 MiB/s`.
    """
    if not math.isfinite(value):
        return MISSING
    if unit is Unit.JOULES:
        return number(value, Unit.WATTS)
    if unit is Unit.SECONDS:
        return number(value, Unit.RATIO)
    return number(value, unit) + "/s"


def percent(value: float) -> str:
    """Format a ratio without a space, for narrow columns, such as `97%`."""
    return f"{value * 100:.0f}%" if math.isfinite(value) else MISSING


def share(value: float, decimals: int = 0, *, is_narrow: bool = True) -> str:
    """Format a share of a whole like `percent`. A share that is not exactly 0 or 1 is never shown as `0%` or `100%`.

    Instead, it becomes `<1%` or `>99%`. `is_narrow`: write no space before the percent sign.
    """
    if not math.isfinite(value):
        return MISSING
    step = 10.0**-decimals
    percents = round(value * 100, decimals)
    sign = ""
    if percents >= 100 and value < 1 - _ROUNDING:
        sign, percents = ">", 100 - step
    elif percents <= 0 and value > _ROUNDING:
        sign, percents = "<", step
    return f"{sign}{percents:.{decimals}f}{'' if is_narrow else ' '}%"


_ROUNDING = 1e-9
"""Rounding errors in a share that is a quotient of sums are smaller than this."""


def performance_state(value: float) -> str:
    """Format a performance state as drivers do. `P0` is the fastest."""
    return f"P{value:.0f}" if is_known(value) else MISSING


def bytes_binary(value: float) -> str:
    """Format bytes with three digits and binary units: `812 MiB`, `72.0 GiB`."""
    if not math.isfinite(value):
        return MISSING
    step = 0
    while abs(value) >= 999.5 and step < len(BINARY) - 1:
        value /= 1024
        step += 1
    return f"{value:.0f} {BINARY[step]}" if step == 0 or value >= 99.95 else f"{value:.1f} {BINARY[step]}"


def rounded(value: float) -> str:
    """Format a rounded number without a unit, such as `612`. The heading or a neighboring cell shows the unit."""
    return f"{value:.0f}" if math.isfinite(value) else MISSING


def gibibytes(value: float) -> str:
    """Format bytes as GiB with one decimal and without the unit, such as `72.0`. The heading shows the unit."""
    return f"{value / 2**30:.1f}" if math.isfinite(value) else MISSING


def without_unit(value: float, unit: Unit) -> str:
    """Format a measured value without its unit, such as `97`, `72.0` (GiB) or `1.98` (GHz).

    The heading shows the unit.
    """
    return signed(_BARE.get(unit, rounded)(value)) if math.isfinite(value) else MISSING


def counted(number: int, noun: str) -> str:
    """Format a number with a noun: `1 run`, `3,000 processes`."""
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"


def of_total(used: float, total: float) -> str:
    """Format used and total bytes, both in the unit of the total, such as `72.0/80.0 GiB` or `0.2/1.0 TiB`."""
    if not math.isfinite(total):
        return bytes_binary(used)
    unit = bytes_binary(total).rpartition(" ")[2]
    scale = 1024.0 ** BINARY.index(unit)
    return f"{f'{used / scale:.1f}' if math.isfinite(used) else MISSING}/{total / scale:.1f} {unit}"


def duration(seconds: float) -> str:
    """Format a duration: `8.0 s`, `12 s`, `3:20`, `1:02:03`, `3 d 4 h`."""
    if text := _non_finite(seconds):
        return text
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.0f} s" if seconds >= 9.95 or whole == 0 else f"{seconds:.1f} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02}"
    if whole < 86400:
        return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
    return f"{whole // 86400} d {whole // 3600 % 24} h"


def fine_duration(seconds: float) -> str:
    """Format a duration like `duration`, but in milliseconds if it is below a second: `1.2 ms`, `12 ms`, `8.0 s`."""
    if 0 < seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.0095 else f"{seconds * 1000:.1f} ms"
    return duration(seconds)


def long_duration(seconds: float) -> str:
    """Format a duration for sentences: `42 s`, `42 min`, `2 h`, `2 h 50 min`, `3 d 4 h`."""
    if text := _non_finite(seconds):
        return text
    minutes = int(seconds // 60)
    if minutes < 1:
        return f"{max(0, int(seconds // 1))} s"
    if minutes < 60:
        return f"{minutes} min"
    size, large, step, small = (60, "h", 1, "min") if minutes < 1440 else (1440, "d", 60, "h")
    rest = minutes % size // step
    return f"{minutes // size} {large}" + (f" {rest} {small}" if rest else "")


def short_duration(seconds: float) -> str:
    """Format a duration for a table column: `42 s`, `19 m`, `1 h 01 m`, `2 d 04 h`."""
    if text := _non_finite(seconds):
        return text
    if seconds < 60:
        return f"{max(0, int(seconds))} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} m"
    return (
        f"{minutes // 60} h {minutes % 60:02} m" if minutes < 1440 else f"{minutes // 1440} d {minutes // 60 % 24:02} h"
    )


def hours(seconds: float) -> str:
    """Format a sum of times, such as GPU hours: `67.9 h` or `1,204.5 h`. Less than an hour becomes `42 min` or `42 s`.

    The value is rounded, not truncated as in `long_duration`, so that a total agrees with its rows.
    """
    if text := _non_finite(seconds):
        return text
    whole, minutes = max(0, int(seconds + 0.5)), int(seconds / 60 + 0.5)
    if whole < 60:
        return f"{whole} s"
    return f"{minutes} min" if minutes < 60 else f"{seconds / 3600:,.1f} h"


def money(value: float, currency: str) -> str:
    """Format an amount of money, such as `1,204.50 EUR`.

    Amounts of less than a cent get more decimals: `0.0042 EUR`.
    """
    if text := _non_finite(value):
        return text
    digits = 2 if value == 0 or abs(value) >= 0.0095 else 4
    return f"{value:,.{digits}f} {currency}"


def grams(value: float) -> str:
    """Format a mass: `0.12 g`, `12 g`, `2.7 kg`, `1,204 kg`."""
    if text := _non_finite(value):
        return text
    if 0 < value < 9.95:
        return f"{value:.2g} g"
    if value < 999.5:
        return f"{value:.0f} g"
    return f"{value / 1000:,.{0 if value >= 99_950 else 1}f} kg"


def count(number: int | None) -> str:
    """Format an integer with thousands separators: `1,000,000`; `–` if unknown."""
    return MISSING if number is None else f"{number:,}"


def about(text: str, *, is_final: bool) -> str:
    """Prefix a formatted value with `≈` unless it is final."""
    return text if is_final or text == MISSING else f"{ABOUT}{text}"


def limited(value: float, unit: Unit, sign: str) -> str:
    """Format an upper or lower bound with its `sign` (`≤` or `≥`), such as `≤5.0 GiB`.

    If `sign` is empty, the result is the same as from `number`.
    """
    return f"{sign}{number(value, unit)}" if is_known(value) else MISSING


def ago(seconds: float) -> str:
    """Format a mark on a time axis, such as `-40s`, `-5m`, `-2h` or `-2h30`. From two days on: `-3d` or `-3d12h`."""
    if text := _non_finite(seconds):
        return text
    whole = round(seconds)
    if whole == 0:
        return "now"
    if whole < 60:
        return f"-{whole}s"
    if whole < 3600:
        return f"-{whole // 60}m" if whole % 60 == 0 else f"-{whole // 60}m{whole % 60:02}"
    if whole < 2 * 86400:
        return f"-{whole // 3600}h" if whole % 3600 == 0 else f"-{whole // 3600}h{whole // 60 % 60:02}"
    return f"-{whole // 86400}d" if whole % 86400 < 3600 else f"-{whole // 86400}d{whole // 3600 % 24}h"


def clock(seconds: float) -> str:
    """Format a time of day in the viewer's time zone: `14:03:20`."""
    try:
        return _non_finite(seconds) or strftime("%H:%M:%S", localtime(seconds))
    except (OverflowError, OSError, ValueError):
        return MISSING  # outside the range of this machine's calendar


def epoch(number: int, planned: int, base: int) -> str:
    """Format an epoch with the training's own number, and with its position in the plan if the two differ.

    The eighth of 90 epochs is `7 (8/90)` if the training counts from 0 (`base`), and `8/90` if it counts from 1.
    `planned`: number of planned epochs; 0 without a plan. An epoch beyond the plan is shown without the plan.
    """
    position = epoch_position(number, planned, base)
    return position if position.partition("/")[0] == str(number) or number < 0 else f"{number} ({position})"


def epoch_position(number: int, planned: int, base: int) -> str:
    """Format the position of an epoch in the plan for a narrow column, such as `8/90`.

    Without a plan, return only its number.
    """
    if number < 0:
        return MISSING
    position = number - base + 1
    return f"{position}/{planned}" if 0 < position <= planned else str(number)


def epochs_done(done: int | None, planned: int) -> str:
    """Format the number of epochs done, with the plan if there is one: `8/90`; `–` if unknown.

    If the plan is exceeded, it is omitted, because a training that repeats its epochs reports the plan of one
    repetition.
    """
    return MISSING if done is None else f"{done}/{planned}" if done <= planned else str(done)


def epoch_within(cells: int, number: int, planned: int, base: int) -> str:
    """Format an epoch like `epoch` (`7 (8/90)`) if there is enough room, else like `epoch_position` (`8/90`).

    `cells`: width of the column. The last epoch of the plan must also fit, so that all rows have the same form.
    """
    last = epoch(base + planned - 1 if planned else number, planned, base)
    return epoch(number, planned, base) if len(last) <= cells else epoch_position(number, planned, base)


def without_plan(position: str, cells: int) -> str:
    """Return the position, such as `8/90`, if it fits into `cells`.

    Otherwise return only `8`, because a truncated plan would be wrong.
    """
    return position if len(position) <= cells else position.partition("/")[0]


def moment(seconds: float) -> str:
    """Format a date and time in the viewer's time zone: `2026-01-31 14:03:20`."""
    try:
        return _non_finite(seconds) or strftime("%Y-%m-%d %H:%M:%S", localtime(seconds))
    except (OverflowError, OSError, ValueError):
        return MISSING


def age(seconds: float, now: float) -> str:
    """Format how long ago a time was, such as `12 min ago` or `5 h ago`. After a day, format its date: `2026-01-31`.

    Both arguments are in seconds since 1970.
    """
    past = now - seconds
    if not -60 <= past < 86400:
        return moment(seconds).partition(" ")[0]
    if past < 60:
        return "just now"
    return f"{past // 60:.0f} min ago" if past < 3600 else f"{past // 3600:.0f} h ago"


def change_of_value(ratio: float) -> str:
    """Format the relative change of a logged value: `+12 %`.

    A change of more than 100 % becomes `>+100 %`, because the exact change of values near zero means nothing.
    """
    return f">{change(1.0)}" if ratio > 1 else change(ratio)


def change(ratio: float) -> str:
    """Format a relative difference with its sign: `+12 %`, `−0.4 %`."""
    return _non_finite(ratio) or f"{_signed(ratio)} %"


def points(ratio: float) -> str:
    """Format the difference of two ratios in percentage points: `+12 points`."""
    return _non_finite(ratio) or f"{_signed(ratio)} points"


def _signed(ratio: float) -> str:
    percents = f"{abs(ratio) * 100:.0f}" if abs(ratio) >= 0.0995 else f"{abs(ratio) * 100:.1f}"
    return ("" if not float(percents) else "+" if ratio > 0 else "−") + percents


def three_digits(value: float) -> str:
    """Format a number with at least three digits and no unit: `0.53`, `12.1`, `12110`. The heading shows the unit."""
    return _non_finite(value) or (f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}")


def pace(value: float, decimals: int) -> str:
    """Format steps or samples per second with `decimals`: `4.00`, `11.52`; empty if unknown."""
    return _non_finite(value) or f"{value:.{decimals}f}" if is_known(value) else ""


def pace_decimals(paces: Iterable[float]) -> int:
    """Return the number of decimals for a column of steps per second, so that the decimal points are aligned."""
    largest = max((pace for pace in paces if math.isfinite(pace)), default=0.0)
    return next((decimals for least, decimals in _PACES if largest >= least), 4)


_PACES = ((1000.0, 0), (100.0, 1), (1.0, 2), (0.1, 3))
"""Number of decimals with which the largest value of a column has at least three digits."""


def load(value: float) -> str:
    """Format a load average like other tools: `15.24`."""
    return _non_finite(value) or f"{value:.2f}"


def logged_number(value: float) -> str:
    """Format a logged number, such as a loss, with 4 significant digits or as an integer.

    A number that has diverged becomes `nan` or `∞`.
    """
    if not is_known(value):
        return "nan"
    if text := _non_finite(value):
        return text
    if value != 0 and not 1e-3 <= abs(value) < 1e6:
        return signed(f"{value:.2e}")
    return signed(f"{value:.0f}" if abs(value) >= 9999.5 else f"{value:.4g}")


def padded_logged_number(value: float) -> str:
    """Format a logged number with trailing zeros, such as `1.000`.

    Used in columns of runs that log different metrics.
    """
    if math.isfinite(value) and 1e-3 <= abs(value) < 1e4:
        return signed(f"{value:#.4g}".removesuffix("."))
    return logged_number(value)


_LOGGED = 8
"""Maximum characters of a logged number in a column."""


def logged_column(values: Sequence[float]) -> list[str]:
    """Format the logged numbers of a column with equal numbers of decimals, so that the decimal points are aligned."""
    # Usual values are formatted inline. For a run with thousands of epochs, function calls took most of the time.
    texts = [f"{value:.4g}" if 1e-3 <= value < 9999.5 else logged_number(value) for value in values]
    if any("e" in text for text in texts):
        return texts
    decimals = max((len(text.partition(".")[2]) for text in texts), default=0)
    both = zip(values, texts, strict=True)
    equal = [signed(f"{value:.{decimals}f}") if math.isfinite(value) else text for value, text in both]
    return equal if max(map(len, equal), default=0) <= _LOGGED else texts


def energy_column(values: Sequence[float]) -> list[str]:
    """Format the energies of a column in the unit that suits the largest of them: `24.70 Wh` above `0.85 Wh`."""
    largest = max((value for value in values if math.isfinite(value)), default=0.0)
    return [energy_in_column(value, largest) for value in values]


def energy_in_column(value: float, largest: float) -> str:
    """Format an energy for a table column, in the unit that suits `largest`, the largest value in the rows.

    A value too small for this unit becomes `<0.01 Wh`. The sum below the rows gets a larger unit if it is too large for
    the unit of the rows. The rows do not change to the larger unit, because in kWh every epoch of a long run would be
    shown as 0.063.
    """
    own_unit, column_unit = _energy_unit(value), _energy_unit(largest)
    size, unit, digits = own_unit if own_unit[0] > column_unit[0] else column_unit
    return _non_finite(value) or f"{_rounded(value / size, digits)} {unit}"


def _rounded(value: float, digits: int) -> str:
    """Format a number with `digits` decimals; `<0.01` if it is too small for them."""
    is_less = 0 < value < 10**-digits / 2
    return f"{'<' * is_less}{10**-digits if is_less else value:,.{digits}f}"


def in_column(
    value: float, unit: Unit, largest: float = NAN, *, is_fine: bool = False, is_narrow: bool = False
) -> str:  # fmt: skip
    """Format a value in the unit and with the decimals that suit `largest`, the largest value of its column.

    `largest`: NaN for a single value. `is_fine`: use three digits, for small quantities such as the energy of a step
    (`51.1 J`). `is_narrow`: write percent without a space.
    """
    largest = largest if math.isfinite(largest) else value
    if not math.isfinite(value):
        return MISSING
    if is_fine:
        decimals = 2 - math.floor(math.log10(largest)) if largest > 0 else 0
        return f"{_rounded(value, min(9, max(0, decimals)))} {_SMALL[unit]}"
    if unit is Unit.JOULES:
        return energy_in_column(value, largest)
    if unit is Unit.PER_SECOND:
        return pace(value, pace_decimals([largest]))
    if unit is Unit.SECONDS:
        return fine_duration(value)
    return percent(value) if unit is Unit.RATIO and is_narrow else number(value, unit)


_SMALL: Mapping[Unit, str] = {Unit.JOULES: "J"}
"""Units for `is_fine`."""


def _joules(value: float) -> str:
    size, unit, _ = _energy_unit(value)
    return f"{value / size:,.{('J', 'Wh', 'kWh').index(unit)}f} {unit}"


def _energy_unit(value: float) -> tuple[float, str, int]:
    """Return the unit that suits an energy: its size in joules, its name, and its number of decimals in columns."""
    if value >= 3.6e6:
        return 3.6e6, "kWh", 3 if value < 3.6e7 else 2 if value < 3.6e8 else 1
    if value >= 3.6e3:
        return 3.6e3, "Wh", 2 if value < 3.6e4 else 1
    return 1.0, "J", 0


_WRITERS: dict[Unit, Callable[[float], str]] = {
    Unit.RATIO: lambda value: f"{value * 100:.0f} %",
    Unit.BYTES: bytes_binary,
    Unit.WATTS: lambda value: f"{value:,.0f} W",
    Unit.JOULES: _joules,
    Unit.CELSIUS: lambda value: f"{value:.0f} °C",
    Unit.HERTZ: lambda value: f"{value / 1e9:.2f} GHz",
    Unit.SECONDS: duration,
    Unit.COUNT: lambda value: f"{value:,.0f}" if value == int(value) else f"{value:,.2f}",
    Unit.BITS: lambda value: f"0x{int(value):x}",
    Unit.BYTES_PER_SECOND: lambda value: f"{bytes_binary(value)}/s",
    Unit.PER_SECOND: lambda value: pace(value, pace_decimals([value])),
}
_BARE: dict[Unit, Callable[[float], str]] = {
    Unit.RATIO: lambda value: rounded(value * 100),
    Unit.BYTES: gibibytes,
    Unit.BYTES_PER_SECOND: gibibytes,
    Unit.HERTZ: lambda value: f"{value / 1e9:.2f}",
}
"""Formats of numbers without a unit: percent, GiB and GHz. Values of other units are rounded to whole numbers."""
