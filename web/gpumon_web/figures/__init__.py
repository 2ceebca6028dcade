"""Figures as data: pure functions from columns to what Plotly draws, without Dash and without colours.

A colour is a name of `gpumon.css` behind an @, with an opacity (`@u0/0.2`); the page, which knows the theme, puts
the colour in. No text of a user enters a figure but through `words`.
"""
