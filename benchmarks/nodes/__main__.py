"""Serve a simulated cluster: python -m benchmarks.nodes --nodes 40 --gpus 8 --listen 127.0.0.1:9500"""

from __future__ import annotations

import argparse
import asyncio
import contextlib

from benchmarks.nodes.plan import plan
from benchmarks.nodes.serving import Nodes, serve


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.nodes",
        description="Serve simulated nodes as 'gpumon export' tells them, each at /node/NUMBER/metrics. Prometheus "
        "finds them all by http_sd_configs at /targets.",
    )
    parser.add_argument("--nodes", type=int, default=40, metavar="N", help="number of nodes (default: 40)")
    parser.add_argument("--gpus", type=int, default=8, metavar="N", help="GPUs of each (default: 8)")
    parser.add_argument("--seed", type=int, default=0, help="another number places other jobs")
    parser.add_argument("--listen", default="127.0.0.1:9500", metavar="HOST:PORT", help="default: 127.0.0.1:9500")
    options = parser.parse_args()
    host, _, port = options.listen.rpartition(":")
    if not host or not port.isdigit():
        parser.error(f"--listen takes HOST:PORT, not '{options.listen}'")
    nodes = Nodes(plan(max(1, options.nodes), max(1, options.gpus), options.seed))

    def tell(port: int) -> None:
        print(f"http://{host}:{port}/targets  {options.nodes} nodes of {options.gpus} GPUs", flush=True)

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(nodes, host, int(port), tell))


if __name__ == "__main__":
    main()
