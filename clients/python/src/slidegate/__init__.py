"""Asks Slidegate, an exact sliding-window rate limiter, about requests.

The middlewares are in `slidegate.fastapi`, `slidegate.flask` and `slidegate.django`.
"""

from .client import AsyncClient, Client
from .decision import AsyncDecision, Decision, SettleError
from .question import Charge, Question

__all__ = ["AsyncClient", "AsyncDecision", "Charge", "Client", "Decision", "Question", "SettleError"]
