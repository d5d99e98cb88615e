// The views of an application, of all applications and of a drill's verdict, and their renewal.
const REFRESH_MS = 2000, PATIENCE_MS = 15000, ROWS = 50, MAX_ROWS = 100;
const SPANS = { "15m": 900e3, "2h": 7200e3, "24h": 86400e3, all: Infinity };
const STAGES = [["put", "planning, or waiting", "planning"], ["read d4", "reading", "reading"],
  ["acked", "your function and its sinks", "function"], ["again", "writing outcomes", "writing"]];
const KEPT = ["kept", HEALTHS.ok[2]], BROKEN = ["broken", HEALTHS.losing[2]];
let data = JSON.parse(find("data").textContent);
const isLive = data === null;
let isUnfolded = false;

const away = (ms, now) => (ms === null || ms === undefined ? "-"
  : ms <= now ? `${duration(now - ms)} ago` : `in ${duration(ms - now)}`);
const lagOf = (one) => (one.lagMs === null ? "-" : !one.lagMs ? "0 s"
  : `${one.lagMeasured === false ? "<" : ""}${duration(one.lagMs)}`);
// No record is kept for longer than the retention.
const expiry = (ms) => (ms === null ? "-" : !ms ? "now" : ms > data.status.retentionMs
  ? `>${duration(data.status.retentionMs)}` : duration(ms));
const perSecond = (one) => `${one >= 10 ? count(Math.round(one)) : rounded(one)}/s`;
const or = (number, text = "-") => (number ? count(number) : text);
const trouble = () => (data.trouble ? warning("No new observation for ",
  `${duration(data.trouble.sinceMs)}: `, value(data.trouble.says, 600),
  ". The page shows the last observation.") : null);
const toAll = () => (route().application
  ? link({ application: "", stream: "", q: "", span: "" }, "All applications") : null);
const observed = (ms, over = "") => el("p", { class: "over", id: "observed" },
  `Observed at ${utc(ms)}${over}. `, toAll());
const footer = (...lines) => el("footer", {}, lines.map((one) => el("p", {}, one)));

// An application
function head(title) {
  const { status } = data, [, colour, sign] = HEALTHS[status.verdict];
  const over = ["Application ", value(status.application), " on stream ", value(status.stream),
    ` (${status.streamStatus}, retention ${duration(status.retentionMs)})`];
  return [observed(status.timeMs, `, over a window of ${duration(status.windowMs)}`), trouble(),
    title ? [el("p", { class: "over" }, link({}, "All shards"), " · ", over), title]
      : banner(colour, sign, over, status.verdict, data.sentence)];
}

function whyAndWhat(groups, more = 0) {
  if (!groups.length) return null;
  const list = (some) => el("ul", { class: "causes" }, some.map(groupItem));
  const rest = groups.slice(3), unfold = el("details", isUnfolded ? { open: "" } : {},
    el("summary", {}, plural(rest.length, "more cause")), list(rest));
  unfold.addEventListener("toggle", () => { isUnfolded = unfold.open; });
  return [el("h2", {}, "Why, and what to do"), list(groups.slice(0, 3)),
    rest.length ? unfold : null,
    more > 0 ? soft(plural(more, "more shard needs", "more shards need"), " attention. ",
      "Each shard's page explains the cause.") : null];
}

function groupItem(group) {
  const others = group.shards.length - 5;
  return el("li", { class: HEALTHS[group.health][0] },
    el("h3", {}, group.shards.slice(0, 5).map((one) => [shardLink(one), " "]),
      others > 0 ? `and ${count(others)} more ` : "", chip(group.health)),
    group.causes.map((one) =>
      el("p", {}, el("b", {}, `${one.introduction}: `), el("bdi", {}, cut(one.text, 1000)))),
    el("ul", {}, group.actions.map((one) =>
      el("li", {}, el("bdi", {}, cut(`${one.introduction}: ${one.text}`, 600)), one.command
        ? [": ", command(one.command), copyButton(one.command)] : null))));
}

