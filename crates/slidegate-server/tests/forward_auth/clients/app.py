"""The same application with each framework, failing open and failing closed, on the ports given."""
import asyncio
import os
import sys
import threading

import uvicorn
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path
from fastapi import FastAPI, Request, Response
from flask import Flask, g
from slidegate.fastapi import SlidegateMiddleware
from slidegate.flask import Slidegate
from werkzeug.serving import make_server


def describe(request):
    """Stands for an application that knows its users."""
    path = request.path if hasattr(request, "path") else request.url.path
    known = {"hold": 2} if path == "/metered" else {"refundable": True}
    return {"user": request.headers.get("x-user"), "plan": "pro"} | known


async def describe_later(request):
    return describe(request)


OPTIONS = {
    "url": os.environ["SLIDEGATE_URL"],
    "token": os.environ["SLIDEGATE_TOKEN"],
    "timeout": int(os.environ["SLIDEGATE_TIMEOUT_MS"]) / 1000,
}


def fastapi_app(fail):
    app = FastAPI()
    app.add_middleware(SlidegateMiddleware, fail=fail, describe=describe_later, **OPTIONS)

    @app.get("/reports")
    async def reports():
        return Response("hello")

    @app.get("/metered")
    async def metered(request: Request):
        await request.state.slidegate.settle(1)
        return Response("hello")

    @app.get("/broken")
    async def broken(request: Request):
        await request.state.slidegate.refund()
        return Response(status_code=500)

    return app


def flask_app(fail):
    app = Flask(__name__)
    Slidegate(app, fail=fail, describe=describe, **OPTIONS)

    @app.get("/reports")
    def reports():
        return "hello"

    @app.get("/metered")
    def metered():
        g.slidegate.settle(1)
        return "hello"

    @app.get("/broken")
    def broken():
        g.slidegate.refund()
        return "", 500

    return app


def django_reports(request):
    return HttpResponse("hello")


def django_metered(request):
    request.slidegate.settle(1)
    return HttpResponse("hello")


def django_broken(request):
    request.slidegate.refund()
    return HttpResponse(status=500)


urlpatterns = [
    path("reports", django_reports),
    path("metered", django_metered),
    path("broken", django_broken),
]


def django_apps():
    """One that fails open and one that fails closed: the middleware reads its settings when it is made."""
    settings.configure(
        ALLOWED_HOSTS=["127.0.0.1"],
        LOGGING_CONFIG=None,
        MIDDLEWARE=["slidegate.django.SlidegateMiddleware"],
        ROOT_URLCONF=__name__,
        SLIDEGATE={name.upper(): value for name, value in OPTIONS.items()} | {"DESCRIBE": f"{__name__}.describe"},
    )
    for fail in ["open", "closed"]:
        settings.SLIDEGATE["FAIL"] = fail
        yield get_wsgi_application()


async def main(fastapi_ports, flask_ports, django_ports):
    threaded = zip([flask_app("open"), flask_app("closed"), *django_apps()], flask_ports + django_ports)
    for app, port in threaded:
        server = make_server("127.0.0.1", port, app, threaded=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    apps = zip([fastapi_app("open"), fastapi_app("closed")], fastapi_ports)
    servers = [uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning")) for app, port in apps]
    await asyncio.gather(*(server.serve() for server in servers))


if __name__ == "__main__":
    ports = [int(port) for port in sys.argv[1:]]
    asyncio.run(main(ports[:2], ports[2:4], ports[4:]))
