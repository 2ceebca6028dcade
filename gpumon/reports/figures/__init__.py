"""Figures for the browser and the HTML report, as the dictionaries that Plotly draws.

A color is the name of a theme color with an @ before it (`@u0`, or `@u0/0.2` with an opacity), which the page replaces
by the color of its theme. Texts from users are always escaped. Times are milliseconds since 1970, which Plotly shows in
the viewer's time zone.
"""
