// Texts whose contrast with what lies behind them is below 4.5 to 1, each kind of element once.
(() => {
  const numbers = (text) => {
    const found = text.match(/[\d.]+/g).map(Number);
    return found.length < 4 ? [...found, 1] : found;
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((one) => {
      const share = one / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = numbers(getComputedStyle(at).backgroundColor);
      if (found[3] > 0.9) return found.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const poor = new Set();
  let looked = 0;
  for (const one of document.querySelectorAll("body *")) {
    const speaks = [...one.childNodes].some((each) => each.nodeType === 3 && each.textContent.trim());
    if (!speaks || !one.offsetParent) continue;
    looked += 1;
    const text = getComputedStyle(one).color;
    const [high, low] = [light(numbers(text).slice(0, 3)), light(behind(one))].sort((a, b) => b - a);
    if ((high + 0.05) / (low + 0.05) < 4.5) poor.add(`${one.tagName}.${one.className}: ${text}`);
  }
  return { looked, poor: [...poor] };
})()
