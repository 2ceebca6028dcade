"""Stretches of frames in one compressed file: `gpumon record` writes it, `--source replay:FILE` plays it.

`format` has the bytes, `columns`, `tables`, `encode` and `decode` a block's contents, `writer` and `reader` the file.
docs/recording.md describes it all for people.
"""
