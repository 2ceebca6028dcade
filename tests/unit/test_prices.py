"""`[cost]` of the settings file: prices are what it says, and what it gets wrong is named."""

from __future__ import annotations

import argparse
from math import isnan
from pathlib import Path
from typing import Any

import pytest

from gpumon.cli.options import resolve_options
from gpumon.common.config import Prices, read_prices
from gpumon.common.errors import UsageError


def prices(**table: Any) -> Prices:
    """Prices in euros."""
    return read_prices({"currency": "EUR", **{name.replace("_", "-"): value for name, value in table.items()}})


def test_a_model_has_the_price_of_the_longest_name_that_is_a_part_of_its_own() -> None:
    found = prices(gpu_hour={"H100": 2.1, "H100 NVL": 2.6, "a100": 1.1, "default": 0.4})
    models = ("NVIDIA H100 80GB HBM3", "NVIDIA H100 NVL", "NVIDIA A100-SXM4", "T4")
    assert [found.of_model(name) for name in models] == [2.1, 2.6, 1.1, 0.4]


def test_a_model_without_a_price_costs_what_is_not_known() -> None:
    assert isnan(prices(gpu_hour={"H100": 2.1}).of_model("Tesla T4"))


def test_one_number_is_the_price_of_all_models_and_all_hours() -> None:
    found = prices(gpu_hour=1.5, kwh=0.3)
    assert found.of_model("any") == 1.5
    assert found.kwh == (0.3,) * 24


def test_tariffs_hold_for_their_hours_and_across_midnight() -> None:
    found = prices(kwh=[{"from": "22:00", "to": "06:00", "price": 0.2}, {"from": 6, "to": 20, "price": 0.4}])
    assert [found.kwh[hour] for hour in (21, 22, 23, 0, 5, 6, 19)][1:] == [0.2, 0.2, 0.2, 0.2, 0.4, 0.4]
    assert isnan(found.kwh[21]), "no tariff holds then"


def test_a_tariff_of_a_whole_day_goes_from_midnight_to_midnight() -> None:
    assert prices(kwh=[{"from": "00:00", "to": "24:00", "price": 0.2}]).kwh == (0.2,) * 24


@pytest.mark.parametrize(
    ("table", "named"),
    [
        (3, "table"),
        ({}, "currency"),
        ({"currency": "a lot of money"}, "currency"),
        ({"currency": "EUR", "kwhs": 1}, "'kwhs'"),
        ({"currency": "EUR", "kwh": "0.3"}, "kwh"),
        ({"currency": "EUR", "kwh": True}, "kwh"),
        ({"currency": "EUR", "kwh": float("nan")}, "kwh"),
        ({"currency": "EUR", "kwh": [{"from": 0, "to": 12}]}, "tariffs such as"),
        ({"currency": "EUR", "kwh": [{"from": "07:30", "to": 12, "price": 1}]}, "07:30"),
        ({"currency": "EUR", "kwh": [{"from": 0, "to": 12, "price": 1}, {"from": 11, "to": 13, "price": 2}]}, "11:00"),
        ({"currency": "EUR", "pue": 0.5}, "pue"),
        ({"currency": "EUR", "co2": -1}, "co2"),
        ({"currency": "EUR", "gpu-hour": {"H100": "2"}}, "H100"),
        ({"currency": "EUR", "gpu-hour": {"": 2}}, "without a name"),
    ],
)
def test_what_is_wrong_with_the_table_is_named(table: Any, named: str) -> None:
    with pytest.raises(ValueError, match="cost") as raised:
        read_prices(table)
    assert named in str(raised.value)


def test_the_file_of_settings_has_them_and_a_mistake_in_it_is_named_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "gpumon" / "config.toml"
    file.parent.mkdir()
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    file.write_text('[cost]\ncurrency = "CHF"\nkwh = 0.25\n')
    assert resolve_options(argparse.Namespace(dir=None, state_dir=None), env)[1].prices.currency == "CHF"
    file.write_text("interval = 1\n")
    assert resolve_options(argparse.Namespace(dir=None, state_dir=None), env)[1].prices is None
    file.write_text('[cost]\ncurrency = "CHF"\nkwh = "dear"\n')
    with pytest.raises(UsageError, match=r"config\.toml: kwh in \[cost\]"):
        resolve_options(argparse.Namespace(dir=None, state_dir=None), env)
