// The page: views, keys and colours. The address names the view (#traces/RUN/NUMBER, or
// #traces/RUN/NUMBER/OTHER with another run beside), so that the browser's back button works.

const list = new List((number) => go(state.run, number));
const state = { run: Number(byId("run").value), number: -1, beside: -1, view: "summary", listed: -1 };
let search = null;
let typed = 0; // timer that starts the search after the last key
let looked = 0; // number of the last view that was opened; earlier ones are dropped

let routed = null; // address of the view that is shown

/** Show a problem of a run, or with -1 its list; another run may stay beside it. */
function go(run, number, beside = state.beside) {
  open(traceAddress(run, number, beside));
}

function traceAddress(run, number, beside) {
  if (number < 0) return `traces/${run}`;
  return `traces/${run}/${number}${beside < 0 || beside === run ? "" : `/${beside}`}`;
}

/** Show an address immediately, so that the next key applies to its view. */
function open(address) {
  location.hash = address;
  route();
}

function route() {
  if (routed === location.hash) return;
  routed = location.hash;
  const before = { ...state };
  const [, view, run, number, beside] = /^#(summary|traces)(?:\/(\d+))?(?:\/(\d+))?(?:\/(\d+))?$/.exec(location.hash) ?? [];
  state.view = view ?? "summary";
  state.run = Math.min(Number(run ?? state.run), runCount() - 1);
  state.number = number === undefined ? -1 : Number(number);
  state.beside = beside === undefined || Number(beside) >= runCount() ? -1 : Number(beside);
  byId("run").value = state.run;
  byId("summary-view").hidden = state.view !== "summary";
  byId("traces-view").hidden = state.view !== "traces";
  byId("show-summary").setAttribute("aria-pressed", state.view === "summary");
  byId("show-traces").setAttribute("aria-pressed", state.view === "traces");
  for (let other = 0; other < runCount(); other++) byId(`summary-${other}`).hidden = other !== state.run;
  for (const link of document.querySelectorAll(".each a")) {
    if (link.hash === `#summary/${state.run}`) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  if (state.view === "traces") showTraces();
  else if (before.view === "summary" && run !== undefined && runCount() > 1) byId(`summary-${state.run}`).scrollIntoView();
}

function showTraces() {
  looked++; // a trace that is still being unpacked is dropped
  if (state.listed !== state.run) {
    state.listed = state.run;
    stopSearch();
    list.setRun(state.run);
    if (byId("query").value.trim()) startSearch();
  }
  const entry = runOf(state.run).entries[state.number];
  byId("traces-view").classList.toggle("reading", Boolean(entry)); // a phone shows list or trace
  list.mark(state.number);
  if (entry) showTrace(entry);
  else byId("trace").replaceChildren(guide(list));
}

async function showTrace(entry) {
  const mine = looked;
  const place = byId("trace");
  let content;
  try {
    const { run, beside } = state;
    const otherEntry = beside < 0 ? undefined : runOf(beside).entries[numberIn(beside, entry)];
    const [trace, other] = await Promise.all([traceOf(run, entry), otherEntry && traceOf(beside, otherEntry)]);
    if (mine !== looked) return;
    const sides = [{ name: runOf(run).name, entry, trace }, { name: runOf(beside < 0 ? run : beside).name, entry: otherEntry, trace: other }];
    if (beside < run) sides.reverse(); // in the order of the runs: before is on the left
    content = [problemCard(trace, entry, sameElsewhere(entry)), ...(other ? [sideBySide(sides, queryOf())] : traceView(trace, queryOf()))];
  } catch (error) {
    if (mine !== looked) return;
    content = [el("p.banner", { role: "alert" }, error.message)];
  }
  const way = (title, step) => el("button", { type: "button", onclick: () => list.choose(list.chosen + step) }, title);
  const back = el("button.back", { type: "button", onclick: () => go(state.run, -1) }, "← Problems");
  place.replaceChildren(el("nav.way", {}, back, way("Previous", -1), way("Next", 1)), ...content);
  place.dataset.shows = entry.id;
  place.scrollTop = 0;
  if (matchMedia("(max-width: 760px)").matches) scrollTo(0, 0);
  highlight(place, queryOf());
}

/** The other runs of this file with the same problem. */
function sameElsewhere(entry) {
  const others = [];
  for (let run = 0; run < runCount(); run++) {
    const number = run === state.run ? -1 : numberIn(run, entry);
    if (number < 0) continue;
    const isBeside = run === state.beside;
    const [hash, beside] = [traceAddress(run, number, -1), traceAddress(state.run, state.number, isBeside ? -1 : run)];
    others.push({ run, name: runOf(run).name, hash: `#${hash}`, beside: `#${beside}`, isBeside });
  }
  return others;
}

/** The number of the same problem in a run; -1 if it is not there. */
const numberIn = (run, entry) => runOf(run).entries.findIndex((one) => one.id === entry.id && one.crc === entry.crc);

const queryOf = () => byId("query").value.trim().toLowerCase();

function startSearch() {
  clearTimeout(typed);
  stopSearch();
  if (!queryOf()) {
    search = list.search = null;
    byId("searched").hidden = true;
    list.filter();
    highlight(byId("trace"), "");
    return;
  }
  search = new Search(state.run, queryOf(), showSearch);
  list.search = search;
  showSearch(search);
  search.go();
  highlight(byId("trace"), queryOf());
}

function stopSearch() {
  search?.stop();
}

function showSearch(shown) {
  if (shown !== search) return; // another search has begun
  const all = runOf(shown.run).entries.length;
  const ending = shown.error || (shown.ended && shown.searched < all ? "Stopped" : "");
  byId("searched").textContent = `${ending ? `${ending}. ` : ""}${number(shown.found.size)} found in ${number(shown.searched)} of ${number(all)} searched`;
  byId("searched").hidden = false;
  byId("stop").hidden = shown.ended;
  list.filter();
}

const NEXT_THEME = { system: "dark", dark: "light", light: "system" };

function nextTheme() {
  const theme = NEXT_THEME[document.documentElement.dataset.theme];
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = `Theme: ${theme}`;
}

function jumpTo(id) {
  const target = id && byId(id);
  if (!target) return;
  target.scrollIntoView({ block: "start" });
  if (target.tabIndex < 0) target.setAttribute("tabindex", "-1");
  target.focus({ preventScroll: true });
}

function refreshTexts(open) {
  for (const block of document.querySelectorAll("#trace .block")) block.refresh?.(open);
  highlight(byId("trace"), queryOf());
}

const inTraces = (action) => () => {
  if (state.view !== "traces") go(state.run, -1);
  action();
};
const firstOf = (kind) => document.querySelector(`#trace section[id^="${kind}"]`)?.id;

// key -> [action, its description]
const KEYS = {
  j: [inTraces(() => list.choose(list.chosen + 1)), "next problem (or ↓ in the list)"],
  k: [inTraces(() => list.choose(list.chosen - 1)), "previous problem (or ↑ in the list)"],
  "/": [inTraces(() => byId("query").focus()), "search; Enter searches at once, Escape stops"],
  f: [inTraces(() => byId("filter-stratum").focus()), "filters"],
  p: [() => jumpTo("problem"), "go to the problem"],
  t: [() => jumpTo("trajectories"), "go to the trajectories"],
  c: [() => jumpTo(firstOf("cache")), "go to the cache"],
  a: [() => jumpTo(firstOf("deliberations")), "go to the deliberations (the answers)"],
  e: [() => refreshTexts((allOpen = !allOpen)), "show long texts in full, or their beginnings"],
  m: [() => ((showsMaths = !showsMaths), refreshTexts()), "formulas rendered, or as written"],
  r: [nextRun, "next run, with the same problem"],
  b: [nextBeside, "the same problem in another run beside it, such as before and after"],
  s: [() => open(`summary/${state.run}`), "summary"],
  v: [() => go(state.run, state.number), "traces"],
  d: [nextTheme, "theme: system, dark, light"],
  "?": [() => byId("keys").showModal(), "this list"],
};

function nextRun() {
  const run = (state.run + 1) % runCount();
  const entry = runOf(state.run).entries[state.number];
  if (state.view === "traces") go(run, entry ? numberIn(run, entry) : -1, -1);
  else open(`summary/${run}`);
}

/** Show the next of the other runs with this problem beside it; after the last one none. */
function nextBeside() {
  const entry = runOf(state.run).entries[state.number];
  if (state.view !== "traces" || !entry) return;
  go(state.run, state.number, sameElsewhere(entry).find(({ run }) => run > state.beside)?.run ?? -1);
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "Escape" && !byId("keys").open) {
    stopSearch();
    event.target.blur();
    event.preventDefault(); // the default action empties the search
  } else if (event.target === byId("query") && event.key === "Enter") startSearch();
  else if (typing || byId("keys").open) return;
  else if (event.target === byId("list") && LIST_KEYS[event.key]) LIST_KEYS[event.key]();
  else if (Object.hasOwn(KEYS, event.key)) KEYS[event.key][0]();
  else return;
  if (!typing || event.key === "Enter") event.preventDefault();
}

