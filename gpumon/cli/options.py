"""Options that several commands share.

Flags take precedence over environment variables, and environment variables take precedence over the settings file. The
file is `$XDG_CONFIG_HOME/gpumon/config.toml` (or `~/.config/...`). Its settings have the names of the flags.
"""

from __future__ import annotations

import os
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

from gpumon.common.clock import LONGEST, SHORTEST
from gpumon.common.config import is_absent, read_toml, settings_path
from gpumon.common.errors import MissingPackage, UsageError
from gpumon.common.paths import Places, places
from gpumon.model.origin import Capability
from gpumon.sources.registry import AUTO, KINDS, capabilities, source_names

if TYPE_CHECKING:
    from gpumon.cluster.client import PrometheusAccess, PrometheusClient
    from gpumon.recording.playback import Playback

T = TypeVar("T")

CLUSTER_TICK = 15.0
"""Seconds between two updates of a cluster. Prometheus does not scrape exporters more often."""
PERIODS = ("day", "week", "month", "this-month", "last-month")


def add_cluster(parser: ArgumentParser) -> None:
    """Add `--prometheus` and `--prometheus-config`."""
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--prometheus", metavar="URL",
        help="Prometheus, or a compatible server (VictoriaMetrics, Mimir, Thanos), that scrapes 'gpumon export' on the "
        "nodes",
    )  # fmt: skip
    group.add_argument(
        "--prometheus-config", metavar="FILE",
        help="TOML file of mode 0600 with the credentials: token, or username and password, ca, certificate, key and "
        "headers",
    )  # fmt: skip


def require_partner(arguments: Namespace, partner: str, *options: str, is_there: bool) -> None:
    """Raise UsageError if one of `options` was passed without the option `partner`, which it requires.

    `partner`: the option as written in messages. `is_there`: whether `partner` was passed.
    """
    for option in options:
        if not is_there and getattr(arguments, option[2:].replace("-", "_")) is not None:
            raise UsageError(f"{option} is for {partner}: pass both, or omit it")


def refuse_empty(arguments: Namespace, *names: str) -> None:
    """Raise UsageError if the value of an option is empty. It may come from a shell variable that is not set.

    Without this check, an empty value would count as a missing option. `names`: attributes of the options to check.
    """
    for name in names:
        if getattr(arguments, name) == "":
            raise UsageError(f"--{name.replace('_', '-')} is empty: pass a value, or omit it")


def refuse_options(arguments: Namespace, command: str, shared: Sequence[str], rest: str) -> None:
    """Raise UsageError if an option before a subcommand is not an option of the subcommand.

    `arguments`: the parsed arguments, with the defaults None and False. `command`: the subcommand as written in
    messages. `shared`: names of the options that the subcommand has. `rest`: what the other options are for.
    """
    values = [value for name, value in vars(arguments).items() if name not in shared]
    if any(value is not None and value is not False and value != [] for value in values):
        raise UsageError(f"'gpumon {command}' takes only --dir and --state-dir: other options are for {rest}")


def open_prometheus(arguments: Namespace) -> tuple[PrometheusClient, PrometheusAccess]:
    """Return the client for `--prometheus`, and its access settings. Raises UsageError or MissingPackage."""
    if arguments.source is not None:
        raise UsageError("--prometheus shows other machines: omit --source")
    try:
        from gpumon.cluster.client import PrometheusClient
    except ImportError as error:
        raise MissingPackage("--prometheus", error.name or "httpx") from error
    from gpumon.cluster.client import NO_ACCESS, read_access

    path = arguments.prometheus_config
    access = read_access(path) if path else NO_ACCESS
    return PrometheusClient(arguments.prometheus, access), access


