"use strict";
// Texts and elements; below them, the picture of shards over time and charts.
// A value gets into the page as text, as the value of an attribute that has no code, or behind the
// # of an address.

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
// A line of it breaks between its words alone: a browser would break "--stream" behind a hyphen.
const command = (text) => el("code", {}, cut(text, 2000).split(" ").map((word) =>
  [el("span", { class: "word" }, word), " "]));
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

// The picture of shards over time, and charts.
//
// A lane: shardId, beganMs, endedMs (null: open), first and last (its part of the hash keys),
// parents, note, tone, href; events: by series, [ms, how many]; readMs, ackedMs: how far its
// consumer is (null: not known). Lanes are in the order of the middles of their hash keys, so a
// parent is between its children. Above MAX_LANES, neighbours share a row.
const MAX_LANES = 200, SHARED_ROWS = 64;
const TONES = ["", "unsure", "lags", "bad"]; // in the order of severity
const SERIES = { put: "put", read: "delivered", again: "delivered again", failed: "failures",
  letter: "dead letters", done: "" };
const UNITS = [[864e5, "d"], [36e5, "h"], [6e4, "min"], [1e3, "s"], [1, "ms"]];
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5,
  6e5, 9e5, 18e5, 36e5, 72e5, 108e5, 216e5, 432e5, 864e5, 1728e5, 432e6, 864e6, 1728e6, 432e7];
const FULL = "M0 3H20V13H0z", STROKE = "M9 2H11V14H9z", AREA = "M0 14V10H6V7H12V3H20V14z";
const LEGEND = [["acked", FULL, "acked"], ["unacked", FULL, "read, not all acked"],
  ["unread", FULL, "not read yet"], ["partly", FULL, "read in some of the row's shards"],
  ["stop", STROKE, "checkpoint"], ["reader", STROKE, "read position"],
  ["lane lags", "M1 3H19V13H1z", "lagging"], ["lane bad", "M1 3H19V13H1z", "stalled or losing"],
  ["lane unsure", "M1 3H19V13H1z", "not known"], ["put", AREA, "put, not checkpointed yet"],
  ["done", AREA, "checkpointed"], ["checkpoint", "M0 12H6V9H12V5H20", "checkpoint of all put"],
  ["read", FULL, "deliveries: the stronger, the more"],
  ["again", "M0 8H20V12H0z", "delivered again"], ["failed", "M5 4h10l-5 8z", "failure"],
  ["letter", "M10 2l6 6-6 6-6-6z", "dead letter"],
  ["joint", "M5 2V14M5 2H16M5 14H16", "split or merge"], ["band", "M4 0H16V16H4z", "fault"],
  ["after", "M2 0H18V16H2z", "recovering"]];

const px = (pixels) => Math.round(pixels * 10) / 10;
const within = (low, one, high) => Math.max(low, Math.min(one, high));
const box = (x, end, y, height) => `M${px(x)} ${px(y)}H${px(end)}v${px(height)}H${px(x)}z`;
const shape = (kind, d) => (d ? svg("path", { class: kind, d }) : null);
const sum = (numbers) => numbers.reduce((all, one) => all + one, 0);
const legend = (entries) => el("ul", { class: "legend", "aria-label": "Legend" },
  entries.map(([kind, d, label]) => el("li", {}, svg("svg", { viewBox: "0 0 20 16", width: 20,
    height: 16, "aria-hidden": "true" }, shape(kind, d)), label)));

// The highest value of a scale: a burst may leave it, or nothing else could be read.
function ceiling(values) {
  const sorted = values.filter((one) => one > 0).sort((a, b) => a - b);
  const most = sorted.at(-1) ?? 0, usual = sorted[Math.floor(sorted.length * 0.9)] ?? 0;
  return most > usual * 4 ? usual * 2 : most;
}

function ticks(spanMs, most) {
  const step = STEPS.find((one) => spanMs / one <= most) ?? spanMs;
  const [unit, sign] = UNITS.find(([one]) => step % one === 0) ?? UNITS.at(-1);
  return Array.from({ length: Math.floor(spanMs / step + 1e-9) + 1 }, (_, at) =>
    [at * step, `${(at * step) / unit} ${sign}`]);
}

