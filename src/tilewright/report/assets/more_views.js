// More views: kernel against kernel, predicted against measured, regret, failures, and where it all comes from.

// -- kernel against kernel ---------------------------------------------------------------------------------------

function duel(sel, ui, again) {
  const { scope } = sel;
  const { kernel, problem, seconds } = scope.rows;
  const groups = grouped(sel.timed, (row) => kernel[row]);
  const wins = new Map();
  for (const at of sel.solved) wins.set(kernel[sel.best[at]], (wins.get(kernel[sel.best[at]]) || 0) + 1);
  const ranked = [...groups.keys()].sort((a, b) => (wins.get(b) || 0) - (wins.get(a) || 0)
    || groups.get(b).length - groups.get(a).length);
  if (ranked.length < 2) return [...head("Kernel against kernel"), nothing("Two kernels are needed, and there are not.")];
  const common = (a, b) => { const mine = new Set(groups.get(a).map((row) => problem[row])); return groups.get(b).filter((row) => mine.has(problem[row])).length; };
  const one = groups.has(ui.one) ? ui.one : ranked[0];
  const partners = ranked.filter((at) => at !== one);
  const other = groups.has(ui.other) && ui.other !== one ? ui.other : partners.slice(0, 50).find((at) => common(one, at)) ?? partners[0];
  const listed = ranked.slice(0, 1000).map((at) => [at, `${scope.kernels.name[at]} (${counted(groups.get(at).length, "problem")})`]);
  const set = (name) => (word) => { ui[name] = Number(word); again(); };
  const times = new Map(groups.get(one).map((row) => [problem[row], row]));
  const pairs = groups.get(other).filter((row) => times.has(problem[row])).map((row) => ({
    problem: problem[row], a: seconds[times.get(problem[row])], b: seconds[row] }));
  return [
    ...head("Kernel against kernel", "Two kernels on the problems that both were measured on. Below the dashed line, B "
      + "is faster; above it, A is."),
    el("div", { class: "fields tall" }, choice("A", listed, one, set("one"), { id: "duel-a" }),
      choice("B", listed, other, set("other"), { id: "duel-b" }),
      el("button", { type: "button", onclick: () => { ui.one = other; ui.other = one; again(); } }, "Swap")),
    ...(pairs.length ? duelled(sel, pairs) : [nothing("They have no problem in common.")]),
  ];
}

function duelled(sel, pairs) {
  const { scope } = sel;
  const { family } = scope.problems;
  const ratios = pairs.map((one) => one.b / one.a);
  const points = { count: pairs.length, x: pairs.map((one) => one.a), y: pairs.map((one) => one.b),
    group: (at) => family.of[pairs[at].problem],
    tip: (at) => [scope.text(pairs[at].problem), `A ${asTime(pairs[at].a)}, B ${asTime(pairs[at].b)}: B takes ${asTimes(ratios[at])}`] };
  const time = (title) => ({ title, log: true, show: (one) => plainly(asTime(one)) });
  const found = [["all", pairs], ...grouped(pairs, (one) => scope.family(one.problem))].map(([name, inside]) => ({
    name, problems: inside.length, a: inside.filter((one) => one.a < one.b).length,
    b: inside.filter((one) => one.b < one.a).length, ratio: geometricMean(inside.map((one) => one.b / one.a)),
    least: Math.min(...extremes(inside.map((one) => one.b / one.a))), most: Math.max(...extremes(inside.map((one) => one.b / one.a))) }));
  const column = (name, title, show, hint) => ({ name, title, hint, value: (one) => one[name], show: (one) => show(one[name]) });
  return [
    plot({ label: `Times of A and B on ${counted(pairs.length, "problem")}`, points, groups: family.words,
      lines: [{ from: [-Infinity, -Infinity], to: [Infinity, Infinity], dashed: true }], same: true,
      x: time("time of A"), y: time("time of B"), caption: "Each point is a problem." }),
    table([
      { name: "name", title: "Family", left: true, value: (one) => one.name },
      column("problems", "Problems", asCount), column("a", "A faster", asCount), column("b", "B faster", asCount),
      column("ratio", "B over A", asTimes, "geometric mean of B's time over A's: above 1, A is faster"),
      column("least", "Least", asTimes), column("most", "Most", asTimes),
    ], found, { name: "duel", caption: "By family", order: ["problems", "down"] }),
    table([
      { name: "family", title: "Family", left: true, value: (one) => scope.family(one.problem) },
      ...problemColumns(scope, (one) => one.problem),
      { name: "a", title: "A", value: (one) => one.a, show: (one) => asTime(one.a) },
      { name: "b", title: "B", value: (one) => one.b, show: (one) => asTime(one.b) },
      { name: "ratio", title: "B over A", value: (one) => one.b / one.a, show: (one) => asTimes(one.b / one.a) },
    ], pairs, { name: "duel-problems", caption: "Problem by problem", order: ["ratio", "down"] }),
  ];
}

