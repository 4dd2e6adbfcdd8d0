// The views: each makes elements out of what the filters leave.  `ui` keeps what was chosen in a view, `again` draws it.

const head = (title, text) => [el("h2", {}, title), text ? el("p", { class: "lead" }, text) : ""];
const nothing = (text) => el("p", { class: "note" }, text);

/** Cards with one number each. */
function cards(found) {
  return el("dl", { class: "cards" }, found.map(([name, value, more]) => el("div", {},
    el("dt", {}, name), el("dd", {}, value), more ? el("dd", { class: "more" }, more) : "")));
}

// -- kernels -----------------------------------------------------------------------------------------------------

function leaderboard(sel) {
  const { scope } = sel;
  const { problem, kernel, seconds } = scope.rows;
  const failures = grouped(sel.failed, (row) => kernel[row]);
  const found = [];
  for (const [at, rows] of grouped(sel.timed, (row) => kernel[row])) {
    const reached = sortedCopy(rows.map((row) => seconds[sel.best[problem[row]]] / seconds[row]));
    found.push({
      kernel: at,
      problems: rows.length,
      wins: rows.filter((row) => sel.best[problem[row]] === row).length,
      near: reached.filter((one) => one >= 0.95).length / rows.length,
      mean: geometricMean(reached),
      p10: quantile(reached, 0.1),
      worst: reached[0],
      rate: rows.reduce((most, row) => Math.max(most, scope.rate(problem[row], seconds[row]) || 0), 0) || NaN,
      failed: (failures.get(at) || []).length,
    });
    failures.delete(at);
  }
  for (const [at, rows] of failures) {
    found.push({ kernel: at, problems: 0, wins: 0, near: NaN, mean: NaN, p10: NaN, worst: NaN, rate: NaN,
      failed: rows.length });
  }
  const column = (name, title, show, hint) => ({ name, title, hint, value: (one) => one[name],
    show: (one) => show(one[name]) });
  return [
    ...head("Leaderboard", "How each kernel does beside the fastest kernel of each problem it was measured on. 100% is "
      + "the fastest; a kernel that won nothing may still be the safest choice."),
    cards([
      ["Kernels", asCount(found.length)],
      ["Problems solved", asCount(sel.solved.length), `of ${asCount(sel.left)}`],
      ["Measurements", asCount(sel.timed.length), `${asCount(sel.failed.length)} failed`],
      ["Kernels that win somewhere", asCount(found.filter((one) => one.wins).length)],
      ["Noisy winners", asCount(sel.solved.filter((at) => scope.rows.spread[sel.best[at]] > NOISY).length),
        `a spread over ${asShare(NOISY)}`],
    ]),
    table([
      { name: "kernel", title: "Kernel", left: true, wide: true, value: (one) => scope.kernels.name[one.kernel],
        show: (one) => kernelName(scope, one.kernel) },
      column("wins", "Wins", asCount, "problems on which it is the fastest"),
      column("problems", "Problems", asCount, "problems on which it has a time"),
      { name: "mean", title: "Mean", hint: "geometric mean of the fastest time over its own", value: (one) => one.mean,
        show: (one) => bar(one.mean, asShare(one.mean)) },
      column("p10", "P10", asShare, "nine problems of ten reach more"),
      column("worst", "Worst", asShare),
      column("near", "Within 5%", asShare, "problems on which it takes at most 5% longer than the fastest"),
      column("rate", "Best rate", asRate),
      column("failed", "Failed", asCount),
    ], found, { name: "leaderboard", caption: "Kernels", order: ["wins", "down"] }),
  ];
}

const NOISY = 0.2; // a spread that says that something else ran, whatever the lead

// -- problems ----------------------------------------------------------------------------------------------------

