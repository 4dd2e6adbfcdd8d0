// Drawings on a canvas, in the colours of the page: points with names, straight lines, curves.

const SHAPES = ["circle", "square", "triangle", "diamond"];
const MOST_POINTS = 60000; // more than that is ink, not information
const FONT = "12px system-ui, sans-serif";
const LABEL = 16; // height of a label, in pixels
const drawings = new Set(); // those on the page: drawn again when its width or colours change

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const hue = (at) => css(`--hue-${(at % 8) + 1}`);

class Axis {
  constructor(given, low, high) {
    this.given = given;
    const log = given.log;
    let from = log ? Math.log10(low) : low;
    let to = log ? Math.log10(high) : high;
    if (!(to > from)) { from -= 0.5; to += 0.5; }
    const edge = given.tight ? 0 : (to - from) * 0.04;
    this.from = from - edge;
    this.to = to + edge;
  }

  place(value) { return ((this.given.log ? Math.log10(value) : value) - this.from) / (this.to - this.from); }

  ticks(room) {
    if (!this.given.log) {
      const step = niceStep((this.to - this.from) / Math.max(2, Math.floor(room / 70)));
      const found = [];
      for (let at = Math.ceil(this.from / step - 1e-9) * step; at <= this.to + 1e-9; at += step) found.push(at);
      return found;
    }
    const decades = this.to - this.from;
    const steps = decades < 1.5 ? [1, 2, 5] : [1];
    const every = Math.max(1, Math.ceil((decades * 60) / room));
    const found = [];
    for (let power = Math.floor(this.from); power <= Math.ceil(this.to); power += 1) {
      if (power % every) continue;
      for (const step of steps) {
        const at = Math.log10(step) + power;
        if (at >= this.from - 1e-9 && at <= this.to + 1e-9) found.push(step * 10 ** power);
      }
    }
    return found;
  }
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * ([1, 2, 2.5, 5, 10].find((one) => one * power >= rough) || 10);
}

/**
 * `given`: {label, x: {title, log, show}, y: {...}, points: {count, x, y, group(i), tip(i)}, groups: [names],
 * same: true for axes of one range, lines: [{from: [x, y], to: [x, y], text, dashed, hue}], curves: [{hue, points: [[x, y], ...]}], caption}
 */
function plot(given) {
  const canvas = el("canvas", { role: "img", "aria-label": given.label });
  const legend = el("ul", { class: "legend" }, (given.groups || []).map((name, at) => el("li", {}, mark(at), name)));
  const figure = el("figure", {}, el("div", { class: "frame" }, canvas), legend,
    el("figcaption", {}, given.caption || ""));
  const drawing = { canvas, given, places: null };
  drawing.draw = () => draw(drawing);
  drawings.add(drawing);
  canvas.addEventListener("mousemove", (event) => hover(drawing, event));
  canvas.addEventListener("mouseleave", hideTip);
  return figure;
}

function mark(at) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "-6 -6 12 12");
  svg.setAttribute("aria-hidden", "true");
  const shape = document.createElementNS("http://www.w3.org/2000/svg", "path");
  shape.setAttribute("d", { circle: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", square: "M-4 -4h8v8h-8z",
    triangle: "M0 -5L5 4H-5z", diamond: "M0 -5L5 0L0 5L-5 0z" }[SHAPES[at % 4]]);
  shape.setAttribute("class", `hue-${(at % 8) + 1}`);
  svg.append(shape);
  return svg;
}

function extent(drawing, name) {
  const { points, lines, curves } = drawing.given;
  const log = drawing.given[name].log;
  let low = Infinity;
  let high = -Infinity;
  const take = (value) => {
    if (!Number.isFinite(value) || (log && value <= 0)) return;
    if (value < low) low = value;
    if (value > high) high = value;
  };
  if (points) for (let at = 0; at < points.count; at += 1) take(points[name][at]);
  const index = name === "x" ? 0 : 1;
  for (const one of lines || []) if (one.counts) { take(one.from[index]); take(one.to[index]); }
  for (const one of curves || []) for (const point of one.points) take(point[index]);
  const { least, most } = drawing.given[name];
  if (least !== undefined) low = least;
  if (most !== undefined) high = most;
  return low <= high ? [low, high] : log ? [1, 10] : [0, 1];
}

