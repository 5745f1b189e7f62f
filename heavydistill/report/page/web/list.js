// The list of problems: its filters, and the rows that are visible; no other rows are in the page.

const ROW = 62; // pixels, as in the style
const STATES = ["correct", "incorrect", "unanswered", "undecided", "unjudged", "failed"];
const STATE_NAMES = { unanswered: "no final answer", unjudged: "not judged", failed: "request failed", truncated: "cut off at the token limit" };
const FILTERS = ["stratum", "outcome", "verdict", "reason", "claims", "verifier", "family", "status"];
const NEEDS_TWO = ["claims", "verifier", "family", "status"]; // filters that are hidden if all problems have one value
const NONE = { stratum: "none", outcome: "not deliberated", claims: "no claim" };
const CLAIMS = { true: "a true claim", false: "a false claim", unknown: "a claim that cannot be checked", contradiction: "a contradiction of its own answer" };
const share = (entry, stage, of) => (entry[of] ? entry[stage][0] / entry[of] : 2); // without responses: last
// Orders of the list: name, value of an entry (the smallest is first), text in place of its shares.
const SORTS = {
  "": ["order of the run", () => 0],
  written: ["most tokens written", (entry) => -entry.written, (entry) => `${tokens(entry.written)} tokens`],
  pool: ["fewest right attempts", (entry) => share(entry, "pool", "k")],
  deliberations: ["fewest right deliberations", (entry) => share(entry, "deliberations", "d")],
};
const OUTCOMES = {
  kept: "the vote and the deliberation are right",
  rescued: "the deliberation is right, the vote is not",
  emergent: "the deliberation is right, no attempt is",
  overturned: "the vote is right, the deliberation is not",
  lost: "neither is right",
  "-": "no deliberation",
};
const ORDER = {
  stratum: ["all-right", "majority-right", "tie", "minority-right", "all-wrong"],
  outcome: Object.keys(OUTCOMES),
};

class List {
  /** `onChosen` is called with the number of the chosen entry. */
  constructor(onChosen) {
    this.element = byId("list");
    this.rows = byId("rows");
    this.onChosen = onChosen;
    this.shown = []; // numbers of entries
    this.chosen = -1; // its index in `shown`
    this.search = null;
    this.element.addEventListener("scroll", () => this.draw());
    this.rows.addEventListener("click", (event) => {
      const row = event.target.closest("[data-place]");
      if (row) this.choose(Number(row.dataset.place));
    });
    for (const name of FILTERS) byId(`filter-${name}`).addEventListener("change", () => this.filter());
    byId("sort").append(...Object.entries(SORTS).map(([value, [name]]) => el("option", { value }, name)));
    byId("sort").addEventListener("change", () => this.filter());
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  setRun(run) {
    ({ entries: this.entries, unfinished: this.unfinished } = runOf(run));
    this.search = null;
    for (const name of FILTERS) this.fillFilter(name);
    this.filter();
  }

  /** Fill a filter with the values that occur in the run and their numbers of problems. */
  fillFilter(name) {
    const counts = new Map();
    for (const entry of this.entries) for (const value of valuesOf(entry, name)) counts.set(value, (counts.get(value) ?? 0) + 1);
    const order = name === "verdict" ? verdictChoices() : ORDER[name] ?? [];
    const place = (value) => (order.includes(value) ? order.indexOf(value) : order.length);
    const values = [...counts.keys()].sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
    const option = (value) => el("option", { value }, `${choiceName(name, value)} (${number(counts.get(value))})`);
    const select = byId(`filter-${name}`);
    select.replaceChildren(el("option", { value: "" }, "any"), ...values.map(option));
    select.closest("label").hidden = NEEDS_TWO.includes(name) && values.length < 2;
  }

  filter() {
    const wanted = FILTERS.map((name) => [name, byId(`filter-${name}`).value]).filter(([, value]) => value !== "");
    const before = this.shown[this.chosen];
    this.shown = [];
    this.entries.forEach((entry, number) => {
      const fits = wanted.every(([name, value]) => valuesOf(entry, name).includes(value));
      if (fits && (!this.search || this.search.found.has(number))) this.shown.push(number);
    });
    const [, rank] = SORTS[byId("sort").value];
    this.shown.sort((a, b) => rank(this.entries[a]) - rank(this.entries[b]) || a - b);
    this.chosen = this.shown.indexOf(before);
    const all = this.entries.length;
    byId("counted").textContent = (this.shown.length === all ? "" : `${number(this.shown.length)} of `) + counted(all, "problem") + (this.unfinished ? " so far" : "");
    byId("clear").hidden = !wanted.length && !this.search;
    this.rows.style.height = `${this.shown.length * ROW}px`;
    this.draw();
  }

  clear() {
    for (const name of FILTERS) byId(`filter-${name}`).value = "";
    this.search = null;
    this.filter();
  }

  /** Choose the entry at an index of `shown`, and show it. */
  choose(place) {
    if (!this.shown.length) return;
    this.chosen = Math.max(0, Math.min(this.shown.length - 1, place));
    this.reveal();
    this.onChosen(this.shown[this.chosen]);
  }

  /** Mark an entry as chosen if it is in the list. */
  mark(number) {
    this.chosen = this.shown.indexOf(number);
    if (this.chosen >= 0) this.reveal();
    else this.draw();
  }

  reveal() {
    const [top, height] = [this.chosen * ROW, this.element.clientHeight];
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top + ROW > this.element.scrollTop + height) this.element.scrollTop = top + ROW - height;
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW) - 4);
    const last = Math.min(this.shown.length, first + Math.ceil(this.element.clientHeight / ROW) + 9);
    const rows = [];
    for (let place = first; place < last; place++) rows.push(this.row(place));
    this.rows.replaceChildren(...rows);
    if (!this.shown.length) this.rows.replaceChildren(el("p.note.empty", {}, "No problem matches."));
    if (this.chosen >= first && this.chosen < last) this.element.setAttribute("aria-activedescendant", `row-${this.chosen}`);
    else this.element.removeAttribute("aria-activedescendant");
  }

  row(place) {
    const entry = this.entries[this.shown[place]];
    const shown = SORTS[byId("sort").value][2] ?? sharesOf;
    const row = el(
      "div.row",
      {
        id: `row-${place}`,
        role: "option",
        "data-place": place,
        "aria-selected": place === this.chosen,
        "aria-setsize": this.shown.length,
        "aria-posinset": place + 1,
      },
      el("span.row-id", {}, shortText(entry.id, 40)),
      el("span.row-right", { title: `Right: trajectories, deliberations: ${sharesOf(entry)}` }, shown(entry)),
      el("span.row-text", {}, shortText(entry.text, 160)),
      outcomeChip(entry),
    );
    row.style.transform = `translateY(${place * ROW}px)`;
    return row;
  }
}

