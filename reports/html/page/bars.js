// Stacked bars: one row a bar, with a legend, and the same figures as a table for those who read or copy them.

const kHatch = "repeating-linear-gradient(45deg, var(--idle) 0 4px, var(--faint) 4px 5px)";

// rows: [{label, values: [number], limit}], parts: [{name, color, what}], format: number -> text; `scale` is the sum that fills
// the width, the longest row's unless given.
function stackedBars(parts, rows, format, {limitName, compact, scale} = {}) {
  const total = row => row.values.reduce((sum, value) => sum + Math.max(0, value), 0);
  const widest = scale ?? Math.max(1e-300, ...rows.map(row => Math.max(total(row), row.limit ?? 0)));
  const used = parts.map((_, part) => rows.some(row => Math.abs(row.values[part]) > 0));
  const bars = rows.map(row => {
    const said = parts.map((part, i) => row.values[i] > 0 ? `${part.name} ${format(row.values[i])}` : "").filter(text => text).join(", ");
    const bar = element("div", {class: "bar", role: "img", "aria-label": `${row.label}: ${said}`},
      ...parts.map((part, i) => row.values[i] > 0 ? element("span", {title: `${part.name}: ${format(row.values[i])}`,
        style: `width:${100 * row.values[i] / widest}%;background:${part.color}`}) : null));
    if (row.limit !== undefined) bar.append(element("b", {class: "limit", title: `${limitName} ${format(row.limit)}`, style: `left:${100 * row.limit / widest}%`}));
    return [element("span", {class: "bar-label"}, row.label), bar, element("span", {class: "bar-total"}, format(total(row)))];
  });
  const legend = element("p", {class: "legend"}, ...parts.filter((_, i) => used[i]).map(part =>
    element("span", {class: "key", title: part.what}, element("i", {style: `background:${part.color}`}), part.name)),
    limitName ? element("span", {class: "key"}, element("i", {class: "limit"}), limitName) : "");
  const head = element("tr", {}, element("td"), ...rows.map(row => element("th", {scope: "col"}, row.label)));
  const body = parts.map((part, i) => !used[i] ? null : element("tr", {}, element("th", {scope: "row"}, part.name),
    ...rows.map(row => element("td", {}, format(row.values[i])))));
  const table = element("details", {class: "figures", open: rows.length <= 2 && !compact},
    element("summary", {}, "figures"), element("div", {class: "wide"}, element("table", {}, element("thead", {}, head), element("tbody", {}, ...body.filter(row => row)))));
  return element("div", {class: compact ? "bars compact" : "bars"}, legend, element("div", {class: "bar-grid"}, ...bars.flat()), table);
}
