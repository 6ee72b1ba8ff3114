// Asks a Slidegate at PORT for decisions with node-redis, in both versions of the protocol.
const assert = require("node:assert");
const { createClient } = require("redis");

const { PORT, TOKEN } = process.env;

function connect(RESP, password = TOKEN) {
  const socket = { port: Number(PORT), reconnectStrategy: false };
  const client = createClient({ socket, password, RESP, name: "test" });
  client.on("error", () => {});
  return client.connect();
}

async function check(RESP) {
  const client = await connect(RESP);
  const ask = (...command) => client.sendCommand(command.map(String));
  assert.equal(await client.ping(), "PONG");
  const key = `node-${RESP}`;
  for (const left of [2, 1, 0]) {
    assert.deepEqual(await ask("CL.THROTTLE", key, 2, 3, 60), [0, 3, left, -1, 60]);
  }
  const [limited, limit, left, retry, reset] = await ask("CL.THROTTLE", key, 2, 3, 60);
  assert.deepEqual([limited, limit, left], [1, 3, 0]);
  assert.ok(retry >= 1 && retry <= reset && reset <= 61, `${retry} ${reset}`);

  // Calls of one tick go out together: exactly ten are allowed.
  const calls = Array.from({ length: 100 }, () => ask("THROTTLE", `${key}-many`, 10, 10, 3600));
  const allowed = (await Promise.all(calls)).map((reply) => reply[0]);
  assert.deepEqual(allowed, [...Array(10).fill(1), ...Array(90).fill(0)]);

  const user = `user:${key}`;
  assert.deepEqual((await ask("SLIDEGATE.SPEND", "jobs", user, "COST", 2)).slice(0, 4), [1, 5, 3, 0]);
  assert.equal(await ask("SLIDEGATE.RESET", "jobs", user), 1);
  assert.deepEqual(await ask("SLIDEGATE.PEEK", "jobs", user), [1, 5, 5, 0, 0]);
  const held = await ask("SLIDEGATE.HOLD", "jobs", user, "UNITS", 3);
  assert.deepEqual(held.slice(0, 4), [1, 5, 2, 0]);
  assert.equal(await ask("SLIDEGATE.SETTLE", held[5], 1), 1);
  assert.equal(await ask("SLIDEGATE.SETTLE", held[5], 5), 0);
  assert.deepEqual((await ask("SLIDEGATE.PEEK", "jobs", user)).slice(0, 4), [1, 5, 4, 0]);
  assert.deepEqual((await ask("SLIDEGATE.RECORD", "jobs", user, 70)).slice(0, 3), [0, 5, 0]);
  const denied = await ask("SLIDEGATE.HOLD", "jobs", user, "UNITS", 1);
  assert.deepEqual([denied[0], denied[5]], [0, null]);
  await assert.rejects(ask("GET", "x"), /unknown command 'GET'.*SLIDEGATE\.SPEND/);
  await client.close();
  await assert.rejects(connect(RESP, "wrong"), /WRONGPASS/);
}

check(2).then(() => check(3)).catch((error) => {
  console.error(error);
  process.exit(1);
});