function problemTable(sel, problems, name, caption) {
  const { scope } = sel;
  const { seconds, kernel, spread } = scope.rows;
  const counts = new Map();
  const second = new Map();
  for (const row of sel.timed) {
    const at = scope.rows.problem[row];
    counts.set(at, (counts.get(at) || 0) + 1);
    if (row !== sel.best[at]) second.set(at, Math.min(second.get(at) || Infinity, seconds[row]));
  }
  const time = (at) => seconds[sel.best[at]];
  const lead = (at) => (second.get(at) || NaN) / time(at) - 1;
  const noise = (at) => spread[sel.best[at]];
  const uncertain = (at) => noise(at) > NOISY || noise(at) > lead(at);
  const some = (name, title, value, show, hint) => ({ name, title, hint, value, show: (at) => show(value(at)) });
  const share = (at) => scope.rate(at, time(at)) / scope.roof(at);
  return table([
    { name: "family", title: "Family", left: true, value: (at) => scope.family(at) },
    ...problemColumns(scope, (at) => at),
    some("time", "Time", time, asTime),
    some("rate", "Rate", (at) => scope.rate(at, time(at)), asRate),
    some("roof", "Of the roof", share, asShare, "of what arithmetic and memory let it reach"),
    some("lead", "Lead", lead, asShare, "how much longer the second takes"),
    { name: "spread", title: "Spread", hint: "interquartile range over the median; red where it is more than the lead",
      value: noise, show: (at) => (uncertain(at) ? el("span", { class: "noisy" }, asShare(noise(at))) : asShare(noise(at))) },
    { name: "certain", title: "Certain", hint: "whether the fastest leads by more than its times differ",
      value: (at) => Number(!uncertain(at)), show: (at) => (uncertain(at) ? el("span", { class: "noisy" }, "no: noise") : "yes") },
    some("kernels", "Kernels", (at) => counts.get(at), asCount, "that have a time"),
    { name: "winner", title: "Fastest kernel", left: true, wide: true,
      value: (at) => scope.kernels.name[kernel[sel.best[at]]], show: (at) => kernelName(scope, kernel[sel.best[at]]) },
  ], problems, { name, caption, order: ["time", "down"] });
}

function problemsView(sel) {
  return [...head("Problems", "The fastest kernel of each problem, how close it is to the roof, and by how much it "
    + "leads."), problemTable(sel, sel.solved, "problems", "Problems")];
}

// -- heat map ----------------------------------------------------------------------------------------------------

const MOST_BINS = 40;

/** Bins of a column: each value where they are few, else powers of two. */
function bins(scope, column, problems) {
  if (column.words) {
    const used = [...new Set(problems.map((at) => column.of[at]))].sort((a, b) => (column.words[a] < column.words[b] ? -1 : 1));
    return { of: (at) => column.of[at], keys: used.slice(0, MOST_BINS), all: used.length, label: (key) => column.words[key] };
  }
  const values = [...new Set(problems.map((at) => column.numbers[at]))].filter(isNumber).sort((a, b) => a - b);
  if (values.length <= 16 || values.some((one) => one < 1)) {
    return { of: (at) => column.numbers[at], keys: values.slice(0, MOST_BINS), all: values.length, label: String };
  }
  const of = (at) => Math.floor(Math.log2(column.numbers[at]));
  const used = [...new Set(problems.map(of))].sort((a, b) => a - b);
  return { of, keys: used, all: used.length, label: (key) => (key < 1 ? "1" : `${2 ** key}–${2 ** (key + 1) - 1}`) };
}

function heatValues(sel) {
  const { scope } = sel;
  const time = (at) => scope.rows.seconds[sel.best[at]];
  const found = {
    rate: { title: "Rate of the fastest kernel", of: (at) => scope.rate(at, time(at)), together: geometricMean, show: asRate },
    roof: { title: "Share of the roof", of: (at) => scope.rate(at, time(at)) / scope.roof(at), together: geometricMean, show: asShare },
    time: { title: "Time of the fastest kernel", of: time, together: geometricMean, show: asTime, less: true },
    count: { title: "Number of problems", of: () => 1, together: sum, show: asCount },
    failed: { title: "Share of measurements that failed", of: failing(sel), together: mean, show: asShare, less: true, all: true },
  };
  for (const { kind, found: made } of allChoices(sel)) {
    const reached = new Map(made.map((one) => [one.problem, one.efficiency]));
    found[kind] = { title: `Efficiency of the ${NAMES[kind]}`, of: (at) => reached.get(at), together: geometricMean, show: asShare };
  }
  return found;
}

function failing(sel) {
  const { problem } = sel.scope.rows;
  const counts = new Map();
  const add = (row, bad) => {
    const known = counts.get(problem[row]) || [0, 0];
    known[0] += bad;
    known[1] += 1;
    counts.set(problem[row], known);
  };
  for (const row of sel.timed) add(row, 0);
  for (const row of sel.failed) add(row, 1);
  return (at) => (counts.has(at) ? counts.get(at)[0] / counts.get(at)[1] : NaN);
}