// -- predicted against measured ----------------------------------------------------------------------------------

function predictedView(sel, ui, again) {
  const { scope } = sel;
  const kinds = scope.predictors;
  const notes = (scope.raw.rows.notes || []).map((one) => el("li", {}, `${counted(one.rows, "row")}: ${one.why}`));
  const silent = notes.length ? [el("h3", {}, "Nothing is predicted for"), el("ul", { class: "plain" }, notes)] : [];
  if (!kinds.length) return [...head("Predicted against measured"), nothing("This page holds no predictions."), ...silent];
  const kind = kinds.includes(ui.kind) ? ui.kind : kinds[kinds.length - 1];
  const predicted = scope.rows[kind];
  const { problem, seconds } = scope.rows;
  const rows = [...sel.timed].filter((row) => predicted[row] > 0);
  const { family } = scope.problems;
  const points = { count: rows.length, x: rows.map((row) => seconds[row]), y: rows.map((row) => predicted[row]),
    group: (at) => family.of[problem[rows[at]]],
    tip: (at) => [scope.text(problem[rows[at]]), `measured ${asTime(points.x[at])}, predicted ${asTime(points.y[at])}`,
      scope.kernels.name[scope.rows.kernel[rows[at]]]] };
  const time = (title) => ({ title, log: true, show: (one) => plainly(asTime(one)) });
  const drawn = rows.length > MOST_POINTS ? ` One in ${Math.ceil(rows.length / MOST_POINTS)} is drawn.` : "";
  const name = kind === "model" ? `the learned model ${scope.raw.rows.model_name}` : "the analytic estimate";
  return [
    ...head("Predicted against measured", "Every measured kernel, with the time that was expected of it. What matters "
      + "for choosing is the order within a problem; a common factor does no harm."),
    el("div", { class: "fields" }, choice("Predicted by", kinds.map((one) => [one, NAMES[one]]), kind,
      (word) => { ui.kind = word; again(); }, { id: "predicted-by" })),
    rows.length ? plot({ label: `Predicted and measured times of ${counted(rows.length, "measurement")}`, points,
      groups: family.words, lines: [{ from: [-Infinity, -Infinity], to: [Infinity, Infinity], dashed: true }], same: true,
      x: time("measured"), y: time("predicted"),
      caption: `Predicted by ${name}; the dashed line is a prediction that came true.${drawn}` }) : nothing("Nothing is left."),
    predictionTable(sel, rows, predicted),
    ...silent,
  ];
}

function predictionTable(sel, rows, predicted) {
  const { scope } = sel;
  const { problem, seconds } = scope.rows;
  const found = [["all", rows], ...grouped(rows, (row) => scope.family(problem[row]))].map(([name, inside]) => {
    const logs = inside.map((row) => Math.log(predicted[row] / seconds[row]));
    const middle = quantile(sortedCopy(logs), 0.5);
    const orders = [...grouped(inside, (row) => problem[row]).values()].filter((each) => each.length > 2)
      .map((each) => rankCorrelation(each.map((row) => predicted[row]), each.map((row) => seconds[row])));
    return { name, rows: inside.length, factor: Math.exp(middle), order: mean(orders),
      off: Math.exp(quantile(sortedCopy(logs.map((one) => Math.abs(one - middle))), 0.5)) - 1 };
  });
  const column = (name, title, show, hint) => ({ name, title, hint, value: (one) => one[name], show: (one) => show(one[name]) });
  return table([
    { name: "name", title: "Family", left: true, value: (one) => one.name },
    column("rows", "Measurements", asCount),
    column("factor", "Predicted over measured", asTimes, "median: the common factor"),
    column("off", "Typical error", asShare, "half of the predictions are nearer, the common factor taken out"),
    column("order", "Order within a problem", (one) => significant(one, 3), "mean rank correlation (Spearman): 1 is the right order"),
  ], found, { name: "predictions", caption: "By family", order: ["rows", "down"] });
}

