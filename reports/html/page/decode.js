// Reads the data written by reports/html/packed_timeline.cpp.

class Column {
  constructor(base64) {
    const text = atob(base64);
    this.bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; ++i) this.bytes[i] = text.charCodeAt(i);
    this.at = 0;
    this.last = NaN;
    this.repeats = 0;
  }

  unsigned() {
    let byte = this.bytes[this.at++];
    if (byte < 128) return byte;
    let value = byte & 127;
    let scale = 128;
    do {
      byte = this.bytes[this.at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte >= 128);
    return value;
  }

  next() {
    if (this.repeats > 0) {
      --this.repeats;
      return this.last;
    }
    const bits = this.unsigned();
    const number = bits % 2 === 0 ? bits / 2 : -(bits + 1) / 2;
    if (number === this.last) this.repeats = this.unsigned();
    else this.last = number;
    return number;
  }
}

const kStreams = ["compute", "gradient", "pipeline", "experts"];
const kBesideActions = new Set(["send", "dispatch", "combine"]);  // kinds that name an action without being one

// The spans of one rank, one typed array per property. waitRank is -1 if a span waits for nothing.
function decodeRank(count, columns, codes) {
  const rank = {
    count,
    start: new Float64Array(count), end: new Float64Array(count),
    code: new Uint16Array(count), microbatch: new Uint32Array(count),
    waitRank: new Int16Array(count), waitIndex: new Int32Array(count), waitLag: new Float64Array(count),
  };
  const seen = codes.map(() => ({next: 0, microbatch: 0, microbatchStep: 0, gap: 0, duration: 0, rank: 0, index: 0,
                                 indexStep: 0, lag: 0}));
  const streamEnd = kStreams.map(() => 0);
  let lastCode = 0;
  for (let i = 0; i < count; ++i) {
    const code = seen[lastCode].next + columns.code.next();
    seen[lastCode].next = code;
    lastCode = code;
    rank.code[i] = code;

    const expected = seen[code];
    const microbatch = expected.microbatch + expected.microbatchStep + columns.microbatch.next();
    expected.microbatchStep = microbatch - expected.microbatch;
    expected.microbatch = microbatch;
    rank.microbatch[i] = microbatch;

    const stream = codes[code].streamIndex;
    expected.gap += columns.gap.next();
    expected.duration += columns.duration.next();
    rank.start[i] = streamEnd[stream] + expected.gap;
    rank.end[i] = streamEnd[stream] = rank.start[i] + expected.duration;

    expected.rank += columns.waitRank.next();
    rank.waitRank[i] = expected.rank - 1;
    if (expected.rank === 0) continue;
    const index = expected.index + expected.indexStep + columns.waitIndex.next();
    expected.indexStep = index - expected.index;
    expected.index = index;
    expected.lag += columns.waitLag.next();
    rank.waitIndex[i] = index;
    rank.waitLag[i] = expected.lag;
  }
  return rank;
}

function decodePath(critical, rankCount) {
  const rank = new Column(critical.rank);
  const index = new Column(critical.index);
  const path = {rank: new Int32Array(critical.steps), index: new Int32Array(critical.steps)};
  const last = new Array(rankCount).fill(-1);
  let at = 0;
  for (let i = 0; i < critical.steps; ++i) {
    at += rank.next();
    last[at] += index.next() + 1;
    path.rank[i] = at;
    path.index[i] = last[at];
  }
  return path;
}

function decodeTimeline(packed) {
  const codes = packed.codes.map(code => ({...code, streamIndex: kStreams.indexOf(code.stream)}));
  const columns = {
    code: new Column(packed.columns.code), microbatch: new Column(packed.columns.microbatch),
    gap: new Column(packed.columns.gap), duration: new Column(packed.columns.duration),
    waitRank: new Column(packed.columns.wait_rank), waitIndex: new Column(packed.columns.wait_index),
    waitLag: new Column(packed.columns.wait_lag),
  };
  return {
    title: packed.title, unit: packed.time_unit, unitsPerTick: packed.units_per_tick, makespan: packed.makespan, codes,
    ranks: packed.counts.map(count => decodeRank(count, columns, codes)),
    critical: decodePath(packed.critical, packed.counts.length), weights: packed.weights ?? null,
  };
}

// Per rank: times in ticks, and the bytes held from each of them on.
function decodeMemory(packed) {
  const change = new Column(packed.change);
  const step = new Column(packed.time);
  return packed.counts.map((count, rank) => {
    const points = {count, time: new Float64Array(count), bytes: new Float64Array(count),
                    capacity: packed.capacity_gib[rank] * 2 ** 30};
    const seen = packed.changes.map(() => ({next: 0, step: 0}));
    let last = 0;
    let time = 0;
    let bytes = 0;
    for (let i = 0; i < count; ++i) {
      const expected = seen[last];
      expected.next += change.next();
      expected.step += step.next();
      last = expected.next;
      points.time[i] = time += expected.step;
      points.bytes[i] = bytes += packed.changes[last];
    }
    return points;
  });
}