function heatMap(sel, ui, again) {
  const { scope } = sel;
  const { columns } = scope.problems;
  const several = [...columns].filter((one) => one.distinct > 1).sort((a, b) => b.distinct - a.distinct);
  if (several.length < 1) return [...head("Heat map"), nothing("All problems are the same: there is no map to draw.")];
  const usual = columns.filter((one) => one.distinct > 1 && one.numbers);
  const named = (word, other) => columns.find((one) => one.name === word) || other;
  const down = named(ui.down, usual[0] || several[0]);
  const across = named(ui.across, usual[1] || several[1] || several[0]);
  const values = heatValues(sel);
  const value = values[ui.value] || values.rate;
  const set = (name) => (word) => { ui[name] = word; ui.cell = ""; again(); };
  const fields = columns.map((one) => [one.name, one.name]);
  return [
    ...head("Heat map over shapes", "Each cell is a range of problems. Its number is the geometric mean over them, or "
      + "their count. Choose a cell to see its problems below."),
    el("div", { class: "fields" },
      choice("Down", fields, down.name, set("down"), { id: "heat-down" }),
      choice("Across", fields, across.name, set("across"), { id: "heat-across" }),
      choice("Value", Object.entries(values).map(([key, one]) => [key, one.title]), ui.value || "rate", set("value"),
        { id: "heat-value" })),
    ...heatGrid(sel, ui, { down, across, value }, again),
  ];
}

function heatGrid(sel, ui, { down, across, value }, again) {
  const { scope } = sel;
  const problems = value.all ? [...sel.problems.keys()].filter((at) => sel.problems[at]) : sel.solved;
  const rows = bins(scope, down, problems);
  const cols = bins(scope, across, problems);
  const cells = grouped(problems, (at) => `${rows.of(at)} ${cols.of(at)}`);
  const shown = new Map();
  for (const [key, inside] of cells) {
    const numbers = inside.map(value.of).filter((one) => isNumber(one) && (one > 0 || value.all));
    if (numbers.length) shown.set(key, value.together(numbers));
  }
  const all = sortedCopy(shown.values());
  const low = all[0];
  const high = all[all.length - 1];
  const wide = low > 0 && high / low > 20;
  const depth = (one) => {
    const share = high > low ? (wide ? Math.log(one / low) / Math.log(high / low) : (one - low) / (high - low)) : 0.5;
    return value.less ? 1 - share : share;
  };
  const cell = (row, col) => {
    const key = `${row} ${col}`;
    if (!shown.has(key)) return el("td", { class: "none" });
    const inner = el("button", { type: "button", id: `cell ${key}`, "aria-pressed": ui.cell === key ? "true" : "false",
      "aria-label": `${down.name} ${rows.label(row)}, ${across.name} ${cols.label(col)}: ${value.show(shown.get(key))}, `
        + `${counted(cells.get(key).length, "problem")}`,
      onclick: () => { ui.cell = ui.cell === key ? "" : key; again(); } }, value.show(shown.get(key)));
    const [back, front] = heat(depth(shown.get(key)));
    inner.style.background = back;
    inner.style.color = front;
    return el("td", {}, inner);
  };
  const inside = cells.get(ui.cell);
  const cut = [[down, rows], [across, cols]].filter(([, one]) => one.all > MOST_BINS);
  return [
    el("div", { class: "heatbox", tabindex: "0", role: "region", "aria-label": "Heat map" },
      el("table", { class: cols.keys.length > 12 ? "heat many" : "heat" },
        el("caption", {}, `${value.title}: ${down.name} down, ${across.name} across`),
        el("thead", {}, el("tr", {}, el("td", {}), cols.keys.map((one) => el("th", { scope: "col" }, cols.label(one))))),
        el("tbody", {}, rows.keys.map((row) => el("tr", {}, el("th", { scope: "row" }, rows.label(row)),
          cols.keys.map((col) => cell(row, col))))))),
    cut.map(([column, one]) => nothing(`Of ${column.name}, the first ${MOST_BINS} of ${asCount(one.all)} values are shown.`)),
    inside ? problemTable(sel, inside.filter((at) => sel.best[at] >= 0), "cell", "Problems of the chosen cell") : "",
  ];
}

// Dark blue to yellow, even in lightness; the text on it is dark or light, whichever reads better.
const HEAT = [[52, 36, 94], [45, 87, 139], [33, 133, 138], [70, 176, 111], [171, 210, 66], [250, 230, 90]];

