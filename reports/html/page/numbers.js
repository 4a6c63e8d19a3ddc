// Human-readable numbers.

function significant(value, digits = 4) {
  if (value === 0) return "0";
  const text = Number(value).toPrecision(digits);
  return text.includes("e") ? String(Number(text)) : text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

const kTimeUnits = [[63115200, "years", 31557600], [172800, "days", 86400], [7200, "h", 3600], [600, "min", 60], [1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"], [1e-12, "ps"]];

// Seconds in a unit that needs few digits; values in other units as they are.
function timeText(value, unit, digits = 4) {
  if (unit !== "s") return significant(value, digits) + (unit ? " " + unit : "");
  const [from, name, scale = from] = kTimeUnits.find(([from]) => Math.abs(value) >= from) ?? (value === 0 ? [1, "s"] : kTimeUnits.at(-1));
  return significant(value / scale, digits) + " " + name;
}

const percentText = share => (100 * share).toFixed(Math.abs(share) < 0.1 ? 2 : 1) + " %";
function gibText(gib, digits = 4) {
  return gib > 0 && gib < 0.05 ? significant(gib * 1024, digits) + " MiB" : significant(gib, digits) + " GiB";
}
const moneyText = dollars => "$" + Number(significant(dollars, 3)).toLocaleString("en-US");
const countText = value => Math.round(value).toLocaleString("en-US");

// The round step that divides `range` into about `parts` parts.
function roundStep(range, parts) {
  const rough = range / parts;
  const power = 10 ** Math.floor(Math.log10(rough));
  const factor = [1, 2, 5, 10].find(factor => factor * power >= rough);
  return factor * power;
}

// element("td", {class: "number"}, "1") and so on; text is never parsed as HTML.
function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter(child => child !== undefined && child !== null));
  return node;
}
