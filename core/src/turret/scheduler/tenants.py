"""Virtual time of tenants: when each request is due if every tenant gets an equal share.

Owns: one clock, and how much each tenant has asked for. Knows nothing of queues; a policy that orders by these times is
fair between tenants, others ignore them.

Start-time fair queueing (Goyal, Vin, Cheng 1996): a request starts, in virtual time, when its tenant's last one ends,
but never before now; now is the start of the latest request that was admitted. So a tenant with a thousand waiting
requests has them spread over the time to come, and one that comes after a pause is due at once, without a claim to what
it did not use meanwhile. Time is in tokens: prompt and expected output, corrected once the output is known.
"""

from __future__ import annotations

from typing import NamedTuple

from turret.messages import Request

__all__ = ["Account", "TenantClock"]

_PRUNE_FROM = 1024
"""Tenants remembered before those that have nothing on their account are looked for."""
_WEIGHT_OF_LAST = 0.05
"""Share of the latest output length in the running mean."""
_AFTER = 0.5
"""Half a token: between a request and any that its tenant has after it."""


class Account(NamedTuple):
    """One request's charge: from when in virtual time, and how many tokens."""

    start: float
    cost: float


class TenantClock:
    """Virtual time in tokens. Constant work a request, but for a sweep when the known tenants have doubled."""

    __slots__ = ("_due", "_mean_output", "_prune_at", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._due: dict[str, float] = {}
        self._mean_output = 0.0
        self._prune_at = _PRUNE_FROM

    def enter(self, request: Request) -> Account:
        """A request came; its tenant is charged what it will probably get."""
        start = max(self.now, self._due.get(request.tenant, 0.0))
        cost = len(request.prompt_token_ids) + min(request.max_tokens, self._mean_output)
        self._due[request.tenant] = start + cost
        if len(self._due) > self._prune_at:
            self._prune()
        return Account(start, cost)

    def began(self, start: float) -> None:
        """A request with this start was admitted."""
        self.now = max(self.now, start)

    def again(self, start: float, behind: float = 0.0) -> float:
        """The start of a request that goes back to the queue: before what its tenant has waiting, after whatever is due
        by now or at `behind`."""
        return max(self.now, start, behind) + _AFTER

    def ended(self, request: Request, account: Account, num_outputs: int | None) -> None:
        """A request left: its tenant is charged what it really got, which is nothing (None) if it never began."""
        served = 0
        if num_outputs is not None:
            self._mean_output += _WEIGHT_OF_LAST * (num_outputs - self._mean_output)
            served = len(request.prompt_token_ids) + num_outputs
        due = max(self._due.get(request.tenant, 0.0), account.start + account.cost)
        self._due[request.tenant] = due + served - account.cost

    def rest(self) -> None:
        """Nobody is here: all accounts are level."""
        self.now = 0.0
        self._due.clear()

    def _prune(self) -> None:
        """Forget those who would start now anyway."""
        self._due = {tenant: due for tenant, due in self._due.items() if due > self.now}
        self._prune_at = max(_PRUNE_FROM, 2 * len(self._due))
