"""`gpumon run --auto`: trainings are tagged without a change to their code, and nothing else happens."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from gpumon.auto import prepare
from gpumon.model.frame import Mark, RunState
from tests.conftest import ROOT
from tests.nvml import Stub
from tests.programs import environment, gpumon, with_its_table
from tests.trainings import Told, need, told

KERAS = """
import os, sys
os.environ["KERAS_BACKEND"] = "torch"
import keras, numpy
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
OWN = []
if "own" in sys.argv:
    from gpumon.callbacks.keras import GpuMonitor
    OWN = [GpuMonitor()]
history = model.fit(numpy.ones((32, 4)), numpy.ones((32, 1)), epochs=3, verbose=0, callbacks=OWN)
model.evaluate(numpy.ones((8, 4)), numpy.ones((8, 1)), verbose=0)
print("epochs", history.epoch)
"""
LIGHTNING = """
import logging, sys, warnings
warnings.filterwarnings("ignore")
import torch
from {package} import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset
class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        loss = self.layer(batch[0]).pow(2).mean()
        self.log("loss", loss)
        return loss
    def validation_step(self, batch, index):
        self.log("val_loss", self.layer(batch[0]).pow(2).mean())
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
OWN = []
if "own" in sys.argv:
    from gpumon.callbacks.lightning import GpuMonitor
    OWN = [GpuMonitor()]
trainer = Trainer(
    max_epochs=3, accelerator="cpu", devices=1, callbacks=OWN, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
)
net, loader = Net(), DataLoader(TensorDataset(torch.ones(32, 4)), batch_size=8)
trainer.fit(net, loader)
trainer.validate(net, loader, verbose=False)
print("epochs", trainer.current_epoch)
"""
TRANSFORMERS = """
import sys
import torch
from transformers import Trainer, TrainingArguments
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, labels=None):
        y = self.layer(x)[:, 0]
        return {"loss": (y - labels).pow(2).mean(), "logits": y}
data = [{"x": torch.ones(4), "labels": torch.tensor(1.0)} for _ in range(32)]
options = TrainingArguments(
    sys.argv[1], num_train_epochs=3, per_device_train_batch_size=8, use_cpu=True, report_to=[], save_strategy="no",
    disable_tqdm=True, logging_steps=4,
)
trainer = Trainer(Net(), options, train_dataset=data)
if "own" in sys.argv:
    from gpumon.callbacks.transformers import GpuMonitor
    trainer.add_callback(GpuMonitor())
trainer.train()
print("epochs", trainer.state.epoch)
"""
BOOSTED = """
import sys
import lightgbm, numpy, xgboost
x, y, OWN = numpy.random.default_rng(0).normal(size=(64, 3)), numpy.ones(64), {"lightgbm": [], "xgboost": []}
if "own" in sys.argv:
    import gpumon.callbacks.lightgbm, gpumon.callbacks.xgboost
    OWN = {name: [getattr(gpumon.callbacks, name).GpuMonitor()] for name in OWN}
xgboost.train({}, xgboost.DMatrix(x, y), 3, callbacks=OWN["xgboost"])
lightgbm.LGBMRegressor(n_estimators=4, verbose=-1).fit(x, y, callbacks=OWN["lightgbm"])
print("epochs none")
"""
IGNITE = """
import sys
from ignite.engine import Engine, Events
trainer, evaluator = Engine(lambda engine, batch: 0.5), Engine(lambda engine, batch: 0.5)
@trainer.on(Events.EPOCH_COMPLETED)
def validate():
    trainer.state.metrics["loss"] = 0.5
    evaluator.run([1, 2])
if "own" in sys.argv:
    from gpumon.callbacks.ignite import GpuMonitor
    GpuMonitor().attach(trainer, validate=evaluator)
trainer.run([1, 2, 3], max_epochs=3)
evaluator.run([1, 2])
Engine(lambda engine, batch: 0.5).run([1, 2])  # nobody can tell what it does
print("epochs", trainer.state.epoch)
"""
ACCELERATE = """
import sys
from accelerate import Accelerator
own = "own" in sys.argv
if own:
    import gpumon.callbacks.accelerate
accelerator = Accelerator(cpu=True, log_with="gpumon" if own else None)
accelerator.init_trackers("with_accelerate", config={"learning_rate": 0.1})
for step in range(4):
    accelerator.log({"loss": 0.5}, step=step)
