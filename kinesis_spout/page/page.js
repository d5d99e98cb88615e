"use strict";
// Draws the JSON of an application, of all applications, or of a drill's verdict. A value gets into
// the page as text, as the value of an attribute that holds text, or behind the # of an address.

// A browser hides these characters, or reorders the text around them.
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0]/gu;
const REFRESH_MS = 2000, PATIENCE_MS = 15000, ROWS = 50;
const MAX_LANES = 200, SHARED_ROWS = 64; // so many rows remain when there are more lanes
const HIGH = 18; // px: a lower lane has no room for areas
const HEALTHS = {
  // tone of a lane, colour, sign of the verdict
  ok: ["", "kept", "M19 33l9 9 17-19"],
  unknown: ["unsure", "slow", "M25 26a7 7 0 1 1 9 7q-2 1-2 5M32 46v.1"],
  paused: ["lags", "slow", "M25 21V43M39 21V43"],
  "not running": ["lags", "slow", "M23 23H41V41H23Z"],
  lagging: ["lags", "slow", "M32 18V33l9 7"],
  stalled: ["bad", "broken", "M32 17V37M32 45v.1"],
  losing: ["bad", "broken", "M21 21l22 22M43 21L21 43"],
};
const TONES = ["", "unsure", "lags", "bad"];
const SPANS = { "15m": 900e3, "2h": 7200e3, "24h": 86400e3, all: Infinity };
const find = (id) => document.getElementById(id);
let data = JSON.parse(find("data").textContent);
const isLive = data === null;

// Text ---------------------------------------------------------------------------------------------
const visible = (text) => String(text).replace(UNSEEN, (one) =>
  `\\u${one.codePointAt(0).toString(16).padStart(4, "0")}`);
const count = (number) => Number(number).toLocaleString("en-US");
const plural = (number, one, more = `${one}s`) => `${count(number)} ${number === 1 ? one : more}`;
const cut = (text, most = 100) => (text.length <= most ? text
  : `${text.slice(0, most)}… (${count(text.length - most)} more characters)`);
const short = (number) => (Math.round(number * 10) / 10).toLocaleString("en-US");

function duration(ms) {
  const s = ms / 1000;
  if (s < 0.9995) return `${Math.round(ms)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${short(s / 3600)} h` : `${short(s / 86400)} d`;
}

const utc = (ms) => `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC`;
const away = (ms, now) => (ms === null || ms === undefined ? "-"
  : ms <= now ? `${duration(now - ms)} ago` : `in ${duration(ms - now)}`);
const lagText = (one) => (one.lagMs === null ? "-" : !one.lagMs ? "tip"
  : `${one.lagMeasured === false ? "<" : ""}${duration(one.lagMs)}`);
const shardName = (id) => id.replace(/^shardId-0*(?=\d)/, "");
// Sequence numbers of a shard begin alike: their last digits tell them apart.
const digits = (text) => text.replace(/\d{17,}/g, (one) => `…${one.slice(-12)}`);

// Elements -----------------------------------------------------------------------------------------
function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes))
    if (value !== null && value !== undefined) node.setAttribute(name, visible(value));
  for (const child of children.flat(3))
    if (child !== null && child !== undefined && child !== "")
      node.append(child instanceof Node ? child : visible(child)); // a string becomes text
  return node;
}
const el = (tag, attributes = {}, ...children) =>
  build(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const value = (text, most = 100) => el("bdi", { class: "value" }, cut(String(text), most));
const id = (text) => el("bdi", { class: "value id", title: text }, cut(digits(String(text)), 40));
const chip = (health) => el("span", { class: `chip ${HEALTHS[health][1]}` }, health);
const soft = (...text) => el("p", { class: "soft" }, ...text);
const route = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

function link(changes, ...content) {
  const { application, stream, span, q } = route();
  const wanted = Object.entries({ application, stream, span, q, ...changes });
  const given = wanted.filter(([, one]) => one !== undefined && one !== "");
  return el("a", { href: `#${new URLSearchParams(given)}` }, ...content);
}
const shardLink = (shard) => link({ shard }, id(shard));

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

function table(caption, columns, rows) {
  const cell = (tag, extra) => (content, at) => {
    const [name, kind] = columns[at];
    return el(tag, { class: kind, "data-name": name, ...extra }, content);
  };
  const row = ([first, ...others]) => el("tr", {}, cell("th", { scope: "row" })(first, 0),
    others.map((one, at) => cell("td")(one, at + 1)));
  return el("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: 0 },
    el("table", {}, el("caption", {}, caption),
      el("thead", {}, el("tr", {}, columns.map(([name, kind]) =>
        el("th", { scope: "col", class: kind }, name)))),
      el("tbody", {}, rows.map(row))));
}

const facts = (pairs) => el("dl", { class: "facts" }, pairs.map(([name, said]) =>
  [el("dt", {}, name), el("dd", {}, said)]));

function banner(colour, sign, over, title, ...said) {
  const shape = svg("svg", { viewBox: "0 0 64 64", "aria-hidden": "true" },
    svg("circle", { cx: 32, cy: 32, r: 30 }), svg("path", { d: sign }));
  return el("header", { class: `verdict ${colour}` }, shape,
    el("div", {}, el("p", { class: "over" }, over), el("h1", {}, title),
      said.map((one) => el("p", {}, one))));
}

// The picture of shards over time ------------------------------------------------------------------
// A lane: name, began, ended (null: open), first and last (its part of the hash keys), parents,
// note, tone, href; events: by series, [time, how many]; reach: read, acked (null: not known).
const SERIES = { put: "put", read: "delivered", again: "delivered again", failed: "failures",
  letter: "dead letters", done: "" };
const UNITS = [[864e5, "d"], [36e5, "h"], [6e4, "min"], [1e3, "s"], [1, "ms"]];
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5,
  9e5, 18e5, 36e5, 72e5, 108e5, 216e5, 432e5, 864e5, 1728e5, 432e6, 864e6, 1728e6, 432e7, 864e7];
const n = (pixels) => Math.round(pixels * 10) / 10;
const box = (x, end, y, height) => `M${n(x)} ${n(y)}H${n(end)}v${n(height)}H${n(x)}z`;
const shape = (name, d, ...title) => (d ? svg("path", { class: name, d }, ...title) : null);

