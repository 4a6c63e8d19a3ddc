// Controls of one side. Each calls `change(key, value)`.

function slider(label, key, side, values, change, format = String) {
  const at = Math.max(0, values.findIndex(value => value >= side[key]));
  const output = element("output", {}, format(side[key]));
  const input = element("input", {type: "range", min: "0", max: String(values.length - 1), value: String(at), "data-key": key, "aria-label": label,
    "aria-valuetext": format(side[key]), oninput: event => {
      const value = values[Number(event.target.value)];
      output.textContent = format(value);
      event.target.setAttribute("aria-valuetext", format(value));
      change(key, value);
    }});
  return element("label", {class: "field"}, element("span", {}, label), output, input);
}

function choice(label, key, side, options, change) {
  const input = element("select", {"data-key": key, onchange: event => change(key, event.target.value)},
    ...options.map(([value, text]) => element("option", {value, selected: value === side[key]}, text ?? value)));
  return element("label", {class: "field"}, element("span", {}, label), input);
}

function whole(label, key, side, change) {
  const input = element("input", {type: "number", min: "1", step: "1", value: String(side[key]), "data-key": key,
    onchange: event => {
      // Anything other than a whole number of at least 1 is ignored.
      const value = Number(event.target.value);
      if (Number.isInteger(value) && value >= 1) change(key, value);
      else event.target.value = String(side[key]);
    }});
  return element("label", {class: "field"}, element("span", {}, label), input);
}

// A number of 0 or more; 0 means not given.
function amount(label, key, side, change) {
  const input = element("input", {type: "number", min: "0", step: "any", value: side[key] > 0 ? String(side[key]) : "", placeholder: "–", "data-key": key,
    onchange: event => {
      const value = Number(event.target.value);
      if (Number.isFinite(value) && value >= 0) change(key, value);
      else event.target.value = side[key] > 0 ? String(side[key]) : "";
    }});
  return element("label", {class: "field"}, element("span", {}, label), input);
}

function checkbox(label, key, side, change) {
  return element("label", {class: "check"}, element("input", {type: "checkbox", checked: side[key], "data-key": key, onchange: event => change(key, event.target.checked)}), label);
}

// Field for a config.json, pasted or dropped.
function configField(side, change) {
  const area = element("textarea", {placeholder: "paste or drop a Hugging Face config.json", "aria-label": "Hugging Face config.json", "data-key": "config",
    spellcheck: "false", oninput: event => change("config", event.target.value.trim() || undefined)});
  area.value = side.config ?? "";
  const field = element("div", {class: "field"}, area);
  area.addEventListener("dragover", event => { event.preventDefault(); field.classList.add("dropping"); });
  area.addEventListener("dragleave", () => field.classList.remove("dropping"));
  area.addEventListener("drop", async event => {
    event.preventDefault();
    field.classList.remove("dropping");
    area.value = event.dataTransfer.files.length > 0 ? await event.dataTransfer.files[0].text() : event.dataTransfer.getData("text");
    change("config", area.value.trim() || undefined);
  });
  return field;
}

// Button that shows and hides the explanation of a term; empty if the term is unknown.
function tip(words, name, label = name) {
  const word = words.find(word => word.name === name);
  if (!word) return "";
  const text = element("span", {class: "tip-text", hidden: true}, word.what, ...word.formulas.map(formula => element("code", {}, formula)));
  const button = element("button", {type: "button", class: "tip", "aria-expanded": "false", "aria-label": `What is ${label}?`, onclick: () => {
    text.hidden = !text.hidden;
    button.setAttribute("aria-expanded", String(!text.hidden));
  }}, "?");
  return element("span", {class: "tips"}, button, text);
}

// Term that explains each control, and each figure by its path in the JSON.
const kControlWords = {gbs: "mini-batch", mbs: "microbatch", tp: "tensor parallelism", cp: "context parallelism", ep: "expert parallelism",
                       pp: "pipeline parallelism", vpp: "interleaving", recompute: "recompute", zero: "zero", sp: "sequence parallelism", nodes: "world size"};
const kFigureWords = {"iteration.time_s": "interval", "iteration.mfu": "mfu", "bubble.fraction": "bubble", "communication.exposed_fraction": "exposed communication",
                      "memory.peak_gib": "GiB", "memory.shown_gib": "memory overhead", "metrics.idle_fraction": "bubble", "metrics.bubble_ratio": "bubble ratio",
                      "figures.staleness": "staleness", "figures.weight_copies": "weight stashing", "figures.activations": "actions"};