function stateFacts({ status }) {
  const healths = Object.entries(status.health).map(([health, many]) =>
    [link({ q: health, page: "" }, `${count(many)} `, chip(health)), " "]);
  const states = Object.entries(status.states).map(([state, many]) => `${count(many)} ${state}`);
  const expires = status.shards.map((one) => one.expiresInMs).filter((one) => one !== null);
  const soonest = Math.min(...expires);
  return [el("h2", {}, "State"), facts([
    ...data.facts.map(([title, said]) => [title, el("bdi", {}, cut(said, 600))]),
    ["shards", states.join(", ") || "none"], ["health", healths.length ? healths : "none"],
    ...(expires.length ? [["expires in", soonest ? expiry(soonest)
      : "now: records are expiring or have expired"]] : [])])];
}

function shardPicture({ status }) {
  const now = status.timeMs, known = new Map(status.shards.map((one) => [one.shardId, one]));
  const lanes = data.lanes.map((lane) => {
    const one = known.get(lane.shardId), isRead = ["readable", "draining"].includes(one.state);
    const lag = !isRead || one.lagMs === null ? one.state : `lag ${lagOf(one)}`;
    return { ...lane, tone: HEALTHS[one.health][0],
      isOver: ["finished", "past"].includes(one.state),
      note: one.unresolved ? `${lag}, ${count(one.unresolved)} unresolved` : lag,
      href: link({ shard: lane.shardId }).getAttribute("href") };
  });
  // What matters: unread records, failures and reshards, and a margin before the oldest.
  const least = (times) => times.reduce((found, one) => Math.min(found, one ?? now), now);
  const matters = (now - least(lanes.map((one) => one.mattersMs))) * 1.08, { span = "" } = route();
  const all = now - least(lanes.map((one) => one.beganMs));
  const from = now - within(60e3, SPANS[span] ?? matters, Math.min(all, status.retentionMs));
  const shown = lanes.filter((one) => !one.isOver || one.endedMs === null || one.endedMs >= from);
  const guessed = lanes.filter((one) => one.guessed).length, hidden = lanes.length - shown.length;
  return [el("h2", {}, "Shards over time"), choose("Time shown", ["", ...Object.keys(SPANS)]
    .map((one) => [{ span: one }, one || "what matters", one === span])),
  timeline(shown, from, now, { isNow: true }),
  hidden ? soft(plural(hidden, "shard"), " ended before the time shown.") : null,
  guessed ? soft(`The start time of ${plural(guessed, "shard")} is not known. The picture `,
    "starts such a shard halfway between its parents' start and now.") : null];
}

function throughput({ status, samples }) {
  const now = status.timeMs, from = Math.min(now - 60e3, ...samples.map((one) => one.atMs));
  const of = (key) => samples.filter((one) => typeof one[key] === "number")
    .map((one) => [one.atMs, one[key]]);
  const draw = (title, lines, said, isNeeded = true) =>
    (isNeeded || lines.some(([, , points]) => points.length) ? chart(title, from, now, lines, said)
      : null);
  const stages = STAGES.map(([kind, label, stage]) =>
    [kind, label, samples.filter((one) => one.stage === stage).length]);
  const seen = sum(stages.map(([, , many]) => many));
  return [el("h2", {}, "Throughput"), el("div", { class: "charts" },
    draw("Stream data read per second", [["reads", "", of("pace")]],
      (one) => `${one.toFixed(2)} s`),
    draw("Largest lag", [["reads", "", of("lagMs")]], duration),
    draw("Rows read", [["reads", "", of("rowsPerS")]], perSecond, false),
    draw("Records acked, failed, dead-lettered", [["acks", "acked", of("acked")],
      ["fails", "failed", of("failed")], ["letters", "dead-lettered", of("deadLettered")]],
    perSecond, false),
    seen ? shares("Steps of a batch, by time", `seen in ${plural(seen, "observation")}`,
      stages) : null),
  soft("A job that reads 1 s of stream data per second keeps up. For a Spark job, the page ",
    "counts rows and outcomes only of the batches that it has observed. A standalone spout ",
    "stores no counts, but its metrics contain them.")];
}

