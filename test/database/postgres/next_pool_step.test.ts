import { expect, test } from "bun:test";

import {
  type ConnectionFacts,
  type ConnectionState,
  isConnectionWanted,
  nextPoolStep,
  type PoolFacts,
  type PoolStep,
} from "../../../src/database/postgres/next_pool_step.ts";

const NOW = 1_000_000;
const A = { host: "a", port: 5432 };
const B = { host: "b", port: 5432 };

/** Nothing waits, and no connection is open; none was lost or silent for long. */
const EMPTY: PoolFacts = {
  now: NOW,
  connections: [],
  waiting: 0,
  size: 2,
  connecting: 0,
  isConnectFailing: false,
  openedBesideAt: Number.NEGATIVE_INFINITY,
  host: A,
  silentSince: Number.NEGATIVE_INFINITY,
  newestSuccessBeganAt: Number.NEGATIVE_INFINITY,
  replyLimitMs: Number.POSITIVE_INFINITY,
};

/** A connection to A, opened a minute ago, that has been in its state for a tenth of a second. */
function connection(state: ConnectionState, facts: Partial<ConnectionFacts> = {}): ConnectionFacts {
  const since = NOW - 100;
  return {
    state,
    since,
    openedAt: NOW - 60_000,
    repliedAt: since,
    isOpen: true,
    host: A,
    ...facts,
  };
}

const idle = connection("idle");
const stale = connection("idle", { repliedAt: NOW - 5_000 });
const old = connection("idle", { openedAt: NOW - 600_001 });
const checking = connection("checking");
const busy = connection("busy");
const overdue = connection("overdue");
const timedOut = connection("timed out");

const wait: PoolStep = { do: "wait" };
const open: PoolStep = { do: "open" };
const beside: PoolStep = { do: "openBeside" };
const assign = (index: number): PoolStep => ({ do: "assign", connection: index });
const check = (index: number): PoolStep => ({ do: "check", connection: index });
const close = (index: number): PoolStep => ({ do: "close", connection: index });
const retire = (index: number): PoolStep => ({ do: "retire", connection: index });

