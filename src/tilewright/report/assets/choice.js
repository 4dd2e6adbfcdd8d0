// How good choices are: the time of the kernel that would be chosen beside that of the fastest, problem by problem.

const NAMES = { estimate: "analytic estimate", model: "learned model", saved: "saved choice", single: "best single kernel" };

/** By problem: the row that is chosen, and the place of the fastest one in the order of the choice. */
function choices(sel, kind) {
  const { scope } = sel;
  if (kind === "saved") return savedChoices(sel);
  if (kind === "single") return singleChoices(sel);
  const predicted = scope.rows[kind];
  const { problem, seconds } = scope.rows;
  const first = new Map();
  for (const row of sel.timed) {
    if (!(predicted[row] > 0)) continue;
    const known = first.get(problem[row]);
    if (known === undefined || predicted[row] < predicted[known]) first.set(problem[row], row);
  }
  const faster = new Map(); // kernels predicted faster than the fastest one
  for (const row of sel.timed) {
    const best = sel.best[problem[row]];
    if (predicted[row] < predicted[best]) faster.set(problem[row], (faster.get(problem[row]) || 0) + 1);
  }
  return [...first].map(([at, row]) => chosen(sel, at, row,
    predicted[sel.best[at]] > 0 ? faster.get(at) || 0 : NaN, seconds));
}

function chosen(sel, problem, row, rank, seconds) {
  const best = sel.best[problem];
  return { problem, row, best, rank, efficiency: Math.min(1, seconds[best] / seconds[row]) };
}

function savedChoices(sel) {
  const { problem, kernel, seconds } = sel.scope.rows;
  const wanted = sel.scope.problems.chosen;
  const found = [];
  for (const row of sel.timed) {
    if (wanted[problem[row]] === kernel[row]) found.push(chosen(sel, problem[row], row, NaN, seconds));
  }
  return found;
}

/** The one kernel that serves nearly all problems and does it best: what choosing at all is worth. */
function singleChoices(sel) {
  const { problem, kernel, seconds } = sel.scope.rows;
  let winner = -1;
  let most = -Infinity;
  const groups = grouped(sel.timed, (row) => kernel[row]);
  for (const [at, rows] of groups) {
    if (rows.length < 0.95 * sel.solved.length) continue;
    const reached = geometricMean(rows.map((row) => seconds[sel.best[problem[row]]] / seconds[row]));
    if (reached > most) { most = reached; winner = at; }
  }
  return winner < 0 ? [] : groups.get(winner).map((row) => chosen(sel, problem[row], row, NaN, seconds));
}

/** Which kinds of choice there is something to say of, with their choices. */
function allChoices(sel) {
  const kinds = [...sel.scope.predictors, "saved", "single"];
  return kinds.map((kind) => ({ kind, found: choices(sel, kind) })).filter((one) => one.found.length);
}

function scores(found) {
  const reached = sortedCopy(found.map((one) => one.efficiency));
  const ranks = found.map((one) => one.rank).filter(isNumber);
  return {
    problems: found.length,
    mean: mean(reached),
    p10: quantile(reached, 0.1),
    worst: reached.length ? reached[0] : NaN,
    top1: found.length && ranks.length ? ranks.filter((one) => one === 0).length / found.length : NaN,
    top5: found.length && ranks.length ? ranks.filter((one) => one < 5).length / found.length : NaN,
    regret: mean(found.map((one) => 1 / one.efficiency - 1)),
  };
}

/** Spearman's correlation of two orders of the same things. */
function rankCorrelation(one, other) {
  const count = one.length;
  if (count < 2) return NaN;
  const ranks = (values) => {
    const order = values.map((_, at) => at).sort((a, b) => values[a] - values[b]);
    const found = new Float64Array(count);
    order.forEach((at, place) => { found[at] = place; });
    return found;
  };
  const a = ranks(one);
  const b = ranks(other);
  let total = 0;
  for (let at = 0; at < count; at += 1) total += (a[at] - b[at]) ** 2;
  return 1 - (6 * total) / (count * (count * count - 1));
}
