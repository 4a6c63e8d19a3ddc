// What is asked, as plain data: it is all that an address carries.

const kDefaultJob = {model: "gpt3-175b", cluster: "dgx-a100-80g", nodes: 8, tp: 8, pp: 8, vpp: 3, microbatches: 64,
                     mbs: 1, sequence: 2048, schedule: "interleaved", recompute: "selective", zero: 0, sp: true, stack: "megatron-core"};
const kDefaultSchedule = {name: "1f1b", pp: 4, microbatches: 8, vpp: 2, forward: 1, backward: 2, weight: 1, p2p: 0};

// A state is {mode: "job" | "schedule", sides: [{…}] or two of them, shown: which side the controls change, lesson: the
// key of the preset that it is or was}.

// Base64 that needs no escapes in an address, of UTF-8.
function encodeState(state) {
  const bytes = new TextEncoder().encode(JSON.stringify(state));
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

// A side with what it leaves out filled in; null where a value is none that the controls could have set.
function readSide(side, defaults) {
  if (typeof side !== "object" || side === null || Array.isArray(side)) return null;
  const types = {...defaults, config: ""};
  for (const [key, value] of Object.entries(side)) {
    if (!Object.hasOwn(types, key) || typeof value !== typeof types[key]) return null;
  }
  return {...defaults, ...side};
}

// What an address holds; null where that is nothing the page can have written.
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
    const lesson = kLessons.some(lesson => lesson.key === state.lesson) ? {lesson: state.lesson} : {};
    return {mode: state.mode, sides, shown: sides.length > 1 && state.shown === 1 ? 1 : 0, ...lesson};
  } catch {
    return null;
  }
}

function acceptedChunks(names, schedule) {
  return names.schedules.find(info => info.name === schedule.split(":")[0])?.chunks ?? [];
}
const usesChunks = (names, schedule) => acceptedChunks(names, schedule).some(chunks => chunks > 1);

// After another schedule was chosen: the number of chunks that it accepts nearest to the one that is there. A bare
// schedule of one chunk asks for none, and keeps the number for the next one.
function fitChunks(side, names) {
  const schedule = side.schedule ?? side.name;
  if (side.name !== undefined && !usesChunks(names, schedule)) return;
  const accepted = acceptedChunks(names, schedule);
  side.vpp = accepted.reduce((best, chunks) => Math.abs(chunks - side.vpp) < Math.abs(best - side.vpp) ? chunks : best, accepted[0] ?? side.vpp);
}

// The job file that a side means. Data-parallel ranks are the devices left over.
function jobOf(side, names) {
  const perNode = names.clusters.find(cluster => cluster.name === side.cluster)?.devices_per_node ?? 1;
  const dp = Math.max(1, Math.floor(side.nodes * perNode / (side.tp * side.pp)));
  return {
    model: side.model,
    cluster: {name: side.cluster, nodes: side.nodes},
    layout: {tp: side.tp, pp: side.pp, vpp: side.vpp, sequence_parallel: side.sp && side.tp > 1,
             micro_batch_size: side.mbs, global_batch_size: side.microbatches * side.mbs * dp,
             schedule: side.schedule, recompute: side.recompute, zero: side.zero},
    training: {sequence_length: side.sequence, stack: side.stack},
  };
}

function questionOf(mode, side, names) {
  if (mode === "schedule") return {ask: "view", schedule: side};
  const question = {ask: "view", job: jobOf(side, names)};
  if (side.config !== undefined) question.config = side.config;
  return question;
}
