// The question as plain data, which is what an address contains; and the questions of the presets.

const kDefaultJob = {model: "gpt3-175b", cluster: "dgx-a100-80g", nodes: 8, tp: 8, pp: 8, cp: 1, ep: 1, vpp: 3, gbs: 64,
                     mbs: 1, sequence: 2048, schedule: "interleaved", recompute: "selective", zero: 0, sp: true, precision: "",
                     stack: "megatron-core", tokens: 0, price: 0, peak: 0, memory: 0, bandwidth: 0, links: 0, nic: 0};
const kDefaultSchedule = {name: "1f1b", pp: 4, microbatches: 8, vpp: 2, forward: 1, backward: 2, weight: 1, p2p: 0};

// A state is {mode: "job" | "schedule", sides: [{…}] or two of them, shown: index of the side that the controls change,
// lesson: key of the preset on which it is based}.

// UTF-8 as Base64 that needs no escapes in an address.
function encodeState(state) {
  const bytes = new TextEncoder().encode(JSON.stringify(state));
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

// A side with its defaults filled in; null if a value could not have been set by the controls.
function readSide(side, defaults) {
  if (typeof side !== "object" || side === null || Array.isArray(side)) return null;
  const types = {...defaults, config: ""};
  for (const [key, value] of Object.entries(side)) {
    if (!Object.hasOwn(types, key) || typeof value !== typeof types[key]) return null;
  }
  return {...defaults, ...side};
}

// State in an address; null if the page cannot have written it.
function decodeState(text) {
  try {
    const binary = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
    const state = JSON.parse(new TextDecoder().decode(Uint8Array.from(binary, c => c.charCodeAt(0))));
    const valid = (state.mode === "job" || state.mode === "schedule") && Array.isArray(state.sides) && state.sides.length >= 1 &&
                  state.sides.length <= 2;
    if (!valid) return null;
    const defaults = state.mode === "job" ? kDefaultJob : kDefaultSchedule;
    const sides = state.sides.map(side => readSide(side, defaults));
    if (sides.includes(null)) return null;
    const lesson = [...kLessons, ...kTasks].some(lesson => lesson.key === state.lesson) ? {lesson: state.lesson} : {};
    return {mode: state.mode, sides, shown: sides.length > 1 && state.shown === 1 ? 1 : 0, ...lesson};
  } catch {
    return null;
  }
}

function acceptedChunks(names, schedule) {
  return names.schedules.find(info => info.name === schedule.split(":")[0])?.chunks ?? [];
}
const usesChunks = (names, schedule) => acceptedChunks(names, schedule).some(chunks => chunks > 1);

// Called after a change of schedule: sets the accepted number of chunks nearest to the current one. A bare schedule
// with one chunk ignores the number, which is kept for the next schedule.
function fitChunks(side, names) {
  const schedule = side.schedule ?? side.name;
  if (side.name !== undefined && !usesChunks(names, schedule)) return;
  const accepted = acceptedChunks(names, schedule);
  side.vpp = accepted.reduce((best, chunks) => Math.abs(chunks - side.vpp) < Math.abs(best - side.vpp) ? chunks : best, accepted[0] ?? side.vpp);
}

// Number of devices of a side, and of model replicas on them, which follows from the other axes.
function devicesOf(side, names) {
  const perNode = names.clusters.find(cluster => cluster.name === side.cluster)?.devices_per_node ?? 1;
  const devices = side.nodes * perNode;
  return {devices, dp: Math.max(1, Math.floor(devices / (side.tp * side.pp * side.cp)))};
}

// User-defined hardware that overrides the cluster's figures; 0 keeps them. A peak without a number format applies to
// bf16 and fp16.
function hardwareOf({peak, memory, bandwidth, links, nic, precision}) {
  const peaks = Object.fromEntries((precision ? [precision] : ["bf16", "fp16"]).map(format => [format, `${peak}TFLOP/s`]));
  const device = {...(peak > 0 ? {peak: peaks} : {}), ...(memory > 0 ? {memory_capacity: `${memory}GiB`} : {}), ...(bandwidth > 0 ? {memory_bandwidth: `${bandwidth}TB/s`} : {})};
  return {...(Object.keys(device).length > 0 ? {device} : {}), ...(links > 0 ? {intra_bandwidth: `${links}GB/s`} : {}), ...(nic > 0 ? {nic_bandwidth: `${nic}Gbit/s`} : {})};
}

// Job file of a side. The global batch is the value of its control, whatever the layout.
function jobOf(side, names) {
  return {
    model: side.model,
    cluster: {name: side.cluster, nodes: side.nodes, ...hardwareOf(side)},
    layout: {dp: devicesOf(side, names).dp, tp: side.tp, pp: side.pp, cp: side.cp, ep: side.ep, vpp: side.vpp,
             sequence_parallel: side.sp && side.tp > 1, micro_batch_size: side.mbs, global_batch_size: side.gbs,
             schedule: side.schedule, recompute: side.recompute, zero: side.zero},
    training: {sequence_length: side.sequence, stack: side.stack, ...(side.precision ? {precision: side.precision} : {}),
               ...(side.tokens > 0 ? {tokens: side.tokens * 1e9} : {}), ...(side.tokens > 0 && side.price > 0 ? {price_per_gpu_hour: side.price} : {})},
  };
}

// The same job with an open layout, for a plan.
function openJobOf(side, names) {
  const {layout, ...job} = jobOf(side, names);
  return {...job, layout: {global_batch_size: layout.global_batch_size}};
}

// Describes devices, replicas and microbatches of a layout.
function shapeText(side, names) {
  const {devices, dp} = devicesOf(side, names);
  const microbatches = side.gbs / (dp * side.mbs);
  return `${devices} GPUs: ${dp} ${dp === 1 ? "replica" : "replicas"} of the model (dp), ` +
    (Number.isInteger(microbatches) ? `${microbatches} microbatch${microbatches === 1 ? "" : "es"} per pipeline` : `${side.gbs} sequences are not a whole number of microbatches of ${side.mbs} for each`);
}

function questionOf(mode, side, names) {
  if (mode === "schedule") return {ask: "view", schedule: side};
  const question = {ask: "view", job: jobOf(side, names)};
  if (side.config !== undefined) question.config = side.config;
  return question;
}

// Exports of a side: key, label of the button, file name.
const kExports = {
  svg: ["Figure (SVG)", "timeline.svg"],
  html: ["Report (HTML)", "report.html"],
  trace: ["Trace for Perfetto", "trace.json"],
  job: ["Job file", "job.json"],
};
const exportsOf = mode => Object.keys(kExports).filter(as => mode === "job" || as !== "job");

// Presets that teach. `look` describes the view, `play` suggests changes.

const kLessons = [
  {key: "bubble", title: "Your first bubble", mode: "schedule", sides: [{name: "gpipe", pp: 4, microbatches: 4}],
   look: "Four ranks hold a quarter of the model each. The last rank cannot start before the first three have processed the first microbatch, and the first rank is idle until gradients come back: the grey triangles are the bubble, (p − 1) / (m + p − 1) of all device time when transfers take no time.",
   play: "Increase the microbatches: the triangles stay the same, but there is more work. Increase the ranks: the triangles grow."},
  {key: "memory", title: "Why 1F1B needs less memory", mode: "schedule", sides: [{name: "gpipe", pp: 4, microbatches: 8}, {name: "1f1b", pp: 4, microbatches: 8}],
   look: "Both take the same time, with equal bubbles. But GPipe keeps the activations of all microbatches until the first backward pass, and 1F1B starts backward as soon as it can: rank 0 holds at most p of them. The strip under each rank shows its activations.",
   play: "Increase the microbatches: GPipe's strip grows with them, that of 1F1B does not."},
  {key: "interleaving", title: "Interleaving", mode: "schedule", sides: [{name: "1f1b", pp: 4, microbatches: 8}, {name: "interleaved", pp: 4, microbatches: 8, vpp: 2}],
   look: "Each rank holds two thin slices of the model instead of a thick one (the second is drawn lighter), so that a microbatch passes each rank twice and the pipeline fills in half the time. The bubble shrinks by v.",
   play: "Increase the transfer time: there are v times as many transfers, and at some point they cost more than the smaller bubble gains. Increase the chunks."},
  {key: "zero", title: "Zero bubble", mode: "schedule", sides: [{name: "1f1b", pp: 4, microbatches: 12}, {name: "zb-h2", pp: 4, microbatches: 12}],
   look: "The backward pass has two halves. The previous rank waits only for the gradient of the input (I); the gradient of the weights (W) can be computed whenever the rank is idle. ZB-H2 fills the bubble with it: from its first action to its last, the span, no rank waits. The ranks still start one after the other, which makes the makespan longer than the span; the next step follows rank by rank in the same way.",
   play: "Look at the strips: the price is memory. Choose zb-h1 on side B: 1F1B's memory, the same makespan, but a longer span. Decrease W: the less there is to move, the less it helps."},
  {key: "2bw", title: "What 2BW trades", mode: "schedule", sides: [{name: "1f1b", pp: 4, microbatches: 16}, {name: "pipedream-2bw", pp: 4, microbatches: 16}],
   look: "PipeDream-2BW never flushes: the next microbatches start before the current weights are updated, so the fill and drain shown occur once in the whole training instead of in every step. It costs a second copy of the weights, and gradients that are one update old.",
   play: "Compare 'bubble once the pipeline is full', 'copies of the weights' and 'staleness' above."},
  {key: "gpt3", title: "GPT-3 on 64 GPUs", mode: "job", sides: [{stack: "megatron-2022"}],
   look: "A whole step of GPT-3 175B on eight DGX A100: tensor parallelism inside a node, a pipeline of eight nodes, three chunks per rank. It was measured at 13.75 s (Korthikanti et al. 2022, arXiv 2205.05198), one of the runs that constants were fitted to.",
   play: "Set the chunks to 1 or tensor parallel to 4 (the global batch stays), choose recomputation full or none, or compare with another cluster."},
];

// Tasks: initial state, goal, whether the engine's answer reaches it, and a summary of the answer. `asked` are the
// controls that must stay unchanged.

const kBare = {pp: 4, microbatches: 8, forward: 1, backward: 2, weight: 1, p2p: 0};
const kPlain = {pp: 1, vpp: 1, schedule: "1f1b", recompute: "none", sp: false};
const idle = view => `${percentText(view.metrics.idle_fraction)} idle`;
const held = view => `${significant(view.figures.activations)} held`;
const fits = ({result: {memory}}) => `${gibText(memory.shown_gib ?? memory.peak_gib)} of ${gibText(memory.capacity_gib)}`;
const stepTime = ({result}) => timeText(result.iteration.time_s, "s");

const kTasks = [
  {key: "task-idle", title: "Idle below 10 %", mode: "schedule", sides: [{name: "gpipe", ...kBare, microbatches: 4}], asked: ["name", "pp"],
   goal: "GPipe on four ranks is idle for 43 % of the time. Bring it below 10 %.",
   reached: view => view.metrics.idle_fraction < 0.1, now: idle},
  {key: "task-memory", title: "Half the memory", mode: "schedule", sides: [{name: "gpipe", ...kBare}], asked: ["pp", "microbatches", "forward", "backward", "p2p"],
   goal: "GPipe holds the activations of eight microbatches. Hold at most four, and finish within 33.",
   reached: view => view.figures.activations <= 4 && view.metrics.makespan <= 33, now: view => `${held(view)}, ends after ${significant(view.metrics.makespan)}`},
  {key: "task-half", title: "Halve the bubble", mode: "schedule", sides: [{name: "1f1b", ...kBare}], asked: ["pp", "microbatches", "forward", "backward", "p2p"],
   goal: "With the same ranks, microbatches and times, get to at most half of 1F1B's 27 %.",
   reached: view => view.metrics.idle_fraction <= 0.1364, now: idle},
  {key: "task-free", title: "At no price", mode: "schedule", sides: [{name: "1f1b", ...kBare}], asked: ["pp", "microbatches", "forward", "backward", "p2p"],
   goal: "The same, while no rank holds more than 1F1B's four microbatches.",
   reached: view => view.metrics.idle_fraction <= 0.1364 && view.figures.activations <= 4, now: view => `${idle(view)}, ${held(view)}`},
  {key: "task-links", title: "Slow links", mode: "schedule", sides: [{name: "interleaved", ...kBare, vpp: 8, p2p: 0.25}], asked: ["name", "pp", "microbatches", "forward", "backward", "p2p"],
   goal: "Each additional chunk fills the pipeline sooner but sends more. Find the number of chunks that finishes first.",
   reached: view => view.metrics.makespan <= 32, now: view => `ends after ${significant(view.metrics.makespan)}`},
  {key: "task-fit", title: "Make it fit", mode: "job", sides: [{...kPlain, model: "llama3-70b", cluster: "dgx-h100", nodes: 4, tp: 8, gbs: 128, sequence: 8192}], asked: ["model", "cluster", "nodes", "sequence"],
   goal: "Llama 3 70B on four nodes of H100, sequences of 8,192 tokens. Make it fit.",
   reached: view => view.result.memory.fits, now: fits},
  {key: "task-fast", title: "Under 14 seconds", mode: "job", sides: [{...kPlain, model: "gpt3-175b", cluster: "dgx-a100-80g", nodes: 8, tp: 8, pp: 8, gbs: 64, sequence: 2048, recompute: "full", stack: "megatron-2022"}], asked: ["model", "cluster", "nodes", "gbs", "sequence", "stack"],
   goal: "GPT-3 on 64 A100 takes 19 s with full recomputation. Get below 14 s, and make it fit.",
   reached: view => view.result.iteration.time_s < 14 && view.result.memory.fits, now: view => `${stepTime(view)}, ${fits(view)}`},
  {key: "task-long", title: "128 K tokens", mode: "job", sides: [{...kPlain, model: "llama3-8b", cluster: "dgx-h100", nodes: 4, tp: 8, sp: true, gbs: 32, sequence: 131072}], asked: ["model", "cluster", "nodes", "sequence", "recompute"],
   goal: "Sequences of 131,072 tokens on four nodes, without recomputation. Make it fit.",
   reached: view => view.result.memory.fits, now: fits},
  {key: "task-experts", title: "A mixture of experts", mode: "job", sides: [{...kPlain, model: "mixtral-8x7b", cluster: "dgx-h100", nodes: 4, tp: 1, zero: 1, gbs: 256, sequence: 4096}], asked: ["model", "cluster", "nodes", "sequence", "tp", "recompute"],
   goal: "Mixtral on four nodes without tensor parallelism and recomputation. Make it fit.",
   reached: view => view.result.memory.fits, now: fits},
  {key: "task-price", title: "In 40 days", mode: "job", sides: [{...kPlain, model: "llama3-8b", cluster: "dgx-h100", nodes: 1, tp: 2, zero: 1, gbs: 512, sequence: 8192, recompute: "selective", tokens: 1000, price: 2}], asked: ["model", "sequence", "tokens", "price"],
   goal: "Train Llama 3 8B on a trillion tokens within 40 days, for less than $70,000 at $2 per GPU hour.",
   reached: ({result}) => result.memory.fits && result.training.days <= 40 && result.training.cost_usd < 70000,
   now: view => `${significant(view.result.training?.days ?? 0)} days, $${countText(Math.round(view.result.training?.cost_usd ?? 0))}, ${fits(view)}`},
];
