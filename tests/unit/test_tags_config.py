"""Metadata of a run: parameters, notes, tags, and facts about its program."""

from __future__ import annotations

import argparse
import enum
import logging
import os
import subprocess
from collections import UserDict, UserList, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

from gpumon.common.paths import Places
from gpumon.launcher.child_process import CommandRun, command_script
from gpumon.model.run import MAX_NOTES, MAX_TAGS, ROOM, Metadata, Note, decode_metadata, encode_metadata
from gpumon.tracking import active_run, metadata, warn, wire_format
from gpumon.tracking.active_run import ActiveRun
from gpumon.tracking.git import DirtyCheck, find_repository, read_commit
from gpumon.tracking.metadata import Program
from gpumon.tracking.parameters import parameters
from gpumon.tracking.secrets import MASK, masked, masked_text
from gpumon.tracking.tag_reader import TagReader


@pytest.fixture
def run(tmp_path: Path) -> Iterator[ActiveRun]:
    warn._warned.clear()
    with active_run.run("net", directory=str(tmp_path / "live"), env={}) as made:
        yield made


def told(tmp_path: Path) -> Metadata:
    """Return the metadata of the only run, as a daemon reads it."""
    reader = TagReader(Places(explicit=str(tmp_path / "live"), uid=os.getuid()))
    about = reader.poll().about
    reader.close()
    return next(iter(about.values()))


class Optimizer(enum.Enum):
    ADAM = "adam"


class Shape(NamedTuple):
    width: int
    height: int


@dataclass
class Settings:
    lr: float = 0.1
    optimizer: Optimizer = Optimizer.ADAM
    shape: Shape = field(default_factory=lambda: Shape(2, 3))
    schedule: dict[str, Any] = field(default_factory=lambda: {"warm up": 10, "decay": [0.5, 0.25]})
    path: Path = Path("/data/images")
    loss: Any = len
    nothing: None = None
    amp: bool = True


def test_parameters_come_from_a_dict_a_namespace_a_dataclass_and_keywords(run: ActiveRun, tmp_path: Path) -> None:
    run.config({"lr": 0.5, "model": {"depth": 50}})
    run.config(argparse.Namespace(batch=32, _private=1))
    run.config(Settings(), epochs=3)
    assert told(tmp_path).config == {
        "lr": 0.1, "model.depth": 50, "batch": 32, "optimizer": "adam", "shape.width": 2, "shape.height": 3,
        "schedule.warm up": 10, "schedule.decay": "0.5, 0.25", "path": "/data/images", "loss": "len", "nothing": None,
        "amp": True, "epochs": 3,
    }  # fmt: skip


def test_numpy_scalars_are_numbers_and_arrays_are_shapes() -> None:
    numpy = pytest.importorskip("numpy")
    given = {"a": numpy.float32(0.5), "b": numpy.int64(3), "c": numpy.zeros((2, 3)), "d": numpy.bool_(1)}
    found = parameters(given, {})
    assert found == {"a": 0.5, "b": 3, "c": "<ndarray (2, 3)>", "d": True}


def test_fields_of_attrs_and_pydantic_are_parameters() -> None:
    attrs_like = type("Layer", (), {"__slots__": ("width",), "__attrs_attrs__": (SimpleNamespace(name="width"),)})
    pydantic_like = type("Data", (), {"__pydantic_fields__": {"path": None}, "path": "/data"})
    layer: Any = attrs_like()
    layer.width = 3
    assert parameters(layer, {}) == {"width": 3}
    assert parameters({"model": layer, "data": pydantic_like()}, {}) == {"model.width": 3, "data.path": "/data"}


class Listed(UserList[Any]):
    """A list type of a configuration package."""


class Unset(UserDict[str, Any]):
    """A mapping with a mandatory value that was not set."""

    def __getitem__(self, name: str) -> Any:
        if name == "unset":
            raise LookupError("mandatory")
        return super().__getitem__(name)


def test_lists_of_configuration_packages_are_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Listed, "__module__", "omegaconf.listconfig")
    given = {"betas": Listed([0.9, 0.999]), "schedule": Listed([{"lr": 1}, {"lr": 2}]), "held": deque([1, 2])}
    assert parameters(given, {}) == {"betas": "0.9, 0.999", "schedule.0.lr": 1, "schedule.1.lr": 2, "held": "1, 2"}
    assert parameters(Listed([1, 2]), {}) == {"arguments": "1, 2"}