function shardTable({ status }) {
  const { q = "", page = "1" } = route(), text = q.trim().toLowerCase();
  const found = status.shards.filter((one) =>
    [one.shardId.toLowerCase(), one.health, one.state].some((each) => each.includes(text)));
  const pages = Math.max(Math.ceil(found.length / ROWS), 1);
  const here = within(1, Number(page) || 1, pages);
  const rows = found.slice((here - 1) * ROWS, here * ROWS).map((one) => [shardLink(one.shardId),
    chip(one.health), one.state, name(one.readPosition ?? "-"), name(one.checkpoint ?? "none"),
    lagOf(one), expiry(one.expiresInMs), one.speed && one.lagMs ? `${rounded(one.speed)}x` : "-",
    or(one.unresolved), one.oldestMs === null ? "-" : duration(one.oldestMs), or(one.attempts)]);
  const caption = `${some(found.length, status.shards.length, "shard")}, the worst first` +
    (pages > 1 ? `, page ${count(here)} of ${count(pages)}` : "");
  const near = Array.from({ length: pages }, (_, at) => at + 1)
    .filter((one) => one === 1 || one === pages || Math.abs(one - here) <= 2);
  return [table(caption, [...shorts("Shard", "Health", "State", "Read to", "Checkpoint"),
    ...numbers("Lag", "Expires in", "Speed", "Unresolved", "Oldest", "Tries")], rows), pages > 1
    ? choose("Pages of the table", near.map((one) =>
      [{ page: one }, `page ${count(one)}`, one === here])) : null];
}

function recordTables(records, now, withShard) {
  const times = (one) => [one.attempts, away(one.firstMs, now), away(one.dueMs, now)];
  const reasons = records.reasons.map((one) => [value(one.reason, 300), count(one.records),
    ...times(one), one.shards.length === 1 ? shardLink(one.shards[0])
      : plural(one.shards.length, "shard")]);
  const rows = records.list.map((one) => [...(withShard ? [shardLink(one.shard)] : []),
    one.count > 1 ? [name(one.first), ` and ${count(one.count - 1)} more up to `, name(one.last)]
      : name(one.first), value(one.reason, 300), ...times(one)]);
  const tries = numbers("Attempts", "First failure", "Next try");
  return [table(some(reasons.length, records.reasonsInAll, "reason"),
    [["Reason"], ...numbers("Records"), ...tries, ...shorts("Shards")], reasons),
  table(`${some(rows.length, records.entries, "record or range", "records or ranges")}, the ` +
    "oldest failure first", [...shorts(...(withShard ? ["Shard"] : []), "Record"), ["Reason"],
    ...tries], rows)];
}

function letterTable(letters) {
  if (letters === null)
    return el("p", {}, "ZooKeeper does not contain dead letters. If they are files, start ",
      command("kinesis-spout ui --dead-letters PATH"), "to see the reasons.");
  const rows = letters.reasons.map((one) => [value(one.reason || "(no reason given)", 300),
    count(one.records), or(one.attempts), one.lastFailure.slice(0, 19) || "-",
    one.shards.length === 1 ? name(one.shards[0]) : plural(one.shards.length, "shard"),
    name(one.example)]);
  return [el("p", {}, "Files in ", value(letters.place, 200)), rows.length
    ? table(plural(letters.records, "record"), [["Reason"], ...numbers("Records", "Most attempts"),
      ...shorts("Last failure", "Shards", "Example")], rows)
    : el("p", {}, "There are no dead letters."), letters.notes.map((one) => soft(cut(one, 600)))];
}

function applicationView() {
  const { status, records, letters } = data;
  const told = sum(data.explain.map((one) => one.shards.length));
  document.title = visible(`${status.verdict}: ${cut(status.application, 60)} on ` +
    cut(status.stream, 60));
  find("finder").hidden = false;
  return [[head(), whyAndWhat(data.explain, data.needy - told), stateFacts(data),
    shardPicture(data), throughput(data), el("h2", {}, "Shards")],
  [shardTable(data), el("h2", {}, "Unresolved records"), records.list.length
    ? recordTables(records, status.timeMs, true) : el("p", {}, "None."),
  el("h2", {}, "Dead letters"), letterTable(letters), isLive
    ? footer(["The page is read-only, and refreshes itself every few seconds. For programs: ",
      el("a", { href: "/status.json" }, "status.json")]) : null]];
}

