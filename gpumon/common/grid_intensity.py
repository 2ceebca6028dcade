"""Greenhouse gas emissions of electricity, by country.

Emissions of generating a kWh over the life cycle, in grams of CO2 equivalents, as the mean of a year. Imports are not
included. The numbers of a country change by several percent from year to year, so a number always goes together with
`SOURCE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

YEAR = 2024
SOURCE = f"Ember, Yearly Electricity Data, {YEAR}"
"""Published under CC BY 4.0 (https://ember-energy.org/data/yearly-electricity-data/). Taken from the copy in CO2.js of
2026-06-29, rounded to grams. Countries without a number for this year are left out."""


class Grid(NamedTuple):
    """The electricity of a country."""

    name: str
    """Name of the country."""
    grams: float
    """Grams of CO2 equivalents per kWh."""


_GRAMS: Mapping[str, tuple[str, int]] = {
    "AE": ("United Arab Emirates", 468),
    "AM": ("Armenia", 244),
    "AR": ("Argentina", 345),
    "AT": ("Austria", 103),
    "AU": ("Australia", 554),
    "AZ": ("Azerbaijan", 633),
    "BA": ("Bosnia and Herzegovina", 638),
    "BD": ("Bangladesh", 695),
    "BE": ("Belgium", 118),
    "BG": ("Bulgaria", 264),
    "BO": ("Bolivia", 468),
    "BR": ("Brazil", 106),
    "BY": ("Belarus", 324),
    "CA": ("Canada", 185),
    "CH": ("Switzerland", 37),
    "CL": ("Chile", 266),
    "CN": ("China", 558),
    "CO": ("Colombia", 286),
    "CR": ("Costa Rica", 63),
    "CY": ("Cyprus", 512),
    "CZ": ("Czechia", 414),
    "DE": ("Germany", 342),
    "DK": ("Denmark", 143),
    "DO": ("Dominican Republic", 566),
    "EC": ("Ecuador", 210),
    "EE": ("Estonia", 341),
    "EG": ("Egypt", 574),
    "ES": ("Spain", 146),
    "EU": ("European Union", 213),
    "FI": ("Finland", 72),
    "FR": ("France", 44),
    "GB": ("United Kingdom", 216),
    "GE": ("Georgia", 143),
    "GR": ("Greece", 320),
    "HR": ("Croatia", 174),
    "HU": ("Hungary", 183),
    "IE": ("Ireland", 280),
    "IN": ("India", 709),
    "IR": ("Iran", 649),
    "IT": ("Italy", 288),
    "JP": ("Japan", 484),
    "KE": ("Kenya", 85),
    "KG": ("Kyrgyzstan", 153),
    "KH": ("Cambodia", 497),
    "KR": ("South Korea", 416),
    "KW": ("Kuwait", 637),
    "KZ": ("Kazakhstan", 802),
    "LT": ("Lithuania", 139),
    "LU": ("Luxembourg", 135),
    "LV": ("Latvia", 136),
    "MA": ("Morocco", 578),
    "MD": ("Moldova", 630),
    "ME": ("Montenegro", 414),
    "MK": ("North Macedonia", 569),
    "MM": ("Myanmar", 570),
    "MN": ("Mongolia", 784),
    "MT": ("Malta", 484),
    "MX": ("Mexico", 483),
    "MY": ("Malaysia", 604),
    "NG": ("Nigeria", 508),
    "NL": ("Netherlands", 253),
    "NO": ("Norway", 31),
    "NZ": ("New Zealand", 120),
    "OM": ("Oman", 545),
    "PE": ("Peru", 263),
    "PH": ("Philippines", 613),
    "PK": ("Pakistan", 399),
    "PL": ("Poland", 615),
    "PR": ("Puerto Rico", 665),
    "PT": ("Portugal", 112),
    "QA": ("Qatar", 603),
    "RO": ("Romania", 246),
    "RS": ("Serbia", 671),
    "RU": ("Russia", 446),
    "SA": ("Saudi Arabia", 692),
    "SE": ("Sweden", 36),
    "SG": ("Singapore", 499),
    "SI": ("Slovenia", 227),
    "SK": ("Slovakia", 96),
    "SV": ("El Salvador", 99),
    "TH": ("Thailand", 555),
    "TJ": ("Tajikistan", 99),
    "TN": ("Tunisia", 560),
    "TR": ("Türkiye", 470),
    "TW": ("Taiwan", 635),
    "US": ("United States", 384),
    "UY": ("Uruguay", 97),
    "VN": ("Vietnam", 486),
    "WORLD": ("World", 473),
    "XK": ("Kosovo", 959),
    "ZA": ("South Africa", 714),
}  # fmt: skip


def find_grid(country: str) -> Grid | None:
    """Return the electricity of a country by its code in ISO 3166, such as `FR`, or of `EU` or `WORLD`.

    None if the code is unknown.
    """
    entry = _GRAMS.get(country.upper())
    return Grid(entry[0], float(entry[1])) if entry else None
