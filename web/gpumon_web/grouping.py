"""The choice between users and their groups, on pages with hours of users, where the settings name any group."""

from __future__ import annotations

from gpumon.common.config import UserGroups
from gpumon_web.page import Cells

USER, GROUP = "user", "group"
_WORDS = {USER: "Users", GROUP: "Groups"}


def holders(groups: UserGroups | None, by: str) -> Cells:
    """The buttons, and the heading of the column that they change; no button without groups."""
    chosen = by if groups and by in _WORDS else USER
    return {
        "holders": [
            {"text": words, "title": "", "is_pressed": one == chosen, "arg": "by", "value": one}
            for one, words in _WORDS.items()
        ] if groups else [],
        "user_title": chosen.title(),
    }  # fmt: skip
