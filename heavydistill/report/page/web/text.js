// Texts of problems and models as text nodes, with formulas rendered and control characters visible.

const PREVIEW = 1800; // characters shown of a long text until the user asks for all of it
const MOST_FORMULAS = 300;
// Characters that are invisible or change the direction of the text after them.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]+/g;
// Layout time grows with the square of the length of a run without line breaks.
const LONG_RUN = /[^ \t\n]{4000}/gu;
let showsMaths = true;
let allOpen = false;

/** A block with a text, shortened if it is long. */
function textBlock(text, { label = "", open = false } = {}) {
  text = text.replace(/\r\n/g, "\n").trim();
  const body = el("div.text", { dir: "auto" });
  const block = el("div.block", {}, label ? el("h5", {}, label) : null, body);
  const isLong = text.length > PREVIEW * 1.2;
  let isOpen = open || allOpen || !isLong;
  const more = el("button.quiet.more", { type: "button", onclick: () => show(!isOpen) });
  function show(opened) {
    isOpen = opened;
    body.replaceChildren(...pieces(isOpen ? text : beginning(text)));
    more.textContent = isOpen ? "Show less" : `Show all ${number(text.length)} characters`;
    more.setAttribute("aria-expanded", isOpen);
  }
  block.refresh = (opened = isOpen) => show(opened || !isLong);
  show(isOpen);
  if (isLong) block.append(more);
  return block;
}

/** The first lines of a text, or its first characters if the lines are long. */
function beginning(text) {
  const cut = text.lastIndexOf("\n", PREVIEW);
  return text.slice(0, cut > PREVIEW / 2 ? cut : PREVIEW).replace(/[\ud800-\udbff]$/, "") + " …";
}

function pieces(text) {
  if (!showsMaths) return plain(text);
  const parts = [];
  let at = 0;
  let count = 0;
  for (const { start, end, tex, display } of formulas(text)) {
    if (count === MOST_FORMULAS) {
      parts.push(...plain(text.slice(at)), el("p.note", {}, `Formulas after the first ${MOST_FORMULAS} are shown as written.`));
      return parts;
    }
    count++;
    const rendered = formula(tex, display);
    if (!rendered) continue;
    parts.push(...plain(text.slice(at, start)), rendered);
    at = end;
  }
  parts.push(...plain(text.slice(at)));
  return parts;
}

/** A text without formulas. */
function plain(text) {
  const parts = [];
  let at = 0;
  for (const { 0: run, index } of text.matchAll(HIDDEN)) {
    parts.push(...breakable(text.slice(at, index)), el("span.control", { title: "Invisible characters" }, codes(run)));
    at = index + run.length;
  }
  parts.push(...breakable(text.slice(at)));
  return parts.filter((part) => part !== "");
}

/** A text with possible line breaks; a copy of it has the same characters. */
function breakable(text) {
  const parts = [];
  let at = 0;
  for (const { 0: run, index } of text.matchAll(LONG_RUN)) {
    const end = index + run.length;
    parts.push(text.slice(at, end), el("wbr"));
    at = end;
  }
  parts.push(text.slice(at));
  return parts;
}

function codes(run) {
  const hex = (character) => character.charCodeAt(0).toString(16);
  const code = (character) => (character < "\u0100" ? `\\x${hex(character).padStart(2, "0")}` : `\\u${hex(character).padStart(4, "0")}`);
  const shown = [...run.slice(0, 20)].map(code).join("");
  return run.length > 20 ? `${shown} and ${number(run.length - 20)} more` : shown;
}

/** A short text on one line, without formulas. */
function shortText(text, longest = 80) {
  const cut = text.length > longest ? `${text.slice(0, longest)}…` : text;
  return el("bdi", { title: cut === text ? null : text.slice(0, 1000) }, ...plain(cut));
}

/** Highlight a query in an element without changing its nodes. */
function highlight(element, query) {
  if (!("highlights" in CSS)) return;
  CSS.highlights.delete("found");
  if (!query) return;
  const ranges = [];
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode()) && ranges.length < 2000; ) {
    const text = node.data.toLowerCase();
    if (text.length !== node.data.length) continue; // positions would differ
    for (let at = -1; (at = text.indexOf(query, at + 1)) >= 0 && ranges.length < 2000; ) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, at + query.length);
      ranges.push(range);
    }
  }
  if (ranges.length) CSS.highlights.set("found", new Highlight(...ranges));
}
