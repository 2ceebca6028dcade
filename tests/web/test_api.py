"""The interface for programs: every answer is one that its OpenAPI document tells of, whatever is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

from gpumon.diagnosis.live_findings import earlier_frames
from gpumon.live import Live
from gpumon.reports.status_json import document as status_document
from gpumon_web.api import accounts, events, now, runs, series
from gpumon_web.jobs import ThreadWork
from tests.builders import device, sample, tick
from tests.fuzzing import examples
from tests.programs import daemon, environment, status, until
from tests.runs import Book, training
from tests.unit.test_whole_runs import ticks, trained
from tests.web.api import NOW, RUN, at, hostile, make, validator
from tests.web.asked import HOST, Client
from tests.web.served import TOKEN, Served
from tests.web.test_serve import ask, web
from tests.web.test_whole_runs import TOLD, Recorded, by_steps

V1 = "/api/v1/"
PARAMETERS: Mapping[str, type[BaseModel] | None] = {
    "status": None, "findings": now.FindingsParameters, "users": None, "series": series.SeriesParameters,
    "runs": runs.RunsParameters, "run": runs.RunParameters, "epochs": runs.EpochsParameters,
    "events": events.EventsParameters, "accounts": accounts.AccountsParameters, "caps": None,
}  # fmt: skip
"""The routes, and their parameters."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return make(tmp_path_factory.mktemp("api"))


@pytest.fixture(scope="module")
def client(served: Served) -> Client:
    return served.client()


@pytest.fixture(scope="module")
def described(served: Served) -> Any:
    return served.json(f"{V1}openapi.json")


def operations() -> list[str]:
    return list(PARAMETERS)


def check(described: Any, client: Client, name: str, query: Any) -> tuple[int, Any]:
    """Ask, and fail for an answer that the document does not tell of; gives the status and the body."""
    answer = client.get(V1 + name, query_string=query)
    told = described["paths"][f"/{name}"]["get"]["responses"]
    assert str(answer.status_code) in told, (query, answer.status_code, answer.data[:300])
    assert answer.status_code < 500, (query, answer.data[:300])
    content = told[str(answer.status_code)]["content"]
    assert answer.mimetype in content
    body = answer.get_json(force=True)
    validator(described, content[answer.mimetype]["schema"]).validate(body)
    return answer.status_code, body


# The document


def test_the_document_tells_of_each_route_and_of_no_other(served: Served, described: Any) -> None:
    registered = {path.removeprefix(V1) for path in served.paths() if path.startswith(V1)} - {"openapi.json"}
    assert {path.removeprefix("/") for path in described["paths"]} == registered == set(operations())
    assert described["openapi"].startswith("3.1")