function rowsOf(lanes) {
  const sorted = [...lanes].sort((a, b) => a.first + a.last - b.first - b.last ||
    a.beganMs - b.beganMs || (a.shardId < b.shardId ? -1 : 1));
  if (sorted.length <= MAX_LANES) return sorted.map((one) => [one]);
  const at = (row) => Math.floor((sorted.length * row) / SHARED_ROWS);
  return Array.from({ length: SHARED_ROWS }, (_, row) => sorted.slice(at(row), at(row + 1)));
}

// Where everything is. The picture is as wide as the page, so that a phone shows all of it.
function layoutOf(lanes, from, to) {
  const width = within(280, find("top").clientWidth - 18, 1120), isNarrow = width < 640;
  const rows = rowsOf(lanes), isShared = rows.length < lanes.length, top = 36;
  const pitch = within(isShared ? 14 : 8, 560 / Math.max(rows.length, 1), 128);
  const gap = Math.round(within(1, pitch / 8, 8)), height = Math.round(pitch) - gap;
  const left = !isNarrow ? 160 : isShared ? 88 : 62, plot = width - left - 14;
  const columns = Math.floor(plot / 3);
  const span = Math.max(to - from, 1e-6), share = (ms) => within(0, (ms - from) / span, 1);
  return { width, isNarrow, rows, isShared, top, gap, height, left, plot, columns, span,
    isHigh: height >= 18, // a lower lane has no room for areas
    bottom: top + rows.length * (height + gap), right: left + plot,
    x: (ms) => left + share(ms) * plot, xOf: (column) => left + (column * plot) / columns,
    columnOf: (ms) => Math.min(Math.floor(share(ms) * columns), columns - 1),
    topOf: (row) => top + row * (height + gap) };
}

function timeline(lanes, from, to, { bands = [], isNow = false } = {}) {
  const at = layoutOf(lanes, from, to), { rows, width, bottom, isShared } = at;
  const used = new Set(); // what the legend explains
  const counted = rows.map((row) => Object.fromEntries(Object.keys(SERIES).map((series) => {
    const found = new Array(at.columns).fill(0);
    for (const lane of row)
      for (const [ms, many] of lane.events[series] ?? []) found[at.columnOf(ms)] += many;
    return [series, found];
  })));
  const dense = ceiling(counted.flatMap((one) => one.read));
  const drawn = rows.map((row, index) => drawRow(at, row, index, counted[index], dense, used));
  const joints = drawJoints(at, used), faults = drawBands(at, bands, used);
  const joined = plural(lanes.filter((one) => one.parents.length).length, "shard");
  const said = `${plural(lanes.length, "shard")} over ${duration(at.span)}; ${joined} from a ` +
    `split or a merge; ${plural(bands.length, "fault")}`;
  return el("figure", {}, legend(LEGEND.filter(([kind]) => used.has(kind))),
    el("div", { class: "picture" },
      svg("svg", { viewBox: `0 0 ${width} ${bottom + 26}`, width, height: bottom + 26, role: "img",
        "aria-label": said }, drawn.map(([bar]) => bar), drawAxis(at, isNow), faults,
      drawn.map(([, shapes]) => shapes), joints,
      rows.map((row, index) => drawName(at, row, index)))),
    isShared ? el("figcaption", {}, plural(lanes.length, "shard"), ". Shards with neighbouring ",
      "hash keys share a row, whose label is its part of all hash keys.") : null);
}

