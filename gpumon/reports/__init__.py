"""One frame, one run or several as text, JSON, CSV and HTML: `gpumon status` and `gpumon runs`.

`status_*` are of the frame of now, `run_*` and `html` of one run of the ledger, `compare` of several.
"""