def test_every_reference_leads_somewhere_and_every_schema_is_one(described: Any) -> None:
    names = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(described)))
    assert "#/$defs" not in json.dumps(described)
    assert names == set(described["components"]["schemas"]), "each schema is used, and each that is used is there"
    for schema in described["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(("prefix", "url"), [("", "/api/v1"), ("/gpus", "/gpus/api/v1"), ("/a/../b", "/api/v1")])
def test_the_document_names_the_path_that_a_proxy_names(served: Served, prefix: str, url: str) -> None:
    answer = served.client().get(f"{V1}openapi.json", headers={"X-Forwarded-Prefix": prefix} if prefix else {})
    assert answer.get_json()["servers"] == [{"url": url}]


@pytest.mark.parametrize("name", operations())
def test_a_route_answers_what_its_schema_says(described: Any, client: Client, name: str) -> None:
    needed = {"series": {"metric": "gpu.utilization,host.load"}, "run": {"id": RUN}, "epochs": {"run": RUN}}
    assert check(described, client, name, needed.get(name, {}))[0] == 200


@pytest.mark.parametrize("run", [RUN, "vit-2b3c", "evil-3c4d", "bare-4d5e"])
def test_every_run_fits_its_schema(described: Any, client: Client, run: str) -> None:
    assert check(described, client, "run", {"id": run})[0] == 200
    assert check(described, client, "epochs", {"run": run})[0] == 200


# Whatever is asked

_TEXTS = st.one_of(
    st.text(max_size=30), st.sampled_from(["", ",", "0", "GPU-00000000", RUN, "bob", "1e400", "%00", "-1"])
)


def values_of(schema: Mapping[str, Any]) -> st.SearchStrategy[str]:
    """Texts that a schema allows."""
    if schema["type"] == "array":
        items = st.lists(values_of(schema["items"]), min_size=1, max_size=min(4, schema["maxItems"]))
        return items.map(",".join)
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema["type"] == "integer":
        return st.integers(schema["minimum"], schema["maximum"]).map(str)
    if schema["type"] == "number":
        near = [NOW + 60, NOW - 3600, schema["minimum"], schema["maximum"]]
        usual = st.sampled_from([value for value in near if value <= schema["maximum"]])
        return st.one_of(usual, st.floats(schema["minimum"], schema["maximum"])).map(repr)
    return st.sampled_from([RUN, "vit", "0", "1", "bob", device().uuid, "alice", "x" * schema["maxLength"]])


@st.composite
def queries(draw: st.DrawFn, parameters: list[Any]) -> list[tuple[str, str]]:
    """What somebody may ask: mostly what is documented, at times anything, twice, or of another name."""
    found = []
    for one in parameters:
        if (one["required"] and draw(st.integers(0, 9))) or draw(st.booleans()):
            anything = draw(st.integers(0, 9)) == 0
            found.append((one["name"], draw(_TEXTS if anything else values_of(one["schema"]))))
    if draw(st.integers(0, 9)) == 0:
        found.append((draw(st.sampled_from(["token", "window", "x", "", "gpu", "limit"])), draw(_TEXTS)))
    return found


@pytest.mark.parametrize("name", operations())
def test_whatever_is_asked_the_answer_is_documented(served: Served, described: Any, name: str) -> None:
    parameters = described["paths"][f"/{name}"]["get"]["parameters"]
    client = served.client()

    @settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(queries(parameters))
    def whatever(query: list[tuple[str, str]]) -> None:
        check(described, client, name, query)

    whatever()


def test_every_value_that_the_document_allows_is_taken(described: Any) -> None:
    paths = described["paths"]
    told = {(name, one["name"]): one for name in operations() for one in paths[f"/{name}"]["get"]["parameters"]}
    fields = {
        (name, field.alias or key): model.__pydantic_fields__[key].rebuild_annotation()
        for name, model in PARAMETERS.items() if model
        for key, field in model.model_fields.items()
    }  # fmt: skip
    assert told.keys() == fields.keys()

    @settings(max_examples=examples(300), deadline=None, database=None)
    @given(st.data())
    def taken(data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(fields)))
        schema = told[key]["schema"]
        value = data.draw(values_of(schema))
        given: Any = [value] if schema["type"] == "array" else value  # as FastAPI passes a list
        assert TypeAdapter(fields[key]).validate_python(given) is not None

    taken()


@pytest.mark.parametrize("seed", range(8))
def test_whatever_a_frame_has_the_answer_is_documented(described: Any, seed: int) -> None:
    client = hostile(seed).client()
    for name in ("status", "findings", "users"):
        assert check(described, client, name, {})[0] == 200
    assert check(described, client, "series", {"metric": "gpu.power,gpu.fan,host.memory_used"})[0] == 200