// From the bottom: a strip of the deliveries; above it, as an area, the records that were put, and
// as a line the checkpoint; failures and dead letters at the top. Where the consumer's position is
// known, behind all that: acked, read, unread.
function drawRow(at, row, index, counts, dense, used) {
  const { height, isHigh, columns, xOf } = at, y = at.topOf(index), parts = [];
  const isOpen = row.some((one) => one.endedMs === null);
  const endMs = Math.max(...row.map((one) => one.endedMs ?? -Infinity));
  const beganMs = Math.min(...row.map((one) => one.beganMs)), began = at.x(beganMs);
  const end = isOpen ? at.right : at.x(endMs);
  const tone = TONES[Math.max(...row.map((one) => TONES.indexOf(one.tone ?? "")))];
  const bar = svg("rect", { class: `lane ${tone}`, x: px(began), y, rx: 2, height,
    width: px(Math.max(end - began, 1)) });
  used.add(`lane ${tone}`);
  const draw = (kind, d) => {
    if (d) parts.push(shape(kind, d)), used.add(kind.split(" ")[0]);
  };
  const boxes = (kind, first, high, has) => {
    let d = "", begin = -1;
    for (let column = 0; column <= columns; column++) {
      const is = column < columns && has(column);
      if (is && begin < 0) begin = column;
      if (!is && begin >= 0) [d, begin] = [d + box(xOf(begin), xOf(column), first, high), -1];
    }
    draw(kind, d);
  };

  const reach = reachOf(row);
  if (reach) {
    const read = within(began, at.x(reach.read), end), ahead = within(read, at.x(reach.ahead), end);
    const acked = reach.acked === null ? began : within(began, at.x(reach.acked), read);
    for (const [kind, first, last] of [["acked", began, acked], ["unacked", acked, read],
      ["partly", read, ahead], ["unread", ahead, end]])
      if (last - first > 0.2) draw(kind, box(first, last, y, height));
    if (reach.acked !== null) draw("stop", box(acked - 2, acked, y, height));
    draw("reader", box(read - 2, read, y, height));
  }

  const strip = isHigh ? within(4, height * 0.22, 12) : height, low = Math.max(strip * 0.4, 2);
  const most = Math.max(sum(counts.put), sum(counts.done));
  const area = isHigh ? height - strip - 3 : height - 2;
  const seen = Math.max(...Object.values(counts).map((one) => one.findLastIndex(Boolean)), 0);
  const first = at.columnOf(beganMs);
  const last = isOpen ? columns : Math.max(seen, at.columnOf(endMs)) + 1;
  const line = (values) => {
    let d = "", total = sum(values.slice(0, first)), was = null;
    for (let column = first; column < last; column++) {
      total += values[column];
      const next = px(y + 2 + area - (area * Math.max(total, 0)) / most);
      const x = px(xOf(column));
      if (next !== was) d += was === null ? `M${x} ${next}` : `H${x}V${next}`;
      was = next;
    }
    return `${d}H${px(xOf(last))}`;
  };
  const close = `V${px(y + 2 + area)}H${px(xOf(first))}z`;
  if (isHigh && sum(counts.put)) draw("put", line(counts.put) + close);
  if (isHigh && sum(counts.done)) draw("done", line(counts.done) + close);
  const depth = (many) => (many ? within(1, Math.ceil((4 * many) / dense), 4) : 0);
  for (let deep = 1; deep <= 4; deep++)
    boxes(`read d${deep}`, y + height - strip, strip, (at) => depth(counts.read[at]) === deep);
  boxes("again", y + height - low, low, (column) => counts.again[column] > 0);
  if (sum(counts.done)) draw("checkpoint", line(counts.done));
  const marks = (series, high, sign) => {
    let d = "", before = -9;
    counts[series].forEach((many, column) => {
      if (!many || column - before < 2) return; // those that would touch are one
      before = column;
      d += `M${px(xOf(column))} ${y + (isHigh ? 1 : 0)}${isHigh ? sign : `v${px(high)}`}`;
    });
    draw(series, d);
  };
  marks("failed", height / 2, "h2.5l-2.5 4.5-2.5-4.5z");
  marks("letter", height, "l4 4-4 4-4-4z");

  const totals = Object.entries(SERIES).filter(([series, label]) => label && sum(counts[series]))
    .map(([series, label]) => `${count(sum(counts[series]))} ${label}`);
  const [lane] = row, isAlone = row.length === 1, text = [isAlone ? lane.shardId
    : `${plural(row.length, "shard")}, ${lane.shardId} to ${row.at(-1).shardId}`, ...totals];
  if (isAlone && reach) text.splice(1, 0, lane.note);
  const told = svg("title", {}, cut(text.join(": "), 300));
  // A picture has many lanes. A keyboard reaches the shards in the table, and skips them here.
  return [bar, isAlone && lane.href ? svg("a", { href: lane.href, tabindex: -1 }, told, parts)
    : svg("g", {}, told, parts)];
}

