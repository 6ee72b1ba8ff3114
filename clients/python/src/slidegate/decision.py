"""Decisions, and how to settle them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Awaitable, Callable, Mapping


class SettleError(Exception):
    """Slidegate did not settle. What was spent stays spent until its window ends."""

    def __init__(self, cause: object, status: int | None = None) -> None:
        super().__init__(f"slidegate did not settle: {cause}")
        #: The HTTP status, if there was an answer: 409 if it was settled before, 404 if it was too late.
        self.status = status


@dataclass(frozen=True)
class BaseDecision:
    """What Slidegate decided about a request."""

    #: `allow`, `deny`, `block` or `unavailable`.
    verdict: str
    reason: str | None = None
    #: After how many milliseconds the same request would be allowed, if waiting helps.
    retry_after_ms: int | None = None
    #: Whether a failure affected the decision: of Slidegate's store, or no answer from Slidegate.
    degraded: bool = False
    #: The status for the client if the request was refused, else 200.
    status: int = 200
    #: Headers for the response, whether the request was allowed or refused.
    headers: Mapping[str, str] = field(default_factory=dict)
    #: The body for the client, if the request was refused.
    body: str = ""

    @property
    def allowed(self) -> bool:
        """Whether the request may pass: whether the verdict is `allow`."""
        return self.verdict == "allow"


def members(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The members of an answer of the decision API that a decision has."""
    return {name: answer[name] for name in BaseDecision.__dataclass_fields__ if name in answer}


@dataclass(frozen=True)
class Decision(BaseDecision):
    """A decision of `Client`."""

    #: Absent if nothing was spent that could be settled, as without an answer.
    _settle: Callable[[int], None] | None = field(default=None, repr=False, compare=False)

    def settle(self, units: int) -> None:
        """States what a request with a `hold` cost. Raises `SettleError` if Slidegate did not settle it."""
        if self._settle:
            self._settle(units)

    def refund(self) -> None:
        """Gives back everything that a request with a `hold` or `refundable` spent. Raises `SettleError`."""
        self.settle(0)


@dataclass(frozen=True)
class AsyncDecision(BaseDecision):
    """A decision of `AsyncClient`."""

    #: Absent if nothing was spent that could be settled, as without an answer.
    _settle: Callable[[int], Awaitable[None]] | None = field(default=None, repr=False, compare=False)

    async def settle(self, units: int) -> None:
        """States what a request with a `hold` cost. Raises `SettleError` if Slidegate did not settle it."""
        if self._settle:
            await self._settle(units)

    async def refund(self) -> None:
        """Gives back everything that a request with a `hold` or `refundable` spent. Raises `SettleError`."""
        await self.settle(0)
