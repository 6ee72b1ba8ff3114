"""Clients of the decision API. The middlewares use them; use one for what is not a request of a framework."""

from __future__ import annotations

import json
import logging
import math
from functools import partial
from typing import Any, Literal

import anyio
import httpx

from .decision import AsyncDecision, Decision, SettleError, members
from .question import Question

Fail = Literal["open", "closed"]

URL = "http://127.0.0.1:8081"
#: Seconds.
TIMEOUT = 0.1

# A request in flight has a connection; waiting for one of another request would use up the timeout.
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100)

logger = logging.getLogger("slidegate")


class BaseClient:
    """What both clients do apart from sending."""

    def __init__(self, url: str, token: str | None, timeout: float, fail: Fail) -> None:
        self._url = _valid_url(url)
        if token is not None and not isinstance(token, str):
            raise ValueError(f"slidegate: token must be a string, not {token!r}")
        self._headers = {"content-type": "application/json"}
        if token:
            self._headers["x-slidegate-token"] = token
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
            raise ValueError(f"slidegate: timeout must be a number of seconds, not {timeout!r}")
        if not (math.isfinite(timeout) and timeout > 0):
            raise ValueError(f"slidegate: timeout must be above 0 seconds, not {timeout!r}")
        self._timeout = timeout
        if fail not in ("open", "closed"):
            raise ValueError(f"slidegate: fail must be 'open' or 'closed', not {fail!r}")
        self._fail = fail

    def _read(self, response: httpx.Response) -> dict[str, Any]:
        """The answer that a response has, or one in its place."""
        answer = _json_object(response)
        verdict = answer.get("verdict")
        if verdict == "allow" or (isinstance(verdict, str) and isinstance(answer.get("status"), int)):
            return answer
        cause = f"{response.status_code} {answer.get('detail')}"
        # Any client can send a request about which Slidegate cannot be asked, so it never passes.
        if response.status_code in (400, 413):
            logger.warning("slidegate refused the question: %s", cause)
            return _refusal("block", 400, "Bad Request", reason="bad-request")
        return self._failed(cause)

    def _failed(self, cause: object) -> dict[str, Any]:
        """The answer to a question that got none."""
        logger.warning("slidegate gave no decision: %s", cause)
        if self._fail == "open":
            return {"verdict": "allow", "degraded": True}
        answer = _refusal("unavailable", 503, "Service Unavailable", degraded=True)
        answer["headers"]["retry-after"] = "1"
        return answer


class Client(BaseClient):
    """Asks one Slidegate. Threads can share it. The timeout is for connecting and for each read."""

    def __init__(
        self, *, url: str = URL, token: str | None = None, timeout: float = TIMEOUT, fail: Fail = "open"
    ) -> None:
        super().__init__(url, token, timeout, fail)
        self._http = httpx.Client(base_url=self._url, headers=self._headers, timeout=timeout, limits=LIMITS)

    def decide(self, question: Question) -> Decision:
        """Does not raise if Slidegate is unreachable: the decision then depends on `fail`."""
        # Outside of `try`: a question that JSON cannot express must not pass when failing open.
        content = json.dumps(question)
        try:
            response = self._http.post("/v1/decide", content=content)
        except Exception as error:
            answer = self._failed(repr(error))
        else:
            answer = self._read(response)
        settle = partial(self._settle, answer["id"]) if "id" in answer else None
        return Decision(**members(answer), _settle=settle)

    def _settle(self, id: str, units: int) -> None:
        try:
            response = self._http.post("/v1/settle", content=json.dumps({"id": id, "units": units}))
        except httpx.HTTPError as error:
            raise SettleError(repr(error)) from error
        _check_settled(response)

    def close(self) -> None:
        self._http.close()


class AsyncClient(BaseClient):
    """Asks one Slidegate without blocking, in one event loop. The timeout is for the whole answer."""

    def __init__(
        self, *, url: str = URL, token: str | None = None, timeout: float = TIMEOUT, fail: Fail = "open"
    ) -> None:
        super().__init__(url, token, timeout, fail)
        self._http = httpx.AsyncClient(base_url=self._url, headers=self._headers, timeout=None, limits=LIMITS)

    async def decide(self, question: Question) -> AsyncDecision:
        """Does not raise if Slidegate is unreachable: the decision then depends on `fail`."""
        # Outside of `try`: a question that JSON cannot express must not pass when failing open.
        content = json.dumps(question)
        try:
            response = await self._post("/v1/decide", content)
        except Exception as error:
            answer = self._failed(repr(error))
        else:
            answer = self._read(response)
        settle = partial(self._settle, answer["id"]) if "id" in answer else None
        return AsyncDecision(**members(answer), _settle=settle)

    async def _settle(self, id: str, units: int) -> None:
        try:
            response = await self._post("/v1/settle", json.dumps({"id": id, "units": units}))
        except (httpx.HTTPError, TimeoutError) as error:
            raise SettleError(repr(error)) from error
        _check_settled(response)

    async def _post(self, path: str, content: str) -> httpx.Response:
        # The timeouts of httpx are for each read, not for the whole answer.
        with anyio.fail_after(self._timeout):
            return await self._http.post(path, content=content)

    async def aclose(self) -> None:
        await self._http.aclose()


def _valid_url(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        parsed = httpx.URL("")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(f"slidegate: url must be an http or https URL, not {url!r}")
    return parsed


def _json_object(response: httpx.Response) -> dict[str, Any]:
    try:
        answer = response.json()
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _refusal(verdict: str, status: int, body: str, **more: object) -> dict[str, Any]:
    return {"verdict": verdict, "status": status, "headers": {"content-type": "text/plain"}, "body": body, **more}


def _check_settled(response: httpx.Response) -> None:
    if response.status_code != 200:
        detail = _json_object(response).get("detail")
        raise SettleError(f"{response.status_code} {detail}", response.status_code)