def add_commands(
    parser: ArgumentParser, commands: Mapping[str, tuple[str, Callable[[ArgumentParser], None]]], **keywords: Any
) -> None:
    """Add subcommands to a parser. The attribute `action` is then the name of the subcommand that was called.

    `commands`: help and function that adds the options, by the name of the subcommand. Each subcommand also gets the
    options for directories. `keywords`: passed to `add_subparsers`.
    """
    subparsers = parser.add_subparsers(metavar="COMMAND", title="subcommands", **keywords)
    for name, (text, add_options) in commands.items():
        # SUPPRESS, because a flag that is absent after the subcommand must not override the same flag before it.
        subparser = subparsers.add_parser(
            name, help=text, description=f"{text[0].upper()}{text[1:]}.", argument_default=SUPPRESS,
            formatter_class=parser.formatter_class,
        )  # fmt: skip
        subparser.set_defaults(action=name)
        add_options(subparser)
        add_places(subparser)


def add_window_and_gpus(parser: ArgumentParser) -> None:
    """Add `--since`, `--until` and `--gpu`."""
    parser.add_argument(
        "--since", metavar="TIME", default="24h",
        help="start of the window: 7d for 7 days ago, or 2026-01-31T14:00 (default: 24h)",
    )  # fmt: skip
    parser.add_argument(
        "--until", metavar="TIME", default=None,
        help="end of the window (default: the newest sample, or now if no daemon is running)",
    )  # fmt: skip
    parser.add_argument(
        "--gpu", metavar="GPU", action="append", default=[], help="only this GPU, by index or UUID; repeatable"
    )


NAN = float("nan")
_SETTINGS_NOTE = "defaults: ~/.config/gpumon/config.toml"
DEFAULT_SOURCE = AUTO
SOURCES = ((AUTO, "every GPU found"), *((kind.usage, kind.help) for kind in KINDS))
"""Values of `--source`, each with its help text."""
_MAX_INDEX_DIGITS = 9
"""Maximum number of digits of an index. Python refuses to parse numbers with thousands of digits."""
MAX_DAYS = {"history-days": 32.0, "account-days": 366.0}
"""Maximum days for which a daemon keeps history, and for which it keeps accounts and events."""
_UNITS = {"M": 2**20, "G": 2**30}
_LARGEST = 2**40
_SWITCHES = {"on": True, "off": False, "1": True, "0": False, "true": True, "false": False}
"""Values of switches in environment variables. In the file, switches are true or false."""


def add_places(parser: ArgumentParser) -> None:
    """Add `--dir` and `--state-dir`."""
    group = parser.add_argument_group("directories", _SETTINGS_NOTE)
    group.add_argument(
        "--dir",
        metavar="DIR",
        help="directory of live data (GPUMON_DIR; default: the first usable of /run/gpumon, "
        "$XDG_RUNTIME_DIR/gpumon and /dev/shm/gpumon-UID)",
    )
    group.add_argument(
        "--state-dir",
        metavar="DIR",
        help="directory of persistent data: runs, history, tokens (GPUMON_STATE_DIR; default: ~/.local/state/gpumon)",
    )


def gpu_option(value: str) -> int | str:
    """Return the value of `--gpu`.

    An index is returned as int. Anything else, such as a UUID, is returned unchanged.
    """
    return int(value) if value.isdecimal() and len(value) <= _MAX_INDEX_DIGITS else value


def add_source(parser: ArgumentParser, default: str = DEFAULT_SOURCE) -> None:
    """Add `--source`, `--speed`, `--from`, `--to` and `--interval`."""
    listed = "\n".join(f"  {usage:<15} {text}" for usage, text in SOURCES)
    several = "SOURCE is one of these, or several separated by commas:"
    group = parser.add_argument_group("sampling", f"{several}\n{listed}\n{_SETTINGS_NOTE}")
    group.add_argument(
        "--source",
        metavar="SOURCE",
        help=f"where samples come from (GPUMON_SOURCE; default: {default})",
    )
    group.add_argument(
        "--speed", type=float, metavar="N", help="playback speed of a recording (GPUMON_SPEED; default: 1)"
    )
    for name, action in (("from", "start"), ("to", "stop")):
        group.add_argument(
            f"--{name}", dest=f"play_{name}", metavar="MOMENT",
            help=f"where to {action} the playback of a recording: 14:03, 2026-11-22 14:03, or 10m (after its start)",
        )  # fmt: skip
    group.add_argument(
        "--interval",
        type=float,
        metavar="SECONDS",
        help="seconds between samples, 0.01 to 60 (GPUMON_INTERVAL; default: 1)",
    )