test.each<[what: string, facts: Partial<PoolFacts>, step: PoolStep]>([
  // Nothing to do
  ["nothing waits, and nothing is open", {}, wait],
  ["nothing waits, and one is idle", { connections: [idle] }, wait],
  ["nothing waits: one that is stale is not checked", { connections: [stale] }, wait],
  ["work is in flight on all", { connections: [busy, busy], waiting: 1 }, wait],

  // Assign
  ["one is idle", { connections: [busy, idle], waiting: 1 }, assign(1)],
  [
    "the one with the most recent reply is used, so that others can age",
    { connections: [connection("idle", { repliedAt: NOW - 200 }), idle], waiting: 1 },
    assign(1),
  ],
  [
    "the open ones serve while a new one connects",
    { connections: [idle], waiting: 2, connecting: 1 },
    assign(0),
  ],

  // Check
  ["the idle one is stale", { connections: [stale], waiting: 1 }, check(0)],
  [
    "all stale ones are checked at once, for one piece of work",
    { connections: [checking, stale], waiting: 1 },
    check(1),
  ],
  [
    "a fresh one is used before a stale one is checked",
    { connections: [stale, idle], waiting: 1 },
    assign(1),
  ],
  [
    "a server fell silent after the last reply",
    { connections: [idle], waiting: 1, silentSince: NOW - 100 },
    check(0),
  ],
  [
    "the last reply came after a server fell silent",
    { connections: [idle], waiting: 1, silentSince: NOW - 101 },
    assign(0),
  ],

  // Open
  ["none is open", { waiting: 1 }, open],
  ["one is busy, and another one may be", { connections: [busy], waiting: 1 }, open],
  ["one connects for the work already", { waiting: 1, connecting: 1 }, wait],
  ["one is checked for the work already", { connections: [checking], waiting: 1 }, wait],
  ["more work waits than arrives", { waiting: 2, connecting: 1 }, open],
  ["as many as may be at once", { connections: [busy], waiting: 2, connecting: 1 }, wait],
  [
    "while connecting fails, one at a time",
    { waiting: 2, connecting: 1, isConnectFailing: true },
    wait,
  ],
  ["connecting failed, and is not tried now", { waiting: 2, isConnectFailing: true }, open],
  [
    "an overdue one leaves its place to another",
    { connections: [busy, overdue], waiting: 1 },
    open,
  ],
  [
    "one that timed out leaves its place to another",
    { connections: [timedOut, timedOut], waiting: 1 },
    open,
  ],
  [
    "twice as many as are used at once are open",
    { connections: [timedOut, timedOut, timedOut, timedOut], waiting: 1 },
    wait,
  ],
  [
    "the ones that connect count among these",
    { connections: [timedOut, timedOut, timedOut], waiting: 2, connecting: 1 },
    wait,
  ],

  // Open beside
  ["one is overdue, and no work waits", { connections: [overdue] }, beside],
  [
    "one is overdue beside an idle one: that is not enough, for it leads to the same server",
    { connections: [overdue, idle] },
    beside,
  ],
  ["one connects already", { connections: [overdue], connecting: 1 }, wait],
  [
    "one was opened beside after it was overdue",
    { connections: [overdue, idle], openedBesideAt: NOW - 100 },
    wait,
  ],
  [
    "one was opened beside two seconds before it was overdue",
    { connections: [overdue], openedBesideAt: NOW - 2_100 },
    beside,
  ],
  [
    "one was opened beside less than two seconds before it was overdue",
    { connections: [overdue], openedBesideAt: NOW - 2_099 },
    wait,
  ],
  [
    "work goes before: it uses the idle one",
    { connections: [overdue, idle], waiting: 1 },
    assign(1),
  ],
  [
    "work waits, and no more are used at once",
    { connections: [busy, busy, overdue], waiting: 1 },
    beside,
  ],
  ["no more may be open", { connections: [overdue, timedOut, timedOut, timedOut] }, wait],
  ["one that timed out is not overdue any more", { connections: [timedOut] }, wait],

  // Close
  ["the server has closed it", { connections: [connection("idle", { isOpen: false })] }, close(0)],
  [
    "the server has closed it while it was busy",
    { connections: [idle, connection("busy", { isOpen: false })], waiting: 1 },
    close(1),
  ],
  [
    "another server has taken over",
    { connections: [busy, connection("idle", { host: B })], host: B },
    close(0),
  ],
  [
    "later work succeeded, and its place is not needed",
    {
      connections: [timedOut],
      newestSuccessBeganAt: NOW,
    },
    wait,
  ],
  [
    "later work succeeded, and its place is needed",
    {
      connections: [timedOut, busy, timedOut, busy],
      newestSuccessBeganAt: NOW,
    },
    close(0),
  ],
  [
    "its place is needed, but commits may wait for a standby",
    {
      connections: [timedOut, busy, timedOut, busy],
      newestSuccessBeganAt: NOW - 100,
    },
    wait,
  ],
  [
    "later work succeeded, and the server would have ended the statement",
    {
      connections: [connection("timed out", { since: NOW - 30_001 })],
      newestSuccessBeganAt: NOW,
    },
    close(0),
  ],
  [
    "the server ends every statement, and would have ended this one",
    {
      connections: [timedOut],
      replyLimitMs: 99,
    },
    close(0),
  ],
  [
    "the server ends every statement, and may not have ended this one",
    {
      connections: [timedOut],
      replyLimitMs: 100,
    },
    wait,
  ],
  [
    "no later work succeeded: it is kept, however long that takes",
    {
      connections: [connection("timed out", { since: 0 })],
    },
    wait,
  ],

  // Retire
  ["it is ten minutes old", { connections: [busy, old] }, retire(1)],
  ["it is ten minutes old, even if work waits", { connections: [old], waiting: 1 }, retire(0)],
  ["it is ten minutes old, and busy", { connections: [{ ...old, state: "busy" }] }, wait],
  [
    "a reply came late, and another one took its place",
    { connections: [idle, busy, idle] },
    retire(0),
  ],
  [
    "another one is to take its place, and does not connect",
    { connections: [busy, idle], connecting: 1 },
    wait,
  ],
])("%s", (_what, facts, step) => {
  expect(nextPoolStep({ ...EMPTY, ...facts })).toEqual(step);
});

test.each<[what: string, facts: Partial<PoolFacts>, isWanted: boolean]>([
  ["work waits", { waiting: 1 }, true],
  ["one is overdue", { connections: [idle, overdue] }, true],
  ["work timed out, and no other waits", { connections: [timedOut] }, false],
  ["nothing waits", { connections: [idle, busy] }, false],
])("connecting is tried again only while it is of use: %s", (_what, facts, isWanted) => {
  expect(isConnectionWanted({ ...EMPTY, ...facts })).toBe(isWanted);
});
