"""Multiplies matrices on each visible GPU with one framework, and prints a line of JSON for each.

`gpumon doctor --framework` runs this file as a script in a process of its own, because a framework may crash, hang, or
keep the memory of a GPU. It therefore imports nothing of gpumon.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

SIZE = 8192
"""Rows and columns of the matrices. A product of this size uses the whole GPU."""
SECONDS = 2.0
_AT_ONCE = 8
"""Number of products between two readings of the clock."""


class Product(NamedTuple):
    """The products on one device."""

    name: str
    """Model of the device; empty if the framework does not report it."""
    multiply: Callable[[int], None]
    """Function that starts this number of products and waits for their end."""


def torch_products() -> Iterator[Product]:
    """Yield the products of each CUDA device of torch."""
    torch: Any = import_module("torch")
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        left, right = (torch.randn(SIZE, SIZE, device=f"cuda:{index}", dtype=torch.float16) for _ in range(2))
        out = torch.empty_like(left)

        def multiply(times: int, index: int = index, a: Any = left, b: Any = right, out: Any = out) -> None:
            for _ in range(times):
                torch.matmul(a, b, out=out)
            torch.cuda.synchronize(index)

        yield Product(torch.cuda.get_device_name(index), multiply)


def tensorflow_products() -> Iterator[Product]:
    """Yield the products of each GPU of TensorFlow."""
    tensorflow: Any = import_module("tensorflow")
    for device in tensorflow.config.list_physical_devices("GPU"):
        tensorflow.config.experimental.set_memory_growth(device, True)
    for index, device in enumerate(tensorflow.config.list_logical_devices("GPU")):
        physical = tensorflow.config.list_physical_devices("GPU")[index]
        with tensorflow.device(device.name):
            left, right = (tensorflow.random.normal((SIZE, SIZE), dtype=tensorflow.float16) for _ in range(2))

        def multiply(times: int, a: Any = left, b: Any = right) -> None:
            for _ in range(times):
                product = tensorflow.matmul(a, b)
            float(product[0, 0])  # waits

        details = tensorflow.config.experimental.get_device_details(physical)
        yield Product(str(details.get("device_name", "")), multiply)


def jax_products() -> Iterator[Product]:
    """Yield the products of each GPU of JAX."""
    jax: Any = import_module("jax")
    numpy: Any = import_module("jax.numpy")
    matmul = jax.jit(numpy.matmul)
    for device in jax.local_devices():
        if device.platform == "cpu":
            continue
        left, right = (
            jax.device_put(jax.random.normal(jax.random.key(seed), (SIZE, SIZE), dtype=numpy.float16), device)
            for seed in range(2)
        )

        def multiply(times: int, a: Any = left, b: Any = right) -> None:
            for _ in range(times):
                product = matmul(a, b)
            product.block_until_ready()

        yield Product(str(device.device_kind), multiply)


FRAMEWORKS: dict[str, Callable[[], Iterator[Product]]] = {
    "torch": torch_products,
    "tensorflow": tensorflow_products,
    "jax": jax_products,
}


def measure(product: Product, seconds: float = SECONDS) -> float:
    """Return the operations per second of repeated products."""
    product.multiply(1)  # loads the code, and raises the clocks
    begun, times = time.monotonic(), 0
    while time.monotonic() - begun < seconds:
        product.multiply(_AT_ONCE)
        times += _AT_ONCE
    return 2.0 * SIZE**3 * times / (time.monotonic() - begun)


def main() -> None:
    """Measure each GPU with the framework that is named on the command line."""
    for product in FRAMEWORKS[sys.argv[1]]():
        print(json.dumps({"name": product.name, "operations": measure(product)}), flush=True)


if __name__ == "__main__":
    main()
