"""`[groups]` of the settings file: users added up, in the cluster's tables and in the accounts of one machine."""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from gpumon.cli.options import resolve_options
from gpumon.cluster import model
from gpumon.cluster.poller import ClusterPoller
from gpumon.cluster.queries import Period
from gpumon.common.caps import Caps, read_caps
from gpumon.common.clock import SECOND
from gpumon.common.config import NO_GROUP, UserGroups, read_groups, read_prices
from gpumon.common.errors import UsageError
from gpumon.common.privacy import HASHED, People, use_policy
from gpumon.reports import usage
from gpumon.reports.cluster_text import lines
from gpumon.storage.usage.account import Account, DeviceUse
from gpumon.storage.usage.period_totals import summary
from gpumon.storage.usage.query import HourUse, StoredAccounts, StoredDevice, by_group
from gpumon_web.live import stored_values
from tests.activity import keep
from tests.builders import process, sample, tick
from tests.web.clustered import PRICES, Cluster, TableEngine, cluster, row

HOUR = 3600.0
GROUPS = read_groups({"vision": ["ada", "eve"], "language": ["bob"]})
ACCOUNTS = [Account("ada", HOUR, HOUR, HOUR, 0.0, HOUR, 3.6e6), Account("eve", HOUR, HOUR, 0.0, HOUR, HOUR, 3.6e6),
            Account("dan", 2 * HOUR, HOUR, HOUR, 0.0, 0.0, 0.0)]  # fmt: skip
KEPT = StoredAccounts([HourUse(0.0, "GPU-h", DeviceUse(observed=HOUR, held=HOUR), ACCOUNTS)],
                    [StoredDevice("GPU-h", 0, "NVIDIA H100", 0.0)])  # fmt: skip


@pytest.mark.parametrize(
    ("table", "named"),
    [
        (["ada"], "must be a table"),
        ({"vision": "ada"}, "vision in [groups] must be a list"),
        ({"vision": ["ada", 3]}, "must be a list of users"),
        ({"": ["ada"]}, "must have a name"),
        ({NO_GROUP: ["ada"]}, "must have a name"),
        ({"vi\nsion": ["ada"]}, "must have a name"),
        ({"vision": ["ada"], "language": ["ada"]}, "ada in vision and in language"),
    ],
)
def test_what_is_wrong_with_the_table_is_named(table: Any, named: str) -> None:
    with pytest.raises(ValueError, match="group") as raised:
        read_groups(table)
    assert named in str(raised.value)


def test_the_file_of_settings_has_them_and_a_mistake_in_it_is_named_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "gpumon" / "config.toml"
    file.parent.mkdir()
    env = {"XDG_CONFIG_HOME": str(tmp_path)}

    def read(text: str) -> UserGroups | None:
        file.write_text(text)
        found: UserGroups | None = resolve_options(argparse.Namespace(dir=None, state_dir=None), env)[1].user_groups
        return found

    assert read("interval = 1\n") is None
    groups = read('[groups]\nvision = ["ada", "eve"]\n')
    assert groups
    assert (groups.name("eve"), groups.name("bob")) == ("vision", NO_GROUP)
    with pytest.raises(UsageError, match=r"config\.toml: vision in \[groups\]"):
        read('[groups]\nvision = "ada"\n')


def answers() -> dict[str, list[Any]]:
    found = cluster(3)
    for question in ("held_now", "held_week", "idle_held_week"):
        found[question] = [*found[question], row(10 * HOUR, user="eve"), row(3 * HOUR, user="dan")]
    found["held_by_model_week"] += [row(10 * HOUR, user="eve", model="NVIDIA H100"),
                                    row(3 * HOUR, user="dan", model="NVIDIA H100")]  # fmt: skip
    return found


def test_groups_of_a_cluster_add_their_users_up_and_end_with_those_of_none() -> None:
    users = model.users(answers(), Period.WEEK)
    found = model.groups(users, GROUPS)
    assert [(one.sums.name, list(one.users)) for one in found] == [
        ("vision", ["ada", "eve"]), ("language", ["bob"]), (NO_GROUP, ["dan"]),
    ]  # fmt: skip
    assert sum(one.sums.held_seconds for one in found) == sum(one.held_seconds for one in users)
    assert found[0].sums.busy_seconds == next(one.busy_seconds for one in users if one.name == "ada")
    assert found[2].sums.busy_seconds != found[2].sums.busy_seconds, "not known of anybody, and not 0"


def test_the_page_of_a_cluster_shows_groups_in_the_place_of_users_only_where_there_are_any() -> None:
    plain = Cluster(TableEngine(answers())).after(0.0)
    assert plain.values(by="group")["holders"] == []
    assert [one["name"] for one in plain.rows("users", by="group")] == [one["name"] for one in plain.rows("users")]
    shown = Cluster(TableEngine(answers()), PRICES, groups=GROUPS).after(0.0)
    assert [one["is_pressed"] for one in shown.values(by="group")["holders"]] == [False, True]
    users = {one["name"]: one for one in shown.rows("users")}
    groups = {one["name"]: one for one in shown.rows("users", by="group")}
    assert list(groups) == ["vision", "language", NO_GROUP]
    assert groups["vision"]["held_money"] == users["ada"]["held_money"] + users["eve"]["held_money"]
    assert groups["vision"]["energy_cost"].startswith("≥ "), "what eve used is not known"
    assert "group vision" in shown.values("person", id="ada")["about"]


