// The parts of a page below its timeline. Each function returns a section, or null if no view has the data for it.

// Stacked bars: one bar per row, with a legend, and the same figures as a table to read or copy.

const kHatch = "repeating-linear-gradient(45deg, var(--idle) 0 4px, var(--faint) 4px 5px)";

// rows: [{label, values: [number], limit}], parts: [{name, color, what}], format: number -> text; `scale` is the sum
// that fills the width, by default that of the longest row.
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
    element("summary", {}, "figures"), element("div", {class: "wide", tabindex: "0"}, element("table", {}, element("thead", {}, head), element("tbody", {}, ...body.filter(row => row)))));
  return element("div", {class: compact ? "bars compact" : "bars"}, legend, element("div", {class: "bar-grid"}, ...bars.flat()), table);
}

// The terms of the page's data as bars need them: waiting, which has no colour, is hatched.
const partsOf = terms => terms.map(({name, color, what}) => ({name, color: color || kHatch, what}));

function section(title, id, ...children) {
  return element("section", {"aria-labelledby": id}, element("h2", {id}, title), ...children);
}

// Memory that decides whether it fits: the tensors and what the stack uses beyond them.
const shownGib = memory => Math.max(memory.shown_gib ?? 0, memory.peak_gib);
const memoryParts = rank => ({...rank, beyond_gib: Math.max(0, (rank.shown_gib ?? 0) - rank.total_gib)});

// The line below a figure: its range in nine of ten steps.
const likely = ({step_time_interval: interval}, text) => interval ? `${text(interval.low_s)} to ${text(interval.high_s)} in nine of ten steps` : "";
const fitsText = ({memory}) => !(memory.capacity_gib > 0) ? "" : `of ${gibText(memory.capacity_gib)}: ${memory.fits ? "fits" : "does not fit"}`;
const warnsOf = ({memory}) => memory.capacity_gib > 0 && !memory.fits;
// [name, its value, its format, its path in the JSON, the line below it, true for a warning]
const kFigures = [
  ["step time", result => result.iteration.time_s, value => timeText(value, "s"), "iteration.time_s", result => likely(result, value => timeText(value, "s", 3))],
  ["training", result => result.training?.days, value => timeText(value * 86400, "s", 3), "training.days", ({training}) => training.days_low === undefined ? "" : `${timeText(training.days_low * 86400, "s", 3)} to ${timeText(training.days_high * 86400, "s", 3)}`],
  ["cost", result => result.training?.cost_usd, moneyText, "training.cost_usd", ({training: {cost_usd: cost, days, days_low: low, days_high: high}}) => low === undefined ? "" : `${moneyText(cost * low / days)} to ${moneyText(cost * high / days)}`],
  ["mean of varying steps", result => result.distribution?.mean_s, value => timeText(value, "s"), "distribution.mean_s", ({distribution}) => `19 of 20 steps below ${timeText(distribution.p95_s, "s")}`],
  ["tokens per second", result => result.iteration.tokens_per_s, countText, "iteration.tokens_per_s", ({iteration, step_time_interval: interval}) => interval ? [interval.high_s, interval.low_s].map(seconds => countText(Number(significant(iteration.tokens_per_s * iteration.time_s / seconds, 3)))).join(" to ") : ""],
  ["MFU", result => result.iteration.mfu, percentText, "iteration.mfu"],
  ["bubble", result => result.bubble.fraction, percentText, "bubble.fraction"],
  ["exposed communication", result => result.communication.exposed_fraction, percentText, "communication.exposed_fraction"],
  ["peak memory", result => result.memory.peak_gib, gibText, "memory.peak_gib", fitsText, warnsOf],
  ["peak activations", result => Math.max(...result.memory.per_pipeline_rank.map(rank => rank.activations_gib)), gibText, "memory.activations_gib"],
  ["peak shown by nvidia-smi", result => shownGib(result.memory), gibText, "memory.shown_gib", fitsText, warnsOf],
];
const kBareFigures = [
  ["makespan", view => view.metrics.makespan, value => significant(value), "metrics.makespan"],
  ["longest span of a rank", view => view.metrics.span, value => significant(value), "metrics.span"],
  ["bubble, share of device time", view => view.metrics.idle_fraction, percentText, "metrics.idle_fraction"],
  ["bubble ratio", view => view.metrics.bubble_ratio, percentText, "metrics.bubble_ratio"],
  ["stages in flight", view => Math.max(...view.metrics.ranks.map(rank => rank.peak_in_flight)), value => String(value), "metrics.peak_in_flight"],
  ["activations, microbatches", view => view.figures?.activations, value => significant(value), "figures.activations"],
  ["transfers", view => view.figures?.messages, countText, "figures.messages"],
  ["copies of the weights", view => view.figures?.weight_copies, value => String(value), "figures.weight_copies"],
  ["bubble once the pipeline is full", view => view.figures?.steady_bubble ?? (view.figures ? view.metrics.idle_fraction : undefined), percentText, "figures.steady_bubble"],
  ["staleness, updates", view => view.figures?.staleness, value => String(value), "figures.staleness"],
];

