// One response, a trajectory or a deliberation: its verdict, tokens and texts.

const MARKS = { correct: "✓", incorrect: "✗", unanswered: "∅", undecided: "?", unjudged: "○", failed: "!" };

/** The verdict of a response, or why it has none, in one word. */
function stateOf(one) {
  if (one.verdict) return one.unanswered ? "unanswered" : one.verdict.label;
  return one.finish_reason === "error" ? "failed" : "unjudged";
}

function verdictChip(one) {
  const state = stateOf(one);
  return el(`span.verdict.${state}`, {}, el("span", { "aria-hidden": "true" }, `${MARKS[state]} `), STATE_NAMES[state] ?? state);
}

/** The mark alone, with its word for screen readers. */
const verdictMark = (one) => {
  const state = stateOf(one);
  return el(`span.verdict.bare.${state}`, { title: STATE_NAMES[state] ?? state, role: "img", "aria-label": STATE_NAMES[state] ?? state }, MARKS[state]);
};

const answerOf = (one) => (one.verdict?.extracted == null ? el("span.note", {}, "no answer found") : shortText(one.verdict.extracted, 60));

const lengthOf = (one) => `${tokens(one.prompt_tokens)} read, ${tokens(one.completion_tokens)} written`;

/** The id of a response's card, prefixed because a response could have the id of a chunk. */
const cardId = (id, names) => `r${names.side}:${id}`;

/** The card of a response; `facts` are further lines: [name, content]. */
function responseCard(one, title, facts, query, id) {
  const lines = [
    ["answer", answerOf(one)],
    ["verdict", verdictReason(one)],
    ["tokens", lengthOf(one)],
    ...facts,
    ["model", el("span", {}, shortText(one.model, 60), one.seed < 0 ? "" : `, seed ${one.seed}`)],
  ];
  if (one.finish_reason !== "stop") lines.splice(2, 0, ["ended", one.finish_reason === "length" ? "cut off at the token limit" : "the request failed"]);
  const card = el(
    `article.response.${stateOf(one)}`,
    { id },
    el("header", {}, el("h4", {}, title), verdictChip(one)),
    factList(lines),
  );
  if (one.error) card.append(textBlock(one.error, { label: `Error${one.failure ? ` (${one.failure})` : ""}` }));
  const found = (text) => Boolean(query) && text.toLowerCase().includes(query);
  for (const [label, text] of one.texts) card.append(textBlock(text, { label: shortText(label), open: found(text) }));
  if (one.verdict?.evidence) card.append(evidence(one.verdict.evidence));
  return card;
}

function factList(lines) {
  return el("dl.facts", {}, ...lines.flatMap(([name, content]) => [el("dt", {}, name), el("dd", {}, content)]));
}

function verdictReason(one) {
  if (!one.verdict) return "none";
  const { reason, verifier, score } = one.verdict;
  const parts = [statusName(reason)];
  if (score !== null) parts.push(`score ${Math.round(score * 1000) / 1000}`);
  return el("span", {}, `${parts.join(", ")} `, el("span.note", {}, shortText(verifier, 60)));
}

/** The evidence of a verdict: results of tests, or the votes of a judge. */
function evidence(text) {
  let shown = text;
  try {
    shown = JSON.stringify(JSON.parse(text), null, 1);
  } catch {
    // It is not JSON and is shown unchanged.
  }
  return el("details", {}, el("summary", {}, "Evidence of the verdict"), el("pre.text", { dir: "auto" }, ...plain(shown)));
}
