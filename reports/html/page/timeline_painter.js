// Draws rows of a timeline into a canvas. Spans wider than two pixels are drawn individually; elsewhere each column of
// pixels shows the share of its time that each kind takes, from exact sums.

const kLaneGap = 1;
const kThinLane = 6;

function rgbaOf(hex) {
  const value = parseInt(hex.slice(1), 16);
  return (255 << 24 | (value & 255) << 16 | (value >> 8 & 255) << 8 | value >> 16) >>> 0;
}

// Positions of everything in CSS pixels; `scale` is the number of device pixels per CSS pixel. With `fits`, rows shrink
// until all of them fit into the height: memory shrinks first, then disappears, then lanes get thinner, down to
// kThinnest.
const kThinnest = 3;

class Geometry {
  constructor(models, width, height, hasMemory, fits) {
    this.left = width < 480 ? 58 : 76;
    this.width = width;
    const ranks = models.reduce((sum, model) => sum + model.ranks.length, 0);
    this.title = models.length > 1 || models[0]?.title ? 24 : 6;
    const room = (height - models.length * (this.title + 4)) / Math.max(1, ranks);
    const roomy = !fits || room >= 48;
    this.gap = roomy || room >= 16 ? 5 : room >= 8 ? 2 : 1;
    this.thinLane = roomy ? kThinLane : room >= 20 ? 4 : room >= 10 ? 2 : 1;
    const wanted = ranks > 32 ? 14 : 24;
    const shrunk = Math.min(wanted, Math.floor(room * 0.35));
    this.memoryHeight = !hasMemory ? 0 : roomy ? wanted : shrunk >= 5 ? shrunk : 0;
    this.groups = [];
    let y = 0;
    for (const model of models) {
      const thin = (model.streams.length - 1) * (this.thinLane + kLaneGap);
      const memory = model.memory && this.memoryHeight ? this.memoryHeight + 2 : 0;
      const lane = Math.floor(Math.min(30, Math.max(roomy ? 9 : kThinnest, room - thin - memory - this.gap)));
      const row = lane + thin + memory + this.gap;
      this.groups.push({model, y, rows: y + this.title, lane, row, memory: memory ? this.memoryHeight : 0, thin});
      y += this.title + row * model.ranks.length + 4;
    }
    this.height = y;
  }
  plotWidth() { return this.width - this.left; }
  rowTop(group, rank) { return this.groups[group].rows + rank * this.groups[group].row; }
  // Top and height of a lane within its row.
  laneOf(group, lane) {
    const {lane: height} = this.groups[group];
    return lane === 0 ? {y: 0, height} : {y: height + kLaneGap + (lane - 1) * (this.thinLane + kLaneGap), height: this.thinLane};
  }
  memoryTop(group) { return this.groups[group].lane + this.groups[group].thin + 2; }
}

