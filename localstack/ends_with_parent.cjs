// Loaded before the emulator. LocalStack starts the emulator in a session of its own, so nothing
// ends it when LocalStack is killed.
"use strict";
const parent = process.ppid;

setInterval(() => {
  if (process.ppid !== parent) {
    process.exit(0);
  }
}, 500).unref();
