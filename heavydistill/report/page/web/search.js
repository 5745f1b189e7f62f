// Search over all texts of a run, chunk by chunk, with progress, until it ends or is stopped.

const PAUSE_MS = 8;

/** Whether a pattern is in any text of a trace. */
function contains(trace, pattern) {
  const has = (text) => Boolean(text) && pattern.test(text);
  const problem = trace.problem;
  if ([problem.id, problem.text, problem.reference, problem.source].some(has)) return true;
  return [...trace.pool, ...trace.deliberations].some(
    (one) => one.texts.some(([, text]) => has(text)) || has(one.verdict?.extracted) || has(one.error),
  );
}

/** A pattern that matches a text, ignoring case. */
const patternOf = (text) => new RegExp(text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"), "iu");

class Search {
  /** `onProgress` is called with this search repeatedly, and at its end. */
  constructor(run, query, onProgress) {
    this.run = run;
    this.pattern = patternOf(query);
    // The query as JSON has it: a chunk without it need not be parsed. A letter of the other case may
    // have twice the characters.
    const packed = JSON.stringify(query).slice(1, -1);
    this.packedPattern = patternOf(packed);
    this.longest = 2 * packed.length;
    this.onProgress = onProgress;
    this.found = new Set(); // numbers of entries
    this.searched = 0;
    this.stopped = false;
    this.ended = false;
    this.error = "";
  }

  stop() {
    this.stopped = true;
  }

  async go() {
    const { entries, chunks } = runOf(this.run);
    const places = Array.from({ length: chunks }, () => []);
    entries.forEach((entry, number) => places[entry.at[0]].push(number));
    let reported = performance.now();
    try {
      for (let chunk = 0; chunk < chunks && !this.stopped; chunk++) {
        const name = `chunk-${this.run}-${chunk}`;
        if (await chunkHas(name, this.packedPattern, this.longest)) {
          const traces = await unpack(name);
          for (const number of places[chunk]) {
            if (contains(traces[entries[number].at[1]], this.pattern)) this.found.add(number);
          }
        }
        this.searched += places[chunk].length;
        if (performance.now() - reported > 100) {
          this.onProgress(this);
          reported = performance.now();
        }
        // Let the browser handle keys and clicks, and free the memory of searched chunks.
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      }
    } catch (error) {
      this.error = error.message;
    }
    this.ended = true;
    this.onProgress(this);
  }
}
