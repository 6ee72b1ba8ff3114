"""Questions to the decision API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, Mapping, Optional, Sequence, TypedDict, Union
from urllib.parse import quote

if TYPE_CHECKING:
    from typing_extensions import Required


class Charge(TypedDict, total=False):
    """One charge of a question that names accounts."""

    policy: Required[str]
    identity: Required[Union[str, Mapping[str, str]]]
    plan: Optional[str]
    cost: Optional[int]


class Question(TypedDict, total=False):
    """What is asked about: a request, or `charges`. The function `describe` of a middleware returns a part of it."""

    method: str
    path: str
    headers: Mapping[str, Union[str, Sequence[str]]]
    #: The client's IP address.
    client: Optional[str]
    #: The id of the authenticated user.
    user: Optional[str]
    #: The customer, whose keys and users share an account.
    customer: Optional[str]
    plan: Optional[str]
    #: Units, from 1.
    cost: Optional[int]
    #: Units to hold until the decision is settled, in place of `cost`.
    hold: Optional[int]
    #: Whether the decision may be refunded. Not needed with `hold`.
    refundable: Optional[bool]
    #: Whether the application vouches for the headers, including those that policies name.
    trusted: Optional[bool]
    charges: Sequence[Charge]


def about(method: str, path: str, headers: Iterable[tuple[str, str]], client: str | None) -> Question:
    """The question about a request whose path a framework has decoded."""
    lines: dict[str, list[str]] = {}
    for name, value in headers:
        lines.setdefault(name, []).append(value)
    # On a Unix socket, some servers have an empty address.
    return {"method": method, "path": quote(path), "headers": lines, "client": client or None}
