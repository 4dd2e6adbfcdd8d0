// The page: scope, filters, views.

const VIEWS = [
  ["leaderboard", "Leaderboard", leaderboard], ["problems", "Problems", problemsView], ["heat", "Heat map", heatMap],
  ["roofline", "Roofline", roofline], ["duel", "Kernel against kernel", duel],
  ["predicted", "Predicted", predictedView], ["regret", "Regret", regret], ["failures", "Failures", failures],
  ["about", "About", about],
];

let page = null;
const state = { scope: null, filter: freshFilter(), view: "leaderboard", ui: {} };

function show() {
  drawings.clear();
  hideTip();
  const sel = selected(state.scope, state.filter);
  const [name, , view] = VIEWS.find(([one]) => one === state.view);
  state.ui[name] = state.ui[name] || {};
  const kept = `${asCount(sel.left)} of ${counted(state.scope.problems.count, "problem")}, `
    + `${counted(sel.timed.length + sel.failed.length, "row")}`;
  byId("kept").textContent = kept;
  byId("view").replaceChildren(...view(sel, state.ui[name], again).flat(3).filter(Boolean));
  byId("view").setAttribute("aria-labelledby", `tab-${name}`);
  redraw();
}

/** The same view again, with the focus where it was. */
function again() {
  const id = document.activeElement && document.activeElement.id;
  const top = window.scrollY;
  show();
  if (id && byId(id)) byId(id).focus();
  window.scrollTo(0, top);
}

// -- views -------------------------------------------------------------------------------------------------------

function makeTabs() {
  byId("tabs").replaceChildren(...VIEWS.map(([name, title]) => el("button", {
    type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "view",
    onclick: () => openView(name), onkeydown: (event) => walkTabs(event, name),
  }, title)));
}

function openView(name) {
  state.view = name;
  for (const [one] of VIEWS) {
    const mine = one === name;
    byId(`tab-${one}`).setAttribute("aria-selected", mine ? "true" : "false");
    byId(`tab-${one}`).tabIndex = mine ? 0 : -1;
  }
  if (location.hash.slice(1) !== name) history.replaceState(null, "", `#${name}`);
  show();
}

function walkTabs(event, name) {
  const at = VIEWS.findIndex(([one]) => one === name);
  const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: VIEWS.length - 1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  const [goal] = VIEWS[(next + VIEWS.length) % VIEWS.length];
  openView(goal);
  byId(`tab-${goal}`).focus();
}

// -- filters -----------------------------------------------------------------------------------------------------

let waiting = 0;

/** After the last key, not after each. */
function soon() {
  clearTimeout(waiting);
  waiting = setTimeout(again, 150);
}

function makeFilters() {
  const { scope, filter } = state;
  const { columns, family } = scope.problems;
  const families = [...family.words].sort();
  const text = el("input", { type: "search", id: "filter-kernel", value: filter.kernel, placeholder: "words; -word leaves out",
    oninput: () => { filter.kernel = text.value; soon(); } });
  const boxes = families.length > 1 ? el("fieldset", {}, el("legend", {}, "Family"), families.map((name) => chip(name))) : "";
  const some = columns.filter((one) => one.distinct > 1).map(columnFilter).filter(Boolean);
  byId("filters").replaceChildren(...[
    el("label", { class: "field grow" }, "Kernel", text), boxes,
    some.length ? el("details", {}, el("summary", {}, "Problem fields"), el("div", { class: "fields" }, some)) : "",
    el("button", { type: "button", id: "reset", onclick: () => { state.filter = freshFilter(); makeFilters(); show(); } }, "Reset"),
    el("output", { id: "kept", "aria-live": "polite" }),
  ].filter(Boolean));
}

function chip(name) {
  const { families } = state.filter;
  const box = el("input", { type: "checkbox", value: name, onchange: () => {
    if (box.checked) families.add(name);
    else families.delete(name);
    again();
  } });
  box.checked = families.has(name);
  return el("label", { class: "chip" }, box, name);
}

function columnFilter(one) {
  const { filter } = state;
  if (one.words) {
    if (one.words.length > 200) return null;
    const listed = [...one.words].sort().map((word) => [word, word === "" ? "(none)" : word]);
    return choice(one.name, [["\u0000", "any"], ...listed.filter(([word]) => word !== "")], filter.words[one.name] ?? "\u0000",
      (word) => { filter.words[one.name] = word === "\u0000" ? "" : word; again(); }, { "data-field": one.name });
  }
  const end = (which, label) => {
    const input = el("input", { type: "number", step: "any", placeholder: label, "aria-label": `${label} ${one.name}`,
      "data-field": one.name, "data-end": which, value: filter[which][one.name] ?? "",
      oninput: () => { filter[which][one.name] = input.value === "" ? undefined : Number(input.value); soon(); } });
    return input;
  };
  return el("span", { class: "field" }, one.name, el("span", { class: "range" }, end("least", "from"), end("most", "to")));
}

// -- the beginning -----------------------------------------------------------------------------------------------

function take(scope) {
  state.scope = scope;
  state.filter = freshFilter();
  state.ui = {};
  makeFilters();
  openView(state.view);
}

function dark() {
  const set = document.documentElement.dataset.theme;
  return set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function begin() {
  page = JSON.parse(byId("data").textContent);
  byId("title").textContent = page.title;
  byId("written").textContent = `Written ${page.made} by Tilewright ${page.version}`;
  const scopes = page.scopes.map((one) => new Scope(one));
  const select = byId("scope");
  select.replaceChildren(...scopes.map((one, at) => el("option", { value: at }, one.label)));
  select.addEventListener("change", () => take(scopes[Number(select.value)]));
  const theme = byId("theme");
  theme.textContent = dark() ? "Light" : "Dark";
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    theme.textContent = dark() ? "Light" : "Dark";
    redraw();
  });
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  makeTabs();
  const wanted = location.hash.slice(1);
  if (VIEWS.some(([name]) => name === wanted)) state.view = wanted;
  take(scopes[0]);
  let width = window.innerWidth;
  window.addEventListener("resize", () => { if (window.innerWidth !== width) { width = window.innerWidth; redraw(); } });
}

document.addEventListener("DOMContentLoaded", begin);
