"""The ring: a file of the newest frames, written by one process and read by any without locks.

Records here are named tuples, not dataclasses: every view and `gpumon status` import them, and `dataclasses` is slow to
import.
"""