function rowsOf(lanes) {
  const sorted = [...lanes].sort((a, b) => a.first + a.last - b.first - b.last ||
    a.began - b.began || (a.name < b.name ? -1 : 1));
  if (sorted.length <= MAX_LANES) return sorted.map((one) => [one]);
  const at = (row) => Math.floor((sorted.length * row) / SHARED_ROWS);
  return Array.from({ length: SHARED_ROWS }, (_, row) => sorted.slice(at(row), at(row + 1)));
}

function ticks(spanMs, most) {
  const step = STEPS.find((one) => spanMs / one <= most) ?? spanMs;
  const [unit, sign] = UNITS.find(([one]) => step % one === 0) ?? UNITS.at(-1);
  return Array.from({ length: Math.floor(spanMs / step + 1e-9) + 1 }, (_, at) =>
    [at * step, `${(at * step) / unit} ${sign}`]);
}

// The highest value of a scale: a burst may leave it, or nothing else could be read.
function ceiling(values) {
  const sorted = values.filter((one) => one > 0).sort((a, b) => a - b);
  const most = sorted.at(-1) ?? 0, usual = sorted[Math.floor(sorted.length * 0.9)] ?? 0;
  return most > usual * 4 ? usual * 2 : most;
}

// Where lanes share a row: the hindmost lane, without those that were read to their end.
function reachOf(row) {
  const known = row.filter((one) => one.reach);
  const left = known.filter((one) => one.ended === null || one.reach.read < one.ended);
  const found = (left.length ? left : known).map((one) => one.reach);
  if (!found.length) return null;
  const acked = found.map((one) => one.acked), read = found.map((one) => one.read);
  return { read: Math.min(...read), ahead: Math.max(...read),
    acked: acked.includes(null) ? null : Math.min(...acked) };
}

