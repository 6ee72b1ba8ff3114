"""What the clients do with options, answers and failures. Run with `python -m unittest discover tests`."""

import contextlib
import json
import logging
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from slidegate import AsyncClient, Client, SettleError
from slidegate.django import SlidegateMiddleware

OK = {"verdict": "allow", "id": "i", "degraded": False, "headers": {"x-ratelimit-limit": "1"}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.questions.append((self.path, self.headers["x-slidegate-token"], body))
        status, answer = self.server.answers.pop(0)
        content = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        try:
            for byte in content:
                self.wfile.write(bytes([byte]))
                time.sleep(self.server.pause)
        except ConnectionError:
            pass  # The client has not waited.

    def log_message(self, *args):
        pass


@contextlib.asynccontextmanager
async def both(**options):
    """Asks with a client that blocks and with one that does not, and closes them."""
    client, later = Client(**options), AsyncClient(**options)

    async def decide(question):
        return [client.decide(question), await later.decide(question)]

    try:
        yield decide
    finally:
        client.close()
        await later.aclose()


class ClientTest(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.answers, self.server.questions, self.server.pause = [], [], 0
        threading.Thread(target=self.server.serve_forever, args=[0.01], daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def test_an_invalid_option_is_named(self):
        for options, message in [
            ({"url": "127.0.0.1:8081"}, "url must be an http or https URL, not '127.0.0.1:8081'"),
            ({"url": "ftp://a/"}, "url must be an http or https URL"),
            ({"url": "http://"}, "url must be an http or https URL"),
            ({"url": None}, "url must be an http or https URL, not None"),
            ({"token": 7}, "token must be a string, not 7"),
            ({"timeout": 0}, "timeout must be above 0 seconds, not 0"),
            ({"timeout": float("nan")}, "timeout must be above 0 seconds"),
            ({"timeout": "0.1"}, "timeout must be a number of seconds, not '0.1'"),
            ({"timeout": True}, "timeout must be a number of seconds, not True"),
            ({"fail": "opne"}, "fail must be 'open' or 'closed', not 'opne'"),
        ]:
            for client in [Client, AsyncClient]:
                with self.subTest(options), self.assertRaisesRegex(ValueError, message):
                    client(**options)
            setting = {name.upper(): value for name, value in options.items()}
            with override_settings(SLIDEGATE=setting), self.assertRaisesRegex(ImproperlyConfigured, message):
                SlidegateMiddleware(lambda request: None)
        with override_settings(SLIDEGATE={"TIMEOUT_MS": 5}):
            with self.assertRaisesRegex(ImproperlyConfigured, "unknown option 'TIMEOUT_MS'; expected URL"):
                SlidegateMiddleware(lambda request: None)

    async def test_a_path_in_the_address_is_kept(self):
        for url in [f"{self.url}/behind/proxy", f"{self.url}/behind/proxy/"]:
            self.server.answers[:], self.server.questions[:] = [(200, OK)] * 2, []
            async with both(url=url, token="t", timeout=5) as decide:
                self.assertTrue(all(decision.allowed for decision in await decide({"user": "7"})))
            self.assertEqual(self.server.questions, [("/behind/proxy/v1/decide", "t", {"user": "7"})] * 2)

    async def test_only_what_any_client_can_cause_is_refused_when_failing_open(self):
        refused = {"verdict": "block", "reason": "bad-request", "status": 400, "body": "no", "headers": {"a": "b"}}
        for fail, failed in [("open", 200), ("closed", 503)]:
            async with both(url=self.url, timeout=5, fail=fail) as decide:
                for answer, status, warning in [
                    ((400, refused), 400, None),
                    ((400, {"detail": "path: is long"}), 400, "refused the question: 400 path: is long"),
                    ((413, "too large"), 400, "refused the question: 413"),
                    ((401, {"detail": "no token"}), failed, "gave no decision: 401 no token"),
                    ((500, ""), failed, "gave no decision: 500"),
                    ((200, "hello"), failed, "gave no decision: 200"),
                    ((200, "null"), failed, "gave no decision: 200"),
                    ((200, "[]"), failed, "gave no decision: 200"),
                    ((200, {"verdict": "deny"}), failed, "gave no decision: 200"),
                ]:
                    with self.subTest(answer=answer, fail=fail):
                        await self.check_answer(decide, answer, status, warning)

    async def check_answer(self, decide, answer, status, warning):
        self.server.answers[:], self.server.questions[:] = [answer] * 2, []
        with self.assertLogs("slidegate") as logs:
            logging.getLogger("slidegate").info("assertLogs fails without a line")
            decisions = await decide({})
        for decision in decisions:
            self.assertEqual((decision.status, decision.allowed), (status, status == 200))
            self.assertEqual(decision.degraded, status != 400)
        decisions[0].settle(1)
        await decisions[1].refund()
        self.assertEqual(len(self.server.questions), 2, "nothing was spent that could be settled")
        self.assertEqual(len(logs.output), 3 if warning else 1)
        self.assertTrue(all(warning in line for line in logs.output[1:]), logs.output)

    async def test_a_question_that_json_cannot_express_does_not_pass(self):
        question = {"cost": object()}
        with self.assertRaises(TypeError):
            Client(url=self.url).decide(question)
        with self.assertRaises(TypeError):
            await AsyncClient(url=self.url).decide(question)

    async def test_an_answer_that_drips_is_not_waited_for(self):
        self.server.answers[:], self.server.pause = [(200, OK)], 0.1
        client = AsyncClient(url=self.url, timeout=0.2, fail="closed")
        began = time.monotonic()
        with self.assertLogs("slidegate"):
            self.assertEqual((await client.decide({})).status, 503)
        self.assertLess(time.monotonic() - began, 5)
        await client.aclose()

    async def test_a_settlement_that_fails_raises(self):
        late = (409, {"detail": "it was settled before"})
        self.server.answers[:] = [(200, OK)] * 2 + [(200, {}), late, (200, {})] * 2
        async with both(url=self.url, timeout=5) as decide:
            blocking, later = await decide({"hold": 2})
            blocking.settle(1)
            with self.assertRaisesRegex(SettleError, "409 it was settled before") as raised:
                blocking.settle(1)
            self.assertEqual(raised.exception.status, 409)
            blocking.refund()
            await later.settle(1)
            with self.assertRaisesRegex(SettleError, "409 it was settled before") as raised:
                await later.settle(1)
            self.assertEqual(raised.exception.status, 409)
            await later.refund()
            settled = [("/v1/settle", None, {"id": "i", "units": units}) for units in [1, 1, 0]]
            self.assertEqual(self.server.questions[2:], settled * 2)


settings.configure()

if __name__ == "__main__":
    unittest.main()