function shardView(shardId) {
  const { status, lanes, explain } = data;
  const one = status.shards.find((each) => each.shardId === shardId);
  if (!one) return [[head(el("h1", {}, "The shard does not exist"))], []];
  document.title = visible(`${one.health}: ${cut(shardId)}`);
  // A file has no more than the first causes and records; a server has those of the shard.
  const own = data.shard?.shardId === shardId ? data.shard : null;
  const list = data.records.list.filter((each) => each.shard === shardId);
  const all = data.records.reasons, named = new Set(list.map((each) => each.reason));
  const reasons = all.filter((each) => named.has(each.reason));
  const records = own?.records ??
    { list, entries: list.length, reasons, reasonsInAll: reasons.length };
  const groups = own?.explain ?? explain.filter((each) => each.shards.includes(shardId));
  const lane = lanes.find((each) => each.shardId === shardId);
  const links = (shards) => (shards.length
    ? shards.slice(0, 50).map((each) => [shardLink(each), " "]) : null);
  const children = lanes.filter((each) => each.parents.includes(shardId));
  const pairs = [["state", one.state], ["read to", value(one.readPosition ?? "-")],
    ["checkpoint", value(one.checkpoint ?? "none")], ["lag", lagOf(one)],
    ["expires in", one.expiresInMs === null ? null : expiry(one.expiresInMs)],
    ["speed", one.speed === null ? null : `${rounded(one.speed)}x`],
    ["waiting for", links(one.waitsFor)], ["parents", links(lane?.parents ?? [])],
    ["waiting shards", own ? links(groups.flatMap((each) => each.holdsUp)) : null],
    ["children", links(children.map((each) => each.shardId))],
    ["hash keys", lane?.hashKeys ? value(lane.hashKeys.join(" to ")) : null]];
  return [[head(el("h1", {}, value(shardId, 200), " ", chip(one.health))), groups.length
    ? whyAndWhat(groups) : soft("This page does not explain the shard."),
  el("h2", {}, "State"), facts(pairs.filter(([, said]) => said !== null)),
  el("h2", {}, "Unresolved records"), records.list.length
    ? recordTables(records, status.timeMs, false) : el("p", {}, own?.unsettled
      ? `No record has failed; ${plural(own.unsettled, "record has", "records have")} no stored ` +
        "outcome yet."
      : "All the shard's records that were read are acked.")], []];
}

function applicationsView() {
  document.title = plural(data.applications.length, "application");
  const owner = ({ owners }) => (owners.length > 1 ? plural(owners.length, "process", "processes")
    : owners.length ? value(`pid ${owners[0].process} on ${owners[0].host}`) : "none");
  const rows = data.applications.map((one) => [
    link({ application: one.application, stream: one.stream }, value(one.application)),
    value(one.stream), chip(one.verdict), el("bdi", {}, cut(one.why, 300)), lagOf(one),
    or(one.unresolved), owner(one)]);
  return [[observed(data.timeMs), trouble(), el("h1", {}, "Applications"),
    table(`${plural(rows.length, "application")}, the worst first`, [...shorts("Application",
      "Stream", "Verdict"), ["Why"], ...numbers("Lag", "Unresolved"), ...shorts("Owner")], rows)], []];
}

const missingView = () => [[toAll(), el("h1", {}, "The application does not exist")], []];
const waitingView = () => [[toAll(), el("h1", {}, "Observing the application …"),
  data.trouble ? warning(value(data.trouble.says, 600)) : null], []];

// The verdict on a drill
const seconds = (s) => (s === null || s === undefined ? "not measured" : duration(s * 1000));

function drillBanner({ verdict }) {
  const { faults, undone } = verdict, isDone = undone === null;
  const word = !isDone ? "Not done" : verdict.ok ? "Kept" : "Broken";
  const took = faults.map((one) => one.recovered_s).filter((one) => one !== null);
  document.title = visible(`${word}: ${cut(verdict.drill)}`);
  const title = isDone ? `${word}: ${count(verdict.lost)} lost, ${count(verdict.out_of_order)} ` +
    `out of order, ${count(verdict.unexplained)} unexplained` : "The drill could not do its work";
  const said = isDone ? `${plural(verdict.records, "record")} went through ` +
    `${plural(faults.length, "fault")}.${took.length ? ` The slowest recovery took ` +
    `${seconds(Math.max(...took))}.` : ""}` : `${cut(undone, 600)}. No guarantee was tested.`;
  const over = ["Recovery drill ", value(verdict.drill)];
  return banner(...(verdict.ok ? KEPT : BROKEN), over, title, said);
}