def test_an_unreadable_value_does_not_hide_the_others() -> None:
    assert parameters(Unset(lr=0.1, unset="???"), {}) == {"lr": 0.1, "unset": "<LookupError>"}


def test_nothing_is_read_from_a_gpu() -> None:
    class Tensor:
        shape = ()
        device = "cuda:0"

        def item(self) -> float:
            raise AssertionError("this would wait")

        __float__ = __repr__ = __str__ = item  # type: ignore[assignment]

    assert parameters({"loss": Tensor()}, {}) == {"loss": "<Tensor>"}


def test_lists_and_objects_are_parameters_and_a_number_is_a_warning(
    run: ActiveRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run.config(["train.py", "--lr", "0.1", "--token", "abc", "--api-key=def"])
    run.config(SimpleNamespace(inner=argparse.Namespace(a=1)))
    assert told(tmp_path).config == {"arguments": f"train.py --lr 0.1 --token {MASK} --api-key={MASK}", "inner.a": 1}
    with caplog.at_level(logging.WARNING, "gpumon"):
        run.config(3)
    assert "give a dict, a namespace or a dataclass" in caplog.text


def test_nothing_raises_into_the_training(run: ActiveRun, caplog: pytest.LogCaptureFixture) -> None:
    class Hostile(dict[str, object]):
        def __iter__(self) -> Iterator[str]:
            raise RuntimeError("boo")

    loops: dict[str, object] = {}
    loops["self"] = loops
    with caplog.at_level(logging.WARNING, "gpumon"):
        for given in (Hostile(a=1), loops, {"x": "\ud800\x1b[31m"}, {1: 2, None: 3}, {"n": 10**5000}, {"a": object()}):
            run.config(given)
        run.note(object())  # type: ignore[arg-type]
        run.tag(None, "", 3)  # type: ignore[arg-type]
    assert "run.config(Hostile)" in caplog.text
    assert "boo" not in caplog.text
    assert run.on


def test_too_many_parameters_are_cut_with_one_warning(
    run: ActiveRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "gpumon"):
        run.config({f"layer{i}": "x" * 1000 for i in range(2000)})
        run.config(last=1)
    found = told(tmp_path)
    assert found.config["layer0"] == "x" * 299 + "…"
    assert found.omitted > 900
    assert len(caplog.records) == 1
    assert "left out" in caplog.text


def test_a_repeated_parameter_is_omitted_once(run: ActiveRun, tmp_path: Path) -> None:
    for _ in range(3):
        run.config({f"p{i}": i for i in range(300)})
    assert told(tmp_path).omitted == 44


def test_parameters_of_the_user_precede_those_of_the_framework(run: ActiveRun, tmp_path: Path) -> None:
    run.framework_config({"lr": 0.1, "batch": 8})
    run.config(lr=0.5)
    run.framework_config({"lr": 0.2, "batch": 16})
    assert told(tmp_path).config == {"lr": 0.5, "batch": 16}


def test_notes_and_tags_are_published(tmp_path: Path) -> None:
    with active_run.run("net", directory=str(tmp_path / "live"), env={}, tags=["baseline", "baseline"]) as run:
        run.note("with a  larger\nbatch")
        run.tag("good", " ")
        run.tag("good")
        found = told(tmp_path)
    assert found.tags == ("baseline", "good")
    assert [note.text for note in found.notes] == ["with a larger batch"]


def test_notes_and_tags_are_bounded(run: ActiveRun, tmp_path: Path) -> None:
    for i in range(40):
        run.note(f"{i} " + "y" * 2000)
        run.tag(f"tag {i}" + "z" * 100)
    found = told(tmp_path)
    assert len(found.tags) == MAX_TAGS
    assert len(found.notes) <= MAX_NOTES
    assert found.notes[-1].text.startswith("39 y")
    assert found.notes[-1].text.endswith("…")


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("hf_token", "abc", MASK),
        ("password", "swordfish", MASK),
        ("db.passwd", 1234, MASK),
        ("clientSecret", "x", MASK),
        ("OPENAI_API_KEY", "x", MASK),
        ("wandb_key", "0123456789abcdef0123", MASK),
        ("http_auth", "me", MASK),
        ("aws_secret_access_key", "x", MASK),
        ("anything", "sk-proj-A1b2C3d4E5f6", MASK),
        ("anything", "ghp_0123456789abcdefABCDEF", MASK),
        ("anything", "hf_AbCdEfGhIjKlMnOp", MASK),
        ("anything", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", MASK),
        ("url", "postgres://me:secret@db:5432/x", f"postgres://{MASK}@db:5432/x"),
        ("url", "https://h/x?token=abc&size=3", f"https://h/x?token={MASK}&size=3"),
        ("sas", "https://a.blob/c?sv=2022&sig=ab%2Fc%3D&se=9", f"https://a.blob/c?sv=2022&sig={MASK}&se=9"),
        (
            "data",
            "s3 https://b/k?X-Amz-Expires=9&X-Amz-Signature=beef",
            f"s3 https://b/k?X-Amz-Expires=9&X-Amz-Signature={MASK}",
        ),
        ("data", "https://b/k?X-Amz-Security-Token=abc#1", f"https://b/k?X-Amz-Security-Token={MASK}"),
        ("cdn", "https://c/x?Signature=z~1_&Key-Pair-Id=K1", f"https://c/x?Signature={MASK}&Key-Pair-Id=K1"),
        ("command", "train.py --lr 0.1 --hub-token abc --seed 3", f"train.py --lr 0.1 --hub-token {MASK} --seed 3"),
        ("json", '{"api_key": "abc", "a": 1}', f'{{"api_key": {MASK}, "a": 1}}'),
        ("header", "Authorization: Bearer AbCdEf0123456789", None),
        ("key_file", "-----BEGIN RSA PRIVATE KEY-----\nabc", MASK),
        # and what is none
        ("max_tokens", 512, 512),
        ("max_token", 512, 512),
        ("use_auth_token", True, True),
        ("token", None, None),
        ("tokenizer", "bert-base-uncased", "bert-base-uncased"),
        ("author", "me", "me"),
        ("pad_token", "<pad>", "<pad>"),
        ("key", "val_loss", "val_loss"),
        ("num_attention_heads", 8, 8),
        ("url", "https://h/x?design=1&signatures=2", "https://h/x?design=1&signatures=2"),
        ("signature", "(x: float) -> y", "(x: float) -> y"),
        ("task", "risk-assessment-2024", "risk-assessment-2024"),
        ("model", "hf_internal_testing", "hf_internal_testing"),
        ("url", "https://example.org/data", "https://example.org/data"),
        ("betas", "0.9, 0.999", "0.9, 0.999"),
        ("monkey", "0123456789abcdef0123", "0123456789abcdef0123"),
    ],
)
def test_what_looks_like_a_secret_is_masked(name: str, value: Any, kept: Any) -> None:
    found = masked(name, value)
    if kept is None and value is not None:
        assert "AbCdEf" not in str(found)
    else:
        assert found == kept