const inFlight = views => views.some(view => view.slices > 1) ? "slices in flight" : "stages in flight";

// The main figures, one card each; with two views, both and the difference.
function figureCards(views) {
  const results = views.filter(view => view.result);
  const source = results.length > 0 ? results.map(view => ({name: view.short ?? view.name, of: view.result})) : views.filter(view => view.metrics).map(view => ({name: view.short ?? view.name, of: view}));
  if (source.length === 0) return null;
  const figures = results.length > 0 ? kFigures : kBareFigures;
  // A measurement has only activations and no capacity, so a total next to it would mean nothing.
  const onlyActivations = source.some(({of}) => of.memory?.capacity_gib === 0);
  const cards = figures.map(([words, value, format, path, below, warns]) => {
    const name = path === "metrics.peak_in_flight" ? inFlight(views) : words;
    const values = source.map(entry => value(entry.of));
    // A layer profile has no FLOPs, a measurement no memory; a figure that is 0 for all schedules is left out.
    if (values.some(value => value === undefined) || (values.every(value => value === 0) && results.length > 0)) return null;
    // Processors have no peak to compare with.
    if (path === "iteration.mfu" && views.some(view => view.run?.on_gpus === false)) return null;
    if (path === (onlyActivations ? "memory.peak_gib" : "memory.activations_gib")) return null;
    if (path === "memory.shown_gib" && source.every(({of}) => !(shownGib(of.memory) > of.memory.peak_gib))) return null;
    if (path === "figures.staleness" && values.every(value => value === 0)) return null;
    if (path === "figures.weight_copies" && values.every(value => value === 1)) return null;
    if (path === "figures.steady_bubble" && !views.some(view => view.figures?.steady_bubble !== undefined)) return null;
    if (path === "metrics.peak_in_flight" && views.some(view => view.figures)) return null;
    const rows = source.map((entry, i) => element("p", {class: (source.length > 1 ? "several" : "single") + (warns?.(entry.of) ? " warning" : ""), "data-path": path, "data-value": values[i]},
      element("strong", {}, format(values[i])), ...[source.length > 1 ? entry.name : "", below?.(entry.of) ?? ""].filter(text => text).map(text => element("small", {}, text))));
    const change = source.length === 2 && values[0] !== 0 ? element("p", {class: "change"}, `${values[1] >= values[0] ? "+" : "−"}${significant(Math.abs(values[1] / values[0] - 1) * 100, 3)} %`) : null;
    return element("div", {class: "card"}, element("h2", {}, name), ...rows, change);
  });
  return element("div", {class: "cards"}, ...cards.filter(card => card));
}

function stepSection(views, {step}) {
  const shown = views.filter(view => view.result);
  if (shown.length === 0) return null;
  const rows = shown.map(view => ({label: view.name, values: step.map(({key}) => view.result.breakdown[key] ?? 0)}));
  return section("Where the step's time goes", "step", element("p", {class: "note"}, "Exposed time, mean over pipeline ranks."),
    stackedBars(partsOf(step), rows, value => timeText(value, "s", 3)));
}

// Number of GPUs that a row represents; all of them do the same at the same time.
function rowsStandFor(views) {
  const counts = views.map(({result}) => result?.job?.layout).map(layout => layout ? layout.tp * (layout.cp ?? 1) * layout.dp : 1);
  if (counts.every(count => count === 1)) return "";
  return `Each row is a pipeline rank and represents ${[...new Set(counts)].join(", ")} GPUs that do the same work (tp × cp × dp).`;
}

// An asynchronous schedule never flushes: the drawing starts with an empty pipeline, but a step is one of the full
// pipeline.
const isSteady = view => view.result?.steady !== undefined;

// One row per rank, by cause; for a steady step one row, the mean over ranks, which is all that its result holds.
function bubbleRows(view, bubble) {
  if (isSteady(view)) return [{label: "step", values: bubble.map(({key}) => view.result.bubble.by_cause[`${key}_s`])}];
  return view.metrics.ranks.map((rank, i) => ({label: `rank ${i}`, values: bubble.map(({key}) => rank[key])}));
}