function timeline(lanes, from, to, { bands = [], isNow = false } = {}) {
  const width = Math.max(Math.min(find("top").clientWidth - 18, 1120), 280);
  const isNarrow = width < 640, left = isNarrow ? 62 : 160, plot = width - left - 14;
  const columns = Math.floor(plot / 3), span = Math.max(to - from, 1e-6), top0 = 36;
  const rows = rowsOf(lanes), isShared = rows.length < lanes.length;
  const lowest = isShared ? 14 : 8;
  const pitch = Math.min(Math.max(560 / Math.max(rows.length, 1), lowest), 128);
  const gap = Math.round(Math.min(Math.max(pitch / 8, 1), 8)), height = Math.round(pitch) - gap;
  const bottom = top0 + rows.length * (height + gap), isHigh = height >= HIGH;
  const share = (time) => Math.min(Math.max((time - from) / span, 0), 1);
  const x = (time) => left + share(time) * plot;
  const xOf = (column) => left + (column * plot) / columns;
  const column = (time) => Math.min(Math.floor(share(time) * columns), columns - 1);
  const topOf = (row) => top0 + row * (height + gap);
  const used = new Set(), bars = []; // what the legend explains; the lanes behind all else

  const counted = rows.map((row) => Object.fromEntries(Object.keys(SERIES).map((series) => {
    const found = new Array(columns).fill(0);
    for (const lane of row)
      for (const [time, many] of lane.events?.[series] ?? []) found[column(time)] += many;
    if (found.some(Boolean)) used.add(series);
    return [series, found];
  })));
  const dense = ceiling(counted.flatMap((one) => one.read));

  const runs = (name, y, high, has) => {
    let d = "";
    for (let at = 0, first = -1; at <= columns; at++) {
      const is = at < columns && has(at);
      if (is && first < 0) first = at;
      if (!is && first >= 0) [d, first] = [d + box(xOf(first), xOf(at), y, high), -1];
    }
    return shape(name, d);
  };
  const steps = (values, most, y, high, end) => {
    let d = "", sum = 0, was = null;
    for (let at = 0; at < end; at++) {
      sum += values[at];
      const next = n(y + high - (high * Math.max(sum, 0)) / most);
      if (next !== was) d += was === null ? `M${n(xOf(at))} ${next}` : `H${n(xOf(at))}V${next}`;
      was = next;
    }
    return `${d}H${n(xOf(end))}`;
  };

  const drawRow = (row, at) => {
    const y = topOf(at), counts = counted[at], began = x(Math.min(...row.map((one) => one.began)));
    const isOpen = row.some((one) => one.ended === null);
    const ended = isOpen ? left + plot : x(Math.max(...row.map((one) => one.ended)));
    const tone = TONES[Math.max(...row.map((one) => TONES.indexOf(one.tone ?? "")))];
    const parts = [];
    bars.push(svg("rect", { class: `lane ${tone}`, x: n(began), y, rx: 2,
      width: n(Math.max(ended - began, 1)), height }));
    if (tone) used.add(tone);
    const reach = reachOf(row);
    if (reach) {
      const read = Math.max(began, Math.min(x(reach.read), ended));
      const acked = reach.acked === null ? began : Math.max(began, Math.min(x(reach.acked), read));
      const ahead = Math.max(read, Math.min(x(reach.ahead), ended));
      for (const [name, first, end] of [["acked", began, acked], ["unacked", acked, read],
        ["partly", read, ahead], ["unread", ahead, ended]])
        if (end - first > 0.2) parts.push(shape(name, box(first, end, y, height))), used.add(name);
      if (reach.acked !== null) parts.push(shape("stop", box(acked - 2, acked, y, height)));
      parts.push(shape("reader", box(read - 2, read, y, height)));
      used.add("reader").add("stop");
    }
    const strip = isHigh ? Math.min(Math.max(height * 0.22, 4), 12) : height;
    const stripY = y + height - strip;
    const total = (series) => counts[series].reduce((sum, one) => sum + one, 0);
    const most = Math.max(total("put"), total("done"));
    const seen = Object.values(counts).reduce((last, one) =>
      Math.max(last, one.findLastIndex(Boolean)), 0);
    const end = isOpen ? columns : Math.max(seen, column(Math.max(...row.map((one) => one.ended)))) + 1;
    if (most > 0 && isHigh) {
      const [areaY, area] = [y + 2, height - strip - 3];
      const close = `V${n(areaY + area)}H${n(xOf(0))}z`;
      parts.push(shape("put", steps(counts.put, most, areaY, area, end) + close));
      if (total("done")) {
        const line = steps(counts.done, most, areaY, area, end);
        parts.push(shape("done", line + close), shape("checkpoint", line));
      }
    }
    const depth = (many) => (many ? Math.min(Math.ceil((4 * many) / dense), 4) : 0);
    for (let one = 1; one <= 4; one++)
      parts.push(runs(`read d${one}`, stripY, strip, (col) => depth(counts.read[col]) === one));
    const low = Math.max(strip * 0.4, 2);
    parts.push(runs("again", y + height - low, low, (col) => counts.again[col] > 0));
    if (most > 0 && !isHigh && total("done"))
      parts.push(shape("checkpoint", steps(counts.done, most, y + 1, height - 2, end)));
    let before = -9;
    const marks = (series, mark) => counts[series].reduce((d, many, col) => {
      if (!many || col - before < 2) return d;
      before = col;
      return d + mark(n(xOf(col)));
    }, "");
    parts.push(shape("failed", marks("failed", (at) => (isHigh ? `M${at - 2.5} ${y + 1}h5l-2.5 4.5z`
      : `M${at} ${y}v${n(height / 2)}`))));
    before = -9;
    parts.push(shape("letter", marks("letter", (at) => (isHigh ? `M${at} ${y + 1}l4 4-4 4-4-4z`
      : `M${at} ${y}v${height}`))));
    const what = Object.entries(SERIES).filter(([one, name]) => name && total(one))
      .map(([one, name]) => `${count(total(one))} ${name}`);
    if (row.length === 1 && reach) what.unshift(row[0].note);
    const named = row.length === 1 ? row[0].name
      : `${plural(row.length, "shard")}, ${row[0].name} to ${row.at(-1).name}`;
    const title = svg("title", {}, [cut(named), ...what].join(": "));
    return row.length === 1 && row[0].href
      ? svg("a", { href: row[0].href, tabindex: -1 }, title, parts) : svg("g", {}, title, parts);
  };

  const drawNames = ([lane, ...others], at) => {
    if (at % Math.max(Math.ceil(12 / (height + gap)), 1)) return null;
    const last = others.at(-1) ?? lane, hasNote = height >= 32 && lane.note && !isShared;
    const keys = `${(lane.first * 100).toFixed(1)}–${(last.last * 100).toFixed(1)} %`;
    const room = isNarrow ? 9 : 24, name = isNarrow ? shardName(lane.name) : lane.name;
    const text = !isShared ? (name.length > room ? `…${name.slice(-room)}` : name)
      : isNarrow ? keys : `${keys} · ${plural(others.length + 1, "shard")}`;
    const middle = topOf(at) + height / 2 + 4, isBeside = hasNote && !isNarrow;
    return [svg("text", { class: "name", x: left - 8, y: isBeside ? middle - 7 : middle }, text),
      isBeside ? svg("text", { class: "end", x: left - 8, y: middle + 8 }, cut(lane.note, 40)) : null,
      hasNote && isNarrow ? svg("text", { class: "note", x: left + 6, y: topOf(at) + 16 },
        cut(lane.note, 40)) : null];
  };

  const places = new Map(rows.flatMap((row, at) => row.map((lane) => [lane.name, [at, lane]])));
  const lines = new Set();
  let dots = "";
  for (const [to, child] of places.values())
    for (const name of child.parents) {
      const [at, parent] = places.get(name) ?? [];
      if (at === undefined) continue;
      const start = x(parent.ended ?? child.began), middle = (row) => n(topOf(row) + height / 2);
      if (at === to) lines.add(`M${n(x(child.began))} ${n(topOf(to) + height)}v-4`);
      else lines.add(`M${n(start)} ${middle(at)}V${middle(to)}H${n(x(child.began))}`);
      if (at !== to) dots += `M${n(start)} ${middle(at)}h0`;
    }
  if (lines.size) used.add("joint");

  let edge = -9;
  const drawBand = (band, at) => {
    used.add("band");
    const first = x(band.began), end = Math.max(x(band.ended), first + 1.5);
    const settled = band.settled === null ? end : Math.max(x(band.settled), end);
    if (settled > end) used.add("after");
    const label = String(at + 1), wide = Math.max(label.length * 6.6 + 8, 18);
    const badge = first - 9 > edge; // numbers that would touch are left out
    if (badge) edge = first - 9 + wide;
    return svg("g", {}, svg("title", {}, `${label}: ${cut(band.name)}, at ${duration(band.began)} ` +
      `for ${duration(band.ended - band.began)}`),
    shape("after", box(end, settled, top0 - 8, bottom - top0 + 8)),
    shape("band", box(first, end, top0 - 8, bottom - top0 + 8)),
    badge ? [svg("rect", { class: "badge", x: n(first - 9), y: 6, width: wide, height: 18, rx: 9 }),
      svg("text", { class: "badge", x: n(first - 9 + wide / 2), y: 19 }, label)] : null);
  };

  const axis = ticks(span, Math.max(Math.floor(plot / 90), 2)).map(([time, name], at) => {
    const place = n(isNow ? left + plot - (time / span) * plot : left + (time / span) * plot);
    const said = isNow ? (at ? `-${name}` : "now") : name;
    return [svg("line", { class: "grid", x1: place, x2: place, y1: top0 - 8, y2: bottom + 4 }),
      svg("text", { class: isNow && !at ? "end" : "tick", x: isNow && !at ? place + 12 : place,
        y: bottom + 18 }, said)];
  });
  const drawn = rows.map(drawRow), drawnBands = bands.map(drawBand);
  const joined = plural(lanes.filter((one) => one.parents.length).length, "shard");
  const picture = svg("svg", { viewBox: `0 0 ${width} ${bottom + 26}`, width, role: "img",
    height: bottom + 26, "aria-label": `${plural(lanes.length, "shard")} over ${duration(span)}; ` +
    `${joined} from a split or a merge; ${plural(bands.length, "fault")}` },
  bars, axis, drawnBands, drawn, shape("joint", [...lines].join("")), shape("joint dot", dots),
  rows.map(drawNames));
  return el("figure", {}, legend(used, isHigh), el("div", { class: "picture" }, picture),
    isShared ? el("figcaption", {}, `${plural(lanes.length, "shard")}. Neighbours share a row, ` +
      "which is named by its part of all hash keys.") : null);
}