def test_no_secret_reaches_the_board(run: ActiveRun, tmp_path: Path) -> None:
    run.config({"hub": {"token": "swordfish"}, "args": ["--password", "swordfish"]}, api_key="swordfish")
    run.note("log in with password=swordfish")
    run.tag("token=swordfish")
    raw = Path(run._board.path).read_bytes()
    assert b"swordfish" not in raw
    assert told(tmp_path).config["hub.token"] == MASK


def test_masking_of_long_texts_is_fast() -> None:
    for part in ("a", "eyJ", "a=", "-", "sk-", " ", "a:// ", "token=", "--token ", "?sig=", "?a.signature"):
        odd = part * 50_000
        assert len(masked_text(odd)) < 20_000


def test_metadata_survives_encoding() -> None:
    about = Metadata({"a": 1, "b": "x", "c": None, "d": 0.5}, {"commit": "ab"}, (Note(3, "n"),), ("t",))
    text, kept = encode_metadata(about)
    assert kept == about
    assert decode_metadata(text) == about


def test_encoded_metadata_always_fits() -> None:
    wide = Metadata({f"ä{i}" * 10: "ü" * 300 for i in range(256)}, {}, tuple(Note(i, "ö" * 500) for i in range(30)), ())
    text, kept = encode_metadata(wide)
    assert len(text) <= ROOM
    assert kept.omitted == (256 - len(kept.config)) + (30 - len(kept.notes))
    assert kept.config
    assert kept.notes


