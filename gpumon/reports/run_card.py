"""Energy and emissions of a run, for model cards: as text, for Hugging Face, SPDX and CycloneDX.

The energy is measured by the counters of the GPUs and, if they could be read, of the CPU packages. What was not
measured is named. The factor for emissions comes from the settings or from `grid_intensity`.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import gpumon
from gpumon.common.config import Prices
from gpumon.common.errors import GpumonError, UsageError
from gpumon.common.grid_intensity import SOURCE, find_grid
from gpumon.common.numbers import NAN, is_known
from gpumon.common.text import clean
from gpumon.cost import JOULES_PER_KWH
from gpumon.model import units
from gpumon.model.frame import RunState
from gpumon.model.metrics import Unit
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.records import Record

_DIGITS = 4
"""Significant digits of energy and emissions. Counters are no more accurate."""
_NAME_LENGTH = 80


@dataclass(frozen=True, slots=True)
class RunCard:
    """Energy and emissions of a run."""

    run: str
    """Id of the run."""
    name: str
    started: float
    """Start of the run, in seconds since 1970."""
    ended: float
    """End of the run, or the current time while it runs, in seconds since 1970."""
    seconds: float
    hardware: str
    """The GPUs, such as `2 x NVIDIA H100 80GB HBM3`."""
    gpu_kwh: float
    """Energy of the GPU boards."""
    is_complete: bool
    """Whether `gpu_kwh` is the energy of the whole run. If false, it is a lower bound."""
    cpu_kwh: float
    """Energy of the CPU packages of the machine; NaN if not measured."""
    pue: float
    """Energy of the whole site for each joule of its computers."""
    grams_per_kwh: float
    """Emissions of the electricity; NaN if unknown."""
    factor_source: str
    """Where `grams_per_kwh` comes from."""
    location: str
    """Country of the electricity; empty if unknown."""
    not_measured: tuple[str, ...]
    is_fine_tuning: bool

    @property
    def kwh(self) -> float:
        """Measured energy, with the overhead of the site if it is configured."""
        return (self.gpu_kwh + (self.cpu_kwh if is_known(self.cpu_kwh) else 0.0)) * self.pue

    @property
    def grams(self) -> float:
        """Emissions in grams of CO2 equivalents; NaN if the factor is unknown."""
        return self.kwh * self.grams_per_kwh

    @property
    def method(self) -> str:
        """How the numbers were obtained, in one line."""
        parts = [f"gpumon {gpumon.__version__}", f"{_rounded(self.gpu_kwh)} kWh by the energy counters of the GPUs"]
        if is_known(self.cpu_kwh):
            parts.append(f"{_rounded(self.cpu_kwh)} kWh by the energy counters of the CPU packages")
        if self.pue != 1:
            parts.append(f"PUE {self.pue:g}")
        if self.factor_source:
            parts.append(f"{self.grams_per_kwh:g} g/kWh ({self.factor_source})")
        return f"{', '.join(parts)}; not measured: {', '.join(self.not_measured)}"


def make_card(
    record: Record, now: float, prices: Prices | None, country: str = "", *, is_fine_tuning: bool = False
) -> RunCard:
    """Return the card of a run.

    `now`: current time (s since 1970). `prices`: the configured PUE and emissions; None if nothing is configured.
    `country`: code of the country of the electricity, which takes precedence over `prices`. Raises UsageError for an
    unknown country, and GpumonError if no energy was measured.
    """
    run = record.run
    total = aggregate.run_total(record, aggregate.epoch_summaries(record))
    energy, least = total.value("energy"), total.value("energy_least")
    if not is_known(energy) and not least > 0:
        raise GpumonError(f"no energy was measured for {run.id}: its GPUs have no energy counter, or no daemon ran")
    packages = [rank.package_energy for rank in record.ranks if is_known(rank.package_energy)]
    prices = prices or Prices("")
    grams, source, location = _factor(prices, country)
    is_running = run.state is RunState.RUNNING
    return RunCard(
        run=run.id, name=clean(run.name, _NAME_LENGTH), started=run.started,
        ended=now if is_running or not is_known(run.ended) else run.ended, seconds=total.seconds,
        hardware=_hardware(record), gpu_kwh=(energy if is_known(energy) else least) / JOULES_PER_KWH,
        is_complete=is_known(energy) and not is_running, cpu_kwh=max(packages, default=NAN) / JOULES_PER_KWH,
        pue=prices.pue, grams_per_kwh=grams, factor_source=source, location=location,
        not_measured=tuple(_not_measured(record, prices, is_running=is_running, is_partial=not is_known(energy))),
        is_fine_tuning=is_fine_tuning,
    )  # fmt: skip


def _factor(prices: Prices, country: str) -> tuple[float, str, str]:
    """Return grams per kWh, their source, and the country. NaN and empty texts if nothing is configured."""
    code = country or prices.country
    if not code:
        return prices.co2, "configured" if is_known(prices.co2) else "", ""
    grid = find_grid(code)
    if grid is None:
        raise UsageError(f"--country {clean(code, 20)}: unknown. Give a code such as FR, EU or WORLD")
    return grid.grams, f"{grid.name}: {SOURCE}", grid.name


def _hardware(record: Record) -> str:
    models = Counter(clean(device.name, _NAME_LENGTH) for device in record.devices)
    return ", ".join(f"{number} x {model}" for model, number in models.items()) or "unknown"


def _not_measured(record: Record, prices: Prices, *, is_running: bool, is_partial: bool) -> Iterator[str]:
    if is_running:
        yield "the rest of the run, which has not ended"
    if is_partial:
        yield "a part of the run without samples"
    if not any(is_known(rank.package_energy) for rank in record.ranks):
        reason = next((rank.package_unknown for rank in record.ranks if rank.package_unknown), "")
        yield f"CPU packages ({clean(reason, _NAME_LENGTH)})" if reason else "CPU packages"
    yield "memory, disks and network"
    if prices.pue == 1:
        yield "cooling and power conversion"
    yield "other runs for the same model"


def render(card: RunCard, format: str) -> str:
    """Return the card as text in a format of `runs card`; empty for plain text. Raises UsageError without a factor."""
    return _FORMATS[format](card)


def text(card: RunCard) -> str:
    """Return the card as lines for people."""
    bound = "" if card.is_complete else units.AT_LEAST
    rows = [
        ("run", f"{card.name} ({card.run})"),
        ("hardware", card.hardware),
        ("time", units.duration(card.seconds)),
        ("energy of the GPUs", units.limited(card.gpu_kwh * JOULES_PER_KWH, Unit.JOULES, bound)),
        ("energy of the CPUs", units.number(card.cpu_kwh * JOULES_PER_KWH, Unit.JOULES)),
        *([("energy of the site", f"{card.pue:g} times that (PUE)")] if card.pue != 1 else []),
        ("emissions", f"{bound}{units.grams(card.grams)} CO₂e" if is_known(card.grams) else units.MISSING),
        ("factor", f"{card.grams_per_kwh:g} g/kWh ({card.factor_source})" if card.factor_source else
         "unknown: pass --country, or set co2 in [cost] of the settings"),
        ("not measured", ", ".join(card.not_measured)),
    ]  # fmt: skip
    width = max(len(title) for title, _ in rows)
    return "".join(f"{title:<{width}}  {value}\n" for title, value in rows)


def hugging_face(card: RunCard) -> str:
    """Return the metadata `co2_eq_emissions` of a model card (https://huggingface.co/docs/hub/model-cards-co2)."""
    if not is_known(card.grams):
        raise UsageError("the emissions are unknown: pass --country, or set co2 in [cost] of the settings")
    fields = {
        "emissions": _rounded(card.grams), "source": _quoted(card.method),
        "training_type": _quoted("fine-tuning" if card.is_fine_tuning else "pre-training"),
        "geographical_location": _quoted(card.location) if card.location else "",
        "hardware_used": _quoted(card.hardware),
    }  # fmt: skip
    lines = [f"  {name}: {value}" for name, value in fields.items() if value]
    return "\n".join(["---", "co2_eq_emissions:", *lines, "---", ""])


def spdx(card: RunCard) -> str:
    """Return an SPDX document with the package of a model (https://spdx.github.io/spdx-spec/v3.0.1/model/AI/AI/)."""
    base = f"urn:gpumon:{sha256(card.run.encode()).hexdigest()[:16]}"
    stage = "ai_finetuningEnergyConsumption" if card.is_fine_tuning else "ai_trainingEnergyConsumption"
    agent = {"type": "SoftwareAgent", "spdxId": f"{base}:agent", "creationInfo": "_:creation", "name": _tool()}
    creation = {
        "type": "CreationInfo", "@id": "_:creation", "specVersion": "3.0.1", "created": _utc(card.ended),
        "createdBy": [agent["spdxId"]],
    }  # fmt: skip
    package = {
        "type": "ai_AIPackage", "spdxId": f"{base}:model", "creationInfo": "_:creation", "name": card.name,
        "comment": card.method,
        "ai_energyConsumption": {
            "type": "ai_EnergyConsumption",
            stage: [
                {
                    "type": "ai_EnergyConsumptionDescription", "ai_energyQuantity": _rounded(card.kwh),
                    "ai_energyUnit": "kilowattHour",
                }
            ],
        },
        "ai_informationAboutTraining": f"{card.hardware}, {units.duration(card.seconds)}",
    }  # fmt: skip
    document = {
        "type": "SpdxDocument", "spdxId": f"{base}:document", "creationInfo": "_:creation",
        "profileConformance": ["core"], "rootElement": [package["spdxId"]],
        "element": [agent["spdxId"], package["spdxId"]],
    }  # fmt: skip
    graph = [creation, agent, document, package]
    return _json({"@context": "https://spdx.org/rdf/3.0.1/spdx-context.jsonld", "@graph": graph})


def cyclonedx(card: RunCard) -> str:
    """Return a bill of materials with a model card (https://cyclonedx.org/docs/1.6/json/)."""
    energy = {"value": float(_rounded(card.kwh)), "unit": "kWh"}
    consumption: dict[str, Any] = {
        "activity": "fine-tuning" if card.is_fine_tuning else "training",
        "energyProviders": [
            {
                "organization": {"name": f"electricity of {card.location}" if card.location else "unknown"},
                "energySource": "unknown", "energyProvided": energy,
            }
        ],
        "activityEnergyCost": energy,
    }  # fmt: skip
    if is_known(card.grams):
        consumption["co2CostEquivalent"] = {"value": float(_rounded(card.grams / 1e6)), "unit": "tCO2eq"}
    consumption["properties"] = [
        {"name": "gpumon:method", "value": card.method},
        {"name": "gpumon:hardware", "value": card.hardware},
        {"name": "gpumon:run", "value": card.run},
    ]
    considerations = {"environmentalConsiderations": {"energyConsumptions": [consumption]}}
    component = {
        "type": "machine-learning-model", "name": card.name, "modelCard": {"considerations": considerations},
    }  # fmt: skip
    metadata = {"timestamp": _utc(card.ended), "tools": {"components": [{"type": "application", "name": "gpumon",
                "version": gpumon.__version__}]}}  # fmt: skip
    return _json(
        {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": metadata, "components": [component]}
    )


_FORMATS: Mapping[str, Callable[[RunCard], str]] = {
    "": text, "hf": hugging_face, "spdx": spdx, "cyclonedx": cyclonedx,
}  # fmt: skip
"""Functions that write a card, by the option of `runs card`."""


def _tool() -> str:
    return f"gpumon {gpumon.__version__}"


def _rounded(value: float) -> str:
    """Return a number with a few significant digits, without an exponent."""
    exponent = int(f"{value:e}".partition("e")[2])
    digits = max(0, _DIGITS - 1 - exponent)
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:.0f}"


def _quoted(value: str) -> str:
    """Return a string for YAML. Every JSON string is valid YAML."""
    return json.dumps(value)


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _json(document: Mapping[str, Any]) -> str:
    return f"{json.dumps(document, indent=2, allow_nan=False)}\n"
