// Queries that a timeline's drawing needs: the spans in a window, and the share of it that each kind takes.

// The first i in [from, count) with times[i] > time, or >= with `orEqual`, else count; times must not decrease.
// Gallops, since neighbouring columns of a drawing are close to each other.
function firstAfter(times, time, from, count, orEqual = false) {
  if (orEqual) {
    if (from >= count || times[from] >= time) return from;
  } else if (from >= count || times[from] > time) {
    return from;
  }
  let step = 1;
  let low = from;
  while (low + step < count && (orEqual ? times[low + step] < time : times[low + step] <= time)) {
    low += step;
    step *= 2;
  }
  let high = Math.min(low + step, count);
  ++low;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (orEqual ? times[middle] < time : times[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

// "5", or "5.1" for slice 1 of microbatch 5 if microbatches are cut and their slices numbered consecutively.
function unitText(unit, slices) {
  return slices === 1 ? String(unit) : `${Math.floor(unit / slices)}.${unit % slices}`;
}

// The spans of one rank on one stream. The halves of an overlapped pair share the lane's height.
class Lane {
  constructor(rank, codes, members, slices) {
    this.members = members;  // positions in the rank, null if the lane has all spans of the rank
    this.count = members ? members.length : rank.count;
    this.start = members ? Float64Array.from(members, i => rank.start[i]) : rank.start;
    this.end = members ? Float64Array.from(members, i => rank.end[i]) : rank.end;
    this.rank = rank;
    this.codes = codes;
    this.slices = slices;
    this.half = null;  // 0: whole height, 1: upper half, 2: lower half
    for (let i = 0; i + 1 < this.count; ++i) {
      if (!codes[this.codeOf(i)].overlaps_next || this.half?.[i] === 2) continue;
      this.half ??= new Uint8Array(this.count);
      this.half[i] = 1;
      this.half[i + 1] = 2;
    }
    this.sums = null;
  }

  position(i) { return this.members ? this.members[i] : i; }
  codeOf(i) { return this.rank.code[this.position(i)]; }
  share(i) { return this.half && this.half[i] !== 0 ? 0.5 : 1; }

  // Per letter: the total time of all spans before each, so that the time within any window takes two look-ups.
  prepareSums() {
    if (this.sums) return;
    const letters = [...new Set(Array.from({length: this.codes.length}, (_, code) => this.codes[code].letter))];
    const sums = letters.map(() => new Float64Array(this.count + 1));
    this.letterOfCode = this.codes.map(code => letters.indexOf(code.letter));
    for (let i = 0; i < this.count; ++i) {
      const own = this.letterOfCode[this.codeOf(i)];
      for (let letter = 0; letter < sums.length; ++letter) sums[letter][i + 1] = sums[letter][i];
      sums[own][i + 1] += (this.end[i] - this.start[i]) * this.share(i);
    }
    const used = letters.map((letter, i) => sums[i][this.count] > 0 ? i : -1).filter(i => i >= 0);
    this.letterOfCode = this.letterOfCode.map(letter => used.indexOf(letter));
    this.letters = used.map(i => letters[i]);
    this.sums = used.map(i => sums[i]);
  }

  firstEndingAfter(time, from = 0) { return firstAfter(this.end, time, from, this.count); }
  firstStartingAt(time, from = 0) { return firstAfter(this.start, time, from, this.count, true); }

  // Adds to `time` (by letter) the part of the window that the spans [first, last) cover.
  cover(begin, end, first, last, time) {
    for (let letter = 0; letter < this.sums.length; ++letter) {
      time[letter] = this.sums[letter][last] - this.sums[letter][first];
    }
    for (let i = first; i < last && this.start[i] < begin; ++i) {
      time[this.letterOfCode[this.codeOf(i)]] -= (begin - this.start[i]) * this.share(i);
    }
    for (let i = last - 1; i >= first && this.end[i] > end; --i) {
      time[this.letterOfCode[this.codeOf(i)]] -= (this.end[i] - end) * this.share(i);
    }
  }
}

// Bytes over time with the maximum of every 64 points, so that a wide window is summarised quickly.
class MemoryCurve {
  constructor(points) {
    Object.assign(this, points);
    this.peak = 0;
    this.largest = new Float64Array(Math.ceil(this.count / 64));
    for (let i = 0; i < this.count; ++i) {
      this.largest[i >> 6] = Math.max(this.largest[i >> 6], this.bytes[i]);
      this.peak = Math.max(this.peak, this.bytes[i]);
    }
  }
  // The last point at or before the time.
  at(time, from = 0) { return Math.max(0, firstAfter(this.time, time, from, this.count) - 1); }
  // The largest of the points [first, last].
  largestOf(first, last) {
    let largest = 0;
    for (let i = first; i <= last;) {
      if ((i & 63) === 0 && i + 63 <= last) {
        largest = Math.max(largest, this.largest[i >> 6]);
        i += 64;
      } else {
        largest = Math.max(largest, this.bytes[i++]);
      }
    }
    return largest;
  }
}

class TimelineModel {
  constructor(view) {
    Object.assign(this, decodeTimeline(view.timeline));
    this.name = view.name;
    this.parts = view.parts ?? {};
    this.slices = view.slices ?? 1;  // slices per microbatch, numbered consecutively
    this.memoryOf = view.memory?.of ?? "memory";
    this.memory = view.memory ? decodeMemory(view.memory).map(points => new MemoryCurve(points)) : null;
    this.streams = [0, 3, 2, 1].filter(stream => stream === 0 || this.ranks.some(
        rank => this.codes.some(code => code.streamIndex === stream) && rank.code.some(code => this.codes[code].streamIndex === stream)));
    const several = this.streams.length > 1;
    this.lanes = this.ranks.map(rank => this.streams.map(stream => {
      if (!several) return new Lane(rank, this.codes, null, this.slices);
      const members = [];
      for (let i = 0; i < rank.count; ++i) if (this.codes[rank.code[i]].streamIndex === stream) members.push(i);
      return new Lane(rank, this.codes, Int32Array.from(members), this.slices);
    }));
    this.actions = this.ranks.reduce((sum, rank) => sum + rank.count, 0);
  }

  // For an asynchronous schedule, the version of the weights that an action uses; else undefined.
  version(rank, index) {
    const {stage, action, kind} = this.code(rank, index);
    if (!this.weights || stage === undefined || kBesideActions.has(kind)) return undefined;
    return (action === "F" ? this.weights.forward : this.weights.backward)[stage][this.ranks[rank].microbatch[index]];
  }
  code(rank, index) { return this.codes[this.ranks[rank].code[index]]; }
  // "2F5", or the kind of a span that does not belong to a microbatch.
  label(rank, index) {
    const code = this.code(rank, index);
    const action = code.stage === undefined ? code.kind : code.stage + code.action + unitText(this.ranks[rank].microbatch[index], this.slices);
    return kBesideActions.has(code.kind) ? `${code.kind} ${action}` : action;
  }
  // The parts of an action, one per term: [{term, begins, ends}] as fractions of it; null if it has only one part or if
  // its parts are unknown.
  inside({action, stage, kind}) {
    this.insides ??= new Map();
    const key = action + stage;
    if (action === undefined || kind === "send" || !this.parts[key]) return null;
    if (this.insides.has(key)) return this.insides.get(key);
    const sums = new Map();
    for (const {term, seconds} of this.parts[key]) sums.set(term, (sums.get(term) ?? 0) + seconds);
    const used = [...sums].filter(([, seconds]) => seconds > 0);
    const whole = used.reduce((sum, [, seconds]) => sum + seconds, 0);
    let before = 0;
    const parts = used.length < 2 ? null : used.map(([term, seconds]) => {
      const begins = before / whole;
      before += seconds;
      return {term, begins, ends: Math.min(1, before / whole)};
    });
    this.insides.set(key, parts);
    return parts;
  }
  // The terms that occur as one of several parts of an action.
  insideTerms() {
    return new Set(this.codes.flatMap(code => (this.inside(code) ?? []).map(({term}) => term)));
  }

  time(ticks, digits = 6) { return timeText(ticks * this.unitsPerTick, this.unit, digits); }

  criticalStarts() {
    const {rank, index} = this.critical;
    this.critical.starts ??= Float64Array.from(rank, (r, i) => this.ranks[r].start[index[i]]);
    return this.critical.starts;
  }
  criticalSet() {
    this.critical.set ??= this.ranks.map((_, rank) => {
      const flags = new Uint8Array(this.ranks[rank].count);
      for (let i = 0; i < this.critical.rank.length; ++i) {
        if (this.critical.rank[i] === rank) flags[this.critical.index[i]] = 1;
      }
      return flags;
    });
    return this.critical.set;
  }
  isCritical(rank, index) { return this.criticalSet()[rank][index] === 1; }

  // The previous span on the same stream: its position, or -1.
  previous(rank, index) {
    const spans = this.ranks[rank];
    const stream = this.code(rank, index).streamIndex;
    for (let i = index - 1; i >= 0; --i) {
      const pair = spans.start[i] === spans.start[index] && this.codes[spans.code[i]].overlaps_next;
      if (this.codes[spans.code[i]].streamIndex === stream && !pair) return i;
    }
    return -1;
  }

  // Positions that match a search: "3F5", "F5", "3F", "F", "5" (a microbatch), "5.1" (a slice of it), "optimizer".
  search(text) {
    const query = text.trim();
    const action = /^(\d+)?\s*([FBIW])?\s*(\d+)?(?:\.(\d+))?$/i.exec(query);
    if (query === "") return null;
    const letter = action?.[2]?.toUpperCase();
    const stage = letter ? action[1] : undefined;
    const microbatch = letter ? action[3] : action?.[1];
    const slice = action?.[4];
    if (slice !== undefined && (microbatch === undefined || this.slices === 1)) return [];
    const meant = unit => Math.floor(unit / this.slices) === Number(microbatch) &&
                          (slice === undefined || unit % this.slices === Number(slice));
    const matches = [];
    const fits = this.codes.map(code => {
      if (!action) return code.kind.includes(query.toLowerCase());
      return code.action !== undefined && !kBesideActions.has(code.kind) && (!letter || code.action === letter) &&
             (stage === undefined || code.stage === Number(stage));
    });
    this.ranks.forEach((rank, r) => {
      for (let i = 0; i < rank.count; ++i) {
        if (!fits[rank.code[i]]) continue;
        if (action && microbatch !== undefined && !meant(rank.microbatch[i])) continue;
        matches.push({rank: r, index: i, start: rank.start[i]});
      }
    });
    return matches.sort((a, b) => a.start - b.start);
  }
}