def chosen_source(arguments: Namespace) -> str:
    """Return the value of `--source`; by default, the source that reads every GPU found."""
    return arguments.source or DEFAULT_SOURCE


def reads_hardware(arguments: Namespace) -> bool:
    """Whether the source to open calls a driver, which may hang. Raises UsageError for an unknown source."""
    return Capability.LIVE in capabilities(chosen_source(arguments))


def is_recording(arguments: Namespace) -> bool:
    """Whether the source to open is a recording. Raises UsageError for an unknown source."""
    return Capability.NOW not in capabilities(chosen_source(arguments))


def make_playback(arguments: Namespace) -> Playback | None:
    """Return the playback controls for a recording; None for other sources. Raises UsageError."""
    if arguments.source is None or not is_recording(arguments):
        return None
    from gpumon.recording.playback import Playback, Portion

    return Playback(Portion(*(getattr(arguments, name, None) or "" for name in ("play_from", "play_to"))).checked())


def source_name(arguments: Namespace) -> str:
    """Return the name of the source without opening it. Raises UsageError for an unknown source."""
    return source_names(chosen_source(arguments))


def resolve_options(arguments: Namespace, env: Mapping[str, str] | None = None) -> tuple[Places, Namespace]:
    """Complete the options from the environment and the settings file. Return the directories and the options.

    `env`: environment variables, by default those of this process. Raises UsageError for an invalid value.
    """
    env = os.environ if env is None else env
    path, file = _read_file(env)
    played = [getattr(arguments, name, None) for name in ("speed", "play_from", "play_to")]
    for name, check in _CHECKS.items():
        attribute = name.replace("-", "_")
        variable = f"GPUMON_{attribute.upper()}"
        flag = getattr(arguments, attribute, None)
        origins = ((f"--{name}", flag), (variable, env.get(variable)), (path, file.get(name)))
        origin, value = next(((origin, value) for origin, value in origins if value not in (None, "")), ("", None))
        try:
            setattr(arguments, attribute, check(name, value))
        except ValueError as error:
            raise UsageError(f"{origin}: {error}") from error
    from gpumon.common import caps, config

    arguments.prices = _table(path, file, COST, config.read_prices)
    arguments.user_groups = _table(path, file, GROUPS, config.read_groups)
    arguments.caps = _table(path, file, CAPS, caps.read_caps)
    if any(played) and not (arguments.source and is_recording(arguments)):
        raise UsageError("--speed, --from and --to are for a recording: pass one with --source replay:FILE")
    return places(arguments.dir, arguments.state_dir, env), arguments


def _text(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} must be a string, not {_written(value)}")
    if value and "\0" in value:
        raise ValueError(f"{name} contains a NUL character")
    return value


def _number(name: str, value: Any) -> float:
    if value is None:
        return 1.0
    try:
        number = NAN if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = NAN
    if not isfinite(number):
        raise ValueError(f"{name} must be a number, not {_written(value)}")
    return number


def _speed(name: str, value: Any) -> float:
    number = _number(name, value)
    if number <= 0:
        raise ValueError(f"invalid speed {number:g}: give a number greater than 0, such as 10")
    return number


def _interval(name: str, value: Any) -> float:
    number = _number(name, value)
    if not SHORTEST <= number <= LONGEST:
        raise ValueError(f"invalid interval {number:g} s: give {SHORTEST:g} to {LONGEST:g} seconds")
    return number


def _idle_interval(name: str, value: Any) -> float:
    """Return the idle interval; 0 if it is not set."""
    return 0.0 if value is None else _interval(name, value)


def _days(name: str, value: Any) -> float:
    limit = MAX_DAYS[name]
    number = limit if value is None else _number(name, value)
    if not 0 < number <= limit:
        raise ValueError(f"invalid number of days {number:g}: give more than 0, at most {limit:g}")
    return number


def _size(name: str, value: Any) -> int:
    text = "512M" if value is None else str(value)
    number, unit = text[:-1], _UNITS.get(text[-1:].upper(), 0)
    if not (unit and number.isascii() and number.isdigit() and 0 < int(number) * unit <= _LARGEST):
        raise ValueError(f"invalid size {_written(value)}: give a size such as 150M or 2G")
    return int(number) * unit


