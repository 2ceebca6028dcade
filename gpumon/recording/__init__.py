"""Recordings: frames in one compressed file, which `gpumon record` writes and `--source replay:FILE` plays.

`format` has the layout of the file, `content` its tables, `codec` converts between frames and blocks, `writer` and
`reader` access the file, `playback` and `positions` play it. docs/recording.md describes the format.
"""