const FULL = "M0 3H20V13H0z", STROKE = "M9 2H11V14H9z", AREA = "M0 14V10H6V7H12V3H20V14z";
const LEGEND = [["acked", FULL, "acked"], ["unacked", FULL, "read, not all acked"],
  ["unread", FULL, "not read yet"], ["partly", FULL, "read in some of the row's shards"],
  ["stop", STROKE, "checkpoint"], ["reader", STROKE, "read position"],
  ["lags", "M1 3H19V13H1z", "lagging"], ["bad", "M1 3H19V13H1z", "stalled or losing"],
  ["unsure", "M1 3H19V13H1z", "not known"], ["put", AREA, "put, not checkpointed yet"],
  ["done", AREA, "checkpointed"], ["read", FULL, "deliveries: the stronger, the more"],
  ["again", "M0 8H20V12H0z", "delivered again"], ["failed", "M5 4h10l-5 8z", "failure"],
  ["letter", "M10 2l6 6-6 6-6-6z", "dead letter"],
  ["joint", "M5 2V14M5 2H16M5 14H16", "split or merge"], ["band", "M4 0H16V16H4z", "fault"],
  ["after", "M2 0H18V16H2z", "recovering"]];

const key = (entries) => el("ul", { class: "legend", "aria-label": "Legend" },
  entries.map(([name, d, label]) => el("li", {}, svg("svg", { viewBox: "0 0 20 16", width: 20,
    height: 16, "aria-hidden": "true" }, shape(name, d)), label)));
const legend = (used, isHigh) => key(LEGEND.filter(([name]) => used.has(name) &&
  (isHigh || name !== "put")).map(([name, d, label]) => [TONES.includes(name) ? `lane ${name}`
    : name, d, label]));