function drillFigures({ verdict }) {
  const mustBeNone = [[verdict.lost, "lost"], [verdict.out_of_order, "out of order"],
    [verdict.unexplained, "unexplained repeats"]];
  const figures = [[verdict.records, "records put"], [verdict.acked, "acked"],
    [verdict.letters, "dead letters"], ...(verdict.undone === null ? mustBeNone : []),
    [verdict.deliveries, "deliveries"], [verdict.failed, "failures"],
    [verdict.duplicates, "redelivered"],
    [seconds(verdict.delays?.median_s), "median time from put to delivery"],
    [seconds(verdict.delays?.p99_s), "time from put to delivery, 99 %"],
    ...(verdict.undone === null
      ? [[seconds(verdict.drained_s), "for remaining records at the end"]] : [])];
  return el("dl", { class: "figures" }, figures.map((pair) =>
    el("div", { class: mustBeNone.includes(pair) && pair[0] ? "bad" : null }, el("dt", {}, pair[1]),
      el("dd", {}, typeof pair[0] === "number" ? count(pair[0]) : pair[0]))));
}

function drillPictures({ verdict, lanes, spanMs }) {
  const bands = verdict.faults.map((one) => ({ name: one.fault, beganMs: one.at_s * 1000,
    endedMs: (one.at_s + one.lasted_s) * 1000, settledMs: one.recovered_s === null ? null
      : (one.at_s + one.lasted_s + one.recovered_s) * 1000 }));
  const columns = 60, width = spanMs / columns; // a rate of less time is that of single records
  const rate = (series) => {
    const found = new Array(columns).fill(0);
    for (const [ms, many] of lanes.flatMap((one) => one.events[series] ?? []))
      found[Math.min(Math.floor(ms / width), columns - 1)] += many;
    return found.map((many, at) => [(at + 0.5) * width, (many * 1000) / width]);
  };
  const noted = lanes.map((one) => ({ ...one, note: `${count(one.totals.put)} put` +
    (one.totals.again ? `, ${count(one.totals.again)} redelivered` : "") }));
  return [el("h2", {}, "Shards over time"), timeline(noted, 0, spanMs, { bands }),
    el("h2", {}, "Throughput"), el("div", { class: "charts" },
      chart("Records per second", 0, spanMs, [["puts", "put", rate("put")],
        ["acks", "acked", rate("ack")], ["fails", "failed", rate("failed")],
        ["letters", "dead-lettered", rate("letter")]], perSecond, false))];
}

function drillTables({ verdict, lanes, unexplained, letters }) {
  const { faults } = verdict;
  const slowest = faults.map((one, at) => ({ ...one, number: at + 1 }))
    .sort((a, b) => (b.recovered_s ?? 0) - (a.recovered_s ?? 0)).slice(0, MAX_ROWS)
    .sort((a, b) => a.number - b.number);
  const most = (key) => (a, b) => b.totals[key] - a.totals[key];
  const shards = [...lanes].sort(most("put")).sort(most("again")).sort(most("letter"))
    .sort(most("left")).slice(0, MAX_ROWS);
  const part = (title, rows, all, noun, columns, none = "") => (rows.length || none
    ? [el("h2", {}, title), rows.length ? table(some(rows.length, all, noun), columns, rows)
      : el("p", {}, none)] : null);
  return [part("Faults", slowest.map((one) => [el("span", { class: "tag" }, one.number),
    value(one.fault), seconds(one.at_s), seconds(one.lasted_s), one.recovered_s === null
      ? "nothing was due" : seconds(one.recovered_s), count(one.repeated)]), faults.length, "fault",
  [...numbers("No."), ["Fault"], ...numbers("Began at", "Lasted", "Recovered after",
    "Records repeated")], "The job was not disturbed."),
  part("Repeats without a reason", unexplained.map((one) => [value(`${one.key} ${one.number}`),
    name(one.shardId), name(one.sequence), `${one.step} at ${duration(one.atMs)}`, name(one.run),
    `${one.earlierStep} at ${duration(one.earlierMs)}`, name(one.earlierRun)]),
  verdict.unexplained, "repeat", [["Key and number"], ["Shard"], ["Sequence number"], ["Repeated"],
    ["By"], ["Earlier"], ["Earlier by"]]),
  part("Dead letters by reason", letters.map((one) => [value(one.reason || "no reason given", 300),
    count(one.records), one.least === one.most ? one.most : `${one.least} to ${one.most}`,
    value(one.example)]), letters.length, "reason", [["Reason"], ...numbers("Records", "Attempts"),
    ["First: key and number"]], "No record was dead-lettered."),
  part("Shards", shards.map((one) => [name(one.shardId),
    one.parents.map((each) => [name(each), " "]),
    one.beganMs < 0 ? "before" : duration(one.beganMs),
    one.endedMs === null ? "open" : duration(one.endedMs),
    ...["put", "read", "again", "failed", "letter", "left"].map((key) => count(one.totals[key]))]),
  lanes.length, "shard", [["Shard"], ["Parents"], ...numbers("Created at", "Closed at", "Put",
    "Delivered", "Redelivered", "Failures", "Dead letters", "Not checkpointed")],
  "No shard was seen.")];
}