function draw(drawing) {
  const { canvas, given } = drawing;
  const width = Math.max(280, canvas.parentElement.clientWidth);
  const height = Math.round(Math.min(560, Math.max(300, width * 0.52)));
  const scale = window.devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  let [across, up] = [extent(drawing, "x"), extent(drawing, "y")];
  if (given.same) across = up = [Math.min(across[0], up[0]), Math.max(across[1], up[1])]; // equal values: the diagonal
  const x = new Axis(given.x, ...across);
  const y = new Axis(given.y, ...up);
  const box = { left: 0, top: 14, right: width - 18, bottom: height - 48 };
  pen.font = FONT;
  const widest = Math.max(...y.ticks(box.bottom - box.top).map((one) => pen.measureText(given.y.show(one)).width));
  box.left = Math.max(48, widest + 34); // ticks, and the title beside them
  const at = (vx, vy) => [box.left + x.place(vx) * (box.right - box.left),
    box.bottom - y.place(vy) * (box.bottom - box.top)];
  axes(pen, given, box, x, y, at);
  pen.save();
  pen.beginPath();
  pen.rect(box.left, box.top, box.right - box.left, box.bottom - box.top);
  pen.clip();
  for (const one of given.lines || []) straight(pen, one, at, x, y);
  for (const one of given.curves || []) curve(pen, one, at);
  drawing.places = given.points ? dots(pen, given.points, at) : null;
  pen.restore();
  const taken = []; // places of labels
  for (const one of given.lines || []) if (one.text) lineText(pen, one, at, box, taken);
}

function axes(pen, given, box, x, y, at) {
  pen.font = FONT;
  pen.fillStyle = css("--soft");
  pen.strokeStyle = css("--line");
  pen.lineWidth = 1;
  pen.textAlign = "center";
  pen.textBaseline = "top";
  const origin = [x.given.log ? 10 ** x.from : x.from, y.given.log ? 10 ** y.from : y.from];
  for (const tick of x.ticks(box.right - box.left)) {
    const [px] = at(tick, origin[1]);
    rule(pen, px, box.top, px, box.bottom);
    pen.fillText(given.x.show(tick), px, box.bottom + 6);
  }
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const tick of y.ticks(box.bottom - box.top)) {
    const [, py] = at(origin[0], tick);
    rule(pen, box.left, py, box.right, py);
    pen.fillText(given.y.show(tick), box.left - 6, py);
  }
  pen.fillStyle = css("--text");
  pen.textAlign = "center";
  pen.textBaseline = "alphabetic";
  pen.fillText(given.x.title, (box.left + box.right) / 2, box.bottom + 40);
  pen.save();
  pen.translate(14, (box.top + box.bottom) / 2);
  pen.rotate(-Math.PI / 2);
  pen.fillText(given.y.title, 0, 0);
  pen.restore();
}