def test_what_is_made_elsewhere_comes_the_same_way(tmp_path: Path, described: Any) -> None:
    client = make(tmp_path, days=1, work=ThreadWork()).client()
    for name, query in (("runs", {}), ("run", {"id": RUN}), ("epochs", {"run": RUN, "limit": "5"}), ("events", {})):
        assert check(described, client, name, query)[0] == 200


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("series", "metric is missing: one of "),
        ("series?metric=gpu.nothing", "metric must be one of "),
        ("series?metric=gpu.power&points=0", "points must be a whole number from 1 to 2000, not '0'."),
        ("series?metric=gpu.power&points=2.5", "points must be a whole number from 1 to 2000, not '2.5'."),
        ("series?metric=gpu.power&from=nan", "from must be a number from 0 to 100000000000, not 'nan'."),
        ("series?metric=gpu.power&window=9e9", "window must be a number from 0.001 to 2678400, not '9e9'."),
        ("series?metric=gpu.power&from=5&to=5", "the window is empty: from must be before to."),
        ("series?metric=gpu.power&from=1&to=99999999", "the window is too long: at most 2678400 seconds."),
        ("series?metric=gpu.power&from=1&to=2&window=3", "from, to and window are too many: give two of them."),
        ("series?metric=gpu.power&metric=gpu.fan", "metric is given 2 times: give it once."),
        ("series?metric=gpu.power&gpu=", "gpu must be a string of 1 to 200 characters, not ''."),
        ("status?gpus=0", "unknown parameter 'gpus'; parameters of this route: none."),
        ("runs?state=done", "state must be one of running, finished, failed, died, interrupted, stopped, not 'done'."),
        ("runs?user=%1b%5b31m", None),
        ("openapi.json?x=1", "unknown parameter 'x'; parameters of this route: none."),
    ],
)
def test_a_parameter_that_cannot_be_meant_is_one_line(client: Client, path: str, said: str | None) -> None:
    answer = client.get(V1 + path)
    if said is None:
        assert answer.status_code == 200
        return
    body = answer.get_json(force=True)
    assert (answer.status_code, answer.mimetype) == (400, "application/problem+json")
    assert (body["type"], body["status"], body["title"]) == ("about:blank", 400, "Bad parameter")
    assert body["detail"].startswith(said)
    assert "\n" not in body["detail"]


@pytest.mark.parametrize(
    ("path", "status"), [("nothing", 404), ("run?id=nope", 404), ("epochs?run=nope", 404), ("", 404), ("status/x", 404),
                         ("series?metric=gpu.power&gpu=9", 404)],
)  # fmt: skip
def test_a_thing_that_is_not_there_is_a_problem_document(client: Client, path: str, status: int) -> None:
    answer = client.get(V1 + path)
    assert (answer.status_code, answer.mimetype) == (status, "application/problem+json")


def test_who_may_not_ask_gets_a_problem_document(served: Served, described: Any) -> None:
    told = validator(described, {"$ref": "#/components/schemas/problem_document"})
    for name in (*operations(), "openapi.json", "nothing"):
        for headers, code in (({}, 401), ({"Host": "evil.example"}, 421), ({"Origin": "http://evil.example"}, 403)):
            answer = served.client(token=False).get(V1 + name, headers=headers)
            assert (answer.status_code, answer.mimetype) == (code, "application/problem+json")
            told.validate(answer.get_json(force=True))
    for path in described["paths"].values():
        assert {"401", "403", "405", "421", "429", "431"} <= set(path["get"]["responses"])


def test_a_token_in_the_address_of_a_program_opens_nothing(served: Served) -> None:
    answer = served.client(token=False).get(f"{V1}status?token={TOKEN}")
    assert answer.status_code == 401
    assert "Set-Cookie" not in answer.headers
    assert (
        served.client(token=False)
        .get(f"{V1}status", headers={"Authorization": f"Bearer {TOKEN}", "Host": HOST})
        .status_code
        == 200
    )


# Numbers


def test_the_status_is_what_the_command_prints_of_the_same_frame(served: Served) -> None:
    frame = served.live.latest()
    assert frame is not None
    live: Live = served.live
    expected = status_document(
        frame, live.origin(), live.driver(), live.hostname(), None, before=earlier_frames(live, frame)
    )
    found = served.json(f"{V1}status")
    assert found.pop("age") > 0
    expected.pop("age")
    assert found == json.loads(json.dumps(expected))
    assert served.json(f"{V1}findings")["findings"] == found["findings"] != []


