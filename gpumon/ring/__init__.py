"""The ring is a file with the newest frames. One process writes it, and any number of processes read it without locks.

Records are named tuples, because every view and `gpumon status` import them, and `dataclasses` is slow to import.
"""
