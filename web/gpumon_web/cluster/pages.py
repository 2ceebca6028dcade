"""The pages of a cluster in the order of their tabs."""

from __future__ import annotations

from gpumon_web.cluster import node, overview, person
from gpumon_web.components.page import Page

CLUSTER_PAGES: dict[str, Page] = {page.name: page for page in (overview.PAGE, node.PAGE, person.PAGE)}
