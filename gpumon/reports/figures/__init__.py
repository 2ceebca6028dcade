"""Figures for the browser and the HTML report, as dictionaries that Plotly draws.

Colors are names of theme colors after an @, such as `@u0`, or `@u0/0.2` with an opacity. The page replaces them by the
colors of its theme. Texts from users are always escaped. Times are milliseconds since 1970, which Plotly shows in the
viewer's time zone.
"""
