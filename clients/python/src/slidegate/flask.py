"""An extension for Flask."""

from __future__ import annotations

from typing import Callable

from flask import Flask, Request, Response, after_this_request, g, request

from .client import TIMEOUT, URL, Client, Fail
from .question import Question, about

Describe = Callable[[Request], Question]


class Slidegate:
    """Limits requests before they reach a view. Views find the decision in `g.slidegate`."""

    def __init__(
        self,
        app: Flask | None = None,
        *,
        describe: Describe | None = None,
        url: str = URL,
        token: str | None = None,
        timeout: float = TIMEOUT,
        fail: Fail = "open",
    ) -> None:
        self.describe = describe
        self.client = Client(url=url, token=token, timeout=timeout, fail=fail)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Adds a `before_request` function, which runs after those that were added before."""
        app.before_request(self._limit)

    def _limit(self) -> Response | None:
        path = request.root_path + request.path
        question = about(request.method, path, request.headers.items(), request.remote_addr)
        if self.describe:
            question.update(self.describe(request))
        decision = g.slidegate = self.client.decide(question)
        if not decision.allowed:
            return Response(decision.body, decision.status, dict(decision.headers))

        @after_this_request
        def add_headers(response: Response) -> Response:
            response.headers.update(decision.headers)
            return response

        return None
