// The data of the page, decoded, and what the filters leave of it.

const ARRAYS = { u1: Uint8Array, u4: Uint32Array, i4: Int32Array, f4: Float32Array, f8: Float64Array };

/** Numbers that were packed as little-endian bytes. */
function unpacked(given) {
  const text = atob(given.data);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  return new ARRAYS[given.kind](bytes.buffer);
}

const words = (given) => ({ words: given.words, of: unpacked(given.of) });

/** One op on one device with one number of threads; its arrays are decoded when it is first looked at. */
class Scope {
  constructor(raw) {
    this.raw = raw;
    this.statuses = raw.rows.statuses;
    this.op = raw.op;
    this.kernels = raw.kernels;
    this.roofs = raw.roofs;
  }

  get label() {
    const threads = this.raw.threads ? `, ${counted(this.raw.threads, "thread")}` : "";
    return `${this.op} on ${this.raw.device.model || "an unnamed device"}${threads}`;
  }

  get rows() {
    if (!this._rows) {
      const found = {};
      for (const [name, value] of Object.entries(this.raw.rows)) if (value && value.kind) found[name] = unpacked(value);
      found.reason = words(this.raw.rows.reason);
      found.count = found.problem.length;
      this._rows = found;
    }
    return this._rows;
  }

  get problems() {
    if (!this._problems) {
      const raw = this.raw.problems;
      const columns = raw.columns.map((one) => (one.numbers
        ? { name: one.name, numbers: unpacked(one.numbers) }
        : { name: one.name, ...words(one) }));
      const made = { columns, family: words(raw.family), dtype: words(raw.dtype), flops: unpacked(raw.flops),
        bytes: unpacked(raw.bytes), chosen: unpacked(raw.chosen) };
      made.count = made.flops.length;
      for (const one of columns) one.distinct = one.words ? one.words.length : new Set(one.numbers).size;
      made.telling = columns.filter((one) => one.distinct > 1);
      if (!made.telling.length) made.telling = columns.slice(0, 3);
      this._problems = made;
    }
    return this._problems;
  }

  family(problem) { return this.problems.family.words[this.problems.family.of[problem]]; }

  dtype(problem) { return this.problems.dtype.words[this.problems.dtype.of[problem]]; }

  value(column, problem) { return column.words ? column.words[column.of[problem]] : column.numbers[problem]; }

  /** A problem in words: the fields in which problems differ. */
  text(problem) {
    return this.problems.telling.map((one) => `${one.name} ${this.value(one, problem)}`).join(", ");
  }

  rate(problem, seconds) { return this.problems.flops[problem] / seconds; }

  /** The most that a roof lets a problem reach: the lower of arithmetic and memory. */
  roof(problem) {
    const dtype = this.dtype(problem);
    const found = this.roofs.find((one) => one.dtype === dtype);
    if (!found) return NaN;
    const { flops, bytes } = this.problems;
    return Math.min(found.flops, bytes[problem] > 0 ? found.bytes * flops[problem] / bytes[problem] : Infinity);
  }

  /** Which predictions there are, by name. */
  get predictors() {
    return ["estimate", "model"].filter((name) => this.rows[name]);
  }
}

// -- filters -----------------------------------------------------------------------------------------------------

const freshFilter = () => ({ kernel: "", families: new Set(), words: {}, least: {}, most: {} });

function keptKernels(scope, text) {
  const parts = text.toLowerCase().split(/\s+/).filter((one) => one && one !== "-");
  const names = scope.kernels.name;
  const kept = new Uint8Array(names.length).fill(1);
  if (!parts.length) return kept;
  for (let at = 0; at < names.length; at += 1) {
    const name = `${names[at]} ${scope.kernels.digest[at]}`.toLowerCase();
    kept[at] = parts.every((one) => (one[0] === "-" ? !name.includes(one.slice(1)) : name.includes(one))) ? 1 : 0;
  }
  return kept;
}

function keptProblems(scope, filter) {
  const { count, columns, family } = scope.problems;
  const kept = new Uint8Array(count).fill(1);
  const drop = (test) => { for (let at = 0; at < count; at += 1) if (kept[at] && !test(at)) kept[at] = 0; };
  if (filter.families.size) drop((at) => filter.families.has(family.words[family.of[at]]));
  for (const one of columns) {
    const word = filter.words[one.name];
    if (one.words && word !== undefined && word !== "") drop((at) => one.words[one.of[at]] === word);
    const least = filter.least[one.name];
    const most = filter.most[one.name];
    if (one.numbers && isNumber(least)) drop((at) => one.numbers[at] >= least);
    if (one.numbers && isNumber(most)) drop((at) => one.numbers[at] <= most);
  }
  return kept;
}

/** What the filters leave: rows with a time, failed rows, and of each problem the fastest row and its time. */
function selected(scope, filter) {
  const kernels = keptKernels(scope, filter.kernel);
  const problems = keptProblems(scope, filter);
  const { problem, kernel, status, seconds, count } = scope.rows;
  const timed = new Uint32Array(count);
  const failed = new Uint32Array(count);
  const best = new Int32Array(scope.problems.count).fill(-1);
  let times = 0;
  let failures = 0;
  for (let row = 0; row < count; row += 1) {
    const at = problem[row];
    if (!problems[at] || !kernels[kernel[row]]) continue;
    if (status[row] !== 0) { failed[failures] = row; failures += 1; continue; }
    if (!(seconds[row] > 0)) continue;
    timed[times] = row;
    times += 1;
    if (best[at] < 0 || seconds[row] < seconds[best[at]]) best[at] = row;
  }
  const solved = [];
  let left = 0;
  for (let at = 0; at < best.length; at += 1) { left += problems[at]; if (best[at] >= 0) solved.push(at); }
  return { scope, kernels, problems, best, solved, left, timed: timed.subarray(0, times),
    failed: failed.subarray(0, failures) };
}

/** Rows by what a function says of them: a list of rows each. */
function grouped(rows, key) {
  const found = new Map();
  for (const row of rows) {
    const word = key(row);
    const known = found.get(word);
    if (known) known.push(row);
    else found.set(word, [row]);
  }
  return found;
}
