"""Figures for the browser and the HTML report, as the dictionaries that Plotly draws.

A color is written as the name of a theme color after an @ (`@u0`, or `@u0/0.2` with an opacity). The page replaces it
by the color of its theme. Texts from users are always escaped. Times are milliseconds since 1970, which Plotly shows in
the viewer's time zone.
"""
