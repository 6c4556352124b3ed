"""JSON answers.

Owns: one function that makes a response of any value msgspec can encode. Knows nothing of what it carries.
"""

from __future__ import annotations

import msgspec
from starlette.responses import Response

__all__ = ["as_json"]


def as_json(value: object) -> Response:
    """A JSON answer."""
    return Response(msgspec.json.encode(value), media_type="application/json")
