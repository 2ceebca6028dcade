"""Names of people, hashed or hidden: no route tells one, and one's own page is found by the hash."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from werkzeug.test import TestResponse

from gpumon.common.clock import SECOND
from gpumon.common.privacy import HASHED, HIDDEN, SOMEBODY, WAYS, People
from gpumon.export.scrape import Exporter
from gpumon.model.frame import RunState
from gpumon.model.origin import Origin
from gpumon_web.names import named_frames
from gpumon_web.pages import PAGES
from tests.activity import keep
from tests.builders import TIME, device, process, run, sample, tick
from tests.exported import Node, Page
from tests.programs import command
from tests.runs import Book, training
from tests.web.conftest import on_a_port, own_places, visit
from tests.web.served import Served

GIB = 2.0**30
PERSON, FRIEND, GUEST = "wilhelmina", "xaverius", "ypsilanti"
"""Those of the first run, of the second, and of a process of the past alone."""
RUN, SECOND_RUN = f"{PERSON}-net-1a2b", "other-3c4d"
SALT = b"a-salt-for-tests"
DAY = "2026-09-21"
HASHED_RUN = People(HASHED, SALT).run_id(RUN)
WRITTEN = ("ckpt_", "begun from", "beats-", "/a.py", "'s net", "cannot see")
"""Parts of texts that people wrote, or that a path stands in: parameters, notes, tags, names, a notice."""
WINDOW = f"from={TIME // SECOND - 60}&to={TIME // SECOND + 4000}"


@pytest.fixture(scope="module")
def kept_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A ledger and a history in which names stand wherever they can."""
    directory = tmp_path_factory.mktemp("kept")
    with Book(directory) as book:
        training(book, RUN, 3, gpus=2)
        book.db.execute("UPDATE run SET user = ?, name = ?", (PERSON, f"{PERSON}'s net after {FRIEND}"))
        training(book, SECOND_RUN, 2, user=FRIEND)
        book.db.execute("PRAGMA foreign_keys = OFF")
        for table in (
            "rank",
            "device",
            "epoch",
            "phase",
            "usage",
            "trace",
            "mark",
        ):  # keys are of a process, not of a name
            column = "key" if table == "rank" else "rank"
            book.db.execute(f"UPDATE {table} SET {column} = replace({column}, ?, 'net')", (PERSON,))
        book.add("parameter", run=RUN, kind=0, place=0, name="out", value=json.dumps(f"/home/{FRIEND}/x"), rank=0)
        book.add("parameter", run=RUN, kind=1, place=0, name="script", value=json.dumps(f"/srv/{PERSON}/a.py"), rank=0)
        book.add("note", run=RUN, time=TIME, text=f"ask {PERSON.title()}", author=FRIEND)
        book.add("tag", run=RUN, tag=f"of-{PERSON}", removed=0)
        for place, (of, at) in enumerate(((FRIEND, "/scratch"), (GUEST, "/data/old")), 1):
            book.add("parameter", run=RUN, kind=0, place=place, name=f"from_{place}", rank=0,
                     value=json.dumps(f"{at}/{of}/ckpt_{of}.pt"))  # fmt: skip
            book.add("note", run=RUN, time=TIME + place, text=f"Begun from that of {of.upper()}.", author=PERSON)
            book.add("tag", run=RUN, tag=f"beats-{of}", removed=0)
        book.add("parameter", run=SECOND_RUN, kind=0, place=0, name="from_2", value=json.dumps("nothing"), rank=0)
        history = directory / "history.sqlite"
        keep(history, [ticks(second, FRIEND if second else GUEST) for second in range(0, 3600, 60)])
        yield str(book.path), str(history)


def ticks(second: int = 3700, friend: str = FRIEND):
    key = "tag.1000.7.abcd"
    working = run(key, id=RUN, name=f"{PERSON}'s net", user=PERSON, gpus=(device(0).uuid,), state=RunState.RUNNING)
    return tick(
        1,
        [sample(0, utilization=0.8, memory_used=GIB, memory_total=80 * GIB, run=key),
         sample(1, utilization=0.0, memory_used=GIB, memory_total=80 * GIB)],
        [process(7, 0, user=PERSON, run=key, sm_utilization=0.8),
         process(8, 1, user=friend, name=f"{friend}-lab", container=f"docker {friend}", sm_utilization=0.0)],
        [working], time_ns=TIME + second * SECOND, monotonic_ns=(50 + second) * SECOND, interval_ns=60 * SECOND,
        origin=Origin("nvml", notice=f"cannot see /home/{FRIEND}/x"),
    )  # fmt: skip


