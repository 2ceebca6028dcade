"""The browser view for a shared server. Not built yet: use the terminal view, gpumon tui."""

from __future__ import annotations

import argparse

from gpumon.errors import GpumonError


def add_options(parser: argparse.ArgumentParser) -> None:
    del parser


def run(arguments: argparse.Namespace) -> int:
    raise GpumonError("the browser view is not built yet: 'gpumon tui' shows the same data in a terminal")
