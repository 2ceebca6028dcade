"""Real shells that complete: what they offer behind the cursor, and the line that a tab makes."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.programs import PATIENCE

SCRIPTS = Path(__file__).parents[1] / "gpumon" / "completions"
END = "END OF ANSWER"
_BASH = """
PS1= HISTFILE=
bind 'set enable-bracketed-paste off'
source {script}
gpumon() {{ printf '%s\\n' "$@" '{end}' >&{said}; }}
"""
# Its function for matches tells them, too, where Control-T completes.
_ZSH = """
PROMPT= HISTFILE=
fpath=({folder} $fpath)
autoload -Uz compinit; compinit -u -D
zstyle ':completion:*' insert-tab false
typeset -ga hits
compadd () {{
  if [[ ${{@[1,(i)(-|--)]}} != *-(O|A|D)\\ * ]]; then
    local -a found
    builtin compadd -A found "$@"
    hits+=("${{found[@]}}")
  fi
  builtin compadd "$@"
}}
complete-and-tell () {{ hits=(); zle complete-word; print -u {said} -rl -- "${{hits[@]}}" '{end}' }}
zle -N complete-and-tell
bindkey '^I' complete-word
bindkey '^T' complete-and-tell
gpumon () {{ print -u {said} -rl -- "$@" '{end}' }}
"""


def path_of(shell: str) -> str:
    """The program of the shell; skips where there is none."""
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not on this machine")
    return found


class Typing:
    """A shell at a terminal. What its functions say comes through a pipe, so that no drawing has to be read."""

    def __init__(self, terminal: int, pipe: int) -> None:
        self._terminal = terminal
        self._pipe = pipe

    def answer(self, keys: str) -> list[str]:
        """The lines that are said when these keys were typed."""
        os.write(self._terminal, keys.encode())
        said, until = b"", time.monotonic() + PATIENCE
        while not said.endswith(f"{END}\n".encode()):
            ready, _, _ = select.select([self._terminal, self._pipe], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"no answer to {keys!r}"
            if self._terminal in ready:
                os.read(self._terminal, 65536)  # else the shell waits when the terminal is full
            if self._pipe in ready:
                said += os.read(self._pipe, 65536)
        return [line for line in said.decode().splitlines() if line and line != END]

    def line(self, keys: str) -> list[str]:
        """Arguments that gpumon gets when a tab and Enter come behind these keys."""
        return self.answer(f"{keys}\t\n")


@contextmanager
def typing(shell: str, folder: Path, env: Mapping[str, str]) -> Iterator[Typing]:
    """A shell in a folder, with the completion of gpumon."""
    program, (pipe, said) = path_of(shell), os.pipe()
    own = folder.parent / f"{folder.name}-{shell}"
    own.mkdir(exist_ok=True)
    shutil.copy(SCRIPTS / "gpumon.zsh", own / "_gpumon")
    setting = {"bash": _BASH, "zsh": _ZSH}[shell]
    text = setting.format(script=SCRIPTS / "gpumon.bash", folder=own, end=END, said=said)
    (own / "rc").write_text(f"{text}\ncd {shlex.quote(str(folder))}\ngpumon\n")
    options = {"bash": ["--norc", "--noprofile", "-i"], "zsh": ["-f", "-i"]}[shell]
    terminal, own_end = pty.openpty()
    started = subprocess.Popen(
        [program, *options], env={**env, "TERM": "dumb"}, stdin=own_end, stdout=own_end, stderr=own_end,
        pass_fds=(said,), start_new_session=True,
    )  # fmt: skip
    os.close(own_end)
    os.close(said)
    try:
        found = Typing(terminal, pipe)
        found.answer(f"source {shlex.quote(str(own / 'rc'))}\n")
        yield found
    finally:
        started.kill()
        started.wait(PATIENCE)
        os.close(terminal)
        os.close(pipe)


def offered(shell: str, lines: Sequence[str], folder: Path, env: Mapping[str, str]) -> list[set[str]]:
    """The words that a shell offers behind each line, without those that only a tab finds: files, in bash."""
    if shell == "zsh":
        with typing(shell, folder, env) as shown:
            return [set(shown.answer(f"\x15{line}\x14")) for line in lines]
    ask = {"bash": _asked_of_bash, "fish": _asked_of_fish}[shell]
    done = subprocess.run(
        [path_of(shell), *ask(lines)], cwd=folder, env=dict(env), capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    answers = [set(filter(None, part.splitlines())) for part in done.stdout.split(END)[:-1]]
    if shell == "fish":
        return [{word.partition("\t")[0] for word in words} for words in answers]
    return answers


def _asked_of_bash(lines: Sequence[str]) -> list[str]:
    script = [f"set -u; source {SCRIPTS / 'gpumon.bash'}", "IFS=: COMP_WORDBREAKS=$' \\t\\n\"\\'><=;|&(:'"]
    for line in lines:
        words = re.findall(r"[=:]+|[^\s=:]+", line) + ([""] if line.endswith(" ") else [])
        script.append(f"COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1} COMPREPLY=()")
        script.append(f"_gpumon; printf '%s\\n' \"${{COMPREPLY[@]}}\" '{END}'")
    return ["--norc", "-c", "\n".join(script)]


def _asked_of_fish(lines: Sequence[str]) -> list[str]:
    script = [f"source {SCRIPTS / 'gpumon.fish'}"]
    script += [f"complete -C {shlex.quote(line)}; echo '{END}'" for line in lines]
    return ["--no-config", "-c", "\n".join(script)]
