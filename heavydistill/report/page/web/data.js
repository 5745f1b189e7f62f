// The runs in this file. The index of a run is read when it is chosen. Traces are in compressed chunks;
// the last few that were shown stay unpacked.

const KEPT_CHUNKS = 4;
const SLICE = 1 << 14; // characters of base64, a multiple of 4; small pieces are freed sooner
const indices = new Map();
const unpacked = new Map(); // name of a chunk -> promise of its traces, the most recent last

const runCount = () => byId("run").options.length;

/** The index of a run: name, unfinished, chunks, entries. */
function runOf(run) {
  if (!indices.has(run)) indices.set(run, JSON.parse(byId(`index-${run}`).textContent));
  return indices.get(run);
}

/** The whole trace of an entry. */
async function traceOf(run, entry) {
  const [chunk, place] = entry.at;
  return (await chunkOf(run, chunk))[place];
}

function chunkOf(run, chunk) {
  const name = `chunk-${run}-${chunk}`;
  const traces = unpacked.get(name) ?? unpack(name);
  unpacked.delete(name);
  unpacked.set(name, traces);
  traces.catch(() => unpacked.delete(name)); // so that the next call tries again
  if (unpacked.size > KEPT_CHUNKS) unpacked.delete(unpacked.keys().next().value);
  return traces;
}

const unpack = async (name) => JSON.parse(await new Response(await unpacking(name)).text());

/** Whether a pattern, whose matches have at most `longest` characters, is in the JSON of a chunk.
 *
 * The chunk is read in pieces, since whole texts fill the memory for long after the search. */
async function chunkHas(name, pattern, longest) {
  const pieces = (await unpacking(name)).pipeThrough(new TextDecoderStream()).getReader();
  let tail = "";
  for (let piece = await pieces.read(); !piece.done; piece = await pieces.read()) {
    const text = tail + piece.value;
    if (pattern.test(text)) {
      pieces.cancel().catch(() => {});
      return true;
    }
    tail = text.slice(-longest);
  }
  return false;
}

/** The JSON of the traces of a chunk, as a stream of bytes. */
async function unpacking(name) {
  const packed = (await chunkElement(name)).textContent;
  let at = 0;
  const bytes = new ReadableStream({
    pull(stream) {
      if (at < packed.length) stream.enqueue(fromBase64(packed.slice(at, (at += SLICE))));
      else stream.close();
    },
  });
  return bytes.pipeThrough(new DecompressionStream("deflate-raw"));
}

function fromBase64(text) {
  const packed = atob(text);
  const bytes = new Uint8Array(packed.length);
  for (let at = 0; at < packed.length; at++) bytes[at] = packed.charCodeAt(at);
  return bytes;
}

/** The element of a chunk, which may not have been parsed yet: chunks are at the end of the file. */
async function chunkElement(name) {
  // The last element that was parsed may still grow.
  const isThere = () => byId(name) && (document.readyState !== "loading" || byId(name).nextElementSibling);
  if (!isThere() && document.readyState === "loading") {
    await new Promise((resolve) => document.addEventListener("DOMContentLoaded", resolve, { once: true }));
  }
  if (!byId(name)) throw new Error(`This file is incomplete: ${name} is missing. Write the report again.`);
  return byId(name);
}
