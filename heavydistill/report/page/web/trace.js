// One problem: its trajectories, each cache as the deliberator saw it, and its deliberations.

/** The view of a trace, without its problem; `side` is part of the ids in it. */
function traceView(trace, query, side = "") {
  const names = responseNames(trace);
  names.side = side;
  const section = (id, title, note, ...content) =>
    el("section", { id: id + side, tabindex: "-1" }, el("h3", {}, title, el("span.note", {}, ` ${note}`)), ...content);
  const view = [glance(trace, names)];
  view.push(section("trajectories", "Trajectories", counted(trace.pool.length, "attempt"), responseGrid(trace, trace.pool, names, query)));
  const rounds = [...new Set([...trace.caches, ...trace.deliberations].map((one) => one.round))].sort((a, b) => a - b);
  for (const round of rounds) {
    const of = rounds.length > 1 ? ` of round ${round}` : "";
    const caches = trace.caches.filter((cache) => cache.round === round);
    view.push(...caches.map((cache) => section(`cache-${round}`, `Cache${of}`, "as the deliberator saw it", cacheView(trace, cache, names))));
    const answers = trace.deliberations.filter((one) => one.round === round);
    if (answers.length) view.push(section(`deliberations-${round}`, `Deliberations${of}`, counted(answers.length, "answer"), responseGrid(trace, answers, names, query)));
  }
  if (!trace.deliberations.length) view.push(el("p.note", {}, "This problem was not deliberated."));
  return view;
}

/** Id of a response -> its short name. */
function responseNames(trace) {
  const names = new Map(trace.pool.map((one) => [one.id, `T${one.index + 1}`]));
  const several = new Set(trace.deliberations.map((one) => one.round)).size > 1;
  for (const one of trace.deliberations) names.set(one.id, several ? `D${one.round}.${one.index + 1}` : `D${one.index + 1}`);
  return names;
}

const responseOf = (trace, id) => trace.pool.find((one) => one.id === id) ?? trace.deliberations.find((one) => one.id === id);

/** The views of one problem in two runs, part by part; each run is { name, entry, trace }. */
function sideBySide(runs, query) {
  const views = runs.map(({ trace }, place) => traceView(trace, query, place ? "-2" : ""));
  const head = ({ name, entry }) => el("h3", {}, `${name} `, outcomeChip(entry), el("span.note", {}, ` ${sharesOf(entry)} right`));
  const cell = (part, place) => el("div.side", {}, part ? el("p.about", {}, runs[place].name) : head(runs[place]), views[place][part] ?? "");
  const parts = [...Array(Math.max(...views.map((view) => view.length))).keys()];
  return el("div.sides", {}, ...parts.flatMap((part) => runs.map((_, place) => cell(part, place))));
}

/** The problem; `others` are runs with the same one: { name, hash, beside, isBeside }. */
function problemCard(trace, entry, others) {
  const { problem } = trace;
  const chips = [outcomeChip(entry)];
  if (trace.stratum) chips.unshift(el("span.chip", {}, trace.stratum));
  const lines = [
    ["reference", shortText(problem.reference, 400)],
    ...(problem.compared ? [["compared with", shortText(problem.compared, 200)]] : []),
    ["verifier", problem.verifier_args === "{}" ? shortText(problem.verifier) : el("details", {}, el("summary", {}, shortText(problem.verifier), ", with arguments"), el("code", {}, ...plain(problem.verifier_args)))],
  ];
  if (problem.source) lines.push(["source", shortText(problem.source, 200)]);
  if (trace.status !== "ok") lines.push(["status", shortText(statusName(trace.status), 1000)]);
  if (others.length) lines.push(["also in", el("span.links", {}, ...others.map(({ name, hash, beside, isBeside }) => el("span", {}, el("a", { href: hash }, name), " (", el("a.beside", { href: beside }, isBeside ? "this run alone" : "side by side"), ")")))]);
  return el(
    "section.problem",
    { id: "problem", tabindex: "-1" },
    el("header", {}, el("h2", {}, shortText(problem.id, 120)), ...chips),
    textBlock(problem.text),
    factList(lines),
  );
}

/** Tables of all responses with links to them. */
function glance(trace, names) {
  const listed = (title, responses, last, said) => {
    const rows = responses.map((one) => [link(one.id, names), verdictMark(one), answerOf(one), tokens(one.completion_tokens), ...(last ? [el("span", {}, ...said(one))] : [])]);
    return rows.length ? [table([title, "Verdict", "Answer", "Tokens written", ...(last ? [last] : [])], rows)] : [];
  };
  return el(
    "details.glance",
    { open: true },
    el("summary", {}, "At a glance"),
    ...listed("Trajectory", trace.pool, trace.caches.length ? "Place in the cache" : "", (one) => placesOf(trace, one)),
    ...listed("Deliberation", trace.deliberations, "Attempts it uses", (one) => usedBy(one, names)),
  );
}

const link = (id, names) => el("a.jump", { href: "#", "data-jump": cardId(id, names) }, names.get(id) ?? id);

const separated = (parts) => parts.flatMap((part, place) => (place ? [", ", part] : [part]));

