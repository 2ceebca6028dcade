"""Recordings: frames in one compressed file, which `gpumon record` writes and `--source replay:FILE` plays.

`format` defines the layout of the file, and `content` defines its tables. `codec` converts frames to blocks and back.
`writer` and `reader` access the file. `playback` and `positions` play it. docs/inside/recording-format.md describes the
format.
"""