def test_the_status_of_a_daemon_is_what_the_command_prints_of_the_same_tick(live_dir: Path) -> None:
    env = environment(live_dir)
    with daemon("--source", "sim", "--interval", "5", env=env) as process, web(env, "--port", 0) as (_, link):

        def same() -> tuple[Any, Any] | None:
            # The command first: it takes long to start and little to end, so that the server has the same tick still.
            printed = status(env)
            mine = json.loads(ask(link, f"{V1}status")[1])
            # A server that has just begun may still read the older frames, by which findings know since when.
            told, said = ({(one["kind"], one["subject"]["id"]) for one in all["findings"]} for all in (mine, printed))
            return (mine, printed) if mine["time"] == printed["time"] and said <= told else None

        mine, printed = until(same)
        assert mine["daemon"]["pid"] == process.pid
        # What is made beside the threads that answer comes back to the same route, its refusals too.
        many = "gpu.power,gpu.fan,gpu.utilization"
        for path, code in (
            ("series?metric=gpu.power", 200), (f"series?metric={many}&points=2000", 400), ("run?id=nope", 404),
            ("series?metric=gpu.power&gpu=99", 404), ("runs", 200), ("events", 200), ("accounts", 200),
            ("caps", 200),
        ):  # fmt: skip
            assert ask(link, V1 + path)[0] == code, path
        for one in (mine, printed):
            del one["age"], one["daemon"]["age"], one["findings"]  # the server also judges by the ledger
        assert mine == printed


def test_the_status_of_a_silent_daemon_says_so(described: Any) -> None:
    served = Served([at(50), at(70)], devices=4)
    served.live.age = 20.0
    found = served.json(f"{V1}status")
    validator(described, {"$ref": "#/components/schemas/status"}).validate(found)
    assert found["live"] is False
    silent = [gpu for gpu in found["gpus"] if gpu["state"] != "lost"]
    assert {gpu["gpu_state"] for gpu in silent} == {"stale"}
    assert {gpu["age"] for gpu in silent} == {found["age"]}
    assert found["age"] >= 20.0


def test_before_the_first_tick_nothing_is_claimed(described: Any) -> None:
    client = Served([]).client()
    _, found = check(described, client, "status", {})
    assert (found["gpus"], found["live"]) == ([], False) or found["problem"]
    for name in ("findings", "users", "runs", "events"):
        assert check(described, client, name, {})[0] == 200
    code, lines = check(described, client, "series", {"metric": "host.load,gpu.power"})
    assert code == 200
    assert [line["gaps"][0]["reason"] for line in lines["series"]] == ["not_sampled"]


def test_users_hold_what_their_processes_and_runs_hold(served: Served) -> None:
    found = served.json(f"{V1}users")
    by_name = {user["user"]: user for user in found["users"]}
    assert [gpu["label"] for gpu in by_name["alice"]["gpus"]] == ["0"]
    assert by_name["alice"]["runs"] == [RUN]
    assert [gpu["label"] for gpu in by_name["bob"]["gpus"]] == ["1"]
    assert by_name["bob"]["memory_used"] == 2**30
    assert [gpu["label"] for gpu in by_name[None]["gpus"]] == ["0", "2", "3"], "what nobody known does"
    assert by_name[None]["memory_used"] is None
    assert found["users"][-1]["user"] is None
    assert found["unknown_gpus"] == []


def test_nobody_is_said_to_hold_a_gpu_of_which_nothing_is_known() -> None:
    found = Served([tick(1, [sample(0)])]).json(f"{V1}users")
    assert found["users"] == []
    assert found["unknown_gpus"] == [device().uuid]


def lines_of(served: Served, **query: Any) -> Any:
    answer = served.client().get(f"{V1}series", query_string=query)
    assert answer.status_code == 200, answer.data
    return answer.get_json()