def test_the_terminal_prints_the_same_table_with_the_same_costs() -> None:
    shown = Cluster(TableEngine(answers()), PRICES)
    snapshot = ClusterPoller(shown.engine, now=lambda: 0.0).round()
    assert not any("GROUP" in line for line in lines(snapshot, "engine", Period.WEEK, 0, PRICES))
    priced = shown.after(0.0).poller.snapshot()
    told = list(lines(priced, "engine", Period.WEEK, 0, PRICES, GROUPS))
    (heading,) = (line for line in told if line.startswith("GROUP"))
    assert heading.split()[-6:] == ["COST", "IDLE", "COST", "POWER", "COST", "CO2"]
    ada, vision = (next(line for line in told if line.startswith(name)) for name in ("ada", "vision"))
    assert "504.00 EUR" not in ada
    assert "756.00 EUR" in ada, "two H100 and one L40S for a week"
    assert "776.00 EUR" in vision


def test_accounts_of_a_machine_are_added_up_by_group() -> None:
    prices = read_prices({"currency": "EUR", "gpu-hour": 2.0})
    found = summary(by_group(KEPT, GROUPS), 0.0, HOUR, "user")
    assert {one.user: one.held for one in found[0].accounts} == {"vision": 2 * HOUR, NO_GROUP: 2 * HOUR}
    told = list(usage.lines(found, "user", 0, KEPT.devices, prices, usage.GROUP))
    assert "GROUP" in told[1]
    assert "USER" not in told[1]
    assert "4.00 EUR" in next(line for line in told if "vision" in line)
    rows = list(csv.DictReader(io.StringIO("".join(usage.csv(found, KEPT.devices, prices, usage.GROUP)))))
    assert {row["user"]: float(row["held_cost"]) for row in rows if row["kind"] == "group"} == {
        "vision": 4.0, NO_GROUP: 4.0,
    }  # fmt: skip
    document = usage.as_json(found, "user", 0.0, HOUR, KEPT.devices, prices, usage.GROUP)
    assert {one["group"] for one in document["groups"][0]["accounts"]} == {"vision", NO_GROUP}


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """An hour of two users of a group, and of one of none."""
    path = tmp_path / "history.sqlite"
    people = [("ada", 0), ("eve", 1), ("dan", 2)]
    rows = [sample(gpu, utilization=0.5, memory_used=1e9, memory_total=8e10, power=100.0) for gpu in range(3)]
    keep(path, [
        tick(1, rows, [process(10 + gpu, gpu, user=user, sm_utilization=0.5) for user, gpu in people],
             time_ns=second * SECOND, monotonic_ns=(50 + second) * SECOND, interval_ns=300 * SECOND)
        for second in range(0, 3900, 300)
    ])  # fmt: skip
    return path


def page_of_users(
    history: Path, groups: UserGroups | None, user: str = "", by: str = "group", caps: Caps | None = None
) -> dict[str, Any]:
    """Values of the page of users for the day of that hour, at ten o'clock."""
    packed = stored_values.account_values(
        [str(history)], 10 * HOUR, "users", ("day", "1970-01-01", "UTC", user, by), {"ada": ("0", ("GPU-a",))}, "",
        read_prices({"currency": "EUR", "gpu-hour": 2.0}), groups, caps,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(gzip.decompress(packed.body))
    return found


def test_the_page_of_users_shows_groups_in_the_place_of_users(history: Path) -> None:
    def rows(document: dict[str, Any]) -> dict[str, Any]:
        return {one["name"]: one for one in document["tables"]["users"]["cells"].values()}

    shown = page_of_users(history, GROUPS)
    groups, users = rows(shown), rows(page_of_users(history, GROUPS, by="user"))
    assert shown["values"]["user_title"] == "Group"
    assert set(groups) == {"vision", NO_GROUP}
    assert groups["vision"]["held_seconds"] == users["ada"]["held_seconds"] + users["eve"]["held_seconds"] > 0
    assert groups["vision"]["held_money"] == users["ada"]["held_money"] + users["eve"]["held_money"] > 0
    assert groups["vision"]["count"] == 1
    assert set(rows(page_of_users(history, None))) == set(users) == {"ada", "eve", "dan"}
    assert page_of_users(history, GROUPS, user="ada")["values"]["holders"] == []


def test_the_page_of_users_notes_the_caps_of_its_rows_and_of_its_user(history: Path) -> None:
    caps = read_caps({"period": "day", "users": {"ada": {"hours": 4}}, "groups": {"vision": {"hours": 1.5}}})

    def notes(by: str) -> dict[str, str]:
        rows = page_of_users(history, GROUPS, by=by, caps=caps)["tables"]["users"]["cells"].values()
        return {row["name"]: json.dumps(row["note"]) for row in rows}

    users, groups = notes("user"), notes("group")
    assert "4.0 h" in users["ada"]
    assert "1.5 h" in groups["vision"]
    assert not any("1.5 h" in note for note in users.values())
    own = json.dumps(page_of_users(history, GROUPS, user="ada", caps=caps)["values"]["everyone"])
    assert "4.0 h" in own
    assert "1.5 h" in own
    assert "cap" not in json.dumps(page_of_users(history, GROUPS, user="dan", caps=caps)["values"]["everyone"])


def test_where_names_are_hidden_no_group_is_told(history: Path) -> None:
    with use_policy(People(HASHED, b"salt")):
        hidden = page_of_users(history, GROUPS)
    assert hidden["values"]["holders"] == []
    assert "vision" not in json.dumps(hidden)
