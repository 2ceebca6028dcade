"""The pages of a cluster: what they say of answers, what they never claim, and how much they send."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from gpumon.cluster import coverage, model
from gpumon.cluster.client import PrometheusSeries
from gpumon.cluster.cost import cost_queries
from gpumon.cluster.queries import Period
from gpumon.cluster.rules import STANDS
from gpumon.cluster.snapshot import kwh
from gpumon.common.config import Prices, UserGroups
from gpumon.model import units
from gpumon.reports.cluster_text import lines
from gpumon_web.cluster.data import ClusterNow
from gpumon_web.cluster.views import CLUSTER_PAGES
from gpumon_web.components.machine import Now
from gpumon_web.components.page import KINDS, Page, Rows
from gpumon_web.markup import to_html
from tests.web.clustered import ENGINE, NOW, PRICES, Cluster, TableEngine, cluster, row
from tests.web.test_page_modules import NAMING, parts

MOST_BYTES = 300_000
MOST_PARTS = 115
"""Components of a layout: the page has six tables, and each component is sent, put up and laid out."""


def shown(nodes: int = 3, **given: Any) -> Cluster:
    return Cluster(TableEngine(cluster(nodes)), **given).after(0.0)


@pytest.fixture(params=CLUSTER_PAGES.values(), ids=CLUSTER_PAGES)
def page(request: pytest.FixtureRequest) -> Page:
    found: Page = request.param
    return found


def known(page: Page) -> Now:
    """All that there is to know of the subject of a page."""
    served = shown()
    subject = {"node": "gn001", "person": "ada"}.get(page.name)
    if subject:
        served.page(page.name, id=subject)
        served.after(15.0)
    return Now(NOW, cluster=ClusterNow(served.poller.snapshot(), ENGINE, node_page="https://{host}/"))


def args(page: Page) -> dict[str, str]:
    return {**page.args, **({"id": {"node": "gn001", "person": "ada"}[page.name]} if page.needs_id else {})}


def test_document_has_the_layout_of_every_page() -> None:
    answer = shown().client.get("/")
    assert answer.status_code == 200
    for one in CLUSTER_PAGES.values():
        assert to_html(one.layout()) in answer.get_data(as_text=True)


def test_layout_and_values_name_the_same(page: Page) -> None:
    layout, told = page.layout(), page.live(known(page), args(page))
    bound = {getattr(one, name) for name in (*NAMING, "data-needs") for one in parts(layout, name)} - {""}
    tables = {getattr(one, "data-rows") for one in parts(layout, "data-rows")}
    of_the_tab = {"tab"}
    assert bound == {name for name, value in told.items() if not isinstance(value, Rows)} - of_the_tab
    assert tables == {name for name, value in told.items() if isinstance(value, Rows)}
    assert {getattr(one, "data-kind") for one in parts(layout, "data-kind")} <= KINDS
    assert len(parts(layout)) <= MOST_PARTS


def test_every_row_has_every_column_and_a_key(page: Page) -> None:
    told = page.live(known(page), args(page))
    for table in parts(page.layout(), "data-rows"):
        columns = {getattr(one, name) for one in parts(table, "data-col") for name in ("data-col", "data-by")}
        rows = told[getattr(table, "data-rows")]
        assert len({one["key"] for one in rows}) == len(rows)
        assert all(columns <= set(one) for one in rows)
        assert rows or page.name == "person"


def test_values_are_json_and_name_the_same_whatever_is_known(page: Page) -> None:
    full, nothing = page.live(known(page), args(page)), page.live(Now(), args(page))
    assert set(full) == set(nothing)
    json.dumps([full, nothing], allow_nan=False)


def test_the_head_says_what_is_free_and_idle_of_nodes_that_are_not_silent() -> None:
    values = shown(3).values()
    assert values["free"] == "4 of 16"
    assert values["idle"] == "4"
    assert values["idle_below"] == "bob 2"
    assert values["idle_chips"][0]["tag"] == "over 1 h: 4"
    assert values["power"] == "4,691 / 16,800 W" or "/ 17 kW" in values["power"]
    assert values["map_title"] == "3 nodes, 16 GPUs, 1 silent"


def gone(nodes: int, *silent: int) -> dict[str, list[PrometheusSeries]]:
    """A cluster some of whose nodes fell silent three minutes ago: Prometheus still tells their last values."""
    answers = cluster(nodes)
    for number in silent:
        answers["seen"][number] = replace(answers["seen"][number], value=NOW - 180)
    return answers


def test_where_every_node_is_silent_nothing_of_now_is_claimed() -> None:
    served = Cluster(TableEngine(gone(3, 0, 1))).after(0.0)
    values = served.values()
    assert [values[name] for name in ("free", "idle", "runs_now", "use", "power")] == ["–", "–", "–", None, "–"]
    assert values["doubts"][0]["text"].startswith("Every node is silent")
    assert (served.rows("runs"), served.rows("idle_holders")) == ([], [])
    assert [(one["now"], one["time"]) for one in served.rows("users")] == [("–", "504 h"), ("–", "336 h")], (
        "what they held stays"
    )
    served.page("person", id="bob")
    served.after(15.0)
    assert served.values("person", id="bob")["about"] == ""
    assert served.rows("idle_holders", "person", id="bob") == []
    head, *told = lines(served.poller.snapshot(), "engine", Period.WEEK)
    assert "W" not in head
    assert not any(word in line for line in told for word in ("moe", "2 h 0 min"))


def test_what_silent_nodes_told_last_is_told_no_more() -> None:
    answers = gone(3, 1)
    served = Cluster(TableEngine(answers)).after(0.0)
    assert {one["node_name"] for one in served.rows("idle_holders")} == {"gn001"}
    assert [one["run"] for one in served.rows("runs")] == ["moe"], "it is on a node that tells of it, too"
    assert "may include 2 silent nodes" not in served.values()["power_below"], "one is silent for long"
    assert served.values()["power_below"].endswith("; may include 1 silent node")
    answers["run_places"] = [one for one in answers["run_places"] if one.labels["instance"] != "gn001"]
    assert Cluster(TableEngine(answers)).after(0.0).rows("runs") == []
    answers["gpus"] = [one for one in answers["gpus"] if one.labels["instance"] != "gn002"]
    assert "may include" not in Cluster(TableEngine(answers)).after(0.0).values()["power_below"], "it is forgotten"


@pytest.mark.parametrize("nodes", [3, 100])
def test_the_map_says_that_nobody_knows_for_how_long_a_node_with_a_wrong_clock_is_silent(nodes: int) -> None:
    answers = cluster(nodes)
    answers["seen"] = [row(NOW + 300, instance="gn001", newest=STANDS)]
    drawn = Cluster(TableEngine(answers)).after(0.0).values()["map"]
    if nodes == 3:
        assert drawn["tiles"][0]["word"] == "silent ≥ 2 min"
    else:
        assert drawn["racks"][0]["nodes"][0][7:] == [120, 8, 1]


def test_a_small_cluster_is_drawn_gpu_by_gpu_with_its_people() -> None:
    first, _, silent = shown(3).values()["map"]["tiles"]
    assert [state for _, state, _, _ in first["gpus"]] == [
        "busy", "busy", "busy", "held_idle", "held_idle", "lost", "free", "free",
    ]  # fmt: skip
    assert [user for _, _, user, _ in first["gpus"]][:4] == ["ada", "ada", "ada", "bob"]
    assert (silent["level"], silent["gpus"]) == ("silent", []), "nothing is claimed of a silent node"
    assert silent["word"] == "silent 10 min"


def test_gpus_of_an_exporter_whose_daemon_is_gone_are_unknown_though_their_means_go_on() -> None:
    answers = cluster(3)
    answers["seen_before"] = answers["seen"]
    for question in ("info", "users", "idle", "silent"):
        answers[f"gpu_{question}"] = [one for one in answers[f"gpu_{question}"] if one.labels["instance"] != "gn001"]
    answers["gpus"] = [one for one in answers["gpus"] if one.labels["instance"] != "gn001"]
    told = Cluster(TableEngine(answers)).after(0.0).values()["map"]["tiles"][0]
    assert {state for _, state, _, _ in told["gpus"]} == {"unknown"}
    assert told["word"] == "unknown", "nothing counted, and no mean of the time before"
    answers["gpus"].append(row(8, instance="gn001", state="unknown"))
    told = Cluster(TableEngine(answers)).after(0.0).values()["map"]["tiles"][0]
    assert (told["word"], {state for _, state, _, _ in told["gpus"]}) == ("8 unknown", {"unknown"})


def test_no_gpu_is_drawn_free_beyond_those_that_its_node_counts() -> None:
    """Nobody is told to be on them, which is also so where a node cannot read who is."""
    answers = cluster(3)
    answers["seen_before"] = answers["seen"]
    for one in answers["gpus"]:
        if one.labels["instance"] == "gn001" and one.labels["state"] == "free":
            one.labels["state"] = "unknown"
    served = Cluster(TableEngine(answers)).after(0.0)
    first, second, _ = served.values()["map"]["tiles"]
    assert [state for _, state, _, _ in first["gpus"]][-2:] == ["unknown", "unknown"]
    assert [state for _, state, _, _ in second["gpus"]][-2:] == ["free", "free"]
    served.page("node", id="gn001")
    words = [one["state_word"] for one in served.after(15.0).rows("gpus", "node", id="gn001")]
    assert "free" not in words


def test_a_large_cluster_is_drawn_by_rack_and_fits_into_its_bytes() -> None:
    served = shown(1000)
    racks = served.values()["map"]["racks"]
    assert sum(len(rack["nodes"]) for rack in racks) == 1000
    assert all(len(rack["nodes"]) <= 20 for rack in racks)
    assert racks[0]["nodes"][0][:6] == ["gn001", 3, 2, 0, 1, 2]
    assert racks[-1]["nodes"][-1][1:6] == [0, 0, 0, 0, 0], "it is silent"
    assert len(served.raw()) <= MOST_BYTES


def test_racks_are_told_by_names_that_have_them() -> None:
    answers = cluster(80)
    for rows in answers.values():
        for place, one in enumerate(rows):
            if (name := one.labels.get("instance", "")).startswith("gn"):
                rack, slot = divmod(int(name[2:]) - 1, 20)
                rows[place] = replace(one, labels={**one.labels, "instance": f"r{rack + 1:02}n{slot + 1:02}:9401"})
    racks = Cluster(TableEngine(answers)).after(0.0).values()["map"]["racks"]
    assert [(rack["name"], len(rack["nodes"])) for rack in racks] == [(f"r{rack:02}", 20) for rack in range(1, 5)]


def nodes_named(names: list[str]) -> Any:
    """The map of free nodes of these names, in no order."""
    answers = {"gpus": [row(8, instance=name, state="free") for name in reversed(names)], "seen": []}
    return Cluster(TableEngine(answers)).after(0.0).values()["map"]


def test_a_node_stands_in_the_slot_of_its_number_where_one_before_it_is_missing() -> None:
    names = [f"r{rack:02}n{slot:02}.c2.example.org:9401" for rack in range(1, 5) for slot in range(1, 21)]
    names.remove("r02n13.c2.example.org:9401")
    racks = nodes_named(names)["racks"]
    assert [rack["name"] for rack in racks] == ["r01", "r02", "r03", "r04"]
    second = racks[1]["nodes"]
    assert [place for place, one in enumerate(second, 1) if one is None] == [13]
    assert second[19][0] == "r02n20.c2.example.org:9401"


def test_nodes_without_racks_stand_in_the_order_of_their_numbers_below_short_names() -> None:
    racks = nodes_named([f"node{number}.example.org:9401" for number in range(1, 101)])["racks"]
    assert [rack["name"] for rack in racks] == ["node1", "node21", "node41", "node61", "node81"]
    assert [one[0].partition(".")[0] for one in racks[0]["nodes"]] == [f"node{number}" for number in range(1, 21)]


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["node2.lab:9401", "node10.lab:9401"], ["node2", "node10"]),
        (["a.one:9401", "a.two:9401"], ["a.one", "a.two"]),
        (["gn1:9401", "gn1:9402"], ["gn1:9401", "gn1:9402"]),
        (["10.0.0.2:9401", "10.0.0.10:9401"], ["10.0.0.2", "10.0.0.10"]),
    ],
)
def test_tiles_are_in_natural_order_and_named_as_short_as_tells_them_apart(names: list[str], short: list[str]) -> None:
    tiles = nodes_named(names)["tiles"]
    assert [(one["name"], one["label"]) for one in tiles] == list(zip(names, short, strict=True))


def test_users_have_hours_of_the_period_that_is_asked_for() -> None:
    served = shown()
    week, month = served.rows("users"), served.rows("users", period="month")
    assert [(one["name"], one["time"]) for one in week] == [("ada", "504 h"), ("bob", "336 h")]
    assert [one["time"] for one in month] == ["2,160 h", "1,440 h"]
    assert week[0]["used"] == pytest.approx(0.9)
    assert week[1]["used"] is None, "nobody told, and it is not 0"
    assert [piece["tag"] for piece in week[1]["user"][0]["line"] if "tag" in piece] == ["idle"]


def test_energies_of_a_table_have_one_unit() -> None:
    answers = cluster(3)
    answers["energy_week"] = [row(3.9e9 * 3.6, user="ada"), row(0.0, user="bob"), row(2.4e6, user="eve")]
    answers["held_week"].append(row(60.0, user="eve"))
    rows = Cluster(TableEngine(answers)).after(0.0).rows("users")
    assert [one["energy"] for one in rows] == ["3,900 kWh", "0 kWh", "0.67 kWh"]


def test_sums_of_a_day_that_the_engine_does_not_have_whole_are_at_least_so_much() -> None:
    answers = cluster(3) | {"covered_day": [row(1320.0)]}
    answers["idle_held_by_model_day"] = [row(0.0, user="ada", model="NVIDIA L40S")]
    served = Cluster(TableEngine(answers), PRICES).after(0.0)
    values, (ada, _) = served.values(period="day"), served.rows("users", period="day")
    assert values["users_age"]["text"].startswith("Prometheus has samples for only 22 min of the last day")
    assert values["use_below"].endswith("over 22 min")
    assert values["power_below"] == "≥ 167 kWh in 24 h"
    assert [ada[name][:2] for name in ("time", "energy", "held_cost", "energy_cost", "co2")] == ["≥ "] * 5
    assert (ada["idle"], ada["idle_cost"]) == ("–", "–"), "at least nothing is not known"
    week = served.rows("users", period="week")[0]
    assert week["idle"] == "0 s"
    assert "at least" not in served.values(period="week")["users_age"]["text"]
    assert [one["period"] for one in served.rows("hours", "person", id="ada")] == [
        "Day, samples for only 22 min", "Week", "30 days", "This month", "Last month, 2026-12-01 to 2026-12-31",
    ]  # fmt: skip


def test_what_is_wrong_is_told_once_for_several_nodes_and_the_severe_first() -> None:
    few = [one["text"] for one in shown(3).values()["wrong"]]
    assert few[:2] == ["gn001: 1 GPU lost", "gn002: 1 GPU lost"]
    assert any(text.startswith("gn003: silent for 10 min") for text in few)
    assert [text for text in few if "XID" in text] == ["gn001: XID 79 on GPU 5"]
    assert "gn001: a GPU is throttled by heat 40 % of the time" in few
    assert any(text.startswith("bob holds 4 GPUs idle for 2 h") for text in few)
    many = [one["text"] for one in shown(1000).values()["wrong"]]
    assert many[0] == "999 nodes with lost GPUs: gn001, gn002, gn003, gn004, gn005 and 994 more"


def test_a_node_opens_into_its_gpus_once_it_was_asked() -> None:
    served = shown(node_page="https://{host}/gpus/")
    first = served.page("node", id="gn001")
    assert first["interval"] < 15, "who waits asks again soon"
    served.after(1.0)
    rows = served.rows("gpus", "node", id="gn001")
    assert [one["gpu"] for one in rows] == [f"GPU {number}" for number in range(8)]
    assert [one["state_word"] for one in rows][2:6] == ["busy", "allocated, idle", "allocated, idle", "does not answer"]
    assert rows[3]["state"][0]["line"][-1]["text"] == "for 5 min", "it was free before bob came"
    assert [[one["tag"] for one in row["state"][0]["line"] if "tag" in one] for row in rows[:2]] == [
        ["busy"], ["busy", "throttled by heat 40 %"],
    ]  # fmt: skip
    assert rows[0]["run"] == "moe"
    values = served.values("node", id="gn001")
    assert values["own"]["href"] == "https://gn001/gpus/"


def test_nobody_is_asked_about_a_node_or_a_user_that_the_engine_never_told() -> None:
    engine = TableEngine(cluster(3))
    served = Cluster(engine).after(0.0)
    for page, name in (("node", 'x"} or up{a="'), ("person", "nobody"), ("node", "")):
        assert served.page(page, id=name)["values"]
    before = len(engine.asked)
    served.after(1.0)
    assert not any("nobody" in one or "up{" in one for one in engine.asked[before:])


def test_a_user_has_runs_and_nodes() -> None:
    served = shown()
    served.page("person", id="ada")
    served.after(1.0)
    (run,) = served.rows("runs", "person", id="ada")
    assert (run["run"], run["gpus"], run["job"]) == ("moe", 3, "88")
    assert [one["time"] for one in served.rows("hours", "person", id="ada")] == [
        "72.0 h", "504 h", "2,160 h", "1,020 h", "2,232 h",
    ]  # fmt: skip
    assert [one["name"] for one in served.rows("nodes", "person", id="ada")] == ["gn001"]


def test_a_site_with_dcgm_alone_claims_nothing_about_users() -> None:
    answers = {
        "seen": [row(NOW - 3, instance="a"), row(NOW - 3, instance="b")],
        "gpus": [row(6, instance="a", state="busy"), row(2, instance="a", state="unknown"),
                 row(8, instance="b", state="unknown")],
        "busy": [row(0.7, instance="a"), row(0.0, instance="b")],
    }  # fmt: skip
    from gpumon.cluster.queries import DCGM_QUERIES

    engine = TableEngine(answers, ["DCGM_FI_DEV_GPU_UTIL"])
    engine._by_text = {one.promql: one.name for one in DCGM_QUERIES}
    values = Cluster(engine).after(0.0).values()
    assert values["free"] == "–"
    assert values["idle"] == "–"
    assert "dcgm-exporter" in values["doubts"][0]["text"]
    assert [one["text"] for one in values["wrong"]] == ["No problems are known."], "an idle GPU is no fault"
    assert values["use"] == pytest.approx(0.35)


def test_at_a_site_with_dcgm_alone_a_target_that_never_answered_is_told() -> None:
    from gpumon.cluster.queries import DCGM_QUERIES

    answers = {
        "seen": [row(NOW - 3, instance="d1")], "gpus": [row(8, instance="d1", state="unknown")],
        "down": [row(1, instance="d3")],
    }  # fmt: skip
    engine = TableEngine(answers, ["DCGM_FI_DEV_GPU_UTIL"])
    engine._by_text = {one.promql: one.name for one in DCGM_QUERIES}
    served = Cluster(engine).after(0.0)
    assert [one["text"] for one in served.values()["wrong"]] == ["d3: its exporter does not answer"]
    assert "d3  " in "\n".join(lines(served.poller.snapshot(), "engine", Period.WEEK))


def test_nodes_that_only_another_exporter_tells_of_are_counted_as_not_shown() -> None:
    values = Cluster(TableEngine(cluster(3) | {"dcgm_alone": [row(2.0)]})).after(0.0).values()
    assert values["doubts"][0]["text"].startswith("2 nodes with only NVIDIA's dcgm-exporter not shown")
    assert values["map_title"].startswith("3 nodes")


def test_without_the_rules_a_notice_says_so() -> None:
    served = Cluster(TableEngine(cluster(3), ["gpumon_gpus"])).after(0.0)
    assert ["rules.yml" in one["text"] for one in served.values()["doubts"]] == [True]
    assert shown().values()["doubts"] is None


def test_a_large_cluster_without_sums_by_hour_says_so_once_it_has_history() -> None:
    answers = cluster(100)
    assert "hours.yml" in Cluster(TableEngine(answers)).after(0.0).values()["doubts"][0]["text"]
    assert shown(64).values()["doubts"] is None
    answers["covered_month"] = [row(3600.0)]
    assert Cluster(TableEngine(answers)).after(0.0).values()["doubts"] is None


def test_fifty_viewers_cause_as_many_questions_as_one() -> None:
    counts = []
    for viewers in (1, 50):
        engine = TableEngine(cluster(3))
        served = Cluster(engine).after(0.0)
        for _ in range(4):
            served.after(15.0)
            for _ in range(viewers):
                served.views.answer("cluster", {}, "", 0)
        counts.append(len(engine.asked))
    assert counts[0] == counts[1]


def test_hostile_names_are_text() -> None:
    answers = cluster(3)
    answers["held_week"] = [row(3600.0, user='<img src=x onerror="alert(1)">')]
    (user,) = [one for one in Cluster(TableEngine(answers)).after(0.0).rows("users") if one["name"].startswith("<")]
    assert user["user"][0]["line"][0]["link"].startswith("#/person/%3Cimg")


def test_costs_are_three_numbers_of_what_has_a_price() -> None:
    ada, bob = shown(prices=PRICES).rows("users")
    assert ada["held_cost"] == "756.00 EUR", "168 h of two H100 at 2 and an L40S at 0.5"
    assert ada["idle_cost"] == "84.00 EUR"
    kwh = 168 * 0.9 * 1.2
    assert ada["energy_money"] == pytest.approx(kwh * 0.1 + kwh * 0.3)
    assert ada["co2"] == "145 kg"
    assert bob["held_cost"] == "–", "a model without a price"
    assert bob["energy_cost"] == "–"
    served = shown(prices=PRICES)
    served.page("person", id="ada")
    hours = served.after(15.0).rows("hours", "person", id="ada")
    assert [one["held_cost"] for one in hours] == [
        "108.00 EUR", "756.00 EUR", "3,240.00 EUR", "1,530.00 EUR", "3,348.00 EUR",
    ]  # fmt: skip


def test_time_of_gpus_of_which_the_model_is_not_known_costs_at_least_so_much() -> None:
    answers = cluster(3)
    answers["held_by_model_week"] = [row(3600 * 168, user="ada", model="NVIDIA L40S")]
    ada = Cluster(TableEngine(answers), PRICES).after(0.0).rows("users")[0]
    assert (ada["held_cost"], ada["idle_cost"]) == ("≥ 84.00 EUR", "84.00 EUR")
    assert ada["basis"] == "week, EUR, costs are lower bounds"


def test_a_moment_of_what_is_wrong_is_written_in_the_zone_of_the_viewer_and_in_top_in_that_of_the_machine() -> None:
    served = shown(3)
    (found,) = [one for one in served.values()["wrong"] if "XID" in one["text"]]
    (said,) = [line for line in lines(served.poller.snapshot(), "engine", Period.WEEK) if "XID" in line]
    assert said.endswith(f"XID 79 on GPU 5 at {units.moment(found['time'])}")
    assert not re.search(r"\d\d:\d\d", found["text"])


def test_a_sum_of_a_user_that_ends_before_the_others_says_so() -> None:
    served = shown()
    served.page("person", id="ada")
    for _ in range(39):
        served.after(15.0).page("person", id="ada")
    found = [one["period"] for one in served.rows("hours", "person", id="ada")]
    assert found == ["Day", "Week, as of 4 min ago", "30 days, as of 9 min ago", "This month, as of 9 min ago",
                     "Last month, 2026-12-01 to 2026-12-31"]  # fmt: skip


def test_a_month_of_the_calendar_says_its_dates_and_whose_they_are() -> None:
    served = shown()
    said = served.values(period="last-month")["users_dates"]
    assert said == "Last month: 2026-12-01 to 2026-12-31, in the time zone of the server"
    assert served.values(period="week")["users_dates"] == ""


def test_a_cost_that_is_partly_so_much_is_explained_where_there_is_one() -> None:
    answers = cluster(3)
    by_day = PRICES._replace(kwh=(*(float("nan"),) * 6, *PRICES.kwh[6:]))
    served = Cluster(TableEngine(answers), by_day).after(0.0)
    pages = [served.values()["users_age"]["text"], served.values("person", id="ada")["user_age"],
             "\n".join(lines(served.poller.snapshot(), "engine", Period.WEEK, prices=by_day))]  # fmt: skip
    assert served.rows("users")[0]["energy_cost"].startswith("partly ")
    for text in pages:
        assert '"partly": an estimate for part' in text
    assert "partly" not in str(Cluster(TableEngine(answers), PRICES).after(0.0).values()["users_age"])


def test_time_without_a_price_is_unknown_for_a_user_and_for_their_group_and_a_line_says_how_much() -> None:
    answers = cluster(3)
    answers["held_week"] = [row(3600 * 745, user="dave"), row(0.0, user="erin")]
    answers["held_by_model_week"] = [row(0.0, user="erin", model="NVIDIA L40S")]
    groups = UserGroups({"dave": "lab", "erin": "lab"})
    served = Cluster(TableEngine(answers), PRICES, groups=groups).after(0.0)
    (dave,) = [one for one in served.rows("users") if one["name"] == "dave"]
    (lab,) = [one for one in served.rows("users", by="group") if one["name"] == "lab"]
    assert [one["held_cost"] for one in (dave, lab)] == ["–", "–"]
    assert [one["held_money"] for one in (dave, lab)] == [None, None]
    said = "No price is set for 745 h on GPUs of an unknown model."
    assert said in served.values()["users_age"]["text"]
    week = served.rows("hours", "person", id="dave")[1]
    assert week["period"] == "Week, 745 h without a price"
    assert said in "\n".join(lines(served.poller.snapshot(), "engine", Period.WEEK, prices=PRICES, groups=groups))


@pytest.mark.parametrize(("minutes", "said"), [(5, False), (2000, True)])
def test_a_sample_that_sums_by_model_lack_is_no_gpu_of_an_unknown_model(minutes: int, said: bool) -> None:
    answers = cluster(3)
    answers["covered_week"] = [row(60.0 * minutes)]
    answers["held_week"] = [row(60.0 * minutes, user="dave")]
    answers["held_by_model_week"] = [row(48.0 * minutes, user="dave", model="NVIDIA H100 80GB HBM3")]
    told = Cluster(TableEngine(answers), PRICES).after(0.0).values()["users_age"]["text"]
    assert ("unknown model" in told) == said


def test_a_file_of_users_has_base_units_and_what_they_are_of() -> None:
    (table,) = [
        one for one in parts(CLUSTER_PAGES["cluster"].layout(), "data-rows") if getattr(one, "data-rows") == "users"
    ]
    saved = {getattr(one, "data-saved"): getattr(one, "data-by") for one in parts(table, "data-saved")}
    ada = shown(prices=PRICES).rows("users", period="month")[0]
    found = {name: ada[by] for name, by in saved.items() if name}
    assert found["name"] == "ada"
    assert found["basis"] == "month, EUR"
    assert found["held_seconds"] == 3600 * 720 * 3
    assert found["energy_joules"] == 3600 * 720 * 1800
    assert found["held_cost"] == pytest.approx(3240.0)


def test_an_engine_without_a_series_of_gpumon_knows_nothing_and_says_so() -> None:
    served = Cluster(TableEngine({}, names=[])).after(0.0)
    page = served.page()
    values = page["values"]
    assert (page["live"], page["state"]) == (False, "no series of gpumon")
    assert "'gpumon export'" in page["step"]
    assert not any("rules" in one["text"] for one in values["doubts"])
    assert (values["free"], values["idle"], values["runs_now"], values["power"]) == ("–", "–", "–", "–")
    assert values["wrong"] == [{"text": "Unknown."}]
    assert model.NO_SERIES in [one["text"] for one in values["doubts"]]
    said = list(lines(served.poller.snapshot(), "engine", Period.WEEK))
    assert "GPUs unknown" in said[0]
    assert "0 nodes" not in said[0]
    assert model.NO_SERIES in said
    assert shown().page()["state"] == "live"


def test_little_energy_beside_its_cost_is_not_nothing() -> None:
    answers = cluster(3)
    answers["energy_week"] = [row(23_760.0, user="ada")]
    assert Cluster(TableEngine(answers), PRICES).after(0.0).rows("users")[0]["energy"] == "6.6 Wh"
    assert (kwh(0.0), kwh(360_000.0), kwh(1800.0)) == ("0 kWh", "0.10 kWh", "0.50 Wh")


def test_a_file_of_users_has_each_second_joule_and_cent_and_the_dates_of_a_month() -> None:
    answers = cluster(3)
    answers["held_last-month"] = [row(26_784_123.4, user="ada")]
    answers["energy_last-month"] = [row(1_234_567_890.0, user="ada")]
    answers["held_by_model_last-month"] = [row(26_784_123.4, user="ada", model="NVIDIA L40S")]
    served = Cluster(TableEngine(answers), PRICES).after(0.0)
    served.page(period="last-month")
    (ada,) = [one for one in served.after(15.0).rows("users", period="last-month") if one["name"] == "ada"]
    assert (ada["held_seconds"], ada["energy_joules"]) == (26_784_123, 1_234_567_890)
    assert ada["held_money"] == round(26_784_123.4 / 3600 * 0.5, 4)
    assert ada["basis"].startswith("last-month 2026-12-01 to 2026-12-31, EUR")


def test_energy_of_which_a_part_has_no_tariff_yet_costs_at_least_so_much() -> None:
    answers = cluster(3)
    assert Cluster(TableEngine(answers), PRICES).after(0.0).rows("users")[0]["energy_cost"] == "72.58 EUR"
    answers["energy_at_1_week"] = []
    ada = Cluster(TableEngine(answers), PRICES).after(0.0).rows("users")[0]
    assert ada["energy_cost"].startswith("≥ ")


def test_without_prices_no_column_and_no_question_is_about_costs() -> None:
    values = shown().values()
    assert [values[name] for name in ("has_held_cost", "has_energy_cost", "has_co2")] == [False, False, False]
    assert cost_queries(None) == ()
    flat = cost_queries(Prices("EUR", {}, (0.3,) * 24))
    assert flat == (), "one price for all hours: energy is asked for anyhow"


def test_simulated_nodes_are_told_in_the_head_of_every_page() -> None:
    answers = cluster(3) | {"unreal": [row(2.0)]}
    assert Cluster(TableEngine(answers)).after(0.0).page()["label"] == "SIMULATED or REPLAY: 2 nodes"
    assert shown().page()["label"] == ""


def test_a_month_of_the_calendar_is_asked_for_while_somebody_looks_at_it() -> None:
    served = Cluster(TableEngine(cluster(3)), PRICES).after(0.0)
    assert not any("@" in one for one in served.engine.asked)
    assert served.values(period="last-month")["users_age"]["text"].startswith("It is unknown whether")
    assert served.page(period="last-month")["interval"] == 1.0, "the answer is on its way"
    values = served.after(15.0).values(period="last-month")
    assert values["users_age"] == {"text": "No price is set for 1,488 h on Tesla T4."}, (
        "it has all of a month of 31 days"
    )
    ada, _ = served.rows("users", period="last-month")
    assert (ada["time"], ada["held_cost"]) == ("2,232 h", "3,348.00 EUR")
    (pressed,) = (one for one in values["periods"] if one["is_pressed"])
    assert (pressed["text"], pressed["title"]) == ("Last month", "2026-12-01 to 2026-12-31")


def test_a_month_of_which_the_engine_has_a_part_is_at_least_so_much() -> None:
    answers = cluster(3) | {"covered_this-month": [row(86400.0, of="1224000")]}
    served = Cluster(TableEngine(answers), PRICES).after(0.0)
    served.page(period="this-month")
    text = served.after(15.0).values(period="this-month")["users_age"]["text"]
    assert text.startswith("Prometheus has samples for only 1 d of this month")
    assert served.rows("users", period="this-month")[0]["time"] == "≥ 1,020 h"


def test_an_engine_that_has_sums_of_a_few_minutes_is_not_said_to_have_none() -> None:
    answers = cluster(3) | {"covered_week": []}
    text = Cluster(TableEngine(answers)).after(0.0).values()["users_age"]["text"]
    assert text == "Prometheus has samples for less than 5 min of the last week: sums are lower bounds."
    assert (
        coverage.gap_sentence({"covered_week": [], "held_week": []}, Period.WEEK)
        == "Prometheus has no samples for the last week."
    )


def test_no_gpu_is_counted_as_taken_where_no_node_tells_any() -> None:
    answers = cluster(3)
    answers["seen_before"] = [replace(one, value=NOW - 30) for one in answers["seen"]]
    answers["gpus"] = []
    values = Cluster(TableEngine(answers)).after(0.0).values()
    assert (values["free"], values["idle"]) == ("–", "–")


def test_gpus_of_no_known_number_are_not_0() -> None:
    silent, without = cluster(3), cluster(3)
    silent["seen"] = [replace(one, value=NOW - 600) for one in silent["seen"]]
    without["seen_before"] = [replace(one, value=NOW - 30) for one in without["seen"]]
    without["gpus"] = []
    titles = [Cluster(TableEngine(answers)).after(0.0).values()["map_title"] for answers in (silent, without)]
    assert [title.partition(", ")[2] for title in titles] == ["GPUs unknown, 3 silent", "GPUs unknown, 1 silent"]


def test_the_bar_of_a_run_is_not_full_while_its_last_epoch_goes_on() -> None:
    answers = cluster(3)
    answers["epochs"], answers["planned"] = [row(3.0, run="r1")], [row(3.0, run="r1")]
    (run,) = Cluster(TableEngine(answers)).after(0.0).rows("runs")
    _, done = run["epoch"][0]["line"]
    assert done["bar"][0]["share"] == pytest.approx(2 / 3, abs=0.01)


def test_the_tab_says_what_is_free_or_whose_page_it_is() -> None:
    served = Cluster(TableEngine(cluster(3))).after(0.0)
    tabs = [served.values(page, id=id)["tab"]["text"] for page, id in (("node", "gn001"), ("person", "ada"))]
    assert [served.values()["tab"]["text"], *tabs] == ["4 of 16 free", "gn001", "ada"]


def test_a_run_that_is_not_listed_has_its_epoch_on_the_page_of_its_user() -> None:
    """Of a large cluster those on the most GPUs are listed."""
    answers = cluster(3)
    answers["runs"], answers["epochs"], answers["planned"] = [], [], []
    served = Cluster(TableEngine(answers)).after(0.0)
    served.page("person", id="ada")
    (run,) = served.after(15.0).rows("runs", "person", id="ada")
    assert run["epoch"][0]["line"][0]["text"] == "epoch 4, 40 planned"


def test_no_run_is_without_epochs_before_the_engine_said_so() -> None:
    engine = TableEngine(cluster(3))
    engine.broken = {"epochs", "user_epochs ada"}
    served = Cluster(engine).after(0.0)
    (run,) = served.rows("runs")
    assert run["epoch"][0]["line"][0]["text"] == "–"
    served.page("person", id="ada")
    (run,) = served.after(15.0).rows("runs", "person", id="ada")
    assert run["epoch"][0]["line"][0]["text"] == "–"
    engine.broken, engine.answers["epochs"], engine.answers["user_epochs ada"] = set(), [], []
    (run,) = served.after(60.0).rows("runs", "person", id="ada")
    assert run["epoch"][0]["line"][0]["text"] == "no epochs logged"


def test_of_a_user_of_whom_nobody_asked_yet_nothing_is_denied() -> None:
    answers = cluster(3)
    engine = TableEngine(answers)
    served = Cluster(engine).after(0.0)
    values = served.values("person", id="ada")
    assert (values["no_runs"], values["no_nodes"]) == ("Querying Prometheus …",) * 2
    engine.broken = {"user_jobs ada"}
    answers["user_places ada"] = []
    values = served.after(15.0).values("person", id="ada")
    assert (values["no_runs"], values["no_nodes"]) == ("Unknown.", "No nodes of this user are known.")
    assert served.values("person", id="nobody")["no_runs"] == "No runs of this user are known."


def test_a_long_name_in_what_is_wrong_is_cut() -> None:
    answers = cluster(3)
    answers["idle_holders"] = [row(7200.0, instance="gn001", gpu="3", user="x" * 200)]
    told = [one for one in shown_of(answers)["wrong"] if one.get("about") == "idle"]
    assert len(told[0]["text"]) < 100
    assert told[0]["text"].endswith("holds 1 GPU idle for 2 h or longer")


def shown_of(answers: dict[str, list[PrometheusSeries]]) -> dict[str, Any]:
    return Cluster(TableEngine(answers)).after(0.0).values()
