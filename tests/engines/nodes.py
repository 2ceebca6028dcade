"""A node as an operator runs it: the daemon on the stub driver, and exporters behind each kind of door."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.certificates import Authority
from tests.nvml import Stub
from tests.nvml.stub import Process
from tests.programs import PATIENCE, command, daemon, environment

GPUS, PROCESSES = 8, 40
TOKEN = "9f3b1c07de52a8460b7ce914d3fa2865"


class RunningNode(NamedTuple):
    """A node that runs."""

    stub: Stub
    env: Mapping[str, str]
    daemon: subprocess.Popen[str]


@contextmanager
def node(library: Path, directory: Path, interval: str = "0.2") -> Iterator[RunningNode]:
    """A daemon on 8 GPUs with 40 processes of who runs the test."""
    live = directory / "live"
    live.mkdir(mode=0o700, parents=True)
    with Stub(library, gpus=GPUS) as stub:
        for gpu in range(GPUS):
            stub.set_processes(gpu, [Process(os.getpid(), memory=2**30, sm=70)] * (PROCESSES // GPUS))
        env = environment(live, stub.env())
        with daemon("--interval", interval, env=env) as running:
            yield RunningNode(stub, env, running)


@contextmanager
def exporters(ways: Sequence[Sequence[object]], env: Mapping[str, str]) -> Iterator[list[str]]:
    """Addresses of exporters on free ports, each with its own words; one that begins with `web` is the browser view."""
    with ExitStack() as stack:
        started = [stack.enter_context(_started(words, env)) for words in ways]
        yield [address() for address in started]


@contextmanager
def _started(words: Sequence[object], env: Mapping[str, str]) -> Iterator[Callable[[], str]]:
    told = words if words[:1] == ("web",) else ("export", "--listen", "127.0.0.1:0", *words)
    process = subprocess.Popen(
        command(*told), env=dict(env), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    out, said = process.stdout, process.stderr
    assert out is not None
    assert said is not None

    def address() -> str:
        line = out.readline()
        assert "://" in line, said.read()
        return line.split("://")[1].split("/")[0]

    try:
        yield address
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE)
        out.close()
        said.close()


class Door(NamedTuple):
    """A way to let scrapers in, and how a scrape shows that it may, or that it may not."""

    name: str
    words: Sequence[object]
    right: Mapping[str, Any]
    wrong: Mapping[str, Any]


def doors(directory: Path) -> list[Door]:
    """Each way in: no access control, the token of `gpumon web`, TLS, and TLS with certificates of scrapers."""
    authority, stranger = Authority(directory), Authority(directory, "stranger")
    server, client, unknown = authority.sign("localhost"), authority.sign("scraper"), stranger.sign("nobody")
    token = directory / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    tls = ("--tls-cert", server.certificate, "--tls-key", server.key)
    trusting: dict[str, Any] = {"scheme": "https", "tls_config": {"ca_file": str(authority.certificate)}}

    def showing(pair: Any) -> dict[str, Any]:
        own = {"cert_file": str(pair.certificate), "key_file": str(pair.key)}
        return {"scheme": "https", "tls_config": {**trusting["tls_config"], **own}}

    return [
        Door("open", (), {}, {"scheme": "https", "tls_config": {"insecure_skip_verify": True}}),
        Door("web", ("web", "--port", 0, "--token-file", token), {"authorization": {"credentials": TOKEN}}, {}),
        Door("tls", tls, trusting, {"scheme": "https", "tls_config": {"ca_file": str(stranger.certificate)}}),
        Door("mutual", (*tls, "--client-ca", authority.certificate), showing(client), showing(unknown)),
    ]


@contextmanager
def behind(ways: Sequence[Door], env: Mapping[str, str]) -> Iterator[list[dict[str, Any]]]:
    """Scrapes of an exporter behind each door, as jobs `gpumon_right_NAME`, and as `gpumon_wrong_NAME` that may not."""
    with exporters([door.words for door in ways], env) as addresses:
        yield [
            {
                "job_name": f"gpumon_{kind}_{door.name}",
                "static_configs": [{"targets": [address.replace("127.0.0.1", "localhost")]}],
                **told,
            }
            for door, address in zip(ways, addresses, strict=True)
            for kind, told in (("right", door.right), ("wrong", door.wrong))
        ]
