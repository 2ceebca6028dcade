"""Tags: what a training publishes of itself, and how a daemon reads it.

The training's side is `loop` (what people call), `client` (the writer) and what these two need; the
daemon's side is `reader`, `watch`, `owner`, `attribution` and `matching`. Both share `board`, the
bytes, and `description`, the words.
"""