// -- regret ------------------------------------------------------------------------------------------------------

function regret(sel, ui, again) {
  const { scope } = sel;
  const made = allChoices(sel);
  if (!made.length) return [...head("Regret by family"), nothing("There is no estimate, model or saved choice to judge.")];
  const found = made.flatMap(({ kind, found: all }) => [["all", all], ...grouped(all, (one) => scope.family(one.problem))]
    .map(([name, inside]) => ({ kind, name, ...scores(inside) })));
  const column = (name, title, show, hint) => ({ name, title, hint, value: (one) => one[name], show: (one) => show(one[name]) });
  const kind = made.some((one) => one.kind === ui.kind) ? ui.kind : made[0].kind;
  const worst = made.find((one) => one.kind === kind).found;
  return [
    ...head("Regret by family", "What a choice costs: the fastest kernel's time over that of the kernel chosen, among "
      + "the kernels the filters leave. 100% is no regret."),
    plot({ label: "Share of problems that reach an efficiency, for each way of choosing", groups: made.map((one) => NAMES[one.kind]),
      curves: made.map((one, at) => ({ hue: at, points: reachedCurve(one.found) })),
      x: { title: "efficiency of the choice", show: (one) => `${Math.round(one * 100)}%`, most: 1, tight: true },
      y: { title: "share of problems below it", show: (one) => `${Math.round(one * 100)}%`, least: 0, most: 1, tight: true },
      caption: "The lower and the further to the right, the better." }),
    table([
      { name: "kind", title: "Chosen by", left: true, value: (one) => NAMES[one.kind] },
      { name: "name", title: "Family", left: true, value: (one) => one.name },
      column("problems", "Problems", asCount),
      { name: "mean", title: "Mean efficiency", value: (one) => one.mean, show: (one) => bar(one.mean, asShare(one.mean)) },
      column("p10", "P10", asShare), column("worst", "Worst", asShare),
      column("regret", "Mean regret", asShare, "how much longer the choices take than the fastest"),
      column("top1", "Top 1", asShare, "problems whose fastest kernel was chosen"),
      column("top5", "Top 5", asShare, "problems whose fastest kernel was among the first five"),
    ], found, { name: "regret", caption: "Efficiency of choices by family", order: ["kind", "up"] }),
    el("h3", {}, "Where it costs most"),
    el("div", { class: "fields" }, choice("Chosen by", made.map((one) => [one.kind, NAMES[one.kind]]), kind,
      (word) => { ui.kind = word; again(); })),
    worstTable(sel, worst),
  ];
}

function reachedCurve(found) {
  const reached = sortedCopy(found.map((one) => one.efficiency));
  const step = Math.max(1, Math.floor(reached.length / 400));
  const points = [[reached[0], 0]];
  for (let at = 0; at < reached.length; at += step) points.push([reached[at], at / reached.length], [reached[at], (at + 1) / reached.length]);
  points.push([reached[reached.length - 1], 1]);
  return points;
}

