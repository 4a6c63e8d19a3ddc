// What an action is, what it consists of and what it waited for.

function spanLink(timeline, model, group, rank, index) {
  return element("button", {type: "button", class: "link", onclick: () => timeline.select(group, rank, index, true)},
    `${model.label(rank, index)} on rank ${rank}`);
}

// Why it started when it did: the rank was busy until then, or an input arrived then.
function waitLines(timeline, model, group, rank, index) {
  const spans = model.ranks[rank];
  const start = spans.start[index];
  const lines = [];
  const previous = model.previous(rank, index);
  const free = previous < 0 ? 0 : spans.end[previous];
  const source = spans.waitRank[index];
  const arrival = source < 0 ? -1 : model.ranks[source].end[spans.waitIndex[index]] + spans.waitLag[index];
  if (source >= 0) {
    const lag = spans.waitLag[index];
    lines.push(element("li", {}, "input from ", spanLink(timeline, model, group, source, spans.waitIndex[index]),
      lag > 0 ? `, under way for ${model.time(lag)}, arrived at ${model.time(arrival)}` : `, ready at ${model.time(arrival)}`));
  }
  lines.push(previous < 0 ? element("li", {}, "first of its rank")
    : element("li", {}, "rank free after ", spanLink(timeline, model, group, rank, previous), ` at ${model.time(free)}`));
  const idle = start - free;
  if (idle > 0 && arrival >= free) lines.push(element("li", {}, `the rank waited ${model.time(idle)} for the input`));
  else if (arrival >= 0 && free > arrival) lines.push(element("li", {}, `the input waited ${model.time(free - arrival)} for the rank`));
  else if (idle > 0) lines.push(element("li", {}, `idle for ${model.time(idle)} before it`));
  return lines;
}

function partsTable(model, code, duration) {
  const parts = model.parts[code.action + code.stage];
  if (!parts || kBesideActions.has(code.kind) || parts.length === 0) return null;
  const rows = parts.map(part => element("tr", {}, element("th", {scope: "row"}, part.name),
    element("td", {}, timeText(part.seconds, "s")), element("td", {}, percentText(part.seconds / duration))));
  return element("table", {class: "parts"}, element("caption", {}, "What it consists of"), element("tbody", {}, ...rows));
}

// A schedule that cuts microbatches numbers their slices through.
function unitFacts(model, unit) {
  if (model.slices === 1) return [["microbatch", unit]];
  return [["microbatch", Math.floor(unit / model.slices)], ["slice", unit % model.slices]];
}

function showDetails(panel, timeline, model, rank, index, group) {
  if (!model) {
    panel.replaceChildren(element("p", {class: "hint"},
      matchMedia("(pointer: coarse)").matches ? "Tap an action to see what it consists of and what it waited for. Drag to pan, two fingers zoom." :
        "Click an action to see what it consists of and what it waited for. Drag to pan, Ctrl + wheel or + and − to zoom; double-click zooms in."));
    return;
  }
  const spans = model.ranks[rank];
  const code = model.code(rank, index);
  const duration = spans.end[index] - spans.start[index];
  const facts = [["kind", code.kind], ["rank", rank],
    ...(code.stage === undefined ? [] : [["stage", code.stage], ...unitFacts(model, spans.microbatch[index])]),
    ...(model.version(rank, index) === undefined ? [] : [["weights", `version ${model.version(rank, index)}`]]),
    ["start", model.time(spans.start[index])], ["end", model.time(spans.end[index])], ["takes", model.time(duration)],
    ["on the critical path", model.isCritical(rank, index) ? "yes" : "no"]];
  panel.replaceChildren(
    element("h3", {}, element("i", {class: "swatch", style: `background:${code.fill}`}), model.label(rank, index)),
    element("dl", {}, ...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {"data-fact": name}, String(value))])),
    element("div", {}, element("h4", {}, "What it waited for"), element("ul", {}, ...waitLines(timeline, model, group, rank, index))),
    partsTable(model, code, duration * model.unitsPerTick) ?? "");
}
