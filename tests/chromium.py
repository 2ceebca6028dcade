"""How tests start Chromium: alone with the page, and asking nobody for anything."""

from __future__ import annotations

import shutil

_PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first that is there is taken: without a window, a visit of a page costs little more than half of the CPU."""

_WITHOUT = (
    "WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "AimEnabled", "AvoidUnnecessaryBeforeUnloadCheckSync",
    "AvoidCorsURLLoaderRestartOnRedirect", "DestroyProfileOnBrowserClose", "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades", "LensOverlay", "MediaRouter", "NetworkTimeServiceQuerying", "OptimizationHints", "PaintHolding",
    "PreconnectToSearch", "ThirdPartyStoragePartitioning",
)  # fmt: skip
"""Features of Chromium that tests go without.

The first two load a page of the browser's own, for its address bar, beside each page of a test: more than half of the
CPU that the test takes. The others are those that Playwright names, of whose switch and ours the last one counts.
"""
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run", f"--disable-features={','.join(_WITHOUT)}",
)  # fmt: skip


def program() -> str | None:
    """The path of a Chromium, if there is one."""
    return next(filter(None, map(shutil.which, _PROGRAMS)), None)
