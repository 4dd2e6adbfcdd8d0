// Tables: sorted by a click on a heading, shown a page at a time.

const PAGE = 50;
const sorts = new Map(); // by the table's name, so that a filter does not lose the order

/**
 * `columns`: {name, title, value(row), show(row), left, wide}; value is what is sorted by, show what is seen.
 * `options`: {name, caption, order: [column, direction]}.
 */
function table(columns, rows, options) {
  const state = sorts.get(options.name) || { column: options.order[0], down: options.order[1] !== "up" };
  sorts.set(options.name, state);
  let shown = PAGE;
  const body = el("tbody");
  const more = el("button", { type: "button", class: "more", onclick: () => { shown += 4 * PAGE; fill(); } });
  const heads = columns.map((one) => heading(one, () => {
    state.down = state.column === one.name ? !state.down : !one.left;
    state.column = one.name;
    shown = PAGE;
    fill();
  }));
  let order = null;
  let orderedBy = "";

  function fill() {
    const wanted = `${state.column} ${state.down}`;
    if (orderedBy !== wanted) { order = ordered(columns, rows, state); orderedBy = wanted; }
    heads.forEach((one, at) => {
      const mine = columns[at].name === state.column;
      one.setAttribute("aria-sort", mine ? (state.down ? "descending" : "ascending") : "none");
    });
    body.replaceChildren(...order.slice(0, shown).map((row) => line(columns, row)));
    more.hidden = rows.length <= shown;
    more.textContent = `Show more (${asCount(rows.length - shown)} left)`;
  }

  fill();
  return el("div", { class: "tablebox" },
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": options.caption },
      el("table", { "data-name": options.name }, el("caption", {}, options.caption),
        el("thead", {}, el("tr", {}, heads)), body)),
    rows.length ? more : el("p", { class: "note" }, "Nothing is left to show here."));
}

function heading(column, heard) {
  const inner = el("button", { type: "button", onclick: heard, title: column.hint },
    column.title || column.name, el("span", { class: "arrow", "aria-hidden": "true" }));
  return el("th", { scope: "col", class: column.left ? "left" : "right", "data-column": column.name }, inner);
}

function line(columns, row) {
  return el("tr", {}, columns.map((one) => el("td", {
    class: `${one.left ? "left" : "right"}${one.wide ? " wide" : ""}`,
  }, one.show ? one.show(row) : String(one.value(row)))));
}

function ordered(columns, rows, state) {
  const column = columns.find((one) => one.name === state.column) || columns[0];
  const keys = rows.map((row) => column.value(row));
  const sign = state.down ? -1 : 1;
  const order = rows.map((_, at) => at);
  order.sort((one, other) => {
    const a = keys[one];
    const b = keys[other];
    const lost = Number(empty(a)) - Number(empty(b)); // what is not there comes last, whatever the direction
    if (lost) return lost;
    if (a < b) return -sign;
    if (a > b) return sign;
    return one - other;
  });
  return order.map((at) => rows[at]);
}

const empty = (value) => value === null || value === undefined || Number.isNaN(value);

/** A kernel's name that may break where it is too long. */
function kernelName(scope, kernel) {
  return el("span", { class: "kernel", title: `${scope.kernels.name[kernel]}\n${scope.kernels.digest[kernel]}` },
    scope.kernels.name[kernel].split(/(?<=_)/).flatMap((part) => [part, el("wbr")]));
}

/** A share as a number beside a bar. */
function bar(value, text) {
  const fill = el("span", { class: "fill" });
  fill.style.width = `${Math.max(0, Math.min(1, value || 0)) * 100}%`;
  return el("span", { class: "bar" }, el("span", { class: "track" }, fill), el("span", { class: "text" }, text));
}

/** The columns of a problem's own fields. */
function problemColumns(scope, problemOf) {
  return scope.problems.telling.map((one) => ({
    name: `field ${one.name}`,
    title: one.name,
    left: Boolean(one.words),
    value: (row) => scope.value(one, problemOf(row)),
    show: (row) => String(scope.value(one, problemOf(row))),
  }));
}