const range = (from, to) => Array.from({length: to - from + 1}, (_, i) => from + i);
const kPowers = [1, 2, 4, 8, 16, 32, 64];
const kMicrobatches = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 384, 512, 768, 1024, 1536, 2048];
const kBatches = [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384];
const kTimes = [0, 0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 1.5, 1.6, 1.8, 2, 2.5, 3, 4, 5];

// Values of the list and the current one, in order: an address may contain any value.
const including = (list, value) => list.includes(value) ? list : [...list, value].sort((a, b) => a - b);

// Slider for the numbers of chunks that a schedule accepts, and the one in the address; empty if there is no choice.
function chunksSlider(side, schedule, names, change) {
  const values = including(acceptedChunks(names, schedule), side.vpp);
  return values.length > 1 ? slider("Chunks per rank v", "vpp", side, values, change) : "";
}

function scheduleControls(side, names, change) {
  const info = names.schedules.find(schedule => schedule.name === side.name.split(":")[0]);
  const times = key => including(key === "p2p" || key === "weight" ? kTimes : kTimes.slice(1), side[key]);
  return [
    choice("Schedule", "name", side, names.schedules.map(schedule => [schedule.name]), change),
    element("p", {class: "note"}, info?.summary ?? ""),
    slider("Pipeline ranks p", "pp", side, including(range(1, 32), side.pp), change),
    slider("Microbatches m", "microbatches", side, including(kMicrobatches, side.microbatches), change),
    usesChunks(names, side.name) ? chunksSlider(side, side.name, names, change) : "",
    slider("Forward", "forward", side, times("forward"), change),
    slider("Backward", "backward", side, times("backward"), change),
    slider("of which weight gradient W", "weight", side, times("weight"), change),
    slider("Transfer between ranks", "p2p", side, times("p2p"), change),
  ];
}

// A pasted config.json replaces the model's name until a name is chosen.
function modelChoice(side, names, change) {
  const pasted = side.config === undefined ? [] : [["", "(pasted config.json)"]];
  const shown = side.config === undefined ? side : {model: ""};
  return choice("Model", "model", shown, [...pasted, ...names.models.map(model => [model])], change);
}

function jobControls(side, names, change, plan) {
  const schedules = names.schedules.filter(schedule => schedule.name !== "terapipe");
  const own = [["peak", "Peak, TFLOP/s"], ["memory", "Memory, GiB"], ["bandwidth", "Memory bandwidth, TB/s"],
               ["links", "Links in the node, GB/s per GPU"], ["nic", "Network card, Gbit/s"]];
  return [
    modelChoice(side, names, change),
    configField(side, change),
    choice("Cluster", "cluster", side, names.clusters.map(cluster => [cluster.name]), change),
    whole("Nodes", "nodes", side, change),
    element("details", {class: "own", "data-key": "own", open: own.some(([key]) => side[key] > 0)}, element("summary", {}, "Custom hardware"),
      element("p", {class: "note"}, "Replaces the cluster's figures; empty fields keep them."), ...own.map(([key, label]) => amount(label, key, side, change))),
    element("p", {class: "note", "data-fact": "shape"}, shapeText(side, names)),
    slider("Sequences per step (global batch)", "gbs", side, including(kBatches, side.gbs), change),
    slider("Microbatch size", "mbs", side, including([1, 2, 4, 8, 16], side.mbs), change),
    slider("Tensor parallel", "tp", side, including(kPowers, side.tp), change),
    slider("Context parallel", "cp", side, including(kPowers, side.cp), change),
    slider("Expert parallel", "ep", side, including(kPowers, side.ep), change),
    slider("Pipeline parallel p", "pp", side, including([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64], side.pp), change),
    choice("Schedule", "schedule", side, schedules.map(schedule => [schedule.name]), change),
    chunksSlider(side, side.schedule, names, change),
    slider("Sequence length", "sequence", side, including([512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072], side.sequence), change),
    choice("Recomputation", "recompute", side, names.recompute.map(kind => [kind]), change),
    slider("ZeRO", "zero", side, [...Array(names.most_zero + 1).keys()], change),
    choice("Number format", "precision", side, [["", "default of the device"], ...names.precisions.map(name => [name])], change),
    choice("Software stack", "stack", side, names.stacks.map(stack => [stack]), change),
    checkbox("Sequence parallel", "sp", side, change),
    element("p", {class: "share"}, element("button", {type: "button", "data-key": "plan", onclick: plan}, "Find the best layouts")),
    amount("Tokens to train on, billions", "tokens", side, change),
    amount("Price per GPU hour, $", "price", side, change),
  ];
}
