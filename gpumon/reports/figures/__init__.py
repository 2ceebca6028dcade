"""Figures as data: pure functions to the plain dictionaries that Plotly draws, for the browser and the report.

A color is a role of the theme behind an @ (`@u0`, `@u0/0.2` with an opacity); the page, which knows the theme, puts
the color in. No text of a user enters a figure but through `escape`. Times are milliseconds since 1970, as Plotly
takes them: it draws a number in the viewer's time zone.
"""
