"""Holders of each GPU in the last 24 hours, as a strip that ends now: of rows of GPUs, and of the page of one."""

from __future__ import annotations

from gpumon_web.page import Cells, KeptValues
from gpumon_web.user_rows import strip_words


def last_day(document: Cells) -> KeptValues:
    """Return `day`: a strip for each GPU by its UUID; none where there is no history."""
    begin, end, now = document["begin"], document["end"], document["now"]
    until = round((now - begin) / (end - begin), 4) if end > begin else 1
    strips = {
        one["device"].uuid: {
            "slots": one["slots"], "shift": one["shift"], "parts": one["parts"], "unseen": one["unseen"],
            "until": until, "ends_now": True, "is_bars": False, "label": strip_words(one),
        }
        for one in document["strips"]
    }  # fmt: skip
    problem = document.get("problem", "")
    unread = f"The last 24 hours of the GPUs cannot be read now: {problem}." if problem else ""
    return KeptValues({"day": strips or None}, again=60.0, unread=unread)