function heat(share) {
  const at = Math.max(0, Math.min(0.9999, share)) * (HEAT.length - 1);
  const low = Math.floor(at);
  const mixed = HEAT[low].map((one, index) => Math.round(one + (HEAT[low + 1][index] - one) * (at - low)));
  const linear = mixed.map((one) => { const c = one / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
  const light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return [`rgb(${mixed.join(",")})`, light > 0.19 ? "#111" : "#fff"];
}

// -- roofline ----------------------------------------------------------------------------------------------------

function roofline(sel, ui, again) {
  const { scope } = sel;
  const { flops, bytes, family } = scope.problems;
  const dtypes = [...new Set(sel.solved.map((at) => scope.dtype(at)))];
  const dtype = dtypes.includes(ui.dtype) ? ui.dtype : "";
  const kept = sel.solved.filter((at) => flops[at] > 0 && bytes[at] > 0 && (!dtype || scope.dtype(at) === dtype));
  const roofs = scope.roofs.filter((one) => (dtype ? one.dtype === dtype : dtypes.includes(one.dtype)));
  if (!kept.length || !roofs.length) {
    return [...head("Roofline"), nothing("What work these problems are, or what the device reaches, is not known.")];
  }
  const rate = (at) => scope.rate(at, scope.rows.seconds[sel.best[at]]);
  const points = {
    count: kept.length,
    x: kept.map((at) => flops[at] / bytes[at]),
    y: kept.map(rate),
    group: (index) => family.of[kept[index]],
    tip: (index) => [scope.text(kept[index]), `${asRate(points.y[index])}, ${asShare(points.y[index] / scope.roof(kept[index]))} of the roof`,
      scope.kernels.name[scope.rows.kernel[sel.best[kept[index]]]]],
  };
  return [
    ...head("Roofline", "The fastest kernel of each problem: operations a second over operations a byte. A point on a "
      + "roof does all that the device lets it."),
    dtypes.length > 1 ? el("div", { class: "fields" }, choice("Element type",
      [["", "all"], ...dtypes.map((one) => [one, one || "unknown"])], dtype, (word) => { ui.dtype = word; again(); })) : "",
    plot({ label: `Roofline of ${counted(kept.length, "problem")}`, points, groups: family.words,
      lines: roofLines(roofs, points), x: { title: "operations a byte", log: true, show: (one) => plainly(significant(one, 3)) },
      y: { title: "operations a second", log: true, show: (one) => plainly(asRate(one)) },
      caption: roofCaption(roofs) }),
    roofTable(sel, kept, rate),
  ];
}

function roofLines(roofs, points) {
  const left = Math.min(...extremes(points.x));
  const right = Math.max(...extremes(points.x), ...roofs.map((one) => 4 * one.flops / one.bytes));
  const found = [];
  const speeds = new Set();
  for (const one of roofs) {
    const corner = one.flops / one.bytes;
    if (!speeds.has(one.bytes)) {
      speeds.add(one.bytes);
      const most = Math.max(...roofs.map((each) => each.flops));
      found.push({ from: [left, left * one.bytes], to: [most / one.bytes, most], counts: true,
        text: `memory ${asBytes(one.bytes)}`, textAt: [Math.sqrt(left * corner), Math.sqrt(left * corner) * one.bytes], textAlign: "right" });
    }
    found.push({ from: [corner, one.flops], to: [right, one.flops], counts: true,
      text: `${one.dtype || "all types"} ${asRate(one.flops)}`, textAt: [right, one.flops], textAlign: "right" });
  }
  return found;
}

function extremes(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const one of values) { if (one < low) low = one; if (one > high) high = one; }
  return [low, high];
}

function roofCaption(roofs) {
  return roofs.map((one) => `${one.dtype || "All types"}: ${asRate(one.flops)}, by ${one.flops_from}; `
    + `${asBytes(one.bytes)}, by ${one.bytes_from}.`).join(" ");
}

function roofTable(sel, kept, rate) {
  const { scope } = sel;
  const found = [...grouped(kept, (at) => scope.family(at))].map(([name, inside]) => {
    const shares = sortedCopy(inside.map((at) => rate(at) / scope.roof(at)));
    return { name, problems: inside.length, half: quantile(shares, 0.5), p10: quantile(shares, 0.1), most: shares[shares.length - 1] };
  });
  const column = (name, title, show) => ({ name, title, value: (one) => one[name], show: (one) => show(one[name]) });
  return table([
    { name: "name", title: "Family", left: true, value: (one) => one.name },
    column("problems", "Problems", asCount),
    { name: "half", title: "Median share of the roof", value: (one) => one.half, show: (one) => bar(one.half, asShare(one.half)) },
    column("p10", "P10", asShare), column("most", "Best", asShare),
  ], found, { name: "roofs", caption: "Share of the roof by family", order: ["half", "down"] });
}
