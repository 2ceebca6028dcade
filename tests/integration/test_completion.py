"""Completion in real shells, by the script that `gpumon completion` prints."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpumon.cli import COMMANDS, main
from gpumon.cli.completion import SHELLS
from tests.programs import environment, gpumon

PRINT = f"{shlex.quote(sys.executable)} -m gpumon completion"
_BASH = f"""
source <({PRINT} bash)
function=$(complete -p gpumon); function=${{function#*-F }}; function=${{function%% *}}
offered() {{
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=0 COMPREPLY=()
  "$function"; echo "${{COMPREPLY[@]}}"
}}
offered gpumon ''; offered gpumon runs ''; offered gpumon export --d
"""
_ZSH = f'autoload -Uz compinit; compinit -u -D; eval "$({PRINT} zsh)"; print $_comps[gpumon]'
_FISH = f"""
{PRINT} fish | source
for line in 'gpumon ' 'gpumon runs ' 'gpumon export --d'
  string join -- ' ' (complete -C $line | string split -f 1 \\t)
end
"""


def answers(shell: str, script: str, env: Mapping[str, str]) -> list[set[str]]:
    """The words in each line that a shell prints."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not on this machine")
    options = {"bash": "--norc", "zsh": "-f", "fish": "--no-config"}
    done = subprocess.run(
        [program, options[shell], "-c", script], env=dict(env), capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return [set(line.split()) for line in done.stdout.splitlines()]


@pytest.fixture
def env(tmp_path: Path) -> Mapping[str, str]:
    pytest.importorskip("shtab")
    return environment(tmp_path)


@pytest.mark.parametrize(("shell", "script"), [("bash", _BASH), ("fish", _FISH)])
def test_a_shell_offers_commands_subcommands_and_options(shell: str, script: str, env: Mapping[str, str]) -> None:
    commands, subcommands, options = answers(shell, script, env)
    assert commands == set(COMMANDS)
    assert {"list", "show", "compare"} <= subcommands
    assert {"--dialect", "--dir"} <= options
    assert "--users" not in options


def test_zsh_takes_the_script(env: Mapping[str, str]) -> None:
    ((function,),) = answers("zsh", _ZSH, env)
    assert "gpumon" in function


def test_without_shtab_one_line_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "shtab.py").write_text("raise ImportError")
    done = gpumon("completion", "bash", env={**environment(tmp_path), "PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install shtab" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_another_shell_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "powershell"]) == 2
    said = capsys.readouterr().err
    assert all(shell in said for shell in SHELLS)
