"use strict";
// Texts and elements. A value gets into the page as text, as the value of an attribute that has no
// code, or behind the # of an address.

// A browser hides these characters, or reorders the text around them.
const UNSEEN =
  /[\p{C}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0]/gu;
const HEALTHS = {
  // the tone of a lane, the colour and the sign of a verdict
  ok: ["", "kept", "M19 33l9 9 17-19"],
  unknown: ["unsure", "slow", "M25 26a7 7 0 1 1 9 7q-2 1-2 5M32 46v.1"],
  paused: ["lags", "slow", "M25 21V43M39 21V43"],
  "not running": ["lags", "slow", "M23 23H41V41H23Z"],
  lagging: ["lags", "slow", "M32 18V33l9 7"],
  stalled: ["bad", "broken", "M32 17V37M32 45v.1"],
  losing: ["bad", "broken", "M21 21l22 22M43 21L21 43"],
};

const visible = (text) => String(text).replace(UNSEEN, (one) =>
  `\\u${one.codePointAt(0).toString(16).padStart(4, "0")}`);
const count = (number) => Number(number).toLocaleString("en-US");
const rounded = (number) => count(Math.round(number * 10) / 10);
const plural = (number, one, more = `${one}s`) => `${count(number)} ${number === 1 ? one : more}`;
const cut = (text, most = 100) => (text.length <= most ? text
  : `${text.slice(0, most)}… (${count(text.length - most)} more characters)`);
// Sequence numbers of a shard begin alike: their last digits tell them apart.
const lastDigits = (text) => text.replace(/\d{17,}/g, (one) => `…${one.slice(-12)}`);
const utc = (ms) => `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC`;

function duration(ms) {
  const s = ms / 1000;
  if (s < 0.9995) return `${Math.round(ms)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${rounded(s / 3600)} h` : `${rounded(s / 86400)} d`;
}

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes))
    if (value !== null && value !== undefined) node.setAttribute(name, visible(value));
  for (const child of children.flat(9))
    if (child !== null && child !== undefined && child !== "")
      node.append(child instanceof Node ? child : visible(child)); // what is no element is text
  return node;
}
const el = (tag, attributes = {}, ...children) =>
  build(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const find = (id) => document.getElementById(id);
const value = (text, most = 100) => el("bdi", { class: "value" }, cut(String(text), most));
const name = (text) =>
  el("bdi", { class: "value id", title: text }, cut(lastDigits(String(text)), 40));
const chip = (health) => el("span", { class: `chip ${HEALTHS[health][1]}` }, health);
const soft = (...text) => el("p", { class: "soft" }, ...text);
const warning = (...text) => el("p", { class: "banner", role: "status" }, ...text);
const route = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

// A link to the same page with other wishes, which are in its address.
function link(changes, ...content) {
  const { application, stream, span, q } = route();
  const wanted = Object.entries({ application, stream, span, q, ...changes });
  const given = wanted.filter(([, one]) => one !== undefined && one !== "");
  return el("a", { href: `#${new URLSearchParams(given)}` }, ...content);
}
const shardLink = (shard) => link({ shard }, name(shard));

// choices: [changes, text, whether it is the one that is shown].
const choose = (label, choices) => el("nav", { "aria-label": label }, el("ul", { class: "pages" },
  choices.map(([changes, text, isShown]) => {
    const one = link(changes, text);
    if (isShown) one.setAttribute("aria-current", "true");
    return el("li", {}, one);
  })));

function copyButton(text) {
  const button = el("button", { type: "button", "aria-label": `Copy ${cut(text, 60)}` }, "copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
    } catch {
      // Without a secure origin there is no clipboard: the command is selected instead.
      getSelection().selectAllChildren(button.previousElementSibling);
      button.textContent = "selected";
    }
  });
  return button;
}

const numbers = (...names) => names.map((one) => [one, "number"]);
const shorts = (...names) => names.map((one) => [one, "short"]);

// columns: [name, class]. A keyboard can scroll only what it can reach.
function table(caption, columns, rows) {
  const cells = (row) => row.map((content, at) => el(at ? "td" : "th",
    { scope: at ? null : "row", class: columns[at][1], "data-name": columns[at][0] }, content));
  const heads = columns.map(([head, kind]) => el("th", { scope: "col", class: kind }, head));
  return el("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: 0 },
    el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, heads)),
      el("tbody", {}, rows.map((row) => el("tr", {}, cells(row))))));
}

const some = (shown, all, ...names) =>
  (shown < all ? `${count(shown)} of ` : "") + plural(all, ...names);
const facts = (pairs) => el("dl", { class: "facts" }, pairs.map(([title, said]) =>
  [el("dt", {}, title), el("dd", {}, said)]));

// A sign, a word and a colour say the same.
function banner(colour, sign, over, title, said) {
  return el("header", { class: `verdict ${colour}` },
    svg("svg", { viewBox: "0 0 64 64", "aria-hidden": "true" },
      svg("circle", { cx: 32, cy: 32, r: 30 }), svg("path", { d: sign })),
    el("div", {}, el("p", { class: "over" }, over), el("h1", {}, title), el("p", {}, said)));
}