def text_of(answer: TestResponse) -> str:
    return answer.get_data().decode(errors="replace").lower()


def served(kept_files: tuple[str, str], way: str) -> Served:
    ledger, history = kept_files
    people = People(way, SALT)
    found = Served([ticks()], [ledger], histories=[history], people=people)
    found.now = TIME / SECOND + 3700
    found.live.history = history
    return found


def addresses(of: Served) -> list[str]:
    """Every route, those of pages with each page and what it may be about, those of programs with what they need."""
    runs = [RUN, HASHED_RUN]
    about = f"zone=UTC&day={DAY}&window=24h&gpu=0"
    pages = [
        f"/api/{route}?page={page}&{about}&id={one}{more}"
        for route in ("delta", "kept", "layout") for page in PAGES for one in runs for more in ("", "&rest=1")
    ]  # fmt: skip
    plain = [path for path in of.paths() if path not in ("/sign-out",)]
    asked = [f"{path}?{'run' if 'epochs' in path else 'id'}={one}&{about}" for path in plain for one in runs]
    v1 = ("runs", "run?id=", "epochs?run=", "users", f"events?{WINDOW}", f"accounts?{WINDOW}", "status", "findings")
    programs = [f"/api/v1/{path}{one if path.endswith('=') else ''}" for path in v1 for one in runs]
    return [*plain, *asked, *pages, *programs, "/api/users.csv?period=month&zone=UTC"]


@pytest.mark.parametrize("way", [HASHED, HIDDEN])
def test_no_route_tells_a_name(kept_files: tuple[str, str], way: str) -> None:
    of = served(kept_files, way)
    client = of.client()
    answered = 0
    for address in addresses(of):
        answer = client.get(address)
        body = text_of(answer)
        own = RUN if RUN in address else "\0"
        for name in (PERSON, FRIEND, GUEST):
            told = body.replace(own, "")  # what a page says that it was asked for is no news
            assert name not in told, (address, told[max(0, told.index(name) - 200) :][:400])
        assert [text for text in WRITTEN if text in body] == [], address
        answered += answer.status_code == 200
    assert answered > 60
    for runs in ((RUN, SECOND_RUN), (HASHED_RUN, People(way, SALT).run_id(SECOND_RUN))):
        body = json.dumps(of.compared(runs)).replace(RUN, "")
        assert [text for text in (PERSON, FRIEND, GUEST, *WRITTEN) if text in body] == []


def test_the_crawl_finds_names_where_they_are_shown(kept_files: tuple[str, str]) -> None:
    of = served(kept_files, WAYS[0])
    client = of.client()
    telling = [one for one in addresses(of) if PERSON in text_of(client.get(one))]
    assert {one.partition("?")[0] for one in telling} >= {
        "/api/delta", "/api/kept", "/api/v1/status", "/api/v1/runs", "/api/v1/events", "/api/v1/accounts",
        "/api/users.csv",
    }  # fmt: skip


def test_a_hashed_user_is_the_same_everywhere(kept_files: tuple[str, str]) -> None:
    of, alias = served(kept_files, HASHED), People(HASHED, SALT).alias(PERSON)
    for address in ("/api/v1/runs", "/api/v1/status", f"/api/v1/accounts?{WINDOW}", f"/api/v1/runs?user={alias}"):
        assert alias in text_of(of.client().get(address)), address
    assert of.json(f"/api/v1/run?id={HASHED_RUN}")["run"]["user"] == alias
    assert of.json(f"/api/v1/events?user={alias}&{WINDOW}")["events"]
    assert People(HASHED, b"another salt").alias(PERSON) != alias