trackers = len(accelerator.trackers)
accelerator.end_training()
print("epochs none", trackers)
"""
SEARCH = """
import sys
import numpy
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
search = GridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=2)
if "own" in sys.argv:
    from gpumon.callbacks.sklearn import GpuMonitor
    search.set_callbacks(GpuMonitor())
search.fit(numpy.random.default_rng(0).normal(size=(32, 2)), numpy.arange(32))
print("epochs none", *[type(callback).__name__ for callback in getattr(search, "_skl_callbacks", [])])
"""
TRAININGS = {
    "keras": KERAS,
    "lightning": LIGHTNING.replace("{package}", "lightning.pytorch"),
    "pytorch_lightning": LIGHTNING.replace("{package}", "pytorch_lightning"),
    "transformers": TRANSFORMERS,
    "ignite": IGNITE,
}
EVERY = {**TRAININGS, "boosted": BOOSTED, "accelerate": ACCELERATE, "search": SEARCH}
NEEDED = {"boosted": ("xgboost", "lightgbm"), "search": ("sklearn",)}
"""Packages of a training, if they have other names than the training."""
RUNS = {"boosted": 2}
"""Number of runs of a training, if not 1."""


@pytest.fixture
def env(stub: Stub, live_dir: Path) -> dict[str, str]:
    """The environment of a user whose home is `live_dir`. No framework uses the network."""
    return quiet(live_dir, stub)


def quiet(live_dir: Path, stub: Stub) -> dict[str, str]:
    settings = {
        "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore", "KERAS_HOME": str(live_dir),
    }  # fmt: skip
    return {**environment(live_dir, stub.env()), **settings}


def script(framework: str, directory: Path) -> Path:
    """Write a training with `framework` that does not use gpumon."""
    need(*NEEDED.get(framework, (framework,)))
    path = directory / "train.py"
    path.write_text(EVERY[framework])
    return path


def plain(words: list[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], env=dict(env), capture_output=True, text=True, check=False)


def nightly(words: Sequence[object], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command with `gpumon run --auto --name nightly`."""
    options = ("--auto", "--name", "nightly", "--interval", "0.2")
    return gpumon("run", *options, "--", *words, env=env, timeout=600)


@pytest.mark.parametrize(
    "framework",
    [name if name == "ignite" else pytest.param(name, marks=pytest.mark.slow) for name in TRAININGS],
)
def test_the_summary_has_the_epochs_of_an_unchanged_training(
    env: dict[str, str], tmp_path: Path, framework: str
) -> None:
    path = script(framework, tmp_path)
    words = [sys.executable, path, tmp_path / "out"]
    done = with_its_table(lambda: nightly(words, env))
    assert done.returncode == 0, done.stderr
    (found,) = re.findall(r"^  epochs +.*$", done.stderr, re.MULTILINE)  # what follows a training is no other run
    assert re.fullmatch(r"  epochs +3  \S+ m?s each(, \S*loss \S+)+", found), done.stderr
    assert re.search(r"gpumon runs show nightly-[0-9a-f]{8}\n$", done.stderr), done.stderr
    assert done.stdout.splitlines()[-1].startswith("epochs")


def test_the_summary_has_the_rounds_of_an_unchanged_training(
    env: dict[str, str], live_dir: Path, tmp_path: Path
) -> None:
    words = [sys.executable, script("boosted", tmp_path)]
    done = with_its_table(lambda: nightly(words, env))
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^  steps +(\d+)  nightly", done.stderr, re.MULTILINE) == ["3", "4"], done.stderr
    found = [(one.run.name, one.run.framework, one.run.step, one.run.state) for one in told(live_dir)]
    assert found[-2:] == [("nightly", "xgboost", 3, RunState.FINISHED), ("nightly", "lightgbm", 4, RunState.FINISHED)]


def test_without_a_training_the_summary_names_the_frameworks(env: dict[str, str]) -> None:
    said = "trainings  +0  --auto supports Keras, .*, in a Python that reads PYTHONPATH"
    for options, found in ((["--auto"], True), ([], False)):
        done = gpumon("run", *options, "--", sys.executable, "-E", "-c", "pass", env=env)
        assert done.returncode == 0
        assert bool(re.search(said, done.stderr)) == found, done.stderr