function drillView() {
  const { verdict, about } = data;
  const list = (title, texts, kind) => (texts.length ? [el("h2", {}, title),
    el("ul", { class: "causes" },
      texts.map((one) => el("li", { class: kind }, cut(one, 1000))))] : null);
  return [[drillBanner(data), list("Broken guarantees", verdict.broken, "bad"), drillFigures(data),
    drillPictures(data), drillTables(data), list("Notes", verdict.notes, null),
    footer("Times count from the first put.", ...about)], []];
}

// Drawing and renewing
const VIEWS = { application: applicationView, applications: applicationsView, drill: drillView,
  waiting: waitingView, missing: missingView };

// How an element is found again after the page was drawn anew.
function selector(one) {
  const key = ["href", "aria-label"].find((each) => one?.hasAttribute?.(each));
  return key ? `[${key}="${CSS.escape(one.getAttribute(key))}"]` : null;
}

function draw() {
  if (data === null) return;
  const focused = selector(document.activeElement), { shard, q = "" } = route();
  const moved = [...document.querySelectorAll(".scroll")].filter((one) => one.scrollLeft)
    .map((one) => [selector(one), one.scrollLeft]);
  find("finder").hidden = true;
  if (document.activeElement !== find("q")) find("q").value = q;
  const [top, rest] = shard && data.kind === "application" ? shardView(shard) : VIEWS[data.kind]();
  find("top").replaceChildren(...el("div", {}, top).childNodes);
  find("rest").replaceChildren(...el("div", {}, rest).childNodes);
  for (const [where, left] of moved) {
    const one = document.querySelector(where);
    if (one) one.scrollLeft = left;
  }
  if (focused) document.querySelector(focused)?.focus({ preventScroll: true });
}

let version = "", newest = 0;
async function renew(isWanted) {
  // A hidden page asks for nothing; text that is being selected stays.
  if (!isWanted && (document.hidden || !getSelection().isCollapsed)) return;
  const { application, stream, shard } = route(), mine = ++newest;
  const asked = Object.entries({ application, stream, shard }).filter(([, one]) => one);
  try {
    const answer = await fetch(`/page.json?${new URLSearchParams(asked)}`, { cache: "no-store",
      headers: isWanted ? {} : { "If-None-Match": version },
      signal: AbortSignal.timeout(PATIENCE_MS) });
    const found = answer.status === 304 ? null : await answer.json();
    if (mine !== newest) return;
    find("away").hidden = true;
    if (found) [data, version] = [found, answer.headers.get("ETag") ?? ""], draw();
  } catch {
    find("away").hidden = false;
  }
}

find("q").addEventListener("input", (event) => {
  history.replaceState(null, "", link({ q: event.target.value.slice(0, 200) }).hash);
  draw();
});
find("finder").addEventListener("submit", (event) => event.preventDefault());
addEventListener("resize", draw);
addEventListener("hashchange", () => { isLive ? renew(true) : draw(); });
draw();
if (isLive) {
  renew(true);
  setInterval(renew, REFRESH_MS);
}
