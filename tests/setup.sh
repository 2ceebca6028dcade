#!/bin/sh
# Installs what the tests need: gpumon with its test extra, torch for the CPU, the frameworks that it hooks into,
# tmux, a C compiler, Chromium, shells that complete, and the engines that scrape its exporter. Run again, it only looks:
# what is there stays as it is.
# Usage: tests/setup.sh DIRECTORY-OF-PYTHON
set -eu
bin=$1
# Names, one a line, of what pip has no wheel of here: those tests skip instead of failing under CI.
no_wheel=$("$bin/python" -c 'import sys; print(sys.prefix)')/no-wheel

say() { echo "tests/setup.sh: $*" >&2; }
# pip compiles one file after the other: all cores do that at the end.
pip_install() { "$bin/pip" install --quiet --disable-pip-version-check --no-compile "$@"; }
has() { "$bin/python" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec(sys.argv[1]))' "$1"; }
apt_install() {
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" >/dev/null
}

# The tests drive the terminal view in a real terminal and pages in a real browser, and compile a stub of the driver.
programs() {
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    missing=""
    command -v tmux >/dev/null || missing="$missing tmux"
    command -v cc >/dev/null || missing="$missing gcc libc6-dev"
    [ -z "$missing" ] || apt_install $missing
    more=""
    command -v zsh >/dev/null || more="$more zsh"
    command -v fish >/dev/null || more="$more fish"
    command -v groff >/dev/null || more="$more groff-base"
    [ -z "$more" ] || apt_install $more ||
      say "not to be had here:$more. The tests of completion and of the manual page will say so"
    # Chromium without windows takes half of the CPU for a page; not every distribution has it.
    command -v chromium-headless-shell >/dev/null || apt_install chromium-headless-shell 2>/dev/null ||
      command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null ||
      apt_install chromium || say "Chromium is not to be had here: the tests of pages will say so"
  fi
}

# Prometheus and what answers as one, from Debian's packages, unpacked beside the interpreter: no service starts, and
# nothing on this machine changes. Newer ones of the distribution are taken by removing the directory.
engines() {
  engines=$("$bin/python" -c 'import sys; print(sys.prefix)')/engines
  if [ ! -d "$engines" ] && command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then
    unpacked=$(mktemp -d)
    fetch() {
      (cd "$unpacked" && apt-get -q -o APT::Sandbox::User="$(id -un)" download "$@" >said 2>&1) || return 1
      for package in "$unpacked"/*.deb; do dpkg-deb -x "$package" "$unpacked/engines" || return 1; done
      # Debian's Alertmanager looks for its templates at a path of the system: from here on, below where it is started.
      LC_ALL=C sed -i 's#/usr/share/prometheus/alertmanager#usr/share/prometheus/alertmanager/#g' \
        "$unpacked/engines/usr/bin/prometheus-alertmanager"
      mv "$unpacked/engines" "$engines"
    }
    update() { [ "$(id -u)" = 0 ] && apt-get update -qq; }
    packages="prometheus victoria-metrics prometheus-alertmanager"
    fetch $packages || { update && fetch $packages; } ||
      say "no engines for the tests of the exporter, which will say so: $(tail -n 1 "$unpacked/said" 2>/dev/null)"
    rm -rf "$unpacked"
  fi
}

# The compiler that checks the types of the scripts, beside the interpreter.
typescript() {
  prefix=$("$bin/python" -c 'import sys; print(sys.prefix)')
  [ -x "$prefix/node_modules/.bin/tsc" ] || ! command -v npm >/dev/null ||
    npm install --silent --no-audit --no-fund --no-save --prefix "$prefix" 'typescript@~7.0.2' >/dev/null 2>&1 ||
    say "npm cannot install typescript here: the types of the scripts are not checked"
}

# Beside pip, which waits for another network.
{ programs; engines; typescript; } &
others=$!

# First of all torch, by its exact local version, which can never be the CUDA build: what comes later needs some torch.
# Where no index here offers it, PyTorch's own does.
if ! has torch; then
  pip_install 'torch==2.13.0+cpu' 2>/dev/null ||
    pip_install 'torch==2.13.0+cpu' --extra-index-url https://download.pytorch.org/whl/cpu || true
fi
if has torch; then
  # Whatever the others ask for, the torch that is there stays.
  pin=$(mktemp)
  trap 'rm -f "$pin"' EXIT
  "$bin/python" -c 'from importlib.metadata import version; print("torch==" + version("torch"))' >"$pin"
  pip_install -c "$pin" -e '.[test,keras,lightning,transformers,ignite,lightgbm,sklearn,parquet,pandas,polars]' 'pytorch-lightning>=2'
else
  say "torch==2.13.0+cpu is not to be had here: the tests that need it will say so"
  pip_install -e '.[test,keras,lightgbm,sklearn,parquet,pandas,polars]'
fi

# The other backends of Keras are late with wheels for a new Python; XGBoost without CUDA, which brings none of its
# libraries, has none for some machines.
: >"$no_wheel"
for package in tensorflow-cpu jax xgboost-cpu; do
  module=${package%-cpu}
  if has "$module"; then continue; fi
  if said=$(pip_install "$package" 2>&1); then continue; fi
  case $said in
    *"No matching distribution found for $package"*)
      echo "$module" >>"$no_wheel"
      say "pip has no wheel of $package for this Python: the tests that need it skip"
      ;;
    *) say "$package was not installed: $said" ;;
  esac
done

# Some packages bring files that are no Python of this version.
"$bin/python" -m compileall -qq -j 0 "$("$bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" || true
wait "$others"