ALL = """
import runpy, sys
directory, frameworks, *ways = sys.argv[1:]
for framework in frameworks.split():
    for way in ways:
        print("with", framework, way)
        sys.argv[:] = [f"{directory}/with_{framework}.py", directory, way]
        runpy.run_path(sys.argv[0], run_name="__main__")
        print("trained with", framework, way)
"""
"""Runs all trainings in one process, because frameworks take seconds to load. Each run is named after its script."""
UNCHANGED, OWN = "unchanged", "own"


class Trained(NamedTuple):
    """The results of trainings with each framework, one after the other in one process."""

    done: subprocess.CompletedProcess[str]
    told: list[Told]
    """What they published."""

    def names(self) -> list[str]:
        """Of the runs."""
        return [one.run.name for one in self.told]

    def printed(self, framework: str, way: str) -> list[str]:
        """Return the lines that a training printed. Fails if the training did not finish."""
        lines = self.done.stdout.splitlines()
        begin, end = f"with {framework} {way}", f"trained with {framework} {way}"
        assert end in lines, self.done.stderr
        return lines[lines.index(begin) + 1 : lines.index(end)]


def there() -> list[str]:
    """Trainings whose frameworks are installed, in the order in which they run."""
    return [one for one in EVERY if all(map(find_spec, NEEDED.get(one, (one,))))]


def all_of_them(directory: Path, *ways: str, of: Collection[str] = EVERY) -> list[str]:
    """Write the trainings, and return the arguments of a Python that runs them in each of these ways."""
    chosen = [framework for framework in there() if framework in of]
    for framework in chosen:
        Path(directory, f"with_{framework}.py").write_text(EVERY[framework])
    return ["-c", ALL, str(directory), " ".join(chosen), *ways]