const page = () => Math.floor(byId("list").clientHeight / ROW);
const LIST_KEYS = {
  ArrowDown: () => list.choose(list.chosen + 1),
  ArrowUp: () => list.choose(list.chosen - 1),
  PageDown: () => list.choose(list.chosen + page()),
  PageUp: () => list.choose(list.chosen - page()),
  Home: () => list.choose(0),
  End: () => list.choose(list.shown.length - 1),
  Enter: () => byId("trace").focus(),
};

function start() {
  const keys = Object.entries(KEYS).map(([key, [, description]]) => el("tr", {}, el("th", { scope: "row" }, el("kbd", {}, key)), el("td", {}, description)));
  byId("keys-table").append(...keys);
  byId("show-summary").addEventListener("click", () => open(`summary/${state.run}`));
  byId("show-traces").addEventListener("click", () => go(state.run, state.number));
  byId("run").addEventListener("change", () => open(`${state.view}/${byId("run").value}`));
  byId("run").closest("label").hidden = runCount() < 2;
  byId("theme").addEventListener("click", nextTheme);
  byId("help").addEventListener("click", () => byId("keys").showModal());
  byId("keys-close").addEventListener("click", () => byId("keys").close());
  byId("clear").addEventListener("click", () => {
    byId("query").value = "";
    startSearch();
    list.clear();
  });
  byId("stop").addEventListener("click", stopSearch);
  byId("query").addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(startSearch, 350);
  });
  byId("trace").addEventListener("click", (event) => {
    const jump = event.target.closest("[data-jump]");
    if (!jump) return;
    event.preventDefault();
    jumpTo(jump.dataset.jump);
  });
  document.addEventListener("keydown", onKey);
  document.querySelectorAll("#summary-view .scroll").forEach(watchWidth);
  addEventListener("hashchange", route);
  route();
}

start();
