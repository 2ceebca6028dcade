"""What our server puts into the environment of a request, beside what WSGI has there."""

from __future__ import annotations

JOB = "gpumon.job"
"""The answer that the request waited for, or None; without it the server cannot run a request again (`answers`)."""
CHANNEL = "gpumon.channel"
"""The `Channel` that the request came by."""
PEER = "gpumon.peer"
"""Who is at the other end, as `peers` knows it."""
