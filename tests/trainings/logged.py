"""A training whose values of each epoch go to loggers; prints as JSON what a function of its own was given.

Its last epoch goes on until those of the first have come: they are written while a training runs.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

sys.modules["tensorflow"] = None  # type: ignore[assignment]  # tensorboard would import it, for half a minute

import mlflow  # noqa: E402
import wandb  # noqa: E402
from torch.utils.tensorboard import SummaryWriter  # noqa: E402

import gpumon  # noqa: E402

EPOCHS = 3
told: list[dict[str, Any]] = []
running = True


def tell(values: dict[str, float], epoch: int) -> None:
    on_main = threading.current_thread() is threading.main_thread()
    told.append({"epoch": epoch, "values": values, "running": running, "on_main": on_main})


def broken(values: dict[str, float], epoch: int) -> None:
    raise OSError("no space left")


def main(device: str) -> None:
    global running
    writer = SummaryWriter("writer")
    loggers = [tell, broken, writer, "tensorboard:directory", "csv:values.csv", "wandb", "mlflow"]
    with (
        wandb.init(project="tests") as charts,
        mlflow.start_run() as tracked,
        gpumon.run("logged", epochs=EPOCHS, devices=device, batch=4, log_to=loggers, log_wait=600) as run,
    ):
        for epoch in run.epochs():
            for _ in run.steps(range(12)):
                time.sleep(0.1)
            while epoch == EPOCHS - 1 and not told:
                run.step()
                time.sleep(0.05)
            writer.add_scalar("loss", 1 / (epoch + 1), epoch)
            charts.log({"loss": 1 / (epoch + 1)}, step=10 * epoch)
            mlflow.log_metric("loss", 1 / (epoch + 1), step=epoch)
        running = False
    writer.close()
    print(json.dumps({"run": run.id, "told": told, "mlflow": tracked.info.run_id}))


if __name__ == "__main__":
    main(sys.argv[1])
