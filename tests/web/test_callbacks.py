"""Requests for Dash callbacks: who is answered, and which bodies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpumon_web.auth.gate import CALLBACK
from tests.builders import tick
from tests.web.served import Served, comparison_request
from tests.web.test_compare import IDS, three

ADDRESS = {"runs": ",".join(IDS)}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return Served([tick(1)], [three(tmp_path_factory.mktemp("ledger"))])


def status(served: Served, body: Any, *, token: bool = True, **options: Any) -> int:
    if "content_type" not in options:
        options["content_type"] = "application/json"
    data = body if isinstance(body, bytes) else json.dumps(body)
    code: int = served.client(token=token).post(CALLBACK, data=data, **options).status_code
    return code


class TestAccess:
    def test_needs_the_token(self, served: Served) -> None:
        assert status(served, comparison_request(ADDRESS), token=False) == 401
        assert status(served, comparison_request(ADDRESS)) == 200

    @pytest.mark.parametrize(
        "headers",
        [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}],
    )
    def test_refuses_other_sites(self, served: Served, headers: dict[str, str]) -> None:
        assert status(served, comparison_request(ADDRESS), headers=headers) == 403

    @pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
    def test_refuses_what_a_form_can_send(self, served: Served, kind: str) -> None:
        assert status(served, comparison_request(ADDRESS), content_type=kind) == 405

    def test_is_no_page(self, served: Served) -> None:
        assert served.client().get(CALLBACK).status_code == 404


class TestBody:
    def test_every_callback_is_checked(self, served: Served) -> None:
        assert len(served.app.callback_map) > 3
        for output in served.app.callback_map:
            for inputs in ([], [{"id": "x", "property": "data"}], {"a": 1}, "text", None):
                assert status(served, {"output": output, "outputs": [], "inputs": inputs, "state": []}) == 400

    @pytest.mark.parametrize(
        "change",
        [
            {"output": "page-compare.hidden"}, {"output": None}, {"outputs": {}}, {"outputs": []}, {"inputs": []},
            {"state": [{"id": {"type": "x"}, "property": "data"}]}, {"changedPropIds": ["{.x"]}, {"changedPropIds": 5},
            {"changedPropIds": [{}]}, {"inputs": [[{"id": "compare-address", "property": "data"}]]},
        ],
    )  # fmt: skip
    def test_other_parts_are_refused(self, served: Served, change: dict[str, Any]) -> None:
        assert status(served, {**comparison_request(ADDRESS), **change}) == 400

    @pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 4000])
    def test_no_json_is_refused(self, served: Served, body: bytes) -> None:
        assert status(served, body) == 400


class TestAddress:
    @pytest.mark.parametrize(
        "address",
        [
            None, 5, [], "x", {}, {"runs": None}, {"runs": ["a"]}, {"runs": {"a": 1}}, {"runs": "x" * 5000},
            {"runs": "\x00,<b>,../../etc/passwd"}, {"runs": ",".join(IDS), "smooth": "nan", "by": "<x>", "at": "1e999"},
            {"runs": ",".join(IDS), "smooth": "-1e9", "panels": ",,,", "log": 1, "from": "a", "at": "inf"},
        ],
    )  # fmt: skip
    def test_anything_is_answered(self, served: Served, address: Any) -> None:
        answer = served.client().post(CALLBACK, json=comparison_request(address))
        assert answer.status_code == 200
        json.loads(answer.data, parse_constant=lambda name: pytest.fail(name))

    def test_fewer_than_two_runs_are_no_comparison(self, served: Served) -> None:
        for runs in ("", "nope", IDS[0], f"{IDS[0]},{IDS[0]}", f"{IDS[0]},nope"):
            found = served.compared(runs)
            assert (found["title"], found["is_with"]) == ("Compare runs", True)
            assert ("nope" in str(found["without"])) == ("nope" in runs)

    def test_unknown_run_is_named_beside_the_others(self, served: Served) -> None:
        found = served.compared((IDS[0], "nope", IDS[1]))
        assert found["title"] == "2 runs compared"
        assert "nope" in found["how"]

    def test_size_of_a_request(self, served: Served) -> None:
        longest = {"runs": "x" * 999, "panels": "y" * 999, "by": "since", "smooth": "0.95", "log": "1", "at": "1" * 16}
        assert len(json.dumps(comparison_request(longest))) < 6000, "of 8 KiB that a request may have"


class TestFiles:
    @pytest.mark.parametrize(
        ("button", "head"), [("numbers", "letter,id,name"), ("differs", "key,A first"), ("courses", "epochs,")]
    )
    def test_csv(self, served: Served, button: str, head: str) -> None:
        buttons = [f"compare-csv-{name}" for name in ("courses", "numbers", "differs")]
        body = {
            "output": "compare-file.data",
            "outputs": {"id": "compare-file", "property": "data"},
            "inputs": [{"id": name, "property": "n_clicks", "value": 1} for name in buttons],
            "changedPropIds": [f"compare-csv-{button}.n_clicks"],
            "state": [{"id": "compare-address", "property": "data", "value": ADDRESS}],
        }
        answer = served.client().post(CALLBACK, json=body)
        assert answer.status_code == 200
        file = json.loads(answer.data)["response"]["compare-file"]["data"]
        assert file["content"].startswith(f"\ufeff{head}")
        assert file["filename"].endswith(".csv")


def test_numbers_are_the_same_as_the_command_has_them(tmp_path: Path) -> None:
    found = Served([tick(1)], [three(tmp_path)]).compared(IDS)
    assert "14 s" in json.dumps(found["numbers"])
    assert found["figure"]["layout"]["meta"]["axis"] == "epochs"
