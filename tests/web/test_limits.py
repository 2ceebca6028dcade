"""One visitor's greed is his own trouble."""

from __future__ import annotations

from gpumon_web.auth.rate_limit import VISITORS, Buckets
from tests.builders import tick
from tests.web.served import TOKEN, Served


def test_a_visitor_may_ask_in_a_burst_and_then_steadily() -> None:
    buckets = Buckets(10, 2)
    assert [buckets.allows("a", 0.0) for _ in range(12)] == [True] * 10 + [False] * 2
    assert buckets.allows("b", 0.0), "another visitor's bucket is another's"
    assert [buckets.allows("a", 1.0) for _ in range(3)] == [True, True, False]


def test_buckets_are_bounded() -> None:
    buckets = Buckets(1, 0)
    for i in range(VISITORS + 10):
        assert buckets.allows(str(i), 0.0)
    assert buckets.allows("0", 0.0), "forgotten, as the one not heard for longest"
    assert not buckets.allows(str(VISITORS + 9), 0.0)


def test_who_asks_too_much_takes_the_form_to_sign_in_from_nobody() -> None:
    served = Served([tick(1)], buckets=Buckets(20, 0.0))
    greedy = [served.client(token=False).get("/") for _ in range(40)]
    assert greedy[-1].status_code == 429
    for path in ("/", "/?token=old"):
        answer = served.client(token=False).get(path)
        assert answer.status_code == 429
        assert '<form method="post" action="./sign-in"' in answer.text
    form = {"data": {"token": TOKEN}, "headers": {"Sec-Fetch-Site": "same-origin"}}
    assert served.client(token=False).post("/sign-in", **form).status_code == 303


def test_who_asks_too_much_is_told_to_wait_and_others_are_not() -> None:
    served = Served([tick(1)], buckets=Buckets(20, 0.0))
    greedy, modest = served.client(token=False), served.client(token=False)
    for client in (greedy, modest):
        assert client.get(f"/?token={TOKEN}").status_code == 303
    answers = [greedy.get("/api/delta") for _ in range(25)]
    assert answers[0].status_code == 200
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert modest.get("/api/delta").status_code == 200