def test_series_of_samples_are_those_of_the_status(served: Served) -> None:
    found = lines_of(served, metric="gpu.power,gpu.energy,host.load", gpu="0", window="60", points="2000")
    assert found["step"] == 0
    power, energy, load = found["series"]
    now = served.json(f"{V1}status")
    assert found["times"][-1] == now["time"]
    assert power["mean"][-1] == now["gpus"][0]["power"]
    assert load["mean"][-1] == now["host"]["load"]
    assert energy["is_rate"]
    assert energy["unit"] == "joules_per_second"
    assert energy["mean"][-1] == pytest.approx(600.0)


def test_gaps_are_null_and_say_why(served: Served) -> None:
    found = lines_of(served, metric="gpu.utilization", gpu="2", **{"from": NOW + 1, "to": NOW + 200})
    (line,) = found["series"]
    told = [(gap["reason"], round(gap["begin"] - NOW), round(gap["end"] - NOW)) for gap in line["gaps"]]
    assert told == [("not_sampled", 30, 41), ("no_value", 59, 90), ("not_yet", 120, 200)]
    inside = [value for at, value in zip(found["times"], line["mean"], strict=True) if 60 <= at - NOW < 90]
    assert inside == [None] * 30


def test_a_month_is_answered_in_few_points_with_its_gaps(served: Served) -> None:
    found = lines_of(served, metric="gpu.utilization", gpu="0", window=31 * 86400, points="300")
    (line,) = found["series"]
    assert 100 < len(found["times"]) <= 300
    assert len(line["min"]) == len(line["mean"]) == len(line["max"]) == len(found["times"])
    known = [each for each in zip(line["min"], line["mean"], line["max"], strict=True) if None not in each]
    assert len(known) > 100
    assert all(low <= mean <= high for low, mean, high in known)
    night = [gap for gap in line["gaps"] if gap["reason"] == "not_sampled"]
    assert any(abs((gap["end"] - gap["begin"]) - 43200) < 2 * found["step"] for gap in night), (
        "half a day without a daemon"
    )


def test_a_gpu_that_is_gone_is_answered_from_what_is_kept(tmp_path: Path) -> None:
    served = make(tmp_path, days=1)
    served.writer.append(tick(500, [sample(1, utilization=0.1)], time_ns=round((NOW + 121) * 1e9)))
    found = lines_of(served, metric="gpu.utilization", gpu=device().uuid, **{"from": NOW - 86400, "to": NOW})
    assert any(value is not None for value in found["series"][0]["mean"])


def test_more_lines_than_an_answer_has_are_refused_with_what_would_do(client: Client) -> None:
    many = "gpu.power,gpu.fan,gpu.utilization,gpu.energy,gpu.temperature"
    answer = client.get(f"{V1}series?metric={many}&points=2000")
    assert answer.status_code == 400
    most = re.search(r"points=(\d+)", answer.get_json(force=True)["detail"])
    assert most
    assert client.get(f"{V1}series?metric={many}&points={most[1]}").status_code == 200


@pytest.mark.parametrize("by", ["user", "device", "hour", "day", "week", "month"])
def test_accounts_are_grouped_and_say_what_was_not_seen(described: Any, client: Client, by: str) -> None:
    status, found = check(described, client, "accounts", {"by": by, "from": NOW - 7200})
    assert (status, found["by"], found["problem"]) == (200, by, None)
    held: dict[str, float] = {}
    for group in found["groups"]:
        for account in group["accounts"]:
            held[account["user"]] = held.get(account["user"], 0.0) + account["held"]
    # Of 119 seconds, the ten without a sample are nobody's.
    assert held == pytest.approx({"alice": 109, "bob": 109}, abs=2)
    assert check(described, client, "accounts", {"by": by, "to": 9000})[1]["groups"] == []


def test_caps_have_what_is_used_and_the_rate_at_which_the_rest_will_be(described: Any, client: Client) -> None:
    status, found = check(described, client, "caps", {})
    (cap,) = found["caps"]
    assert (status, cap["user"], cap["group"], cap["measure"], cap["limit"]) == (200, "alice", None, "hours", 3600.0)
    assert cap["used"] == pytest.approx(109, abs=2)
    assert (cap["complete"], cap["reached"]) == (False, None), "ten seconds were not sampled"


