"""Textual widgets, one per part of the screen; each draws lines from a `View`."""
