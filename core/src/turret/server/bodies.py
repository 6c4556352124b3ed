"""Reading a request's JSON body into its wire model.

Owns: the content-type check, decoding, how deep a body may nest and the wording of shape errors. Knows nothing of what
a body means. Bodies are decoded straight from bytes; the decoders are built once per model.
"""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar, get_type_hints

import msgspec
from starlette.requests import ClientDisconnect, Request

from turret.server.faults import BodyError, BodyTooLargeError

__all__ = ["BodyReader", "read_json"]

T = TypeVar("T")
MAX_BODY_BYTES = 32 << 20
"""More than the prompts of any context length need; decoding so much takes a few tenths of a second, in which nobody
else is answered."""
MAX_DEPTH = 100
"""Objects and lists inside each other in the free-form parts of a body: far more than a JSON Schema of a tool needs,
and far less than what breaks the libraries that walk them recursively."""
WHERE = re.compile(r"(?P<what>.*?)(?: - at (?:`key` in )?`\$(?P<path>[^`]*)`)?$", re.DOTALL)


class BodyReader(Generic[T]):
    """Reads bodies of one wire model."""

    def __init__(self, model: type[T]) -> None:
        # Not strict: clients in languages without integers send 16.0, and some send numbers as text.
        self._decoder = msgspec.json.Decoder(model, strict=False)
        self._free_form = [name for name, hint in get_type_hints(model).items() if "Any" in str(hint)]

    async def read(self, request: Request) -> T:
        """The decoded body; raises `BodyError` for a wrong media type, broken JSON or a wrong shape."""
        _check_media_type(request.headers.get("content-type"))
        try:
            return self.decode(await _read_all(request))
        except ClientDisconnect as gone:
            raise BodyError("the client went away before the body was complete") from gone

    def decode(self, body: bytes) -> T:
        """The model in `body`."""
        try:
            decoded = self._decoder.decode(body)
        except RecursionError as error:
            raise _too_deep(None) from error
        except msgspec.ValidationError as error:
            raise _shape_error(str(error)) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BodyError(f"the body is not valid JSON: {error}") from error
        for name in self._free_form:
            _check_depth(getattr(decoded, name), name)
        return decoded


async def read_json(request: Request) -> Any:
    """A JSON body of any shape, None if there is none; raises as `BodyReader.read` does."""
    try:
        body = await _read_all(request)
        if not body:
            return None
        _check_media_type(request.headers.get("content-type"))
        value = msgspec.json.decode(body)
    except RecursionError as error:
        raise _too_deep(None) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BodyError(f"the body is not valid JSON: {error}") from error
    except ClientDisconnect as gone:
        raise BodyError("the client went away before the body was complete") from gone
    _check_depth(value, None)
    return value


def _check_depth(value: Any, name: str | None) -> None:
    """Refuse a value that nests more than `MAX_DEPTH` containers; level by level, so that no depth is too much here."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        if not level:
            return
        inner = (item for outer in level for item in (outer.values() if isinstance(outer, dict) else outer))
        level = [item for item in inner if isinstance(item, (dict, list))]
    if level:
        raise _too_deep(name)


def _too_deep(name: str | None) -> BodyError:
    return BodyError(f"{name or 'the body'} nests objects and lists more than {MAX_DEPTH} deep", name)


async def _read_all(request: Request) -> bytes:
    """The whole body; gives up on one that is too large before it fills the memory."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > MAX_BODY_BYTES:
            raise BodyTooLargeError(f"the body is larger than {MAX_BODY_BYTES} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _check_media_type(header: str | None) -> None:
    """JSON routes take `application/json`, whatever its parameters."""
    media = (header or "").split(";", 1)[0].strip().lower()
    if media != "application/json":
        raise BodyError(f"the body must be sent as Content-Type: application/json, not {media or 'without one'}")


def _shape_error(text: str) -> BodyError:
    """A shape error with the dotted path of the field at fault."""
    found = WHERE.match(text)
    what, path = (found["what"], found["path"] or "") if found else (text, "")
    if missing := re.search(r"required field `(\w+)`", what):
        path = f"{path}.{missing[1]}"
    param = re.sub(r"\[(\d+|\.\.\.)\]", r".\1", path).strip(".") or None
    at = f" in {param}" if param else ""
    return BodyError(f"{what}{at}", param)