def _switch(name: str, value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return value is not False
    if not isinstance(value, str) or value not in _SWITCHES:
        raise ValueError(f"{name} must be on or off, not {_written(value)}")
    return _SWITCHES[value]


def _switch_off_by_default(name: str, value: Any) -> bool:
    return value is not None and _switch(name, value)


def _names(name: str, value: Any) -> str:
    if value is None:
        return ""  # avoids the import below
    from gpumon.common.privacy import WAYS

    if value not in WAYS:
        raise ValueError(f"{name} must be one of {', '.join(WAYS)}, not {_written(value)}")
    return str(value)


_CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "dir": _text, "state-dir": _text, "source": _text, "speed": _speed, "interval": _interval,
    "history-days": _days, "history-size": _size, "account-days": _days, "gpm": _switch,
    "idle-interval": _idle_interval, "notify": _switch_off_by_default, "names": _names, "job-dir": _text,
}  # fmt: skip
"""Functions that check and convert the value of a setting, by the name of the setting. The flag has the same name."""
COST, GROUPS, CAPS = "cost", "groups", "caps"
"""Tables that can be set only in the settings file: prices, user groups, and caps on usage."""


def _table(path: str, file: Mapping[str, Any], name: str, read: Callable[[Any], T]) -> T | None:
    """Return a table of the settings file, parsed by `read`; None if the file has no such table. Raises UsageError."""
    try:
        return read(file[name]) if name in file else None
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error


def _written(value: Any) -> str:
    """Return a value in the notation of the file, for messages."""
    if isinstance(value, bool):
        return str(value).lower()
    try:
        return f"'{value}'" if isinstance(value, str) else f"{value}"
    except ValueError:  # Python does not print numbers with thousands of digits
        return "a number with thousands of digits"


def _read_file(env: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Return the path of the file and its content; the content is empty if there is no file."""
    path = settings_path(env, "config.toml")
    if not path or is_absent(path):
        return path, {}
    try:
        settings = read_toml(path)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else None
        raise UsageError(f"cannot read {path}: {why or error}") from error
    known = (*_CHECKS, COST, GROUPS, CAPS)
    unknown = sorted(set(settings) - set(known))
    if unknown:
        raise UsageError(f"unknown setting '{unknown[0]}' in {path}. Settings: {', '.join(known)}")
    return path, settings


SUBCOMMANDS = {
    "status": "show the running daemon: pid, directory, start, source, interval and problems",
    "stop": "stop your daemon and wait until it has stopped",
    "restart": "stop your daemon and start one with the same options in the background",
}


def add_daemon(parser: ArgumentParser) -> None:
    """Add the options and the subcommands of `gpumon daemon`."""
    parser.set_defaults(action="")
    parser.add_argument(
        "--detach", action="store_true", help="run in the background, and return after the first sample"
    )
    add_source(parser)
    parser.add_argument(
        "--no-gpm", dest="gpm", action="store_false", default=None,
        help="do not read GPM, the performance counters of Hopper and newer GPUs, so that a profiler can use them "
        "(also GPUMON_GPM=off, or gpm = false in the settings file)",
    )  # fmt: skip
    parser.add_argument(
        "--idle-interval", metavar="SECONDS",
        help="sampling interval while every GPU is idle and has no process (default: same as --interval)",
    )  # fmt: skip
    parser.add_argument(
        "--job-dir", metavar="DIR",
        help="directory with one file per GPU that names its job, in the format of dcgm-exporter's "
        "--hpc-job-mapping-dir (default: none); jobstats' /run/gpustat is also read if it exists",
    )  # fmt: skip
    parser.add_argument(
        "--until-unlocked", metavar="FILE",
        help="stop a few seconds after the last process that locks FILE has ended (a shared fcntl lock); used by "
        "notebooks",
    )  # fmt: skip
    add_places(parser)
    add_commands(parser, {name: (text, lambda _: None) for name, text in SUBCOMMANDS.items()})
