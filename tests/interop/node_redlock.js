// A redlock of Node on one server or on several, told what to do line by line: {"do": "acquire", "ttl": 1000, "patience": 0} on
// standard input, {"ok": true} on standard output.
"use strict";

const readline = require("node:readline");
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");

const [key, ...sockets] = process.argv.slice(2);
const clients = sockets.map((socket) => new Redis(socket));
const between = 20; // ms
let held = null;

const actions = {
  async acquire({ ttl, patience }) {
    const retryCount = Math.ceil(patience / between);
    const redlock = new Redlock(clients, { retryCount, retryDelay: between, retryJitter: 0 });
    redlock.on("error", () => {}); // each failed try; the last one is thrown
    held = await redlock.acquire([key], ttl);
  },
  async release() {
    await held.release();
  },
};

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    let answer = { ok: true };
    try {
      await actions[request.do](request);
    } catch (error) {
      answer = { ok: false, why: String(error) };
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
  }
  for (const client of clients) client.disconnect();
}

main();
