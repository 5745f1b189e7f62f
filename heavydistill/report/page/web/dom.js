// Elements made by JavaScript. A string is always text, never markup.

/** An element: class names after dots ("p.note.warning"), attributes, children. */
function el(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key.startsWith("aria-")) element.setAttribute(key, value); // "false" is a value here
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

const byId = (id) => document.getElementById(id);

const number = (value) => value.toLocaleString("en-US");

const tokens = (count) => (count < 0 ? "unknown" : number(count));

const counted = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

/** A table with a head; cells are strings or elements, the first cell of a row names it. */
function table(head, rows) {
  const cells = (row) => row.map((cell, place) => el(place ? "td" : "th", place ? {} : { scope: "row" }, cell));
  const frame = el(
    "div.scroll",
    {},
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, ...head.map((title) => el("th", { scope: "col" }, title)))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...cells(row)))),
    ),
  );
  watchWidth(frame);
  return frame;
}

const widths = new ResizeObserver((seen) => seen.forEach(({ target }) => markWidth(target)));

/** Mark a frame while it has columns to its right, and let the keyboard scroll it. */
function watchWidth(frame) {
  frame.addEventListener("scroll", () => markWidth(frame));
  widths.observe(frame);
}

function markWidth(frame) {
  const hidden = frame.scrollWidth - frame.clientWidth;
  frame.classList.toggle("wide", hidden > 1);
  frame.classList.toggle("more", hidden - frame.scrollLeft > 1);
  if (hidden > 1) frame.tabIndex = 0;
  else frame.removeAttribute("tabindex");
}
