"""`gpumon runs card`: energy, emissions and what was not measured, in the formats of model cards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpumon.cli import main
from gpumon.common.config import Prices, read_prices
from gpumon.common.errors import EXIT_OK, EXIT_USAGE, GpumonError, UsageError
from gpumon.common.grid_intensity import find_grid
from gpumon.model.frame import RunState
from gpumon.reports.run_card import RunCard, make_card, render
from gpumon.storage.ledger.reader import Ledger
from tests.runs import BEGAN, HOSTILE, Book, training

KWH = 3.6e6


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "state")


def card_of(book: Book, run: str = "net-1", prices: Prices | None = None, country: str = "", **more: Any) -> RunCard:
    with Ledger(str(book.path)) as ledger:
        return make_card(ledger.record(run), BEGAN + 3600.0, prices, country, **more)


def test_energy_and_emissions(book: Book) -> None:
    training(book, "net-1", epochs=4, gpus=2)
    card = card_of(book, country="fr")
    assert card.gpu_kwh == pytest.approx(2 * 500 * card.seconds / KWH, rel=1e-6), "two boards of 500 W"
    assert card.grams == pytest.approx(card.gpu_kwh * find_grid("FR").grams)
    assert (card.location, card.hardware, card.is_complete) == ("France", "2 x NVIDIA H100 80GB HBM3", True)


def test_cpu_packages_and_the_site_count(book: Book) -> None:
    training(book, "net-1")
    book.db.execute("UPDATE rank SET package_energy = ?", (KWH,))
    card = card_of(book, prices=Prices("EUR", pue=1.5, co2=100.0))
    assert card.kwh == pytest.approx((card.gpu_kwh + 1) * 1.5)
    assert card.grams == pytest.approx(100 * card.kwh)
    assert not any("CPU" in part or "cooling" in part for part in card.not_measured)


def test_what_was_not_measured_is_named(book: Book) -> None:
    training(book, "net-1", usage={"energy": None, "energy_least": 1000.0}, state=RunState.RUNNING)
    book.db.execute("UPDATE rank SET package_unknown = 'needs root'")
    card = card_of(book)
    assert not card.is_complete
    assert any("needs root" in part for part in card.not_measured)
    assert any("without samples" in part for part in card.not_measured)
    assert any("not ended" in part for part in card.not_measured)
    assert "≥" in render(card, "")


def test_a_run_without_energy(book: Book) -> None:
    training(book, "net-1", usage={"energy": None, "energy_least": None})
    with pytest.raises(GpumonError):
        card_of(book)


def test_an_unknown_country(book: Book) -> None:
    training(book, "net-1")
    with pytest.raises(UsageError):
        card_of(book, country="XX")


def test_hugging_face(book: Book) -> None:
    training(book, "net-1", epochs=400)
    card = card_of(book, country="DE", is_fine_tuning=True)
    (document, _) = yaml.safe_load_all(render(card, "hf"))
    emissions = document["co2_eq_emissions"]
    assert emissions["emissions"] == pytest.approx(card.grams, rel=1e-3)
    assert (emissions["training_type"], emissions["geographical_location"]) == ("fine-tuning", "Germany")
    assert emissions["source"] == card.method


def test_hugging_face_needs_emissions(book: Book) -> None:
    training(book, "net-1")
    with pytest.raises(UsageError):
        render(card_of(book), "hf")


def test_spdx(book: Book) -> None:
    training(book, "net-1")
    card = card_of(book)
    graph = {entry["type"]: entry for entry in json.loads(render(card, "spdx"))["@graph"]}
    (energy,) = graph["ai_AIPackage"]["ai_energyConsumption"]["ai_trainingEnergyConsumption"]
    assert float(energy["ai_energyQuantity"]) == pytest.approx(card.kwh, rel=1e-3)
    assert energy["ai_energyUnit"] == "kilowattHour"
    assert graph["SpdxDocument"]["rootElement"] == [graph["ai_AIPackage"]["spdxId"]]
    assert graph["CreationInfo"]["createdBy"] == [graph["SoftwareAgent"]["spdxId"]]


def test_cyclonedx(book: Book) -> None:
    training(book, "net-1")
    card = card_of(book, country="SE")
    (component,) = json.loads(render(card, "cyclonedx"))["components"]
    (use,) = component["modelCard"]["considerations"]["environmentalConsiderations"]["energyConsumptions"]
    assert use["activity"] == "training"
    assert use["activityEnergyCost"] == {"value": pytest.approx(card.kwh, rel=1e-3), "unit": "kWh"}
    assert use["co2CostEquivalent"]["value"] == pytest.approx(card.grams / 1e6, rel=1e-3)


@pytest.mark.parametrize("format", ["", "hf", "spdx", "cyclonedx"])
def test_hostile_names(book: Book, format: str) -> None:
    training(book, "net-1", name=HOSTILE, device={"name": HOSTILE})
    text = render(card_of(book, country="EU"), format)
    assert "\x1b" not in text
    parsed = yaml.safe_load(text.strip("-\n")) if format else None
    assert not format or parsed


@pytest.mark.parametrize(("value", "grams"), [("fr", 44.0), ("FR", 44.0), (380, 380.0)])
def test_emissions_in_the_settings(value: object, grams: float) -> None:
    prices = read_prices({"currency": "EUR", "co2": value})
    assert prices.co2 == grams
    assert prices.country == ("FR" if isinstance(value, str) else "")


@pytest.mark.parametrize("value", ["", "France", "XX"])
def test_an_unknown_country_in_the_settings(value: str) -> None:
    with pytest.raises(ValueError, match="co2"):
        read_prices({"currency": "EUR", "co2": value})


def test_command(book: Book, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training(book, "net-1")
    places = ["--dir", str(tmp_path / "live"), "--state-dir", str(tmp_path / "state")]
    assert main(["runs", "card", "net", "--spdx", *places]) == EXIT_OK
    assert json.loads(capsys.readouterr().out)["@graph"]
    assert main(["runs", "card", "net", "--hf", *places]) == EXIT_USAGE
    assert main(["runs", "card", "net", "--hf", "--country", "NO", *places]) == EXIT_OK
