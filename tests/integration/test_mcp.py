"""`gpumon mcp` as a coding agent uses it: through the client of the protocol's own library, over pipes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.nvml import Stub
from tests.programs import command, daemon, environment, gpumon, until

mcp = pytest.importorskip("mcp")
from mcp.client.stdio import stdio_client  # noqa: E402

TRAINING = """
import gpumon, time
with gpumon.run("seven", epochs=60) as run:
    for epoch in run.epochs():
        run.log(loss=1 / (epoch + 1))
"""


def ask(env: dict[str, str], questions: Callable[[Any], Awaitable[None]]) -> None:
    """Start the server as an agent does, and ask it."""
    program, *arguments = command("mcp")

    async def session() -> None:
        parameters = mcp.StdioServerParameters(command=program, args=arguments, env=env)
        async with mcp.Client(stdio_client(parameters)) as client:
            await questions(client)

    asyncio.run(session())


def text(result: Any) -> str:
    (content,) = result.content
    return str(content.text)


@pytest.fixture
def env(stub: Stub, tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path / "live", stub.env())


def test_an_agent_reads_gpus_and_runs_and_changes_nothing(env: dict[str, str], tmp_path: Path) -> None:
    with daemon(env=env):
        assert gpumon("run", "--", sys.executable, "-c", TRAINING, env=env).returncode == 0
        until(lambda: len(json.loads(gpumon("runs", "show", "seven", "--json", env=env).stdout)["epochs"]) == 60)

        async def questions(client: Any) -> None:
            tools = (await client.list_tools()).tools
            assert all(tool.annotations.read_only_hint and tool.description for tool in tools)
            status = json.loads(text(await client.call_tool("gpu_status", {})))
            assert len(status["gpus"]) == len(json.loads(gpumon("status", "--json", env=env).stdout)["gpus"])
            listed = json.loads(text(await client.call_tool("list_runs", {"name": "sev"})))
            assert [run["name"] for run in listed["runs"]] == ["seven"]
            shown = json.loads(text(await client.call_tool("show_run", {"run": "seven"})))
            assert (len(shown["epochs"]), shown["epochs_left_out"]) == (50, 10)
            assert json.loads(text(await client.call_tool("why_slow", {"run": "seven"})))["not_judged"]
            assert [event["kind"] for event in json.loads(text(await client.call_tool("events", {})))["events"]]
            assert json.loads(text(await client.call_tool("compare_runs", {"baseline": "seven", "others": ["seven"]})))

        ask(env, questions)


def test_a_wrong_question_gets_one_line_and_the_server_goes_on(env: dict[str, str]) -> None:
    wrong = [
        ("show_run", {"run": "nobody"}), ("show_run", {"run": "--help"}), ("show_run", {"run": " "}),
        ("compare_runs", {"baseline": "--fail-if", "others": ["x"]}), ("list_runs", {"limit": -1}),
        ("gpu_usage", {"since": "never"}), ("gpu_usage", {"by": "--csv"}), ("events", {"since": "--help"}),
        ("show_run", {"run": "a\x00b"}), ("show_run", {"run": "x" * 300_000}), ("why_slow", {"run": "nobody"}),
        ("compare_runs", {"baseline": "seven", "others": []}),
    ]  # fmt: skip

    async def questions(client: Any) -> None:
        for tool, arguments in wrong:
            refused = await client.call_tool(tool, arguments)
            assert (refused.is_error, len(text(refused).splitlines())) == (True, 1), (tool, arguments)
        assert not (await client.call_tool("gpu_status", {})).is_error

    ask(env, questions)


def test_without_its_package_one_line_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "mcp.py").write_text("raise ImportError")
    done = gpumon("mcp", env={**environment(tmp_path), "PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert "pip install" in done.stderr
