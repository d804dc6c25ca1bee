import { setDefaultTimeout } from "bun:test";

// Five seconds are little for a process on a busy machine: a test that hangs is ended, one that is slow is not.
setDefaultTimeout(60_000);
