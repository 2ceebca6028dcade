"""The stub driver by hand: python -m tests.nvml --help"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from tests.nvml import GPM, LEVELS, METRICS, NEWEST, Stub, build, sleepers

CACHE = Path(__file__).resolve().parents[2] / ".cache"
SETTINGS = """\
settings: gpus=4  constant=on  driver-error=9  pcie-bits=32  one-at-a-time=on  clear
          xid@GPU=CODE                     the driver reports an XID error
          lost@GPU=on                      the GPU falls off the bus
          latency:FUNCTION[@GPU]=MICROS    FUNCTION may be 'all'
          error:FUNCTION[@GPU]=CODE        an NVML return code; 0 works again
          gpm[@GPU]=on                     a GPU has GPM
          METRIC[@GPU]=off                 not supported, such as gpu.fan@1=off
          value:METRIC[@GPU]=NUMBER        in the driver's unit; without one: its own again
"""


def main() -> int:
    options = parser().parse_args()
    result: int = options.action(options)
    return result


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(prog="python -m tests.nvml", description="A stub NVML driver.")
    commands = whole.add_subparsers(required=True)

    run = commands.add_parser("run", help="run a command, or a shell, with the stub in front")
    run.add_argument("--gpus", type=int, default=2)
    run.add_argument("--processes", type=int, default=0, help="real sleeping processes, spread over the GPUs")
    run.add_argument("--driver", type=int, default=NEWEST, choices=LEVELS, help="the driver branch to imitate")
    run.add_argument("--set", action="append", default=[], metavar="SETTING", help="as in the command set")
    run.add_argument("--calls", action="store_true", help="print the driver calls at the end")
    run.add_argument("command", nargs=argparse.REMAINDER, help="after --; default: $SHELL")
    run.set_defaults(action=run_command)

    change = commands.add_parser(
        "set",
        help="change a stub that runs",
        epilog=SETTINGS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    change.add_argument("--file", type=Path, default=os.environ.get("GPUMON_STUB_FILE"))
    change.add_argument("settings", nargs="+")
    change.set_defaults(action=change_settings)

    calls = commands.add_parser("calls", help="the driver calls so far")
    calls.add_argument("--file", type=Path, default=os.environ.get("GPUMON_STUB_FILE"))
    calls.set_defaults(action=show_calls)
    return whole


def run_command(options: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the sleeping processes go, too
    command = [word for word in options.command[:1] if word != "--"] + options.command[1:]
    command = command or [os.environ.get("SHELL", "sh")]
    library = build(options.driver, into=CACHE)
    with Stub(library, gpus=options.gpus) as stub, sleepers(options.processes) as pids:
        stub.spread(pids)
        for setting in options.set:
            apply(stub, setting)
        for name in ("LD_LIBRARY_PATH", "GPUMON_STUB_FILE"):
            print(f"export {name}={shlex.quote(stub.env()[name])}", file=sys.stderr)
        code = subprocess.run(command, env=stub.env()).returncode
        if options.calls:
            print_calls(stub)
    return code


def change_settings(options: argparse.Namespace) -> int:
    stub = attached(options.file)
    for setting in options.settings:
        apply(stub, setting)
    return 0


def show_calls(options: argparse.Namespace) -> int:
    print_calls(attached(options.file))
    return 0


def attached(file: Path | None) -> Stub:
    if file is None:
        sys.exit("which stub? Give --file or set GPUMON_STUB_FILE.")
    return Stub.attach(file)


def apply(stub: Stub, setting: str) -> None:
    """One setting, as in SETTINGS."""
    place, _, value = setting.partition("=")
    what, _, gpu_text = place.partition("@")
    kind, _, function_text = what.partition(":")
    gpu = int(gpu_text) if gpu_text else None
    function = None if function_text == "all" else function_text
    on = value in ("on", "1", "yes")
    match kind:
        case "clear":
            stub.clear_faults()
        case "gpus":
            stub.gpus = int(value)
        case "constant":
            stub.constant = on
        case "driver-error":
            stub.driver_error = int(value)
        case "one-at-a-time":
            stub.one_at_a_time = on
        case "pcie-bits":
            stub.pcie_bits = 32 if value == "32" else 64
        case "gpm":
            stub.set_gpm(on, gpu)
        case "lost" if gpu is not None:
            stub.set_lost(gpu, on)
        case "xid" if gpu is not None:
            stub.xid(gpu, int(value))
        case "latency":
            stub.set_latency(function, int(value), gpu)
        case "error":
            stub.set_error(function, int(value), gpu)
        case "value" if function_text in METRICS:
            stub.set_value(function_text, int(value) if value else None, gpu)
        case metric if metric in METRICS or metric in GPM:
            stub.set_supported(metric, on, gpu)
        case _:
            sys.exit(f"no such setting: {setting}\n{SETTINGS}")


def print_calls(stub: Stub) -> None:
    calls = stub.calls()
    for name, count in sorted(calls.items(), key=lambda item: -item[1]):
        print(f"{count:8} {name}", file=sys.stderr)
    print(f"{sum(calls.values()):8} in all", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
