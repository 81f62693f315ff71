// Turns with node-redlock on ioredis, for the benchmark; the conversation is described in README.md.
// The lock's own settings: 10 retries, each after 200 ms, 100 more or less. One that gives up begins anew at once.
"use strict";

const { setTimeout: sleep } = require("node:timers/promises");
const Redis = require("ioredis");
const { default: Redlock, ExecutionError, ResourceLockedError } = require("redlock");

const [port, processNumber, seats, holdUs] = process.argv.slice(2).map(Number);
const lease = 30000; // ms
const now = () => process.hrtime.bigint();

async function acquire(redlock) {
  for (let gaveUp = 0; ; ++gaveUp) {
    try {
      return [await redlock.acquire(["bench/lock"], lease), gaveUp];
    } catch (error) {
      if (!(error instanceof ExecutionError)) throw error;
    }
  }
}

async function takeTurns(redlock, seat, begin, end) {
  const turns = [];
  const early = Number(begin - now()) / 1e6;
  if (early > 0) await sleep(early);
  for (;;) {
    const wanted = now();
    if (wanted >= end) return turns;
    const [held, gaveUp] = await acquire(redlock);
    const entered = now();
    if (holdUs > 0) await sleep(holdUs / 1000);
    const released = now();
    await held.release();
    turns.push([seat, wanted, entered, released, gaveUp]);
  }
}

async function main() {
  const control = new Redis(port, "127.0.0.1");
  const nodes = (process.env.BENCH_NODES ?? String(port)).split(",").map((each) => new Redis(Number(each), "127.0.0.1"));
  const redlock = new Redlock(nodes);
  redlock.on("error", (error) => {
    if (!(error instanceof ResourceLockedError)) throw error; // busy is no error
  });
  // The connections are made and the scripts are loaded before it counts.
  await (await redlock.acquire([`bench/warm/${processNumber}`], lease)).release();

  await control.incr("bench/ready");
  const [, go] = await control.blpop("bench/go", 0);
  const [begin, end] = go.split(" ").map(BigInt);
  const all = Array.from({ length: seats }, (_, i) => takeTurns(redlock, processNumber * seats + i, begin, end));
  const lines = (await Promise.all(all)).flat().map((turn) => turn.join(" ") + "\n");
  await control.rpush("bench/turns", lines.join(""));
  for (const each of [control, ...nodes]) each.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