class Painter {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", {alpha: false});
    this.columns = null;
  }

  resize(width, height, scale) {
    this.scale = scale;
    this.width = width;
    this.height = height;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.width = width + "px";
    this.canvas.style.height = height + "px";
    this.columns = null;
  }

  // `window`: begin and end in ticks, and the vertical offset; `colors` from the style sheet.
  begin(colors) {
    this.colors = colors;
    this.context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    this.context.fillStyle = colors.paper;
    this.context.fillRect(0, 0, this.width, this.height);
  }

  lane(lane, x, width, top, height, begin, end, matches) {
    const context = this.context;
    context.fillStyle = this.colors.idle;
    context.fillRect(x, top, width, height);
    const first = lane.firstEndingAfter(begin);
    const last = lane.firstStartingAt(end, first);
    if (last <= first) return;
    if (last - first > width / 2) this.shares(lane, x, width, top, height, begin, end);
    else this.spans(lane, first, last, x, width, top, height, begin, end, matches);
  }

  shares(lane, x, width, top, height, begin, end) {
    lane.prepareSums();
    const columns = Math.round(width * this.scale);
    const rows = Math.max(1, Math.round(height * this.scale));
    if (this.columns?.width !== columns || this.columns.height !== rows) {
      this.columns = this.context.createImageData(columns, rows);
    }
    const pixels = new Uint32Array(this.columns.data.buffer);
    const idle = rgbaOf(this.colors.idle);
    // The legend's colour for all chunks of a kind.
    const colorOf = letter => lane.codes.find(code => code.letter === letter && code.chunk === 0) ?? lane.codes.find(code => code.letter === letter);
    const paint = lane.letters.map(letter => rgbaOf(colorOf(letter).fill));
    const time = new Float64Array(lane.letters.length);
    const perColumn = (end - begin) / columns;
    let first = lane.firstEndingAfter(begin);
    let last = first;
    for (let column = 0; column < columns; ++column) {
      const from = begin + column * perColumn;
      const to = from + perColumn;
      first = lane.firstEndingAfter(from, first);
      last = lane.firstStartingAt(to, Math.max(first, last));
      lane.cover(from, to, first, last, time);
      let row = rows - 1;
      let sum = 0;
      for (let letter = 0; letter < time.length; ++letter) {
        sum += time[letter];
        const edge = rows - Math.round(rows * Math.min(1, sum / perColumn));
        for (; row >= edge; --row) pixels[row * columns + column] = paint[letter];
      }
      for (; row >= 0; --row) pixels[row * columns + column] = idle;
    }
    this.context.putImageData(this.columns, Math.round(x * this.scale), Math.round(top * this.scale));
  }

  spans(lane, first, last, x, width, top, height, begin, end, matches) {
    const context = this.context;
    const perTick = width / (end - begin);
    const byCode = new Map();
    for (let i = first; i < last; ++i) {
      const code = lane.codeOf(i);
      if (!byCode.has(code)) byCode.set(code, []);
      byCode.get(code).push(i);
    }
    const size = height >= 24 ? 12 : height >= 15 ? 11 : height >= 10 ? 9 : 0;
    context.font = `${size}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (const [code, indices] of byCode) {
      const {fill, light_text: light, stage, action, letter} = lane.codes[code];
      const labels = [];
      context.fillStyle = fill;
      for (const i of indices) {
        const from = Math.max(0, (lane.start[i] - begin) * perTick);
        const to = Math.min(width, (lane.end[i] - begin) * perTick);
        const half = lane.half?.[i] ?? 0;
        const y = half === 2 ? top + height / 2 : top;
        const tall = half === 0 ? height : height / 2 - 0.5;
        const space = to - from > 4 ? 1 : 0;
        const found = !matches || matches.has(lane.position(i));
        context.globalAlpha = found ? 1 : 0.22;
        context.fillRect(x + from, y, Math.max(to - from - space, 0.75), tall);
        if (size > 0 && (half === 0 || height > 20) && to - from > 9) labels.push([i, from, to, y + tall / 2 + 0.5]);
      }
      context.globalAlpha = 1;
      if (this.inside && height >= 12) this.strips(lane, indices, code, x, width, top, height, begin, perTick);
      if (labels.length === 0) continue;
      context.fillStyle = light ? "#fff" : "#111";
      const unitOf = i => stage === undefined ? letter : unitText(lane.rank.microbatch[lane.position(i)], lane.slices);
      // If the numbers switched to fewer digits midway, it would look as if the actions ended there.
      const longest = labels.reduce((most, [i]) => Math.max(most, unitOf(i).length), 0);
      for (const [i, from, to, y] of labels) {
        const unit = unitOf(i);
        const long = stage === undefined ? lane.codes[code].kind : stage + action + unit;
        const text = to - from > long.length * 8 + 10 ? long : unit;
        if (to - from > Math.max(text.length, longest) * (size * 0.58) + 2) context.fillText(text, x + (from + to) / 2, y);
      }
    }
  }

  // Strips along the bottom of actions that show their parts: how much of each, not when.
  strips(lane, indices, code, x, width, top, height, begin, perTick) {
    const parts = this.inside(lane.codes[code]);
    if (!parts) return;
    const context = this.context;
    const tall = height >= 24 ? 6 : 4;
    for (const i of indices) {
      const from = (lane.start[i] - begin) * perTick;
      const length = (lane.end[i] - lane.start[i]) * perTick;
      if (length < 12) continue;
      const half = lane.half?.[i] ?? 0;
      const foot = half === 1 ? top + height / 2 - 0.5 : top + height;
      for (const {color, begins, ends} of parts) {
        const left = Math.max(0, from + begins * length);
        const right = Math.min(width, from + ends * length - (ends === 1 ? 1 : 0));
        if (right <= left) continue;
        context.fillStyle = color;
        context.fillRect(x + left, foot - tall, right - left, tall);
      }
      context.fillStyle = this.colors.paper;
      context.fillRect(x + Math.max(0, from), foot - tall - 0.5, Math.max(0, Math.min(width, from + length) - Math.max(0, from) - 1), 0.5);
    }
  }

  memory(curve, x, width, top, height, begin, end, scale) {
    const context = this.context;
    context.fillStyle = this.colors.idle;
    context.globalAlpha = 0.45;
    context.fillRect(x, top, width, height);
    context.globalAlpha = 1;
    context.fillStyle = this.colors.memory;
    const y = bytes => Math.min(height, height * bytes / scale);
    const perPixel = (end - begin) / width;
    let from = 0;
    let runStart = 0;
    let runHeight = -1;
    const flush = to => {
      if (runHeight >= 0) context.fillRect(x + runStart, top + height - runHeight, to - runStart, runHeight);
    };
    for (let column = 0; column < width; ++column) {
      const first = curve.at(begin + column * perPixel, from);
      const last = Math.max(first, curve.at(begin + (column + 1) * perPixel, first));
      from = first;
      const tall = y(curve.largestOf(first, last));
      if (tall === runHeight) continue;
      flush(column);
      runStart = column;
      runHeight = tall;
    }
    flush(width);
    if (curve.capacity > 0 && curve.capacity <= scale) {
      context.fillStyle = this.colors.limit;
      context.fillRect(x, top + height - y(curve.capacity), width, 1);
    }
  }

  // The critical path: outlines of its spans and lines from rank to rank; with many steps in view, only some of them.
  path(model, geometry, group, begin, end, offset) {
    const {rank, index} = model.critical;
    const context = this.context;
    const x = time => geometry.left + (time - begin) / (end - begin) * geometry.plotWidth();
    const starts = model.criticalStarts();
    const first = Math.max(0, firstAfter(starts, begin, 0, rank.length, true) - 1);
    const last = Math.min(rank.length, firstAfter(starts, end, first, rank.length, true) + 1);
    const stride = Math.max(1, Math.ceil((last - first) / 2000));
    context.save();
    context.beginPath();
    context.rect(geometry.left, 0, geometry.plotWidth(), this.height);
    context.clip();
    context.strokeStyle = this.colors.critical;
    context.lineWidth = stride > 1 ? 1 : 2;
    context.beginPath();
    const tall = geometry.groups[group].lane;
    for (let i = first; i < last; i += stride) {
      const spans = model.ranks[rank[i]];
      const y = geometry.rowTop(group, rank[i]) - offset;
      const from = x(spans.start[index[i]]);
      const to = x(spans.end[index[i]]);
      if (stride === 1 && to - from > 3) context.rect(from + 1, y + 1, to - from - 3, tall - 2);
      if (i + stride < last) {
        const next = model.ranks[rank[i + stride]];
        if (rank[i] !== rank[i + stride]) {
          context.moveTo(to - 1, y + tall / 2);
          context.lineTo(x(next.start[index[i + stride]]) + 1, geometry.rowTop(group, rank[i + stride]) - offset + tall / 2);
        } else if (stride > 1) {
          context.moveTo(from, y + tall / 2);
          context.lineTo(x(next.start[index[i + stride]]), y + tall / 2);
        }
      }
    }
    context.stroke();
    context.restore();
  }
}
