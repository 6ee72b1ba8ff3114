"""Asks a Slidegate at PORT for decisions with redis-py, in both versions of the protocol."""

import os

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

PORT, TOKEN = int(os.environ["PORT"]), os.environ["TOKEN"]


def equal(got, expected):
    assert got == expected, f"{got!r} is not {expected!r}"


def connect(protocol, password=TOKEN):
    once = Retry(NoBackoff(), 0)
    return redis.Redis(
        port=PORT, protocol=protocol, password=password, client_name="test", retry=once
    )


for protocol in (2, 3):
    client = connect(protocol)
    assert client.ping()
    ask = client.execute_command
    key = f"py-{protocol}"
    # Three at once, of three a minute.
    for left in (2, 1, 0):
        equal(ask("CL.THROTTLE", key, 2, 3, 60), [0, 3, left, -1, 60])
    limited, limit, left, retry, reset = ask("CL.THROTTLE", key, 2, 3, 60)
    equal([limited, limit, left], [1, 3, 0])
    assert 1 <= retry <= reset <= 61, (retry, reset)
    equal(ask("THROTTLE", key + "-crab", 5, 5, 60, 2), [1, 5, 3, 60, 0])

    # A hundred calls in one round trip: exactly ten are allowed.
    pipeline = client.pipeline(transaction=False)
    for _ in range(100):
        pipeline.execute_command("THROTTLE", key + "-many", 10, 10, 3600)
    equal([reply[0] for reply in pipeline.execute()], [1] * 10 + [0] * 90)

    user = f"user:{key}"
    equal(ask("SLIDEGATE.SPEND", "jobs", user, "COST", 2)[:4], [1, 5, 3, 0])
    equal(ask("SLIDEGATE.PEEK", "jobs", user)[:4], [1, 5, 3, 0])
    equal(ask("SLIDEGATE.RESET", "jobs", user), 1)
    equal(ask("SLIDEGATE.PEEK", "jobs", user), [1, 5, 5, 0, 0])

    held = ask("SLIDEGATE.HOLD", "jobs", user, "UNITS", 3)
    equal(held[:4], [1, 5, 2, 0])
    equal(ask("SLIDEGATE.SETTLE", held[5], 1), 1)
    equal(ask("SLIDEGATE.SETTLE", held[5], 5), 0)
    equal(ask("SLIDEGATE.PEEK", "jobs", user)[:4], [1, 5, 4, 0])
    equal(ask("SLIDEGATE.RECORD", "jobs", user, 70)[:3], [0, 5, 0])
    denied = ask("SLIDEGATE.HOLD", "jobs", user, "UNITS", 1)
    equal((denied[0], denied[5]), (0, None))

    # Keys are bytes.
    equal(ask("THROTTLE", b"\xff\x00", 9, 9, 60)[0], 1)
    for command, text in [
        (("GET", "x"), "SLIDEGATE.SPEND"),
        (("CL.THROTTLE", "k", 3, 3, 60), "max_burst: 3 asks for 4 at once"),
    ]:
        try:
            ask(*command)
            raise AssertionError(f"{command} was answered")
        except redis.ResponseError as error:
            assert text in str(error), error
    try:
        connect(protocol, "wrong").ping()
        raise AssertionError("a wrong token was taken")
    except redis.AuthenticationError:
        pass