function rule(pen, x1, y1, x2, y2) {
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

function straight(pen, one, at, x, y) {
  const whole = (axis, value) => (value === Infinity ? (axis.given.log ? 10 ** axis.to : axis.to)
    : value === -Infinity ? (axis.given.log ? 10 ** axis.from : axis.from) : value);
  const ends = [one.from, one.to].map(([px, py]) => at(whole(x, px), whole(y, py)));
  pen.strokeStyle = one.hue === undefined ? css("--soft") : hue(one.hue);
  pen.lineWidth = one.hue === undefined ? 1.25 : 2;
  pen.setLineDash(one.dashed ? [6, 5] : []);
  rule(pen, ...ends[0], ...ends[1]);
  pen.setLineDash([]);
}

/** The name of a line above it, or below where there is no room; on a ground of its own, so that no line strikes it. */
function lineText(pen, one, at, box, taken) {
  const [px, py] = at(...one.textAt);
  pen.font = FONT;
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  const wide = pen.measureText(one.text).width + 8;
  const right = Math.min(px, box.right);
  const left = Math.min(Math.max(right - wide, box.left + 2), box.right - wide);
  const inside = (middle) => middle - LABEL / 2 > box.top && middle + LABEL / 2 < box.bottom;
  const free = (middle) => !taken.some((other) => Math.abs(other.middle - middle) < LABEL && left < other.right
    && other.left < left + wide);
  const places = [-1, 1, -2, 2, 3, 4].map((step) => py + step * (LABEL / 2 + 3));
  const middle = places.find((place) => inside(place) && free(place)) || py + LABEL;
  taken.push({ left, right: left + wide, middle });
  pen.globalAlpha = 0.85;
  pen.fillStyle = css("--card");
  pen.fillRect(left, middle - LABEL / 2, wide, LABEL);
  pen.globalAlpha = 1;
  pen.fillStyle = css("--text");
  pen.fillText(one.text, left + 4, middle);
}

function curve(pen, one, at) {
  pen.strokeStyle = hue(one.hue);
  pen.lineWidth = 2;
  pen.beginPath();
  one.points.forEach(([px, py], number) => {
    const [cx, cy] = at(px, py);
    if (number) pen.lineTo(cx, cy);
    else pen.moveTo(cx, cy);
  });
  pen.stroke();
}

/** The points, and where each came to lie. */
function dots(pen, points, at) {
  const step = Math.max(1, Math.ceil(points.count / MOST_POINTS));
  const many = points.count / step > 4000;
  const size = many ? 2 : 3.5;
  pen.globalAlpha = points.count / step > 20000 ? 0.35 : many ? 0.5 : 0.75;
  const places = { step, at: new Float32Array(2 * Math.ceil(points.count / step)) };
  const colours = new Map();
  for (let index = 0; index < points.count; index += step) {
    const [px, py] = at(points.x[index], points.y[index]);
    places.at[2 * (index / step)] = px;
    places.at[2 * (index / step) + 1] = py;
    const group = points.group(index);
    if (!colours.has(group)) colours.set(group, hue(group));
    pen.fillStyle = colours.get(group);
    dot(pen, many ? "square" : SHAPES[group % 4], px, py, size);
  }
  pen.globalAlpha = 1;
  return places;
}

function dot(pen, shape, px, py, size) {
  if (shape === "square") { pen.fillRect(px - size * 0.9, py - size * 0.9, size * 1.8, size * 1.8); return; }
  pen.beginPath();
  if (shape === "circle") pen.arc(px, py, size, 0, 2 * Math.PI);
  else if (shape === "triangle") {
    pen.moveTo(px, py - size * 1.2);
    pen.lineTo(px + size * 1.2, py + size);
    pen.lineTo(px - size * 1.2, py + size);
  } else {
    pen.moveTo(px, py - size * 1.3);
    pen.lineTo(px + size * 1.3, py);
    pen.lineTo(px, py + size * 1.3);
    pen.lineTo(px - size * 1.3, py);
  }
  pen.fill();
}

// -- what is under the pointer -----------------------------------------------------------------------------------

function hover(drawing, event) {
  const { places, given, canvas } = drawing;
  if (!places) return;
  const frame = canvas.getBoundingClientRect();
  const px = event.clientX - frame.left;
  const py = event.clientY - frame.top;
  let nearest = -1;
  let least = 12 * 12;
  for (let at = 0; at < places.at.length; at += 2) {
    const dx = places.at[at] - px;
    const dy = places.at[at + 1] - py;
    const far = dx * dx + dy * dy;
    if (far < least) { least = far; nearest = at / 2; }
  }
  if (nearest < 0) hideTip();
  else showTip(given.points.tip(nearest * places.step), event.clientX, event.clientY);
}

function showTip(lines, x, y) {
  const tip = byId("tip");
  tip.replaceChildren(...lines.map((one) => el("div", {}, one)));
  tip.hidden = false;
  const left = Math.min(x + 14, window.innerWidth - tip.offsetWidth - 8);
  const top = y + 18 + tip.offsetHeight > window.innerHeight ? y - tip.offsetHeight - 10 : y + 18;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, top)}px`;
}

function hideTip() { byId("tip").hidden = true; }

function redraw() { for (const one of drawings) one.draw(); }
