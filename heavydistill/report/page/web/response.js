// One response, a trajectory or a deliberation: its verdict, its tokens, its texts.

const MARKS = { correct: "✓", incorrect: "✗", unanswered: "∅", undecided: "?", unjudged: "○", failed: "!" };

/** What is said of a response, in one word. */
function saidOf(one) {
  if (one.verdict) return one.unanswered ? "unanswered" : one.verdict.label;
  return one.finish_reason === "error" ? "failed" : "unjudged";
}

function verdictChip(one) {
  const said = saidOf(one);
  return el(`span.verdict.${said}`, {}, el("span", { "aria-hidden": "true" }, `${MARKS[said]} `), SAID_NAMES[said] ?? said);
}

/** Only the mark, with the word for those who do not see it. */
const verdictMark = (one) => {
  const said = saidOf(one);
  return el(`span.verdict.bare.${said}`, { title: SAID_NAMES[said] ?? said, role: "img", "aria-label": SAID_NAMES[said] ?? said }, MARKS[said]);
};

const answerOf = (one) => (one.verdict?.extracted == null ? el("span.note", {}, "no answer found") : shortText(one.verdict.extracted, 60));

const lengthOf = (one) => `${tokens(one.prompt_tokens)} read, ${tokens(one.completion_tokens)} written`;

/** Id of the card of a response in the page, in which the response's own might be that of a chunk. */
const cardId = (id) => `r:${id}`;

/** The card of a response; `facts` are further lines: [name, content]. */
function responseCard(one, title, facts, query) {
  const lines = [
    ["answer", answerOf(one)],
    ["verdict", verdictReason(one)],
    ["tokens", lengthOf(one)],
    ...facts,
    ["model", el("span", {}, shortText(one.model, 60), one.seed < 0 ? "" : `, seed ${one.seed}`)],
  ];
  if (one.finish_reason !== "stop") lines.splice(2, 0, ["ended", one.finish_reason === "length" ? "cut off at the most tokens" : "the request failed"]);
  const card = el(
    `article.response.${saidOf(one)}`,
    { id: cardId(one.id) },
    el("header", {}, el("h4", {}, title), verdictChip(one)),
    factList(lines),
  );
  if (one.error) card.append(textBlock(one.error, { label: `Error${one.failure ? ` (${one.failure})` : ""}` }));
  const found = (text) => Boolean(query) && text.toLowerCase().includes(query);
  if (one.reasoning.trim()) card.append(textBlock(one.reasoning, { label: "Reasoning", open: found(one.reasoning) }));
  if (one.answer_text.trim()) card.append(textBlock(one.answer_text, { label: "Answer", open: found(one.answer_text) }));
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

/** What a verdict rests on: outcomes of tests, or the votes of a judge. */
function evidence(text) {
  let shown = text;
  try {
    shown = JSON.stringify(JSON.parse(text), null, 1);
  } catch {
    // It is shown as it is.
  }
  return el("details", {}, el("summary", {}, "What the verdict rests on"), el("pre.text", { dir: "auto" }, ...plain(shown)));
}