function bubbleSection(views, {bubble}) {
  const shown = views.filter(view => view.metrics);
  if (shown.length === 0) return null;
  const unit = shown[0].timeline.time_unit;
  const longest = Math.max(...shown.flatMap(view => bubbleRows(view, bubble).map(row => row.values.reduce((sum, value) => sum + value, 0))));
  const blocks = shown.map(view => {
    const rows = bubbleRows(view, bubble);
    if (rows.every(row => row.values.every(value => value === 0))) return element("p", {}, `${view.name}: no bubble.`);
    return element("div", {}, shown.length > 1 ? element("h3", {}, view.name) : "", stackedBars(partsOf(bubble), rows, value => timeText(value, unit, 3), {compact: rows.length > 8, scale: longest}));
  });
  return section("Bubble by cause", "bubble", element("p", {class: "note"}, "Idle time other than waiting for transfers: before a rank's first backward pass, after its last forward pass, because it has less to do than the busiest rank, or waiting for another rank's result." + (shown.some(isSteady) ? " A steady step shows the mean over ranks: the pipeline never empties." : "")),
    element("div", {class: "columns"}, ...blocks));
}

function memorySection(views, {memory}) {
  const shown = views.filter(view => view.result && view.result.memory.peak_gib > 0);
  if (shown.length === 0) return null;
  const blocks = shown.map(view => {
    const ranks = view.result.memory.per_pipeline_rank;
    // A limit far beyond the bars would shrink them to nothing, and a measurement has no limit.
    const near = rank => rank.capacity_gib > 0 && view.result.memory.peak_gib > rank.capacity_gib / 50;
    const rows = ranks.map((rank, i) => ({label: `rank ${i}`, values: memory.map(({key}) => memoryParts(rank)[key]), limit: near(rank) ? rank.capacity_gib : undefined}));
    return element("div", {}, shown.length > 1 ? element("h3", {}, view.name) : "",
      stackedBars(partsOf(memory), rows, gib => gibText(gib, 3), {limitName: rows.some(row => row.limit) ? "capacity" : undefined, compact: rows.length > 8}),
      !(view.result.memory.capacity_gib > 0) ? "" : element("p", {class: view.result.memory.fits ? "note" : "warning"}, view.result.memory.fits
        ? `Fits: the fullest rank needs ${gibText(shownGib(view.result.memory))} of ${gibText(view.result.memory.capacity_gib)}.`
        : `Does not fit: the fullest rank needs ${gibText(shownGib(view.result.memory))} but its device has ${gibText(view.result.memory.capacity_gib)}.`));
  });
  return section("Memory at the peak", "memory", element("div", {class: "columns"}, ...blocks));
}

function ranksSection(views, {bubble}) {
  const shown = views.filter(view => view.metrics);
  if (shown.length === 0) return null;
  const unit = shown[0].timeline.time_unit;
  const time = value => timeText(value, unit, 4);
  const columns = ["rank", "computing", "waiting for pipeline transfers", "waiting for gradients", ...bubble.map(({name}) => name), inFlight(shown)];
  const tables = shown.map(view => element("div", {class: "wide", tabindex: "0"}, element("table", {},
    element("caption", {}, (shown.length > 1 ? view.name : "How each rank spends its time") + (isSteady(view) ? `: over the whole drawing, ${time(view.metrics.makespan)} from an empty pipeline; a step takes ${time(view.result.iteration.time_s)}` : "")),
    element("thead", {}, element("tr", {}, ...columns.map(column => element("th", {scope: "col"}, column)))),
    element("tbody", {}, ...view.metrics.ranks.map((rank, i) => element("tr", {}, element("th", {scope: "row"}, String(i)),
      ...[rank.busy, rank.pipeline, rank.data_parallel, ...bubble.map(({key}) => rank[key])].map(value => element("td", {}, time(value))),
      element("td", {}, String(rank.peak_in_flight))))))));
  return section("Rank by rank", "ranks", element("details", {open: shown[0].metrics.ranks.length <= 8}, element("summary", {}, "table"), ...tables));
}

// Unique lines of results; with several views, each is prefixed with the names of the views that have it, unless all
// do.
function linesOf(views, key) {
  const lines = new Map();
  for (const view of views) for (const line of view.result[key] ?? []) lines.set(line, [...(lines.get(line) ?? []), view.short ?? view.name]);
  return [...lines].map(([line, names]) => names.length === views.length ? line : `${names.join(", ")}: ${line}`);
}