def test_runs_of_a_hashed_user_are_compared_and_filtered_by_the_hash(kept_files: tuple[str, str]) -> None:
    of, alias = served(kept_files, HASHED), People(HASHED, SALT).alias(PERSON)
    hashed, second = HASHED_RUN, People(HASHED, SALT).run_id(SECOND_RUN)
    compared = of.compared((hashed, second))
    assert compared["title"] == "2 runs compared"
    assert alias in json.dumps(compared["runs"])
    assert of.json(f"/api/kept?page=runs&user={alias}")["tables"]["runs"]["order"] == [hashed]
    assert of.json(f"/api/kept?page=runs&user={PERSON}")["tables"]["runs"]["order"] == []
    asked = of.json(f"/api/kept?page=runs&where=script=/srv/{PERSON}/a.py")
    assert "while names are not shown" in asked["values"]["problem"]


def test_where_names_are_hidden_ones_own_page_is_found_by_the_hash_alone(kept_files: tuple[str, str]) -> None:
    of, alias = served(kept_files, HIDDEN), People(HIDDEN, SALT).alias(FRIEND)
    found = of.json(f"/api/kept?page=users&day={DAY}&period=month&zone=UTC&user={alias}")
    assert found["values"]["title"] == alias
    assert [row["user"][0]["line"][0]["text"] for row in found["tables"]["users"]["cells"].values()] == ["GPU 1"]
    everybody = of.json(f"/api/kept?page=users&day={DAY}&period=month&zone=UTC")
    assert set(everybody["tables"]["users"]["cells"]) == {SOMEBODY}
    guessed = of.json(f"/api/kept?page=users&day={DAY}&period=month&zone=UTC&user={FRIEND}")
    assert guessed["tables"]["users"]["order"] == []


def test_where_names_are_hidden_nobody_is_asked_who_they_are(browser: Browser) -> None:
    on_it = [process(1, 0, user=PERSON), process(2, 1, user=FRIEND)]
    ticks = [tick(n, [sample(0, utilization=0.5), sample(1, utilization=0.5)], on_it) for n in (1, 2)]
    for way, asked in ((HASHED, 1), (HIDDEN, 0)):
        served = Served(ticks, devices=2, people=People(way, SALT))
        with on_a_port(served) as link, visit(browser, link) as visitor:
            visitor.context.add_init_script(f"localStorage.setItem('gpumon-me', {SOMEBODY!r});" if not asked else "")
            page = visitor.open("#/fleet")
            expect(page.locator("#page-fleet tbody tr")).to_have_count(2)
            expect(page.get_by_label("I am")).to_have_count(asked)
            assert page.evaluate("gpumon.viewer.currentUser()") == ""
            if not asked:
                expect(page.get_by_text("names are hidden here")).to_be_visible()


def test_the_command_tells_the_hash_of_a_name_and_keeps_its_secret(tmp_path: Path) -> None:
    env = own_places(tmp_path)

    def told(user: str) -> str:
        return subprocess.check_output(command("web", "--alias", user), env=env, text=True)

    assert told(PERSON) == told(PERSON) != told(FRIEND)
    assert told(PERSON).startswith("user-")
    [secret] = list(tmp_path.rglob("web-names")) or list(Path(env["GPUMON_STATE_DIR"]).rglob("web-names"))
    assert os.stat(secret).st_mode & 0o077 == 0


def test_users_who_are_called_the_same_are_idle_as_long_as_the_longest_and_not_as_all_of_them() -> None:
    node = Node(1)
    idle = [sample(0, utilization=0.0, memory_used=2.0**33, memory_total=2.0**36)]
    users = [process(1, user="ada"), process(2, user="bob")]
    node.add(tick(second, idle, users[: 1 + (second > 50)]) for second in range(1, 202))
    exporter = Exporter(named_frames(node.live, People(HIDDEN)))
    page = Page(exporter.scrape())
    assert page.values("gpumon_gpu_user_idle_seconds") == [200]
    assert page.values("gpumon_user_held_seconds_total") == [200 + 150], "each holds it the whole time"
    node.add(tick(second, idle, users[:1]) for second in range(202, 205))
    assert Page(exporter.scrape()).values("gpumon_gpu_user_idle_seconds") == [203], "the other one has gone"
    node.close()