// Where lanes share a row: the hindmost one, without those that were read to their ends.
function reachOf(row) {
  const known = row.filter((one) => one.readMs !== null && one.readMs !== undefined);
  const left = known.filter((one) => one.endedMs === null || one.readMs < one.endedMs);
  const found = left.length ? left : known, acked = found.map((one) => one.ackedMs);
  return found.length ? { read: Math.min(...found.map((one) => one.readMs)),
    ahead: Math.max(...found.map((one) => one.readMs)),
    acked: acked.includes(null) ? null : Math.min(...acked) } : null;
}

function drawName(at, row, index) {
  const { height, left, isNarrow, isShared } = at, [lane] = row, y = at.topOf(index);
  if (index % Math.max(Math.ceil(12 / (height + at.gap)), 1)) return null; // no room for each
  const keys = `${(lane.first * 100).toFixed(1)}–${(row.at(-1).last * 100).toFixed(1)} %`;
  const whole = isNarrow ? lane.shardId.replace(/^shardId-0*(?=\d)/, "") : lane.shardId;
  const room = isNarrow ? 9 : 24, alone = whole.length > room ? `…${whole.slice(-room)}` : whole;
  const shared = isNarrow ? keys : `${keys} · ${plural(row.length, "shard")}`;
  const hasNote = height >= 32 && lane.note && !isShared, middle = y + height / 2 + 4;
  const note = isNarrow ? { class: "note", x: left + 6, y: y + 16 }
    : { class: "end", x: left - 8, y: middle + 8 };
  return [svg("text", { class: "name", x: left - 8, y: hasNote && !isNarrow ? middle - 7 : middle },
    isShared ? shared : alone), hasNote ? svg("text", note, cut(lane.note, 40)) : null];
}

// From the end of each parent to the beginning of each child.
function drawJoints(at, used) {
  const places = new Map(at.rows.flatMap((row, index) =>
    row.map((lane) => [lane.shardId, [index, lane]])));
  const lines = new Set(), dots = new Set();
  const middle = (row) => px(at.topOf(row) + at.height / 2);
  for (const [row, child] of places.values())
    for (const [from, parent] of child.parents.map((one) => places.get(one)).filter(Boolean)) {
      const start = px(at.x(parent.endedMs ?? child.beganMs)), end = px(at.x(child.beganMs));
      if (from === row) lines.add(`M${end} ${px(at.topOf(row) + at.height)}v-4`);
      else lines.add(`M${start} ${middle(from)}V${middle(row)}H${end}`);
      if (from !== row) dots.add(`M${start} ${middle(from)}h0`);
    }
  if (lines.size) used.add("joint");
  return [shape("joint", [...lines].join("")), shape("joint dot", [...dots].join(""))];
}

// bands: name, beganMs, endedMs, settledMs (null: not known). They are numbered from 1.
function drawBands(at, bands, used) {
  let edge = -9;
  const high = at.bottom - at.top + 8;
  return bands.map((band, index) => {
    const first = at.x(band.beganMs), end = Math.max(at.x(band.endedMs), first + 1.5);
    const settled = Math.max(at.x(band.settledMs ?? 0), end), label = String(index + 1);
    used.add("band").add(settled > end ? "after" : "band");
    const left = first - 9, wide = Math.max(label.length * 6.6 + 8, 18), hasRoom = left > edge;
    if (hasRoom) edge = left + wide; // a number that would touch the one before it is left out
    return svg("g", {}, svg("title", {}, `${label}: ${cut(band.name)}, at `,
      `${duration(band.beganMs)} for ${duration(band.endedMs - band.beganMs)}`),
    shape("after", settled > end ? box(end, settled, at.top - 8, high) : ""),
    shape("band", box(first, end, at.top - 8, high)), hasRoom ? [
      svg("rect", { class: "badge", x: px(left), y: 6, width: wide, height: 18, rx: 9 }),
      svg("text", { class: "badge", x: px(left + wide / 2), y: 19 }, label)] : null);
  });
}

