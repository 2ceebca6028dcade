"""Rendering as pure functions from numbers to lines of styled text, without widgets or clocks."""