def test_a_script_name_that_is_not_utf8_is_encoded() -> None:
    text, _ = encode_metadata(Metadata({"lr": 0.1}, {"script": os.fsdecode(b"tr\xe4in.py"), "torch": "2" * 20_000}))
    assert decode_metadata(text).config == {"lr": 0.1}
    assert decode_metadata(text).program["script"] == "tr\\udce4in.py"


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{", b'{"config": 3, "notes": {"a": 1}, "tags": "x"}', b"[" * 10000, b'{"notes": [[1], [-1, "x"]]}'],
)
def test_hostile_bytes_decode_to_no_metadata(text: bytes) -> None:
    assert decode_metadata(text) == Metadata()


def test_hostile_values_are_bounded() -> None:
    many = {f"n{i}": i for i in range(5000)}
    found = decode_metadata(str({"config": many}).replace("'", '"').encode())
    assert len(found.config) == 256
    odd = decode_metadata(b'{"config": {"a": [1], "b": "x\\u001b[31m", "c": 1e999, "d": NaN}, "tags": [1, "t"]}')
    assert odd.config == {"b": "x\\x1b[31m", "c": "inf", "d": "nan"}
    assert odd.tags == ("t",)


def test_a_torn_text_is_replaced_by_the_previous_one(run: ActiveRun, tmp_path: Path) -> None:
    reader = TagReader(Places(explicit=str(tmp_path / "live"), uid=os.getuid()))
    run.config(a=1)
    run.config(b=2)
    mapped = run._board._map
    assert mapped is not None
    mapped[wire_format.ABOUT_TEXTS[run._board._about_version & 1]] ^= 1
    (about,) = reader.poll().about.values()
    reader.close()
    assert about.config == {"a": 1}


def git(tree: Path, *words: str) -> str:
    told = ["git", "-C", str(tree), "-c", "user.name=a", "-c", "user.email=a@b.example", *words]
    return subprocess.run(told, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    made = tmp_path / "tree"
    (made / "deep" / "er").mkdir(parents=True)
    git(made, "init", "-q", "-b", "main")
    (made / "train.py").write_text("pass\n")
    git(made, "add", "train.py")
    git(made, "commit", "-qm", "first")
    return made


def is_dirty(tree: Path, script: str = "") -> bool | None:
    repository = find_repository(str(tree))
    assert repository is not None
    check = DirtyCheck(repository, os.environ, script and str(tree / script))
    while not check.is_over():
        os.sched_yield()
    return check.answer


def test_the_commit_is_read_without_git(tree: Path) -> None:
    head = git(tree, "rev-parse", "HEAD")
    repository = find_repository(str(tree / "deep" / "er"))
    assert repository is not None
    assert read_commit(repository) == head
    git(tree, "pack-refs", "--all")
    assert read_commit(repository) == head
    git(tree, "checkout", "-q", "--detach")
    assert read_commit(repository) == head


def test_a_second_working_tree_has_its_own_commit(tree: Path, tmp_path: Path) -> None:
    git(tree, "worktree", "add", "-q", "-b", "other", str(tmp_path / "other"))
    (tmp_path / "other" / "more.py").write_text("pass\n")
    git(tmp_path / "other", "add", "more.py")
    git(tmp_path / "other", "commit", "-qm", "second")
    found = find_repository(str(tmp_path / "other"))
    assert found is not None
    assert read_commit(found) == git(tmp_path / "other", "rev-parse", "HEAD") != git(tree, "rev-parse", "HEAD")
    assert is_dirty(tmp_path / "other") is False


def test_a_tree_with_a_changed_file_is_dirty(tree: Path) -> None:
    assert is_dirty(tree) is False
    (tree / "new.py").write_text("not added\n")
    os.utime(tree / "train.py")
    assert is_dirty(tree) is False
    assert is_dirty(tree, "deep/../train.py") is False
    assert is_dirty(tree, "new.py") is True, "what runs is in no commit"
    (tree / "train.py").write_text("print()\n")
    assert is_dirty(tree) is True
    git(tree, "add", "train.py")
    assert is_dirty(tree) is True


def test_without_git_dirty_is_unknown(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    repository = find_repository(str(tree))
    assert repository is not None
    check = DirtyCheck(repository, os.environ)
    while not check.is_over():
        os.sched_yield()
    assert check.answer is None


def test_a_directory_without_a_repository_has_no_commit(tmp_path: Path) -> None:
    assert find_repository(str(tmp_path)) is None
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/../../secret\n")
    found = find_repository(str(tmp_path))
    assert found is not None
    assert read_commit(found) == ""


def test_program_facts_exclude_the_command_line(tree: Path) -> None:
    torch = ModuleType("torch")
    torch.__version__ = "2.9.1"  # type: ignore[attr-defined]
    found = Program(
        [str(tree / "train.py"), "--secret-option"], {"__file__": str(tree / "train.py")}, {"torch": torch}, os.environ
    )
    while not found.is_settled:
        os.sched_yield()
    facts = found.facts()
    assert facts.pop("python")
    assert facts.pop("cpus") == len(os.sched_getaffinity(0))
    assert facts == {"script": "train.py", "commit": git(tree, "rev-parse", "HEAD"), "dirty": False, "torch": "2.9.1"}


@pytest.mark.parametrize("main", [{}, {"__file__": None}])
def test_interactive_code_has_no_script_and_no_commit(main: Mapping[str, Any]) -> None:
    assert set(Program(["-c"], main, {}, {}).facts()) == {"python", "cpus"}


def test_a_notebook_is_recorded_by_name(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    found = Program(["/x/ipykernel_launcher.py"], {"__file__": "/x/y.py"}, {}, {"JPY_SESSION_NAME": "/a/b.ipynb"})
    assert found.facts()["script"] == "b"
    assert found.facts()["commit"] == git(tree, "rev-parse", "HEAD")


def test_a_notebook_is_inspected_for_each_run_and_a_script_once(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    monkeypatch.setattr(metadata, "_program", [])
    monkeypatch.setattr("sys.argv", ["/x/ipykernel_launcher.py"])
    first = metadata.current_program({}).facts()["commit"]
    git(tree, "commit", "-q", "--allow-empty", "-m", "second")
    assert metadata.current_program({}).facts()["commit"] == git(tree, "rev-parse", "HEAD") != first
    monkeypatch.setattr("sys.argv", ["train.py"])
    assert metadata.current_program({}) is metadata.current_program({})


def test_an_installed_program_has_no_commit(tree: Path) -> None:
    installed = tree / "env" / "site-packages" / "package"
    installed.mkdir(parents=True)
    found = Program(["train"], {"__file__": str(installed / "train.py")}, {}, os.environ).facts()
    assert set(found) == {"script", "python", "cpus"}


def test_program_facts_are_published_by_the_end_of_the_run(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Program([str(tree / "train.py")], {"__file__": str(tree / "train.py")}, {}, os.environ)
    monkeypatch.setattr(metadata, "_program", [here])
    run = active_run.run("net", directory=str(tmp_path / "live"), env={})
    while not here.is_settled:
        os.sched_yield()
    run.finish()
    assert told(tmp_path).program["dirty"] is False


@pytest.mark.parametrize(
    ("words", "script"),
    [
        (["python", "-u", "{}/train.py", "--token", "x"], "train.py"),
        (["torchrun", "--nproc", "2", "{}/train.py"], "train.py"),
        (["make", "{}/train.py"], ""),
        (["python", "-m", "package"], ""),
    ],
)
def test_a_plain_command_has_script_and_commit_only(tree: Path, tmp_path: Path, words: list[str], script: str) -> None:
    (tmp_path / "live").mkdir(mode=0o700)
    command = CommandRun("net", Places(explicit=str(tmp_path / "live"), uid=os.getuid()),
                         command_script([word.format(tree) for word in words]))  # fmt: skip
    if script:
        assert told(tmp_path) == Metadata({}, {"script": script, "commit": git(tree, "rev-parse", "HEAD")})
    else:
        with pytest.raises(StopIteration):
            told(tmp_path)
    command.withdraw()


def test_only_local_rank_0_publishes_the_program(tmp_path: Path) -> None:
    env = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    run = active_run.run("net", directory=str(tmp_path / "live"), env=env)
    run.config(lr=0.1)
    assert told(tmp_path) == Metadata({"lr": 0.1})
    run.finish()


def test_a_class_instead_of_an_instance_is_stored_by_name() -> None:
    class Settings:
        lr = 0.1

    assert list(parameters(Settings, {})) == ["arguments"]
