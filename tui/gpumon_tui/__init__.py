"""The terminal view of gpumon: `gpumon_tui.app.GpumonApp` displays the frames of a `FrameFeed`.

Reading order: `feed` (where frames come from), `state` (the frame on screen and the user's selection), `data/`
(background queries and derived rows), `render/` (pure functions from numbers to lines of text), `widgets/` (Textual
widgets), `screens/` (pages and windows), `app`, `session`. `freshness` decides whether data may be called live, and
`terminal_guard` restores the terminal.
"""
