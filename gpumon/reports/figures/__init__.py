"""Figures for the browser and the report, as the dictionaries that Plotly draws.

A color is a theme role with an @ (`@u0`, `@u0/0.2` with opacity); the page replaces it by the color of its theme. Text
from users is always escaped. Times are milliseconds since 1970, which Plotly shows in the viewer's time zone.
"""