// For a run, disturbances come first: its errors may not be the forecast's.
function warningsSection(views) {
  const run = views.find(view => view.run)?.run;
  const lines = [...(run?.warnings ?? []), ...linesOf(views.filter(view => view.result), "warnings")];
  return lines.length === 0 ? null : section("Warnings", "warnings", element("ul", {class: "warning"}, ...lines.map(line => element("li", {}, line))));
}
function assumptionsSection(views) {
  const lines = linesOf(views.filter(view => view.result), "assumptions");
  return lines.length === 0 ? null : section("Assumptions", "assumptions", element("ul", {class: "assumptions"}, ...lines.map(line => element("li", {}, line))));
}

// A run's figures next to those forecast, with the spread of its repetitions.
function runSection(views) {
  const run = views.find(view => view.run)?.run;
  if (!run?.error?.terms) return null;
  const figure = (value, unit) => unit === "s" ? timeText(value, "s") : unit === "GiB" ? gibText(value) : unit === "share" ? percentText(value) : significant(value, 5) + (unit ? " " + unit : "");
  const rows = run.error.terms.map(({term, name, unit, forecast, measured, error_percent: error, replay}) => element("tr", {}, element("th", {scope: "row"}, name ?? term),
    ...[forecast, measured].map(value => element("td", {}, figure(value, unit))),
    element("td", {"data-path": `error.${term}`, "data-value": error ?? ""}, error === null || error === undefined ? "" : `${error < 0 ? "−" : "+"}${significant(Math.abs(error), 3)} %`), element("td", {}, figure(replay, unit))));
  const {count, warmup, lower_quartile_s: lower, upper_quartile_s: upper} = run.repetitions ?? {};
  return section("Forecast and measurement", "run", element("div", {class: "wide", tabindex: "0"}, element("table", {},
    element("thead", {}, element("tr", {}, element("td"), ...["forecast", "measured", "error", "replay"].map(name => element("th", {scope: "col"}, name)))), element("tbody", {}, ...rows))),
    count === undefined ? "" : element("p", {class: "note"}, `Measured: the median of ${count} steps after ${warmup} warm-up steps; half of them took ${timeText(lower, "s")} to ${timeText(upper, "s")}. Replay: the program simulated with the run's own median times and instant transfers.`));
}

// Every key of a job with its value: "layout.tp" and 8.
const keysOf = (value, path = "") => Object.entries(value).flatMap(([key, inner]) => {
  const place = path ? `${path}.${key}` : key;
  return inner !== null && typeof inner === "object" && !Array.isArray(inner) ? keysOf(inner, place) : [[place, Array.isArray(inner) ? inner.join(" ") : String(inner)]];
});