function drawAxis(at, isNow) {
  return ticks(at.span, Math.max(Math.floor(at.plot / 90), 2)).map(([ms, text], index) => {
    const share = ms / at.span, x = px(at.left + at.plot * (isNow ? 1 - share : share));
    const isEnd = x > at.right - 16; // there is no room for the half of a name
    return [svg("line", { class: "grid", x1: x, x2: x, y1: at.top - 8, y2: at.bottom + 4 }),
      svg("text", { class: isEnd ? "end" : "tick", x: isEnd ? at.right + 12 : x,
        y: at.bottom + 18 }, isNow && !index ? "now" : isNow ? `-${text}` : text)];
  });
}

// A chart. lines: [class, name, [[ms, value], ...]]. said: writes a value with its unit.
function chart(title, from, to, lines, said, isNow = true) {
  const left = 58, right = 352, top = 12, bottom = 126;
  const all = lines.flatMap(([, , points]) => points.map(([, one]) => one));
  const most = Math.max(...all, 0), high = ceiling(all) || 1;
  const x = (ms) => px(left + ((right - left) * (ms - from)) / Math.max(to - from, 1));
  const y = (one) => px(bottom - ((bottom - top) * Math.min(one, high)) / high);
  const over = lines.flatMap(([, , points]) => points.filter(([, one]) => one > high))
    .map(([ms]) => `M${x(ms) - 3} ${top}h6l-3-6z`).join("");
  const path = (points) => points.map(([ms, one], at) => {
    // A point alone is seen, too.
    const isNear = at && ms - points[at - 1][0] <= (to - from) / 10;
    return `${isNear ? "L" : "M"}${x(ms)} ${y(one)}${isNear ? "" : "h.5"}`;
  }).join("");
  const newest = lines.filter(([, , points]) => points.length)
    .map(([, label, points]) => `${label} ${said(points.at(-1)[1])}`.trim()).join(", ");
  const note = over ? " (▲: above the scale)" : "";
  const text = !all.length ? "no figures yet"
    : `${isNow ? `${newest}; ` : ""}at most ${said(most)}${note}`;
  // Half of a millisecond, or of a record, reads as a whole one.
  const named = (one) => all.length && (one === high || said(one) !== said(high));
  const grid = [0, high / 2, high].map((one) => [
    svg("line", { class: "grid", x1: left, x2: right, y1: y(one), y2: y(one) }),
    named(one) ? svg("text", { class: "end", x: left - 6, y: y(one) + 4 }, said(one)) : null]);
  return el("figure", { class: "chart" }, el("figcaption", {}, el("b", {}, title), el("br"), text),
    svg("svg", { viewBox: "0 0 360 150", role: "img", "aria-label": `${title}: ${text}` }, grid,
      lines.map(([kind, , points]) => shape(`line ${kind}`, path(points))), shape("again", over),
      svg("text", { x: left, y: 144 }, isNow ? `${duration(to - from)} ago` : "first put"),
      svg("text", { class: "end", x: right, y: 144 }, isNow ? "now" : duration(to))),
    lines.length > 1
      ? legend(lines.map(([kind, label]) => [`line ${kind}`, "M0 8H20", label])) : null);
}

// Parts of a whole as one bar: [class, label, how many].
function shares(title, said, parts) {
  const all = sum(parts.map(([, , many]) => many));
  let end = 8;
  const bars = parts.map(([kind, , many]) =>
    shape(kind, box(end, (end += (many / all) * 344), 14, 34)));
  const labels = parts.map(([, label, many]) => `${label} ${Math.round((many / all) * 100)} %`);
  return el("figure", { class: "chart" }, el("figcaption", {}, el("b", {}, title), el("br"), said),
    svg("svg", { viewBox: "0 0 360 60", role: "img", "aria-label": labels.join(", ") }, bars),
    legend(parts.map(([kind], at) => [kind, FULL, labels[at]])));
}