/** The text shown until a problem is chosen: what the list shows, and the outcomes in it. */
function guide(list) {
  const only = (outcome) => () => {
    byId("filter-outcome").value = outcome;
    list.filter();
    list.choose(0);
  };
  const rows = [];
  for (const [outcome, meaning] of Object.entries(OUTCOMES)) {
    const found = list.entries.filter((entry) => valuesOf(entry, "outcome").includes(outcome));
    if (!found.length) continue;
    const show = el("button", { type: "button", onclick: only(outcome) }, "Show");
    rows.push([outcomeChip(found[0]), meaning, number(found.length), show]);
  }
  return el(
    "section.guide",
    {},
    el("h2", {}, "Choose a problem"),
    el("p", {}, "Click one in the list or press ", el("kbd", {}, "j"), ". The list shows for each how many attempts are right → how many deliberations are right, and the outcome:"),
    table(["Outcome", "Meaning", "Problems", ""], rows),
  );
}

/** How many trajectories, then deliberations, are right. */
const sharesOf = (entry) => [["pool", "k"], ["deliberations", "d"]].map(([stage, of]) => (entry[of] ? `${entry[stage][0]}/${entry[of]}` : "–")).join(" → ");

const outcomeChip = (entry) =>
  entry.status === "ok" && entry.outcome
    ? el(`span.chip.${entry.outcome}`, {}, entry.outcome)
    : el("span.chip.none", {}, entry.status === "ok" ? "not deliberated" : statusName(entry.status));

const statusName = (status) => status.replaceAll("_", " ");

/** The values of an entry that a filter compares. */
function valuesOf(entry, name) {
  const ofStages = (values) => ["pool", "deliberations"].flatMap((stage) => values(stage).map((value) => `${stage} ${value}`));
  if (name === "verdict") return ofStages((stage) => STATES.filter((_, place) => entry[stage][place]));
  if (name === "reason") return ofStages((stage) => entry.reasons[stage]);
  if (name === "claims") return entry.claims.length ? entry.claims : ["-"];
  return [entry[name] || "-"];
}

const verdictChoices = () => ["pool", "deliberations"].flatMap((stage) => STATES.map((state) => `${stage} ${state}`));

function choiceName(name, value) {
  if (value === "-") return NONE[name] ?? "none";
  if (name === "claims") return CLAIMS[value];
  if (name === "status") return statusName(value);
  if (name !== "verdict" && name !== "reason") return value;
  const [stage] = value.split(" ", 1);
  const state = value.slice(stage.length + 1);
  return `a ${stage === "pool" ? "trajectory" : "deliberation"}: ${STATE_NAMES[state] ?? statusName(state)}`;
}