// Charts over time ---------------------------------------------------------------------------------
// lines: [class, name, [[time, value], ...]]; said: a value with its unit.
function chart(title, from, to, lines, said, isNow = true) {
  const [width, height, left, right, top, bottom] = [360, 150, 58, 352, 12, 126];
  const all = lines.flatMap(([, , points]) => points.map(([, one]) => one));
  const most = Math.max(...all, 0), high = ceiling(all) || 1;
  const x = (time) => left + ((right - left) * (time - from)) / Math.max(to - from, 1);
  const y = (one) => bottom - ((bottom - top) * Math.min(one, high)) / high;
  let over = "";
  const path = (points) => {
    let d = "", before = -Infinity;
    for (const [time, one] of points) {
      const isNear = time - before <= (to - from) / 10;
      d += `${isNear ? "L" : "M"}${n(x(time))} ${n(y(one))}${isNear ? "" : "h.5"}`;
      before = time;
      if (one > high) over += `M${n(x(time)) - 3} ${top}h6l-3-6z`;
    }
    return d;
  };
  const drawn = lines.map(([name, , points]) => shape(`line ${name}`, path(points)));
  const last = lines.map(([, name, points]) => (points.length
    ? `${lines.length > 1 ? `${name} ` : ""}${said(points.at(-1)[1])}` : null)).filter(Boolean);
  const text = !all.length ? "no figures yet"
    : `${last.join(", ")}; at most ${said(most)}${over ? " (▲: above the scale)" : ""}`;
  const grid = [0, high / 2, high].map((one) => [
    svg("line", { class: "grid", x1: left, x2: right, y1: n(y(one)), y2: n(y(one)) }),
    all.length ? svg("text", { class: "end", x: left - 6, y: n(y(one)) + 4 }, said(one)) : null]);
  return el("figure", { class: "chart" }, el("figcaption", {}, el("b", {}, title), el("br"), text),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: ${text}` },
      grid, drawn, shape("again", over),
      svg("text", { x: left, y: height - 6 }, isNow ? `${duration(to - from)} ago` : "first put"),
      svg("text", { class: "end", x: right, y: height - 6 }, isNow ? "now" : duration(to))),
    lines.length > 1 ? key(lines.map(([name, label]) => [`line ${name}`, "M0 8H20", label])) : null);
}

const perSecond = (one) => `${one >= 10 ? count(Math.round(one)) : short(one)}/s`;
const RATES = [["acks", "acked", "acked"], ["fails", "failed", "failed"],
  ["letters", "dead-lettered", "deadLettered"]];
const STAGES = { planning: ["planning, or waiting", "put"], reading: ["reading", "read d4"],
  function: ["your function and its sinks", "acked"], writing: ["writing outcomes", "again"] };

// The share of the observations that have found a batch in each stage.
function stagesChart(samples) {
  const stages = samples.map((one) => one.stage).filter(Boolean);
  let at = 8;
  const bars = [], shares = Object.entries(STAGES).map(([stage, [label, name]]) => {
    const share = stages.filter((one) => one === stage).length / stages.length;
    bars.push(shape(name, box(at, at + share * 344, 14, 34)));
    at += share * 344;
    return [name, FULL, `${label} ${Math.round(share * 100)} %`];
  });
  return el("figure", { class: "chart" },
    el("figcaption", {}, el("b", {}, "How the time of batches splits"), el("br"),
      `seen in ${plural(stages.length, "observation")}`),
    svg("svg", { viewBox: "0 0 360 60", role: "img",
      "aria-label": shares.map(([, , label]) => label).join(", ") }, bars), key(shares));
}

// An application -----------------------------------------------------------------------------------
function header(title, extra) {
  const { status, sentence, trouble } = data;
  const over = ["Application ", value(status.application), " on stream ", value(status.stream),
    ` (${status.streamStatus}, keeps ${duration(status.retentionMs)})`];
  const time = el("p", { class: "over", id: "observed" }, `Observed at ${utc(status.timeMs)}, ` +
    `over a window of ${duration(status.windowMs)}.`);
  const all = route().application ? link({ application: "", stream: "" }, "All applications") : null;
  const [, colour, sign] = HEALTHS[status.verdict];
  return [time, all, trouble ? el("p", { class: "banner", role: "status" },
    `No new observation for ${duration(trouble.sinceMs)}: `, value(trouble.says, 600),
    ". The page shows the last one.") : null,
  title ? [el("p", { class: "over" }, over), title]
    : banner(colour, sign, over, status.verdict, sentence), extra];
}

function whyAndWhat(groups, more) {
  if (!groups.length) return null;
  return [el("h2", {}, "Why, and what to do"),
    el("ul", { class: "causes" }, groups.map((group) => {
      const named = group.shards.slice(0, 5).map((one) => [shardLink(one), " "]);
      const others = group.shards.length - 5;
      return el("li", { class: HEALTHS[group.health][0] },
        el("h3", {}, named, others > 0 ? `and ${count(others)} more ` : "", chip(group.health)),
        group.causes.map((one) =>
          el("p", {}, el("b", {}, `${one.introduction}: `), el("bdi", {}, cut(one.text, 1000)))),
        el("ul", {}, group.actions.map(actionItem)));
    })),
    more > 0 ? soft(`${plural(more, "more shard needs", "more shards need")} attention: the page of ` +
      "each explains it.") : null];
}

function actionItem(action, at) {
  const word = action.kind === "nothing" ? "OK" : action.alternative ? "Or" : at ? "Then" : "Fix";
  return el("li", {}, el("bdi", {}, cut(`${word}: ${action.text}`, 600)),
    action.command ? [": ", el("code", {}, cut(action.command, 2000)), " ",
      copyButton(action.command)] : null);
}

function shardsWith(word, health) {
  return link({ q: health, page: "" }, `${count(word)} `, chip(health));
}

function lanesOf(status) {
  const known = new Map(status.shards.map((one) => [one.shardId, one]));
  const keys = 2 ** 128, readable = new Set(["readable", "draining"]);
  return data.lanes.map((lane) => {
    const shard = known.get(lane.shardId), [first, last] = lane.hashKeys ?? ["0", "0"];
    const lag = readable.has(shard.state) && shard.lagMs !== null
      ? shard.lagMs ? `lag ${lagText(shard)}` : "at its tip" : shard.state;
    return { name: lane.shardId, began: lane.beganMs, ended: lane.endedMs, parents: lane.parents,
      first: Number(first) / keys, last: Number(last) / keys, tone: HEALTHS[shard.health][0],
      note: shard.unresolved ? `${lag}, ${count(shard.unresolved)} unacked` : lag,
      href: link({ shard: lane.shardId }).getAttribute("href"),
      reach: lane.readMs === null ? null : { read: lane.readMs, acked: lane.ackedMs },
      events: { failed: lane.failures }, isOver: ["finished", "past"].includes(shard.state),
      matters: lane.mattersMs };
  });
}

function shardPicture(status) {
  const now = status.timeMs, lanes = lanesOf(status), { span = "" } = route();
  // What matters: unread records, failures and reshards, and a margin before the oldest.
  const oldest = lanes.reduce((least, one) => Math.min(least, one.matters ?? now), now);
  const wanted = SPANS[span] ?? (now - oldest) * 1.08;
  const first = lanes.reduce((least, one) => Math.min(least, one.began), now);
  const from = now - Math.max(Math.min(wanted, now - first, status.retentionMs), 60e3);
  const shown = lanes.filter((one) => !one.isOver || one.ended === null || one.ended >= from);
  const spans = ["", ...Object.keys(SPANS)].map((one) => {
    const to = link({ span: one }, one || "what matters");
    if (one === span) to.setAttribute("aria-current", "true");
    return el("li", {}, to);
  });
  const guessed = data.lanes.filter((one) => one.guessed).length;
  return [el("h2", {}, "Shards over time"),
    el("nav", { "aria-label": "Time shown" }, el("ul", { class: "pages" }, spans)),
    timeline(shown, from, now, { isNow: true }),
    lanes.length > shown.length ? soft(`${plural(lanes.length - shown.length, "shard")} ended before ` +
      "the time that is shown.") : null,
    guessed ? soft(`No number tells when ${plural(guessed, "shard")} began: the picture starts such ` +
      "a shard halfway between the beginning of its parents and now.") : null];
}

function throughput(status) {
  const { samples } = data, now = status.timeMs;
  const from = Math.min(now - 60e3, ...samples.map((one) => one.atMs));
  const of = (name) => samples.filter((one) => one[name] !== null && one[name] !== undefined)
    .map((one) => [one.atMs, one[name]]);
  const rates = RATES.map(([name, label, key]) => [name, label, of(key)]);
  return [el("h2", {}, "Throughput"), el("div", { class: "charts" },
    chart("Stream time read in a second", from, now, [["reading", "", of("pace")]],
      (one) => `${one.toFixed(2)} s`),
    chart("Largest lag", from, now, [["reading", "", of("lagMs")]], duration),
    of("rowsPerS").length ? chart("Rows read", from, now, [["reading", "", of("rowsPerS")]],
      perSecond) : null,
    rates.some(([, , points]) => points.length)
      ? chart("Records acked, failed, dead-lettered", from, now, rates, perSecond) : null,
    of("stage").length ? stagesChart(samples) : null),
  soft("1 s of stream time in a second keeps pace with the clock. Rows and outcomes are those of a " +
    "Spark job's batches that an observation has seen, so there may be more. A standalone spout " +
    "stores no counts: its metrics have them.")];
}

function shardTable(status) {
  const { q = "", page = "1" } = route(), text = q.trim().toLowerCase();
  const found = status.shards.filter((one) => !text || one.shardId.toLowerCase().includes(text) ||
    one.health.includes(text) || one.state.includes(text));
  const pages = Math.max(Math.ceil(found.length / ROWS), 1);
  const here = Math.min(Math.max(Number(page) || 1, 1), pages), first = (here - 1) * ROWS;
  const total = plural(status.shards.length, "shard");
  const caption = (found.length < status.shards.length ? `${count(found.length)} of ` : "") + total +
    ", the worst first" + (pages > 1 ? `, page ${count(here)} of ${count(pages)}` : "");
  const columns = [["Shard", "short"], ["Health", "short"], ["State", "short"], ["Read to", "short"],
    ["Checkpoint", "short"], ...["Lag", "Expires in", "Speed", "Unacked", "Oldest", "Tries"]
      .map((one) => [one, "number"])];
  const rows = found.slice(first, first + ROWS).map((one) => [shardLink(one.shardId),
    chip(one.health), one.state, id(one.readPosition ?? "-"), id(one.checkpoint ?? "none"),
    lagText(one), one.expiresInMs === null ? "-" : one.expiresInMs ? duration(one.expiresInMs) : "now",
    one.speed === null || !one.lagMs ? "-" : `${short(one.speed)}x`,
    one.unresolved ? count(one.unresolved) : "-",
    one.oldestMs === null ? "-" : duration(one.oldestMs), one.attempts || "-"]);
  const near = new Set([1, here - 2, here - 1, here, here + 1, here + 2, pages]);
  const links = [...near].filter((one) => one >= 1 && one <= pages).sort((a, b) => a - b)
    .map((one) => {
      const to = link({ page: one }, `page ${count(one)}`);
      if (one === here) to.setAttribute("aria-current", "page");
      return el("li", {}, to);
    });
  return [table(caption, columns, rows), pages > 1
    ? el("nav", { "aria-label": "Pages of the table" }, el("ul", { class: "pages" }, links)) : null];
}

function recordTables(records, now, withShard) {
  const shards = (names) => (names.length === 1 ? shardLink(names[0]) : plural(names.length, "shard"));
  const reasons = records.reasons.map((one) => [value(one.reason, 300), count(one.records),
    one.attempts, away(one.firstMs, now), away(one.dueMs, now), shards(one.shards)]);
  const rows = records.list.map((one) => [...(withShard ? [shardLink(one.shard)] : []),
    one.count > 1 ? [id(one.first), ` and ${count(one.count - 1)} more up to `, id(one.last)]
      : id(one.first), value(one.reason, 300), one.attempts, away(one.firstMs, now),
    away(one.dueMs, now)]);
  const numbers = [["Attempts", "number"], ["First failure", "number"], ["Next try", "number"]];
  const of = (shown, all, name) => (shown < all ? `${count(shown)} of ` : "") + plural(all, ...name);
  return [table(of(reasons.length, records.reasonsInAll, ["reason"]), [["Reason"],
    ["Records", "number"], ...numbers, ["Shards", "short"]], reasons),
  table(`${of(rows.length, records.entries, ["record or range", "records or ranges"])}, the oldest failure first`,
    [...(withShard ? [["Shard", "short"]] : []), ["Record", "short"], ["Reason"], ...numbers], rows)];
}

function letterTable(letters) {
  if (letters === null)
    return el("p", {}, "ZooKeeper does not contain dead letters. Where they are files, start ",
      el("code", {}, "kinesis-spout ui --dead-letters PATH"), " to see their reasons.");
  const rows = letters.reasons.map((one) => [value(one.reason || "(no reason given)", 300),
    count(one.records), one.attempts || "-", one.lastFailure.slice(0, 19) || "-",
    one.shards.length === 1 ? id(one.shards[0]) : plural(one.shards.length, "shard"),
    id(one.example)]);
  return [el("p", {}, "Files in ", value(letters.place, 200)), rows.length
    ? table(plural(letters.records, "record"), [["Reason"], ["Records", "number"],
      ["Attempts, most", "number"], ["Last failure", "short"], ["Shards", "short"],
      ["One of them", "short"]], rows) : el("p", {}, "There is no dead letter."),
  letters.notes.map((one) => soft(cut(one, 600)))];
}

function applicationView() {
  const { status, records, letters } = data;
  document.title = `${status.verdict}: ${visible(cut(status.application, 60))} on ` +
    visible(cut(status.stream, 60));
  const healths = Object.entries(status.health).map(([health, many]) => [shardsWith(many, health), " "]);
  const states = Object.entries(status.states).map(([state, many]) => `${count(many)} ${state}`);
  const expires = status.shards.map((one) => one.expiresInMs).filter((one) => one !== null);
  const least = Math.min(...expires);
  find("finder").hidden = false;
  return [[header(), whyAndWhat(data.explain, data.needy - data.explain.reduce((sum, one) =>
    sum + one.shards.length, 0)),
  el("h2", {}, "State"), facts([...data.facts.map(([name, said]) => [name, el("bdi", {}, cut(said, 600))]),
    ["shards", states.join(", ") || "none"], ["health", healths.length ? healths : "none"],
    ...(expires.length ? [["expires in", least ? duration(least) : "now: records expire, or have expired"]]
      : [])]),
  shardPicture(status), throughput(status), el("h2", {}, "Shards")],
  [shardTable(status), el("h2", {}, "Unresolved records"), records.list.length
    ? recordTables(records, status.timeMs, true) : el("p", {}, "There is none to list."),
  el("h2", {}, "Dead letters"), letterTable(letters), footer()]];
}

function footer() {
  return el("footer", {}, el("p", {}, isLive
    ? ["The page only reads, and renews itself every few seconds. For programs: ",
      el("a", { href: "/status.json" }, "status.json")] : "The page is a file: it does not change."));
}

function shardView(shardId) {
  const { status } = data, one = status.shards.find((each) => each.shardId === shardId);
  const lane = data.lanes.find((each) => each.shardId === shardId);
  const back = link({}, "All shards");
  if (!one) return [[header(el("h1", {}, "No such shard"), back)], []];
  document.title = `${one.health}: ${visible(cut(shardId))}`;
  const own = data.shard?.shardId === shardId ? data.shard : null;
  const list = data.records.list.filter((each) => each.shard === shardId);
  const reasons = data.records.reasons.filter((each) => list.some((of) => of.reason === each.reason));
  const records = own?.records ??
    { list, entries: list.length, reasons, reasonsInAll: reasons.length };
  const groups = own?.explain ?? data.explain.filter((each) => each.shards.includes(shardId));
  const names = (shards) => shards.slice(0, 50).map((each) => [shardLink(each), " "]);
  const children = data.lanes.filter((each) => each.parents.includes(shardId));
  const waiting = groups.flatMap((each) => each.holdsUp);
  const pairs = [["state", one.state], ["read to", value(one.readPosition ?? "-")],
    ["checkpoint", value(one.checkpoint ?? "none")], ["lag", lagText(one)],
    ["expires in", one.expiresInMs === null ? null : one.expiresInMs ? duration(one.expiresInMs) : "now"],
    ["speed", one.speed === null ? null : `${short(one.speed)}x`],
    ["waits for", one.waitsFor.length ? names(one.waitsFor) : null],
    ["parents", lane?.parents.length ? names(lane.parents) : null],
    ["waited for by", own && waiting.length ? names(waiting) : null],
    ["children", children.length ? names(children.map((each) => each.shardId)) : null],
    ["hash keys", lane?.hashKeys ? value(lane.hashKeys.join(" to ")) : null]];
  return [[header(el("h1", {}, value(shardId, 200), " ", chip(one.health)), back),
    groups.length || own ? whyAndWhat(groups, 0) : soft("Its explanation is not in this page yet."),
    el("h2", {}, "State"), facts(pairs.filter(([, said]) => said !== null)),
    el("h2", {}, "Unresolved records"), records.list.length
      ? recordTables(records, status.timeMs, false) : el("p", {}, own?.unsettled
        ? `None; ${plural(own.unsettled, "record")} of it in the batch under way, not settled yet.`
        : "None: every record of it that was read is acked.")], []];
}

function applicationsView() {
  document.title = `${plural(data.applications.length, "application")}`;
  const rows = data.applications.map((one) => [
    link({ application: one.application, stream: one.stream }, value(one.application)),
    value(one.stream), chip(one.verdict), el("bdi", {}, cut(one.why, 300)), lagText(one),
    one.unresolved ? count(one.unresolved) : "-",
    one.owners.length ? value(one.owners.map((own) => `pid ${own.process} on ${own.host}`)
      .slice(0, 2).join(", ") + (one.owners.length > 2 ? " ..." : "")) : "none"]);
  return [[el("p", { class: "over", id: "observed" }, `Observed at ${utc(data.timeMs)}.`),
    data.trouble ? el("p", { class: "banner", role: "status" },
      `No new observation for ${duration(data.trouble.sinceMs)}: `, value(data.trouble.says, 600)) : null,
    el("h1", {}, "Applications"),
    table(`${plural(rows.length, "application")}, the worst first`, [["Application", "short"],
      ["Stream", "short"], ["Verdict", "short"], ["Why"], ["Lag", "number"], ["Unacked", "number"],
      ["Owner", "short"]], rows)], [footer()]];
}

// The verdict on a drill ---------------------------------------------------------------------------
function drillView() {
  const { verdict, lanes, spanMs, columns, unexplained, letters, about } = data;
  const { faults } = verdict, s = (one) => (one === null ? "not measured" : duration(one * 1000));
  const isDone = verdict.undone === null, word = !isDone ? "Not done" : verdict.ok ? "Kept" : "Broken";
  document.title = `${word}: ${visible(verdict.drill)}`;
  const bad = [[verdict.lost, "lost"], [verdict.out_of_order, "out of order"],
    [verdict.unexplained, "unexplained"]];
  const title = !isDone ? "The drill could not do its work"
    : `${word}: ${bad.map(([many, what]) => `${count(many)} ${what}`).join(", ")}`;
  const took = faults.map((one) => one.recovered_s).filter((one) => one !== null);
  const said = !isDone ? `${cut(verdict.undone, 600)}. No promise was tested.`
    : `${plural(verdict.records, "record")} went through ${plural(faults.length, "fault")}.` +
      (took.length ? ` The slowest recovery took ${s(Math.max(...took))}.` : "");
  const figures = [["records put", verdict.records], ["acked", verdict.acked],
    ["dead letters", verdict.letters], ...(isDone ? bad : []).map(([many, what]) =>
      [what === "unexplained" ? "unexplained repeats" : what, many, many > 0]),
    ["deliveries", verdict.deliveries], ["failures", verdict.failed],
    ["delivered again", verdict.duplicates],
    ["from put to delivery, median", s(verdict.delays?.median_s ?? null)],
    ["from put to delivery, 99 %", s(verdict.delays?.p99_s ?? null)],
    ...(isDone ? [["to drain at the end", s(verdict.drained_s)]] : [])];
  const width = spanMs / columns, time = (column) => (column + 0.5) * width;
  const rate = (name) => {
    const found = new Array(columns).fill(0);
    for (const lane of lanes)
      for (const [at, many] of lane.events[name] ?? []) found[at] += many;
    // A rate is read over twenty columns, or it would be that of single records.
    const group = Math.max(Math.floor(columns / 60), 1);
    return Array.from({ length: Math.floor(columns / group) }, (_, at) => [time(at * group),
      (found.slice(at * group, (at + 1) * group).reduce((sum, one) => sum + one, 0) * 1000) /
        (width * group)]);
  };
  const drawn = lanes.map((one) => ({ ...one, name: one.shardId, began: one.beganMs, ended: one.endedMs,
    note: `${count(one.totals.put)} put${one.totals.again ? `, ${count(one.totals.again)} again` : ""}`,
    events: Object.fromEntries(Object.entries(one.events).map(([name, all]) =>
      [name, all.map(([at, many]) => [time(at), many])])) }));
  const bands = faults.map((one) => ({ name: one.fault, began: one.at_s * 1000,
    ended: (one.at_s + one.lasted_s) * 1000, settled: one.recovered_s === null ? null
      : (one.at_s + one.lasted_s + one.recovered_s) * 1000 }));
  const rates = [["puts", "put", rate("put")], ...[["acks", "acked", "ack"], ["fails", "failed", "failed"],
    ["letters", "dead-lettered", "letter"]].map(([name, label, key]) => [name, label, rate(key)])];
  const kept = "M19 33l9 9 17-19", broken = "M21 21l22 22M43 21L21 43";
  const list = (heading, all) => (all.length ? [el("h2", {}, heading), el("ul", { class: "causes" },
    all.map((one) => el("li", { class: heading === "Notes" ? "" : "bad" }, cut(one, 1000))))] : null);
  const most = (rows, all, name) => (rows < all ? `${count(rows)} of ` : "") + plural(all, name);
  const slowest = faults.map((one, at) => [at + 1, one])
    .sort((a, b) => (b[1].recovered_s ?? 0) - (a[1].recovered_s ?? 0)).slice(0, 100)
    .sort((a, b) => a[0] - b[0]);
  const of = (one) => one.totals, shards = [...lanes].sort((a, b) => of(b).left - of(a).left ||
    of(b).letter - of(a).letter || of(b).again - of(a).again || of(b).put - of(a).put).slice(0, 100);
  return [[banner(verdict.ok ? "kept" : "broken", verdict.ok ? kept : broken,
    ["Recovery drill ", value(verdict.drill)], title, said),
  list("Broken promises", verdict.broken),
  el("dl", { class: "figures" }, figures.map(([name, figure, isBad]) =>
    el("div", { class: isBad ? "bad" : null }, el("dt", {}, name),
      el("dd", {}, typeof figure === "number" ? count(figure) : figure)))),
  el("h2", {}, "Shards over time"), timeline(drawn, 0, spanMs, { bands }),
  el("h2", {}, "Throughput"), el("div", { class: "charts" },
    chart("Records per second", 0, spanMs, rates, perSecond, false)),
  el("h2", {}, "Faults"), faults.length ? table(most(slowest.length, faults.length, "fault"),
    [["No.", "number"], ["Fault"], ["Began at", "number"], ["Lasted", "number"],
      ["Recovered after", "number"], ["Records repeated", "number"]], slowest.map(([number, one]) =>
      [el("span", { class: "tag" }, number), value(one.fault), s(one.at_s), s(one.lasted_s),
        one.recovered_s === null ? "nothing was due" : s(one.recovered_s), count(one.repeated)]))
    : el("p", {}, "Nothing was done to the job."),
  unexplained.length ? [el("h2", {}, "Repeats without a reason"),
    table(most(unexplained.length, verdict.unexplained, "repeat"), [["Key and number"], ["Shard"],
      ["Sequence number"], ["Repeated", "number"], ["Process"], ["Before that", "number"],
      ["Process"]], unexplained.map((one) => [value(`${one.key} ${one.number}`), id(one.shardId),
      id(one.sequence), `${one.step} at ${duration(one.atMs)}`, id(one.run),
      `${one.earlierStep} at ${duration(one.earlierMs)}`, id(one.earlierRun)]))] : null,
  el("h2", {}, "Dead letters by reason"), letters.length ? table(plural(letters.length, "reason"),
    [["Reason"], ["Records", "number"], ["Attempts", "number"], ["First: key and number"]],
    letters.map((one) => [value(one.reason || "no reason given", 300), count(one.records),
      one.least === one.most ? one.most : `${one.least} to ${one.most}`, value(one.example)]))
    : el("p", {}, "No record was dead-lettered."),
  el("h2", {}, "Shards"), lanes.length ? table(most(shards.length, lanes.length, "shard"), [["Shard"],
    ["Parents"], ...["Created at", "Closed at", "Put", "Delivered", "Again", "Failures",
      "Dead letters", "Not checkpointed"].map((one) => [one, "number"])], shards.map((one) =>
    [id(one.shardId), one.parents.map((each) => [id(each), " "]),
      one.beganMs < 0 ? "before" : duration(one.beganMs),
      one.endedMs === null ? "open" : duration(one.endedMs),
      ...["put", "read", "again", "failed", "letter", "left"].map((name) => count(of(one)[name]))]))
    : el("p", {}, "No shard was seen."),
  list("Notes", verdict.notes), el("footer", {}, el("p", {}, "Times count from the first put."),
    about.map((one) => el("p", {}, one)))], []];
}

// Drawing and renewing -----------------------------------------------------------------------------
// How an element is found again after the page was drawn anew.
function selector(one) {
  const name = ["href", "aria-label"].find((each) => one?.hasAttribute?.(each));
  return name ? `[${name}="${CSS.escape(one.getAttribute(name))}"]` : null;
}

function draw() {
  if (data === null) return;
  const focused = selector(document.activeElement);
  const moved = [...document.querySelectorAll(".scroll")]
    .map((one) => [selector(one), one.scrollLeft]).filter(([, left]) => left);
  find("finder").hidden = true;
  const { shard, q = "" } = route();
  if (document.activeElement !== find("q")) find("q").value = q;
  const [top, rest] = { drill: drillView, applications: applicationsView, waiting: waitingView,
    application: shard ? () => shardView(shard) : applicationView }[data.kind]();
  find("top").replaceChildren(...top.flat(9).filter(Boolean));
  find("rest").replaceChildren(...rest.flat(9).filter(Boolean));
  for (const [where, left] of moved) {
    const one = document.querySelector(where);
    if (one) one.scrollLeft = left;
  }
  if (focused) document.querySelector(focused)?.focus({ preventScroll: true });
}

const waitingView = () => [[el("h1", {}, "Observing the application …"),
  data.trouble ? el("p", { class: "banner" }, value(data.trouble.says, 600)) : null], []];

let version = "", newest = 0;
async function renew(isWanted) {
  // A hidden page asks for nothing; text that is being selected stays.
  if (!isWanted && (document.hidden || !getSelection().isCollapsed)) return;
  const { application, stream, shard } = route(), mine = ++newest;
  const asked = Object.entries({ application, stream, shard }).filter(([, one]) => one !== undefined);
  try {
    const answer = await fetch(`/page.json?${new URLSearchParams(asked)}`, { cache: "no-store",
      headers: { "If-None-Match": isWanted ? "" : version }, signal: AbortSignal.timeout(PATIENCE_MS) });
    const found = answer.status === 304 ? null : await answer.json();
    if (mine !== newest) return;
    find("away").hidden = true;
    if (found) [data, version] = [found, answer.headers.get("ETag") ?? ""], draw();
  } catch {
    find("away").hidden = false;
  }
}

function change(changes) {
  const given = Object.entries({ ...route(), ...changes }).filter(([, one]) => one);
  history.replaceState(null, "", `#${new URLSearchParams(given)}`);
  draw();
}
find("q").addEventListener("input", (event) => change({ q: event.target.value.slice(0, 200), page: "" }));
find("finder").addEventListener("submit", (event) => event.preventDefault());
addEventListener("resize", draw);
addEventListener("hashchange", () => (isLive ? renew(true) : draw()));
if (isLive) {
  renew(true);
  setInterval(renew, REFRESH_MS);
} else draw();
