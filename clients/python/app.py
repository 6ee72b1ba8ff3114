"""The same application with each framework, failing open and failing closed, on the ports given: how slidegate.py is
used, and what its tests run."""
import asyncio
import os
import sys
import threading

import uvicorn
from fastapi import FastAPI, Request, Response
from flask import Flask, g
from werkzeug.serving import make_server

import slidegate


def describe(request):
    """Stands for an application that knows its users."""
    path = request.path if hasattr(request, "path") else request.url.path
    known = {"hold": 2} if path == "/metered" else {"refundable": True}
    return {"user": request.headers.get("x-user"), "plan": "pro"} | known


OPTIONS = {
    "url": os.environ["SLIDEGATE_URL"],
    "token": os.environ["SLIDEGATE_TOKEN"],
    "timeout": int(os.environ["SLIDEGATE_TIMEOUT_MS"]) / 1000,
    "describe": describe,
}


def fastapi_app(fail):
    app = FastAPI()
    slidegate.fastapi(app, fail=fail, **OPTIONS)

    @app.get("/reports")
    async def reports():
        return Response("hello")

    @app.get("/metered")
    async def metered(request: Request):
        await request.state.slidegate["settle"](1)
        return Response("hello")

    @app.get("/broken")
    async def broken(request: Request):
        await request.state.slidegate["refund"]()
        return Response(status_code=500)

    return app


def flask_app(fail):
    app = Flask(__name__)
    slidegate.flask(app, fail=fail, **OPTIONS)

    @app.get("/reports")
    def reports():
        return "hello"

    @app.get("/metered")
    def metered():
        g.slidegate["settle"](1)
        return "hello"

    @app.get("/broken")
    def broken():
        g.slidegate["refund"]()
        return "", 500

    return app


async def main(fastapi_ports, flask_ports):
    for fail, port in zip(["open", "closed"], flask_ports):
        server = make_server("127.0.0.1", port, flask_app(fail), threaded=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    apps = zip([fastapi_app("open"), fastapi_app("closed")], fastapi_ports)
    servers = [uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning")) for app, port in apps]
    await asyncio.gather(*(server.serve() for server in servers))


ports = [int(port) for port in sys.argv[1:]]
asyncio.run(main(ports[:2], ports[2:]))
