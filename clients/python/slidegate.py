"""Asks Slidegate about each request: fastapi(app, ...) for FastAPI and Starlette, flask(app, ...) for Flask.

Options: url (where Slidegate decides), token (if it wants one), timeout (seconds), fail ("open": requests pass if there
is no answer; "closed": they do not), describe (what is known of a request: user, plan, cost, client). If that has
"hold": 2000, a handler says later what the request has cost: `await request.state.slidegate["settle"](1370)`. With a
hold or "refundable": True, one that fails gives back what was spent: `await request.state.slidegate["refund"]()`.
"""
import asyncio, logging
from urllib.parse import quote

import httpx


class Slidegate:
    def __init__(self, http, url="http://127.0.0.1:8081", token="", timeout=0.1, fail="open", describe=lambda _: {}):
        self.http = http(base_url=url, timeout=timeout, headers={"x-slidegate-token": token})
        self.fail, self.describe = fail, describe

    def ask(self, request, path, client):
        question = {"method": request.method, "path": quote(path), "headers": dict(request.headers), "client": client}
        return self.http.post("/v1/decide", json=question | self.describe(request))

    def read(self, answer):
        is_json = isinstance(answer, httpx.Response) and "json" in answer.headers.get("content-type", "")
        decision = {"headers": {}, "body": ""} | (answer.json() if is_json else {})
        # What cannot be asked about (400, 413) never passes: any client can send it.
        if "verdict" not in decision and decision.get("status") not in (400, 413):
            logging.getLogger("slidegate").warning("slidegate gave no decision: %r %s", answer, decision)
            decision |= {"status": 503, "verdict": "allow" if self.fail == "open" else "unavailable"}
        settle = lambda units: self.http.post("/v1/settle", json={"id": decision.get("id"), "units": units})
        return decision | {"settle": settle, "refund": lambda: settle(0)}


def fastapi(app, **options):
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import Response
    slidegate = Slidegate(httpx.AsyncClient, **options)

    async def limit(request, call_next):
        asked = slidegate.ask(request, request.scope["path"], request.client and request.client.host)
        decision = request.state.slidegate = slidegate.read((await asyncio.gather(asked, return_exceptions=True))[0])
        refusal = decision.get("verdict") != "allow" and Response(decision["body"], decision["status"])
        response = refusal or await call_next(request)
        response.headers.update(decision["headers"])
        return response
    app.add_middleware(BaseHTTPMiddleware, dispatch=limit)


def flask(app, **options):
    from flask import Response, after_this_request, g, request
    slidegate = Slidegate(httpx.Client, **options)

    @app.before_request
    def limit():
        try:
            answer = slidegate.ask(request, request.path, request.remote_addr)
        except httpx.HTTPError as error:
            answer = error
        decision = g.slidegate = slidegate.read(answer)
        after_this_request(lambda response: response.headers.update(decision["headers"]) or response)
        return None if decision.get("verdict") == "allow" else Response(decision["body"], decision["status"])
