"use strict";
// Elements and words.  Nothing here makes markup out of text: what comes from results becomes text nodes.

const byId = (id) => document.getElementById(id);

/** An element with attributes, listeners (`onclick`) and children; strings become text. */
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value") made.value = value;
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  for (const one of children.flat(3)) {
    if (one === null || one === undefined || one === "") continue;
    made.append(one instanceof Node ? one : String(one));
  }
  return made;
}

function choice(label, options, value, heard, attributes) {
  const select = el("select", { onchange: () => heard(select.value), ...attributes },
    options.map(([key, text]) => el("option", { value: key }, text)));
  select.value = String(value);
  return el("label", { class: "field" }, label, select);
}

// -- numbers as people read them ---------------------------------------------------------------------------------

/** A number on an axis: 10 µs, not 10.0 µs. */
const plainly = (text) => text.replace(/(\.\d*?)0+(?!\d)/, "$1").replace(/\.(?!\d)/, "");

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

function significant(value, digits) {
  if (!isNumber(value)) return "–";
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  if (size >= 6 || size < -4) return value.toExponential(digits - 1);
  return value.toFixed(Math.max(0, digits - 1 - size));
}

function inUnits(value, units, step, digits) {
  if (!isNumber(value)) return "–";
  let at = 0;
  let scaled = value;
  while (at < units.length - 1 && Math.abs(scaled) >= step * 0.9995) { scaled /= step; at += 1; }
  return `${significant(scaled, digits || 3)} ${units[at]}`;
}

const asTime = (seconds) => inUnits(seconds * 1e9, ["ns", "µs", "ms", "s"], 1000);
const asRate = (rate) => inUnits(rate, ["FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"], 1000);
const asBytes = (rate) => inUnits(rate, ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"], 1000);
const asShare = (value) => (isNumber(value) ? `${(value * 100).toFixed(value > 0.9995 && value < 1 ? 2 : 1)}%` : "–");
const asTimes = (value) => (isNumber(value) ? `${significant(value, 3)}×` : "–");
const asCount = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");
const asDay = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");

/** "1 problem", "2 problems". */
const counted = (count, word) => `${asCount(count)} ${word}${count === 1 ? "" : "s"}`;

// -- statistics --------------------------------------------------------------------------------------------------

/** A quantile of sorted numbers, between its neighbours. */
function quantile(sorted, share) {
  if (!sorted.length) return NaN;
  const at = (sorted.length - 1) * share;
  const low = Math.floor(at);
  const high = Math.min(low + 1, sorted.length - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - low);
}

const sortedCopy = (values) => Float64Array.from(values).sort();
const sum = (values) => { let total = 0; for (const one of values) total += one; return total; };
const mean = (values) => (values.length ? sum(values) / values.length : NaN);

function geometricMean(values) {
  if (!values.length) return NaN;
  let total = 0;
  for (const one of values) total += Math.log(one);
  return Math.exp(total / values.length);
}
