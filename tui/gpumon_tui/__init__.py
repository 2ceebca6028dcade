"""The terminal view of gpumon: `gpumon_tui.app.GpumonApp` shows what a `FrameFeed` gives.

Reading order: `feed` (where frames come from), `view` (what the user looks at), `layout` (how much room each part
gets), `renderables/` (drawing, pure functions from numbers to lines), `widgets/` (one per part of the screen), `app`,
`session`. `freshness` judges what may be called live, `guard` gives the terminal back, `instead` is for machines
without a GPU.
"""
