"""A middleware for Django, configured by the setting `SLIDEGATE`."""

from __future__ import annotations

from typing import Callable

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.utils.module_loading import import_string

from .client import Client
from .question import about

OPTIONS = ("URL", "TOKEN", "TIMEOUT", "FAIL", "DESCRIBE")


class SlidegateMiddleware:
    """Limits requests. Views find the decision in `request.slidegate`."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        options = dict(getattr(settings, "SLIDEGATE", {}))
        for name in options:
            if name not in OPTIONS:
                raise ImproperlyConfigured(f"SLIDEGATE: unknown option {name!r}; expected {', '.join(OPTIONS)}")
        describe = options.pop("DESCRIBE", None)
        self.describe = import_string(describe) if isinstance(describe, str) else describe
        try:
            self.client = Client(**{name.lower(): value for name, value in options.items()})
        except ValueError as error:
            raise ImproperlyConfigured(f"SLIDEGATE: {error}") from error

    def __call__(self, request: HttpRequest) -> HttpResponse:
        method, client = request.method or "GET", request.META.get("REMOTE_ADDR")
        question = about(method, request.path, request.headers.items(), client)
        if self.describe:
            question.update(self.describe(request))
        decision = self.client.decide(question)
        request.slidegate = decision  # type: ignore[attr-defined]
        if decision.allowed:
            response = self.get_response(request)
        else:
            response = HttpResponse(decision.body, status=decision.status)
        for name, value in decision.headers.items():
            response[name] = value
        return response