def test_hours_of_a_year_are_too_many(client: Client) -> None:
    answer = client.get(f"{V1}accounts?by=hour&from={NOW - 9e6:.0f}")
    assert answer.status_code == 400
    assert "too long for hours: at most 2678400 seconds" in answer.get_json(force=True)["detail"]


# Pages


def every(served: Served, name: str, key: str, limit: int, **query: Any) -> list[Any]:
    """All rows, page by page."""
    found, offset = [], 0
    while offset is not None:
        page = served.client().get(V1 + name, query_string={**query, "limit": limit, "offset": offset}).get_json()
        assert len(page[key]) <= limit
        found.append(page[key])
        offset = page["next_offset"]
    return found


def test_runs_come_in_pages_and_by_what_is_asked_of_them(served: Served) -> None:
    rows = [row["id"] for page in every(served, "runs", "runs", 1) for row in page]
    assert sorted(rows) == sorted([RUN, "vit-2b3c", "evil-3c4d", "bare-4d5e"])
    assert rows == [row["id"] for row in served.json(f"{V1}runs")["runs"]]
    for query, expected in (
        ("user=bob", ["vit-2b3c"]), ("framework=keras", ["vit-2b3c"]),
        ("state=died,failed", ["bare-4d5e", "evil-3c4d"]),
        ("name=vi", ["vit-2b3c"]), ("to=1", []), ("from=1&user=nobody", []),
    ):  # fmt: skip
        assert sorted(row["id"] for row in served.json(f"{V1}runs?{query}")["runs"]) == expected


def test_epochs_come_in_pages_and_are_those_of_the_run(served: Served) -> None:
    whole = [row for page in every(served, "epochs", "epochs", 5, run=RUN) for row in page]
    assert [row["ordinal"] for row in whole] == list(range(12))
    assert served.json(f"{V1}run?id={RUN}")["epochs_total"] == 12
    assert whole == served.json(f"{V1}epochs?run={RUN}&limit=500")["epochs"]


def test_events_come_in_pages_the_newest_first(served: Served) -> None:
    pages = every(served, "events", "events", 2)
    together = [row for page in reversed(pages) for row in page]
    assert together == served.json(f"{V1}events?limit=500")["events"]
    assert {row["kind"] for row in together} >= {"daemon_started", "gpu_lost", "gpu_back", "run_began"}
    lost = served.json(f"{V1}events?kind=gpu_lost&gpu=2")["events"]
    assert [row["uuid"] for row in lost] == [device(2).uuid]
    assert served.json(f"{V1}events?to={NOW - 9e5:.0f}&user=alice")["events"] == []


def test_a_server_without_history_says_that_it_has_no_events() -> None:
    assert "no history" in Served([tick(1)]).json(f"{V1}events")["problem"]


@pytest.mark.parametrize("kind", ["steps", "between", "epochs"])
def test_runs_of_every_kind_fit_their_schemas(tmp_path: Path, described: Any, kind: str) -> None:
    if kind == "steps":
        path = by_steps(tmp_path, TOLD).path
    elif kind == "between":
        path = Recorded(tmp_path, ticks(24, trained()), TOLD).path
    else:
        with Book(tmp_path) as book:
            training(book, "net-1a2b", 4)
        path = str(book.path)
    client = Served([tick(1)], [path]).client()
    _, found = check(described, client, "runs", {})
    assert found["runs"]
    for run in found["runs"]:
        status, whole = check(described, client, "run", {"id": run["id"]})
        assert status == 200
        assert (bool(whole["steps"]), bool(whole["between"])) == (kind == "steps", kind == "between")
        assert (whole["run"]["config"] != {}) == (kind != "epochs")
        assert check(described, client, "epochs", {"run": run["id"]})[0] == 200
