// Loaded before the emulator, which listens on every interface, has no setting for that, and
// accepts any credentials.
"use strict";
const net = require("node:net");

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function listenOnLoopback(...args) {
  const [first, ...rest] = args;
  if (typeof first === "object" && first !== null && "port" in first) {
    return listen.call(this, { ...first, host: "127.0.0.1" }, ...rest);
  }
  if (typeof first === "number") {
    const callbacks = rest.filter((argument) => typeof argument === "function");
    return listen.call(this, { port: first, host: "127.0.0.1" }, ...callbacks);
  }
  return listen.apply(this, args);
};
