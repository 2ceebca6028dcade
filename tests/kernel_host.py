"""A program that runs cells in a kernel of Jupyter with nbclient, for `tests.notebooks`.

It reads a source as JSON from each line of its input and answers with a line of JSON: the outputs of the cell, and what
replaced outputs while the cell ran. Its first line is the pid of the kernel. It is a process of its own, because
jupyter_client keeps an event loop and sockets.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient


class _Client(NotebookClient):  # type: ignore[misc]  # untyped
    def process_message(self, message: Any, cell: Any, cell_index: int) -> Any:
        if message["msg_type"] == "update_display_data":
            updates.append(message["content"]["data"])
        return super().process_message(message, cell, cell_index)


updates: list[dict[str, str]] = []


def main() -> None:
    document = nbformat.v4.new_notebook()
    manager = KernelManager(kernel_name="python3")
    manager.kernel_spec.argv[0] = sys.executable
    client = _Client(document, km=manager, timeout=int(sys.argv[1]), allow_errors=True)
    with client.setup_kernel():
        print(json.dumps(manager.provisioner.pid), flush=True)
        for line in sys.stdin:
            document.cells.append(cell := nbformat.v4.new_code_cell(json.loads(line)))
            updates.clear()
            client.execute_cell(cell, len(document.cells) - 1)
            print(json.dumps({"outputs": cell.outputs, "updates": updates}), flush=True)


if __name__ == "__main__":
    main()