function worstTable(sel, found) {
  const { scope } = sel;
  const { seconds, kernel } = scope.rows;
  const named = (name, title, row) => ({ name, title, left: true, wide: true, value: (one) => scope.kernels.name[kernel[row(one)]],
    show: (one) => kernelName(scope, kernel[row(one)]) });
  const time = (name, title, row) => ({ name, title, value: (one) => seconds[row(one)], show: (one) => asTime(seconds[row(one)]) });
  return table([
    { name: "family", title: "Family", left: true, value: (one) => scope.family(one.problem) },
    ...problemColumns(scope, (one) => one.problem),
    { name: "efficiency", title: "Efficiency", value: (one) => one.efficiency, show: (one) => asShare(one.efficiency) },
    time("chosen time", "Chosen", (one) => one.row), time("best time", "Fastest", (one) => one.best),
    named("chosen", "Chosen kernel", (one) => one.row), named("best", "Fastest kernel", (one) => one.best),
  ], found, { name: "worst", caption: "Choices", order: ["efficiency", "up"] });
}

// -- failures ----------------------------------------------------------------------------------------------------

function failures(sel) {
  const { scope } = sel;
  const { problem, kernel, status, reason } = scope.rows;
  if (!sel.failed.length) return [...head("What failed and why"), nothing("Nothing failed among what the filters leave.")];
  const word = (row) => scope.statuses[status[row]];
  const found = [...grouped(sel.failed, (row) => `${status[row]} ${reason.of[row]}`).values()].map((rows) => ({
    row: rows[0], count: rows.length, kernels: new Set(rows.map((row) => kernel[row])).size,
    problems: new Set(rows.map((row) => problem[row])).size }));
  const tried = new Map();
  for (const rows of [sel.timed, sel.failed]) for (const row of rows) tried.set(kernel[row], (tried.get(kernel[row]) || 0) + 1);
  const worst = [...grouped(sel.failed, (row) => kernel[row])].map(([at, rows]) => ({ at, failed: rows.length,
    share: rows.length / tried.get(at), how: [...new Set(rows.map(word))].join(", ") }));
  const column = (name, title, show, hint) => ({ name, title, hint, value: (one) => one[name], show: (one) => show(one[name]) });
  return [
    ...head("What failed and why", "Rows without a time. Nothing is timed before its result was checked."),
    cards([...grouped(sel.failed, word)].map(([name, rows]) => [name, asCount(rows.length)])),
    table([
      { name: "status", title: "Status", left: true, value: (one) => word(one.row) },
      column("count", "Rows", asCount), column("kernels", "Kernels", asCount), column("problems", "Problems", asCount),
      { name: "reason", title: "Reason", left: true, wide: true, value: (one) => reason.words[reason.of[one.row]],
        show: (one) => el("span", { class: "reason" }, reason.words[reason.of[one.row]] || "none was given") },
      { name: "example", title: "For example", left: true, wide: true, value: (one) => scope.kernels.name[kernel[one.row]],
        show: (one) => [kernelName(scope, kernel[one.row]), el("br"), scope.text(problem[one.row])] },
    ], found, { name: "failures", caption: "By reason", order: ["count", "down"] }),
    table([
      { name: "kernel", title: "Kernel", left: true, wide: true, value: (one) => scope.kernels.name[one.at], show: (one) => kernelName(scope, one.at) },
      column("failed", "Failed", asCount),
      { name: "share", title: "Of what was tried", value: (one) => one.share, show: (one) => bar(one.share, asShare(one.share)) },
      { name: "how", title: "How", left: true, value: (one) => one.how },
    ], worst, { name: "failing", caption: "By kernel", order: ["failed", "down"] }),
  ];
}

// -- where it comes from -----------------------------------------------------------------------------------------

function facts(found) {
  return el("dl", { class: "facts" }, Object.entries(found).map(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))]));
}

function about(sel) {
  const { raw } = sel.scope;
  return [
    ...head("About this page"),
    facts({ Sources: page.sources.join(", "), Written: page.made, "Tilewright": page.version,
      Measured: `${asDay(raw.first)} to ${asDay(raw.last)}, UTC`, Rows: asCount(sel.scope.rows.count),
      Kernels: asCount(raw.kernels.name.length), Problems: asCount(sel.scope.problems.count), "Arch of kernels": raw.archs.join(", ") }),
    el("h3", {}, "Device"), facts(raw.device),
    el("h3", {}, "How it was measured"),
    raw.contexts.map((one) => el("section", { class: "context" }, el("h4", {}, counted(one.rows, "row")),
      facts(one.method), facts(one.versions))),
  ];
}
