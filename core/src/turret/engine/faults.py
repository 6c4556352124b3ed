"""Faults as events and back.

Owns: how an exception becomes the last event of a request, and how a client turns that event into an exception again.
Knows nothing of HTTP beyond the status each exception carries.
"""

from __future__ import annotations

from turret.errors import CapacityError, EngineDeadError, RequestError, RequestFailedError, TurretError
from turret.messages import FinishReason, TokenEvent

__all__ = ["ended", "event_error", "refusal"]


def refusal(request_id: str, error: Exception) -> TokenEvent:
    """The only event of a request that was not taken in."""
    status = error.status if isinstance(error, TurretError) else RequestFailedError.status
    message = str(error) if isinstance(error, TurretError) else f"{type(error).__name__}: {error}"
    return TokenEvent(
        request_id=request_id,
        finish_reason=FinishReason.ERROR,
        error=message,
        error_status=status,
        error_param=error.param if isinstance(error, RequestError) else None,
        retry_after=error.retry_after if isinstance(error, CapacityError) else None,
    )


def ended(request_id: str, dead_reason: str | None) -> TokenEvent:
    """The last event of a request whose engine is gone: an error, or an abort when nothing went wrong."""
    if dead_reason is None:
        return TokenEvent(request_id=request_id, finish_reason=FinishReason.ABORT)
    return refusal(request_id, EngineDeadError(dead_reason))


def event_error(event: TokenEvent) -> TurretError | None:
    """The exception an event stands for; None when it is no error."""
    if event.finish_reason is not FinishReason.ERROR:
        return None
    message = event.error or "the request failed without a reason"
    if event.retry_after is not None:
        return CapacityError(message, event.retry_after)
    if event.error_status == EngineDeadError.status and event.error_param is None:
        return EngineDeadError(message)
    if 400 <= event.error_status < 500:
        return RequestError(message, event.error_param)
    return RequestFailedError(message)
