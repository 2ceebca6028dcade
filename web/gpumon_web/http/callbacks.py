"""Checks requests for Dash callbacks: their body must be one that our pages send, as Dash takes it for granted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_PATH = "/_dash-update-component"


class CallbackCheck:
    """ASGI middleware that answers 400 to a body that no page sends. Dash's own middleware, outside, has parsed it."""

    def __init__(self, app: ASGIApp, callbacks: Mapping[str, Mapping[str, Any]]) -> None:
        self._app = app
        self._callbacks = callbacks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_callback = scope["type"] == "http" and scope["path"] == _PATH
        if is_callback and not is_valid(scope.get("state", {}).get("json_body"), self._callbacks):
            await PlainTextResponse("This is not a callback of these pages.", 400)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def is_valid(body: Any, callbacks: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a body names a callback, with exactly its outputs, inputs and states."""
    if not isinstance(body, dict) or not isinstance(body.get("output"), str):
        return False
    callback = callbacks.get(body["output"])
    if callback is None:
        return False
    inputs, states = _properties(body.get("inputs")), _properties(body.get("state", []))
    outputs = body.get("outputs")
    output_names = _properties(outputs if isinstance(outputs, list) else [outputs])
    changed = body.get("changedPropIds", [])
    return (
        inputs == _properties(callback["inputs"])
        and states == _properties(callback["state"])
        and output_names is not None
        and body["output"] in (f"..{'...'.join(output_names)}..", *output_names[:1])
        and isinstance(changed, list)
        and all(isinstance(name, str) and name in (inputs or ()) for name in changed)
    )


def _properties(parts: Any) -> list[str] | None:
    """Return the names of properties as `id.property`; None if some part is not a property of a component."""
    if not isinstance(parts, Sequence) or isinstance(parts, str):
        return None
    names = []
    for part in parts:
        if (
            not isinstance(part, dict)
            or not isinstance(part.get("id"), str)
            or not isinstance(part.get("property"), str)
        ):
            return None
        names.append(f"{part['id']}.{part['property']}")
    return names
