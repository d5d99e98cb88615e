// Loaded before the emulator: LocalStack starts it in a session of its own, and when LocalStack is killed nobody ends it.
"use strict";
const parent = process.ppid;

setInterval(() => {
  if (process.ppid !== parent) {
    process.exit(0);
  }
}, 500).unref();