function saveText(name, text, type = "application/json") {
  const link = element("a", {href: URL.createObjectURL(new Blob([text], {type})), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const commandSection = command => !command ? null : section("Command", "job", element("p", {class: "note"}, element("code", {"data-fact": "command"}, command)));

// The complete jobs, to be run again; with several jobs, the keys in which they differ come first.
function jobSection(views, command) {
  const shown = views.filter(view => view.result?.job);
  if (shown.length === 0) return null;
  const jobs = shown.map(view => new Map(keysOf(view.result.job)));
  const keys = [...new Set(jobs.flatMap(job => [...job.keys()]))];
  const differs = key => new Set(jobs.map(job => job.get(key))).size > 1;
  const table = (title, chosen) => element("div", {class: "wide", tabindex: "0"}, element("table", {class: "job"}, element("caption", {}, title),
    shown.length > 1 ? element("thead", {}, element("tr", {}, element("td"), ...shown.map(view => element("th", {scope: "col"}, view.name)))) : "",
    element("tbody", {}, ...chosen.map(key => element("tr", {}, element("th", {scope: "row"}, key), ...jobs.map(job => element("td", {"data-key": key}, job.get(key) ?? "")))))));
  const said = element("span", {class: "note", "aria-live": "polite"});
  const buttons = shown.map((view, i) => {
    const text = JSON.stringify(view.result.job, null, 2) + "\n";
    const name = shown.length > 1 ? `job-${i + 1}.json` : "job.json";
    const of = shown.length > 1 ? ` of ${view.name}` : "";
    return element("p", {class: "jobs"},
      element("button", {type: "button", onclick: async () => {
        try {
          await navigator.clipboard.writeText(text);
          said.textContent = "copied";
        } catch {
          said.textContent = "this browser does not allow pages to copy; download the file instead";
        }
      }}, "Copy the job file" + of), element("button", {type: "button", onclick: () => saveText(name, text)}, `Download ${name}`));
  });
  const different = shown.length > 1 ? keys.filter(differs) : [];
  const kMain = /^(layout\.|training\.(?!stack\.)|cluster\.(name|nodes|devices_per_node)$|model\.name$)/;
  const main = keys.filter(key => kMain.test(key) && !differs(key));
  return section("Job", "job", command ? element("p", {class: "note"}, element("code", {"data-fact": "command"}, command)) : "", ...buttons, said,
    different.length > 0 ? table("Differences", different) : "",
    element("details", {open: shown.length === 1}, element("summary", {}, "layout and training"), table("", main)),
    element("details", {}, element("summary", {}, "every key"), table("", keys)));
}

// Other changes that were tried, and their effect.
function adviceSection(advice) {
  return !advice?.length ? null : section("What would change the result", "advice", element("ul", {class: "assumptions"}, ...advice.map(line => element("li", {}, line))),
    element("p", {class: "note"}, "Each is a separate forecast of this job with one change."));
}

// As images, so that their styles do not leak; each can be saved as it is.
function figureSections(figures) {
  return (figures ?? []).map(({title, svg}, i) => section(title, `figure-${i}`,
    element("div", {class: "wide", tabindex: "0", role: "region", "aria-label": `${title}: figure`},
      element("img", {class: "figure", alt: title, src: "data:image/svg+xml;charset=utf-8," + encodeURIComponent(svg)})),
    element("p", {class: "jobs"}, element("button", {type: "button", onclick: () => saveText(`${title.toLowerCase().replace(/[^a-z0-9]+/g, "-")}.svg`, svg, "image/svg+xml")}, "Download the figure"))));
}

// A cell as a number to sort by: "1,024", "13.5 s"; undefined if it does not begin with a number.
const sortable = cell => /^[\u2212+-]?[\d,]*\.?\d/.test(cell) ? Number.parseFloat(cell.replace(/,/g, "").replace("\u2212", "-")) : undefined;

function tableSection({title, columns, rows, notes}, i) {
  const kLong = 40;
  const [heading, ...lines] = title.split("\n");
  const body = element("tbody", {});
  const fill = order => body.replaceChildren(...order.map(row => element("tr", {}, ...row.map((cell, column) =>
    element(column === 0 ? "th" : "td", {scope: column === 0 ? "row" : undefined, class: columns[column].numeric ? undefined : "words"}, cell)))));
  let sorted = {column: -1, direction: 1};
  const heads = columns.map((column, at) => element("th", {scope: "col", class: column.numeric ? undefined : "words"},
    element("button", {type: "button", class: "sort", onclick: () => {
      sorted = {column: at, direction: sorted.column === at ? -sorted.direction : 1};
      const key = row => sortable(row[at]) ?? row[at];
      const before = (a, b) => typeof key(a) === typeof key(b) ? (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) : typeof key(a) === "number" ? -1 : 1;
      fill([...rows].sort((a, b) => sorted.direction * before(a, b)));
      heads.forEach((head, other) => other === at ? head.setAttribute("aria-sort", sorted.direction > 0 ? "ascending" : "descending") : head.removeAttribute("aria-sort"));
    }}, column.name)));
  fill(rows);
  const table = element("div", {class: "wide", tabindex: "0", role: "region", "aria-label": `${heading || "table"}: rows`}, element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body));
  return section(heading || (i === 0 ? "Result" : "Table"), `table-${i}`, ...lines.map(line => element("p", {class: "note"}, line)),
    rows.length > kLong ? element("details", {}, element("summary", {}, `${countText(rows.length)} rows`), table) : table,
    ...notes.map(line => element("p", {class: "note"}, line)));
}

// Details of an action: what it is, what it consists of and what it waited for.

function spanLink(timeline, model, group, rank, index) {
  return element("button", {type: "button", class: "link", onclick: () => timeline.select(group, rank, index, true)},
    `${model.label(rank, index)} on rank ${rank}`);
}

// Explains the start time: the rank was busy until then, or an input arrived then.
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
      lag > 0 ? `, in transit for ${model.time(lag)}, arrived at ${model.time(arrival)}` : `, ready at ${model.time(arrival)}`));
  }
  lines.push(previous < 0 ? element("li", {}, "first action of its rank")
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

// If microbatches are cut into slices, units number the slices of all microbatches consecutively.
function unitFacts(model, unit) {
  if (model.slices === 1) return [["microbatch", unit]];
  return [["microbatch", Math.floor(unit / model.slices)], ["slice", unit % model.slices]];
}

function showDetails(panel, timeline, model, rank, index, group) {
  if (!model) {
    panel.replaceChildren(element("p", {class: "hint"},
      matchMedia("(pointer: coarse)").matches ? "Tap an action to see what it consists of and what it waited for. Drag to pan, pinch to zoom." :
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