/** The place of a response in the caches, and how much of it was cut. */
function placesOf(trace, one) {
  const places = [];
  for (const cache of trace.caches) {
    const round = trace.caches.length > 1 ? `round ${cache.round}: ` : "";
    const place = cache.items.findIndex((item) => item.generation === one.id);
    const out = cache.left_out.find((left) => left.generation === one.id);
    if (place >= 0) places.push(`${round}attempt ${place + 1}, ${cutOf(cache.items[place])}`);
    else if (out) places.push(`${round}left out: ${statusName(out.reason)}`);
  }
  return places.length ? [places.join("; ")] : ["in no cache"];
}

function cutOf(item) {
  const mode = statusName(item.mode);
  if (item.tokens_before === item.tokens_after) return `${mode}, all ${number(item.tokens_after)} tokens`;
  return `${mode}, ${number(item.tokens_before)} → ${number(item.tokens_after)} tokens`;
}

/** The attempts that a deliberation uses. */
function usedBy(one, names) {
  const parts = [];
  const { same, named, several } = one.uses;
  parts.push(...(same.length ? ["same answer as ", ...separated(same.map((id) => link(id, names)))] : ["no attempt has its answer"]));
  if (named.length) parts.push("; names ", ...separated(named.map((id) => link(id, names))));
  if (several) parts.push("; refers to several together");
  return parts;
}

/** What a deliberation says of an attempt, and whether that is true; `who` is one of the two. */
function claimOf(who, claim) {
  const [state, word] = claim.is_true === null ? ["undecided", "unknown"] : claim.is_true ? ["correct", "true"] : ["incorrect", "false"];
  return el("span.claim", { title: claim.quote }, who, ` ${claim.says}: `, el(`span.verdict.${state}`, {}, word));
}

function responseGrid(trace, responses, names, query) {
  const kind = (one) => (one.uses ? "Deliberation" : "Trajectory");
  const cards = responses.map((one) => {
    const facts = [["in the cache", el("span", {}, ...placesOf(trace, one))]];
    const denied = (one.claims ?? []).filter((claim) => claim.contradicts);
    if (denied.length) facts.unshift(["contradicts", el("span", {}, "its own answer, by its claims on ", ...separated(denied.map((claim) => link(claim.id, names))))]);
    if (one.claims?.length) facts.unshift(["claims", el("span", {}, ...separated(one.claims.map((claim) => claimOf(link(claim.id, names), claim))))]);
    if (one.uses) facts.unshift(["uses", el("span", {}, ...usedBy(one, names))]);
    if (one.uses && !trace.caches.some((cache) => cache.round > one.round)) facts.pop(); // no later cache can contain it
    const title = `${kind(one)} ${names.get(one.id).slice(1)}`;
    return responseCard(one, title, facts, query, cardId(one.id, names));
  });
  return el("div.responses", {}, ...cards);
}

/** The cache, block by block, with the origin of each attempt. */
function cacheView(trace, cache, names) {
  const facts = [
    ["tokens", `${number(cache.prompt_tokens)} of at most ${number(cache.budget_tokens)}, counted by ${cache.reader}`],
    ["order", `drawn with seed ${cache.seed}, selection ${statusName(cache.selection)}`],
    ["wording", cache.prompt_version],
    ["defused", `${counted(cache.defused, "control token")} in the problem`],
  ];
  const left = cache.left_out.map((out) => el("span", {}, link(out.generation, names), ` (${statusName(out.reason)})`));
  if (left.length) facts.push(["left out", el("span", {}, ...separated(left))]);
  return el("div.cache", {}, factList(facts), ...blocks(trace, cache, names));
}

function blocks(trace, cache, names) {
  if (!cache.blocks) return [el("p.note", {}, "The prompt has another form than this version writes, so its attempts are not marked."), cacheBlock("Prompt", cache.prompt)];
  const [opening, problem, ...rest] = cache.blocks;
  const end = rest.pop();
  const attempts = rest.map((text, place) => {
    const item = cache.items[place];
    const one = responseOf(trace, item.generation);
    const heading = [`${place + 1} `, link(item.generation, names), one ? verdictMark(one) : "", el("span.note", {}, ` ${cutOf(item)}${item.defused ? `, ${counted(item.defused, "control token")} defused` : ""}`)];
    const claims = trace.deliberations
      .filter((answer) => answer.cache === cache.id)
      .flatMap((answer) => answer.claims.filter((claim) => claim.id === item.generation).map((claim) => claimOf(link(answer.id, names), claim)));
    return cacheBlock(heading, text, "attempt", claims.length ? [el("p.note", {}, ...separated(claims))] : []);
  });
  return [cacheBlock("Wording", opening), cacheBlock("Problem", problem), ...attempts, cacheBlock("Wording", end)];
}

/** A part of the prompt, unchanged: formulas are not rendered. */
function cacheBlock(heading, text, kind = "frame", notes = []) {
  const body = el("div.text.exact", { dir: "auto" });
  const show = (shown) => body.replaceChildren(...plain(shown));
  const block = el(`div.cache-block.${kind}`, {}, el("h5", {}, ...[heading].flat()), ...notes, body);
  if (text.length > PREVIEW * 2) {
    show(beginning(text));
    const more = el("button.quiet.more", { type: "button", onclick: () => (show(text), more.remove()) }, `Show all ${number(text.length)} characters`);
    block.append(more);
  } else show(text);
  return block;
}