@pytest.fixture(scope="module")
def trained(driver_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Trainings with `gpumon run --auto`: first without gpumon, then with a callback of the user."""
    directory = tmp_path_factory.mktemp("trained")
    with Stub(driver_library) as stub:
        words = [sys.executable, *all_of_them(directory, UNCHANGED, OWN)]
        done = nightly(words, quiet(directory, stub))
    assert done.returncode == 0, done.stderr
    return Trained(done, told(directory))


@pytest.fixture(scope="module")
def misshapen(driver_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, ...]], Trained]:
    """Trainings in one process, in whose frameworks the hook does not find the expected names."""

    @cache
    def train(of: tuple[str, ...]) -> Trained:
        source = (ROOT / "gpumon" / "auto" / "patches.py").read_text()
        kinds = (
            "module.CallbackList", "module._CallbackConnector", "module.CallbackHandler", "module.CallbackContainer",
            "module.Engine", "module.Accelerator", "module.BaseSearchCV",
            '"callbacks" in',
        )  # fmt: skip
        for kind in kinds:
            assert kind in source
            source = source.replace(kind, f"{kind}OfAnotherVersion" if "module" in kind else '"other" in')
        directory = tmp_path_factory.mktemp("misshapen")
        copy = directory / "copy" / "gpumon"
        # Without byte code, of which another worker may write some just now.
        shutil.copytree(ROOT / "gpumon", copy, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / "auto" / "patches.py").write_text(source)
        with Stub(driver_library) as stub:
            env = {**prepare(quiet(directory, stub), None), "PYTHONPATH": str(copy / "auto" / "site")}
            return Trained(plain(all_of_them(directory, UNCHANGED, of=of), env), told(directory))

    return train


def begun_after(trained: Trained, framework: str) -> list[Told]:
    """Return the runs of the unchanged trainings with `framework`, which are named `nightly`, oldest first."""
    need(*NEEDED.get(framework, (framework,)))
    runs = sorted((one for one in trained.told if one.run.name == "nightly"), key=lambda one: one.run.started)
    counts = [RUNS.get(one, 1) for one in there()]
    assert len(runs) == sum(counts), "what follows a training is no other run"
    before = sum(counts[: there().index(framework)])
    return runs[before : before + RUNS.get(framework, 1)]


@pytest.mark.parametrize("framework", TRAININGS)
def test_epochs_of_an_unchanged_training_are_recorded(trained: Trained, framework: str) -> None:
    (one,) = begun_after(trained, framework)
    assert one.run.framework.partition("/")[0] == framework.removeprefix("pytorch_")
    assert (one.run.state, one.run.epochs) == (RunState.FINISHED, 3)
    assert len(one.times(Mark.EPOCH_END)) == 3
    assert [name for name in one.run.metrics if "loss" in name]
    assert trained.printed(framework, UNCHANGED)[-1].startswith("epochs")


def test_rounds_of_an_unchanged_training_are_recorded(trained: Trained) -> None:
    found = [(one.run.framework, one.run.step, one.run.state) for one in begun_after(trained, "boosted")]
    assert found == [("xgboost", 3, RunState.FINISHED), ("lightgbm", 4, RunState.FINISHED)]


@pytest.mark.parametrize(
    ("training", "steps", "left"), [("accelerate", 0, ["epochs none 1"]), ("search", 5, ["epochs none"])]
)
def test_trackers_and_searches_are_recorded(trained: Trained, training: str, steps: int, left: list[str]) -> None:
    (one,) = begun_after(trained, training)
    assert (one.run.step, one.run.state) == (steps, RunState.FINISHED)
    assert trained.printed(training, UNCHANGED) == left, "with no callback left behind"


@pytest.mark.parametrize("framework", EVERY)
def test_a_callback_of_the_user_is_not_doubled(trained: Trained, framework: str) -> None:
    need(*NEEDED.get(framework, (framework,)))
    assert trained.printed(framework, OWN)
    assert trained.names().count(f"with_{framework}") == RUNS.get(framework, 1), trained.names()


@pytest.mark.slow
def test_a_callback_of_the_user_imported_first_is_not_doubled(driver_library: Path, tmp_path: Path) -> None:
    with Stub(driver_library) as stub:
        done = plain(all_of_them(tmp_path, OWN), prepare(quiet(tmp_path, stub), None))
    assert done.returncode == 0, done.stderr
    names = Trained(done, told(tmp_path)).names()
    assert sorted(names) == sorted(f"with_{one}" for one in there() for _ in range(RUNS.get(one, 1)))


QUICK = ("ignite", "boosted", "search")
"""Trainings whose frameworks are loaded in about a second."""
SLOW = tuple(one for one in EVERY if one not in QUICK)


@pytest.mark.parametrize(
    ("frameworks", "framework"),
    [*((QUICK, one) for one in QUICK), *(pytest.param(SLOW, one, marks=pytest.mark.slow) for one in SLOW)],
)
def test_an_unexpected_framework_trains_without_the_callback(
    misshapen: Callable[[tuple[str, ...]], Trained], frameworks: tuple[str, ...], framework: str
) -> None:
    """The quick cases lack a method, a constructor and functions. `hook` handles all of these in one place."""
    need(*NEEDED.get(framework, (framework,)))
    trained = misshapen(frameworks)
    assert trained.printed(framework, UNCHANGED)
    assert trained.done.returncode == 0, trained.done.stderr
    assert "gpumon" not in trained.done.stderr
    assert trained.names() == []


LOOK = """
import os, sys
print(sys.path, [type(finder).__name__ for finder in sys.meta_path if "_gpumon" not in type(finder).__module__])
print(sorted(name for name in sys.modules if "gpumon" not in name and name != "__future__"), sys.flags)
"""


def test_other_programs_see_only_the_hook(env: dict[str, str]) -> None:
    with_hook, without = plain(["-c", LOOK], prepare(env, None)), plain(["-c", LOOK], env)
    assert with_hook.stdout == without.stdout
    assert with_hook.stderr == ""


def test_every_python_loads_only_one_module(env: dict[str, str]) -> None:
    ask = ["-c", "import sys; print(*[name for name in sys.modules if 'gpumon' in name])"]
    assert plain(ask, prepare(env, None)).stdout.split() == ["_gpumon_auto"]
    assert plain(ask, env).stdout.split() == []


@pytest.mark.parametrize("flag", ["-I", "-E", "-S", "-s"])
def test_a_python_that_ignores_its_environment_is_unchanged(env: dict[str, str], flag: str) -> None:
    done = plain([flag, "-c", "print('fine')"], prepare(env, None))
    assert (done.stdout, done.stderr, done.returncode) == ("fine\n", "", 0)


@pytest.mark.parametrize("as_package", [False, True])
def test_the_sitecustomize_of_the_user_runs(env: dict[str, str], tmp_path: Path, as_package: bool) -> None:
    path = tmp_path / ("sitecustomize/__init__.py" if as_package else "sitecustomize.py")
    path.parent.mkdir(exist_ok=True)
    path.write_text("import builtins, sys\nbuiltins.custom = __name__, __file__, sys.modules[__name__].__spec__.name\n")
    own = {**env, "PYTHONPATH": str(tmp_path)}
    ask = ["-c", "import sitecustomize; print(custom, sitecustomize.__file__)"]
    assert plain(ask, prepare(own, None)).stdout == plain(ask, own).stdout != ""


def test_an_exception_of_the_users_sitecustomize_is_reported(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('mine')\n")
    own = {**env, "PYTHONPATH": str(tmp_path)}
    done = plain(["-c", "print('fine')"], prepare(own, None))
    assert (done.stdout, done.stderr) == ("fine\n", plain(["-c", ""], own).stderr)


def test_a_patched_module_has_its_own_loader_and_source(env: dict[str, str], tmp_path: Path) -> None:
    package = tmp_path / "transformers"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "trainer_callback.py").write_text(
        "class CallbackHandler:\n    def on_train_begin(self): return 'mine'\n"
    )
    ask = (
        "import inspect, transformers.trainer_callback as m; h = m.CallbackHandler(); h.callbacks = []\n"
        "print(m.__loader__, m.__spec__, inspect.getsource(m), h.on_train_begin.__name__)"
    )
    own = {**env, "PYTHONPATH": str(tmp_path)}
    ask_two = ["-c", ask.replace("m.__loader__, m.__spec__", "type(m.__loader__), type(m.__spec__.loader)")]
    assert plain(ask_two, prepare(own, None)).stdout == plain(ask_two, own).stdout != ""


def test_children_of_a_training_have_the_hook_too(env: dict[str, str]) -> None:
    ask = (
        "import subprocess, sys; print(subprocess.run([sys.executable, '-c', "
        + repr("import sys; print('_gpumon_auto' in sys.modules)")
        + "], capture_output=True, text=True).stdout)"
    )
    assert "True" in plain(["-c", ask], prepare(env, None)).stdout


def test_a_python_without_gpumon_can_import_only_gpumon(env: dict[str, str], tmp_path: Path) -> None:
    """As in another virtual environment: modules next to the package are not importable."""
    package = tmp_path / "transformers"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '5.0'\nclass TrainerCallback: pass\n")
    (package / "trainer_callback.py").write_text(
        "from transformers import TrainerCallback\nclass CallbackHandler:\n    callbacks = []\n"
        "    def on_train_begin(self): return 'mine'\n"
    )
    ask = (
        "import importlib.util, sys\n"
        "assert importlib.util.find_spec('gpumon') is None\n"
        "import transformers.trainer_callback as m\n"
        "assert importlib.util.find_spec('gpumon') is None\n"
        "print(m.CallbackHandler().on_train_begin())\n"
        "print(sys.modules['gpumon'].__file__, importlib.util.find_spec('tests'))"
    )
    # -S leaves site-packages out, and with it sitecustomize: it is run by hand.
    start = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    site = ROOT / "gpumon" / "auto" / "site" / "sitecustomize.py"
    run = f"try: exec(compile(open({str(site)!r}).read(), {str(site)!r}, 'exec'), {{'__file__': {str(site)!r}}})\n"
    done = plain(["-I", "-S", "-c", f"{start}{run}except ImportError: print('no other')\n{ask}"], env)
    said = done.stdout.removeprefix("no other\n")  # Debian's Python has a sitecustomize of its own
    assert said == f"mine\n{ROOT}/gpumon/__init__.py None\n", done.stderr


def test_the_environment_of_the_caller_stays(tmp_path: Path) -> None:
    found = prepare({"PYTHONPATH": f"/a{os.pathsep}/b", "X": "y"}, "name")
    site, *others = found["PYTHONPATH"].split(os.pathsep)
    assert others == ["/a", "/b"]
    assert os.listdir(site)[0] in ("sitecustomize.py", "__pycache__")
    assert (found["X"], found["GPUMON_RUN_NAME"]) == ("y", "name")
    assert "GPUMON_RUN_NAME" not in prepare({}, None)
