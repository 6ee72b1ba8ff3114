"""A middleware for FastAPI and Starlette."""

from __future__ import annotations

import inspect
from typing import Awaitable, Callable, Mapping, Union

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .client import TIMEOUT, URL, AsyncClient, Fail
from .question import Question, about

Describe = Callable[[Request], Union[Question, Awaitable[Question]]]


class SlidegateMiddleware:
    """Limits HTTP requests. Handlers find the decision in `request.state.slidegate`.

    WebSocket connections pass without a question.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        describe: Describe | None = None,
        url: str = URL,
        token: str | None = None,
        timeout: float = TIMEOUT,
        fail: Fail = "open",
    ) -> None:
        self.app = app
        self.describe = describe
        self.client = AsyncClient(url=url, token=token, timeout=timeout, fail=fail)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        client = request.client.host if request.client else None
        question = about(request.method, scope["path"], request.headers.items(), client)
        if self.describe:
            described = self.describe(request)
            question.update(await described if inspect.isawaitable(described) else described)
        decision = await self.client.decide(question)
        request.state.slidegate = decision
        if decision.allowed:
            await self.app(scope, receive, _adding(decision.headers, send))
        else:
            await Response(decision.body, decision.status, decision.headers)(scope, receive, send)


def _adding(headers: Mapping[str, str], send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(headers)
        await send(message)

    return send_with_headers
