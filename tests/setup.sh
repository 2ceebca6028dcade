#!/bin/sh
# Installs what the tests need: gpumon with its test extra, torch for the CPU, tmux and a C compiler.
# Usage: tests/setup.sh DIRECTORY-OF-PYTHON
set -eu
bin=$1

# The tests drive the terminal view in a real terminal, and compile a stub of the driver.
missing=""
command -v tmux >/dev/null || missing="$missing tmux"
command -v cc >/dev/null || missing="$missing gcc libc6-dev"
if [ -n "$missing" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing >/dev/null
fi

"$bin/pip" install --quiet --disable-pip-version-check -e '.[test]'

# The exact local version can never be the CUDA build. Where no index here offers it, PyTorch's own
# does; without either the tests that need torch skip (and fail under CI, where they must run).
if ! "$bin/python" -c 'import torch' 2>/dev/null; then
  "$bin/pip" install --quiet --disable-pip-version-check 'torch==2.13.0+cpu' 2>/dev/null ||
    "$bin/pip" install --quiet --disable-pip-version-check 'torch==2.13.0+cpu' \
      --extra-index-url https://download.pytorch.org/whl/cpu ||
    echo "torch==2.13.0+cpu is not to be had here: the tests that need it will say so" >&2
fi
