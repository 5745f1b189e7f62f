// Formulas as MathML. KaTeX converts TeX to markup with trust off; the markup is parsed as XML, and only
// the elements and attributes listed here are copied into the page.

const LONGEST_FORMULA = 4000;
const MATHML = "http://www.w3.org/1998/Math/MathML";
const ELEMENTS = new Set(
  "math mrow mi mn mo ms mtext mspace msub msup msubsup munder mover munderover mmultiscripts mprescripts none mfrac msqrt mroot mtable mtr mtd mstyle mpadded mphantom menclose merror".split(" "),
);
const ATTRIBUTES = new Set(
  "display mathvariant mathsize mathcolor mathbackground width height depth lspace rspace voffset linethickness stretchy symmetric fence separator largeop movablelimits accent accentunder minsize maxsize scriptlevel displaystyle rowspacing columnspacing columnalign rowalign columnlines rowlines frame notation form".split(" "),
);

/** A formula, inside a line in a frame that can scroll; null if KaTeX cannot render it. */
function formula(tex, display) {
  if (tex.length > LONGEST_FORMULA) return null;
  try {
    const markup = katex.renderToString(tex, {
      output: "mathml",
      displayMode: display,
      trust: false,
      throwOnError: true,
      strict: "ignore",
      maxExpand: 200,
      maxSize: 5,
    });
    // The policy of the page forbids styles of elements, and the console would report each.
    const parsed = new DOMParser().parseFromString(markup.replace(/ style="[^"]*"/g, ""), "application/xml");
    const maths = parsed.getElementsByTagNameNS(MATHML, "math")[0];
    if (!maths) return null;
    return display ? copied(maths) : el("span.formula", {}, copied(maths));
  } catch {
    return null; // the source is shown
  }
}

function copied(node) {
  if (node.nodeType === Node.TEXT_NODE) return document.createTextNode(node.data);
  if (node.localName === "semantics") return copied(node.firstElementChild); // without the source
  const known = node.namespaceURI === MATHML && ELEMENTS.has(node.localName);
  const element = document.createElementNS(MATHML, known ? node.localName : "mrow");
  for (const { name, value } of node.attributes) if (ATTRIBUTES.has(name)) element.setAttribute(name, value);
  element.append(...[...node.childNodes].map(copied));
  return element;
}

/**
 * The formulas in a text, each { start, end, tex, display }: $..$, $$..$$, \(..\), \[..\] and a bare
 * \boxed{..}. A dollar opens a formula only before a character, and closes it only after one and not
 * before a digit, so that prices are no formulas. The time is linear in the length of the text.
 */
function* formulas(text) {
  const openers = /\\\[|\\\(|\$\$|\$|\\boxed\{/g;
  const closers = new Map(); // closer -> position of the next one, so that none is searched twice
  const next = (closer, from) => {
    let at = closers.get(closer) ?? -2;
    if (at !== -1 && at < from) closers.set(closer, (at = text.indexOf(closer, from)));
    return at;
  };
  for (let found; (found = openers.exec(text)); ) {
    const opener = found[0];
    const start = found.index;
    const inside = start + opener.length;
    let end = -1;
    if (opener === "\\boxed{") {
      end = braced(text, inside);
      if (end > 0) yield { start, end, tex: text.slice(start, end), display: false };
    } else {
      const closer = { "\\[": "\\]", "\\(": "\\)" }[opener] ?? opener;
      const at = next(closer, inside);
      const tex = at > inside && at - inside <= LONGEST_FORMULA ? text.slice(inside, at) : "";
      if (tex.trim() && (opener !== "$" || isInline(tex, text[at + 1]))) {
        end = at + closer.length;
        yield { start, end, tex, display: opener === "\\[" || opener === "$$" };
      }
    }
    if (end > 0) openers.lastIndex = end;
  }
}

const isInline = (tex, after) => !/^\s|\s$|\n/.test(tex) && !/\d/.test(after ?? "");

/** Position after the brace that closes the one open before `from`; -1 if it is not near. */
function braced(text, from) {
  const last = Math.min(text.length, from + 400);
  for (let at = from, depth = 1; at < last; at++) {
    if (text[at] === "{") depth++;
    else if (text[at] === "}" && --depth === 0) return at + 1;
  }
  return -1;
}
