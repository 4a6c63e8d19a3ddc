// The interactive timeline: canvas, toolbar, mouse and keys. Several models are stacked over one time axis.

const kAxisHeight = 40;
const kTallest = 640;
const kNarrowest = 160;
const kRankText = 12;  // pixels of height that a rank's name takes
// Canvases of more than 16,384 pixels per side stay empty in some browsers.
const kTallestPrint = 16000;

class TimelineView {
  // `onSelect(model, rank, index)` is called with the clicked span, or without arguments. `terms`: the terms of a step,
  // with colours.
  constructor(container, onSelect, terms = []) {
    this.onSelect = onSelect;
    this.terms = new Map(terms.map(term => [term.key, term]));
    this.canvas = element("canvas", {tabindex: "0", role: "application", class: "timeline-canvas",
      "aria-label": "Timeline. Arrow keys move, plus and minus zoom, 0 shows all, n and p step through the actions of a rank."});
    this.axis = element("canvas", {class: "timeline-axis", "aria-hidden": "true"});
    this.spacer = element("div", {class: "timeline-spacer"});
    this.scroller = element("div", {class: "timeline-scroller"}, this.spacer);
    this.spacer.append(this.canvas);
    this.tip = element("div", {class: "timeline-tip", hidden: true});
    this.status = element("p", {class: "visually-hidden", "aria-live": "polite"});
    this.printNote = element("p", {class: "print-note"});
    container.append(this.toolbar(), this.axis, this.scroller, this.printNote, this.tip, this.status);
    this.container = container;
    this.painter = new Painter(this.canvas);
    this.axisPainter = new Painter(this.axis);
    this.models = [];
    this.showPath = false;
    this.matches = null;
    this.listen();
  }

  toolbar() {
    const button = (label, title, action) => element("button", {type: "button", title, "aria-label": title, onclick: action}, label);
    this.searchBox = element("input", {type: "search", placeholder: "find 2F5, B 7, optimizer …", "aria-label": "Find an action, such as 2F5",
      onkeydown: event => { if (event.key === "Enter") this.find(event.shiftKey ? -1 : 1); event.stopPropagation(); },
      oninput: () => this.find(0)});
    this.found = element("span", {class: "found", "aria-live": "polite"});
    this.pathBox = element("input", {type: "checkbox", onchange: () => { this.showPath = this.pathBox.checked; this.draw(); }});
    this.memoryBox = element("input", {type: "checkbox", checked: true, onchange: () => this.layout()});
    this.memoryName = element("span", {}, "memory");
    this.memoryLabel = element("label", {}, this.memoryBox, " ", this.memoryName);
    this.insideBox = element("input", {type: "checkbox", checked: true, onchange: () => { this.showLegend(); this.draw(); }});
    this.insideLabel = element("label", {title: "strips at the bottom of each action show its parts: how much of each, not when"}, this.insideBox, " inside passes");
    this.fitsBox = element("input", {type: "checkbox", checked: true, onchange: () => this.layout()});
    this.fitsLabel = element("label", {}, this.fitsBox, " all ranks at once");
    this.legend = element("span", {class: "legend"});
    return element("div", {class: "toolbar"},
      button("−", "Zoom out", () => this.zoom(0.5)), button("+", "Zoom in", () => this.zoom(2)),
      button("⤢", "Show all", () => this.fit()), this.searchBox, this.found,
      element("label", {}, this.pathBox, " critical path"), this.memoryLabel, this.insideLabel, this.fitsLabel, this.legend);
  }

  show(models) {
    const keepsWindow = this.models.length > 0 && this.begin > 0;
    this.models = models;
    this.selected = null;
    this.matches = null;
    this.longest = Math.max(1, ...models.map(model => model.makespan));
    if (!keepsWindow || this.end > this.longest) { this.begin = 0; this.end = this.longest; }
    this.memoryLabel.hidden = !models.some(model => model.memory);
    this.memoryName.textContent = models.find(model => model.memory)?.memoryOf ?? "memory";
    this.insideLabel.hidden = !models.some(model => model.insideTerms().size > 0);
    this.memoryScale = 1.04 * Math.max(1, ...models.flatMap(model => (model.memory ?? []).map(curve => Math.max(curve.peak, curve.capacity || 0))));
    this.showLegend();
    this.layout();
  }

  showLegend() {
    const kinds = new Map();
    for (const model of this.models) for (const code of model.codes) {
      if (code.chunk === 0 && !kinds.has(code.kind)) kinds.set(code.kind, code);
    }
    const key = (color, text, kind) => element("span", {class: "key"},
      element("i", {class: kind ?? "", style: color ? `background:${color}` : undefined}), text);
    this.legend.replaceChildren(...[...kinds].map(([kind, code]) => key(code.fill, kind)), key(null, "idle", "idle"),
      ...(this.models.some(model => model.memory?.some(curve => curve.capacity > 0)) ? [key(null, "capacity", "limit")] : []),
      ...(this.models.some(model => model.weights) ? [key(null, "weights updated", "update"), element("span", {}, "lighter: computed with version 1, 4, 7 … of the weights; lightest: 2, 5, 8 …")] : []),
      ...(this.insideLabel.hidden || !this.insideBox.checked ? [] : [element("span", {}, "inside:"), ...[...new Set(this.models.flatMap(model => [...model.insideTerms()]))].map(term => key(this.terms.get(term)?.color, this.terms.get(term)?.name ?? term))]),
      ...(this.models.some(model => model.slices > 1) ? [element("span", {}, "3.1: slice 1 of microbatch 3")] : []));
  }

  layout() {
    const width = Math.max(kNarrowest, this.container.clientWidth);
    const hasMemory = this.memoryBox.checked && this.models.some(model => model.memory);
    const laidOut = fits => new Geometry(this.models, width, kTallest - 40, hasMemory, fits);
    this.geometry = laidOut(this.fitsBox.checked && !this.printing);
    this.fitsLabel.hidden = laidOut(false).height <= kTallest;
    const height = Math.min(this.geometry.height, this.printing ? kTallestPrint : kTallest);
    this.scroller.style.height = height + "px";
    this.spacer.style.height = (this.printing ? height : this.geometry.height) + "px";
    const scale = window.devicePixelRatio || 1;
    this.painter.resize(width, height, Math.min(scale, kTallestPrint / height));
    this.axisPainter.resize(width, kAxisHeight, scale);
    this.paint();
  }

  // On paper every rank is shown, in the colours of the light scheme.
  print(printing) {
    if (this.models.length === 0 || this.printing === printing) return;
    this.printing = printing;
    document.documentElement.classList.toggle("printing", printing);
    if (printing) this.scrolled = this.scroller.scrollTop;
    this.layout();
    if (!printing) this.scroller.scrollTop = this.scrolled;
    const left = printing ? this.ranksBelow(this.painter.height) : 0;
    this.printNote.textContent = left > 0 ? `${countText(left)} ranks are left out: they do not fit into one picture.` : "";
  }

  // Number of ranks that end below a height of the whole drawing.
  ranksBelow(height) {
    return this.geometry.groups.reduce((sum, {rows, row, model}) => sum + model.ranks.length -
      Math.min(model.ranks.length, Math.max(0, Math.floor((height - rows) / row))), 0);
  }

  draw() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => { this.pending = 0; this.paint(); });
  }

  colors() {
    const style = getComputedStyle(this.container);
    const value = name => style.getPropertyValue(name).trim();
    return {paper: value("--paper"), idle: value("--idle"), text: value("--text"), faint: value("--faint"),
            memory: value("--memory"), limit: value("--limit"), critical: value("--critical"), accent: value("--accent")};
  }

  paint() {
    if (this.models.length === 0) return;
    const {painter, geometry, begin, end} = this;
    const colors = this.colors();
    painter.begin(colors);
    const offset = this.scroller.scrollTop;
    const context = painter.context;
    geometry.groups.forEach((group, g) => {
      const {model} = group;
      const colored = code => model.inside(code)?.map(part => ({...part, color: this.terms.get(part.term)?.color ?? colors.faint}));
      painter.inside = this.insideBox.checked && !this.insideLabel.hidden ? colored : null;
      const own = this.matches?.[g];
      this.heading(context, colors, group, offset);
      model.lanes.forEach((lanes, rank) => {
        const top = geometry.rowTop(g, rank) - offset;
        if (top > painter.height || top + group.row < 0) return;
        context.fillStyle = colors.text;
        context.font = "12px system-ui, sans-serif";
        context.textAlign = "right";
        context.textBaseline = "middle";
        // If rows are lower than their names, only every n-th row is labelled.
        if (rank % Math.ceil(kRankText / group.row) === 0) context.fillText("rank " + rank, geometry.left - 10, top + group.lane / 2);
        lanes.forEach((lane, l) => {
          const place = geometry.laneOf(g, l);
          painter.lane(lane, geometry.left, geometry.plotWidth(), top + place.y, place.height, begin, end, own?.[rank]);
        });
        if (group.memory && model.memory) {
          painter.memory(model.memory[rank], geometry.left, geometry.plotWidth(), top + geometry.memoryTop(g), group.memory, begin, end, this.memoryScale);
        }
        if (model.weights) this.updates(context, colors, model.weights.updates[rank], top, group.lane);
        if (own) this.marks(context, colors, model, rank, own[rank], top);
      });
      if (this.showPath) painter.path(model, geometry, g, begin, end, offset);
    });
    this.outline(context, colors, offset);
    this.paintAxis(colors);
  }

  heading(context, colors, group, offset) {
    const {model, y} = group;
    const text = this.models.length > 1 && model.name && !model.title.startsWith(model.name) ? model.name + (model.title ? ": " + model.title : "") : model.title || model.name;
    if (this.geometry.title < 20 || !text) return;
    context.fillStyle = colors.text;
    context.font = "600 13px system-ui, sans-serif";
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillText(text, this.geometry.left, y - offset + 12);
  }

  // A bar where the weights of a rank change.
  updates(context, colors, times, top, lane) {
    context.fillStyle = colors.critical;
    let last = -9;
    for (const time of times) {
      const x = this.x(time);
      if (x < this.geometry.left || x > this.geometry.width || x - last < 3) continue;
      context.fillRect(x - 1, top - 2, 2, lane + 4);
      last = x;
    }
  }

  // Marks matches, even those too narrow to see.
  marks(context, colors, model, rank, matches, top) {
    context.fillStyle = colors.accent;
    let last = -9;
    for (const index of matches) {
      const x = this.x(model.ranks[rank].start[index]);
      if (x < this.geometry.left || x > this.geometry.width || x - last < 2) continue;
      context.fillRect(x, top - 3, 2, 3);
      last = x;
    }
  }

  outline(context, colors, offset) {
    if (!this.selected) return;
    const {group, rank, index} = this.selected;
    const box = (r, i, color, width) => {
      const model = this.models[group];
      const spans = model.ranks[r];
      const lane = model.streams.indexOf(model.code(r, i).streamIndex);
      const place = this.geometry.laneOf(group, lane);
      const from = Math.max(this.geometry.left, this.x(spans.start[i]));
      const to = Math.min(this.geometry.width, this.x(spans.end[i]));
      if (to < this.geometry.left || from > this.geometry.width) return null;
      const y = this.geometry.rowTop(group, r) - offset + place.y;
      context.strokeStyle = color;
      context.lineWidth = width;
      context.strokeRect(from - 1, y - 1, Math.max(3, to - from + 1), place.height + 2);
      return {x: to, start: from, y: y + place.height / 2};
    };
    const own = box(rank, index, colors.accent, 3);
    const spans = this.models[group].ranks[rank];
    if (spans.waitRank[index] < 0) return;
    const cause = box(spans.waitRank[index], spans.waitIndex[index], colors.accent, 1.5);
    if (!own || !cause) return;
    context.beginPath();
    context.setLineDash([4, 3]);
    context.moveTo(cause.x, cause.y);
    context.lineTo(own.start, own.y);
    context.stroke();
    context.setLineDash([]);
  }

  // The window within the whole timeline above, time marks below.
  paintAxis(colors) {
    const {geometry, axisPainter: painter, begin, end} = this;
    const model = this.models[0];
    painter.begin(colors);
    const context = painter.context;
    const plot = geometry.plotWidth();
    context.fillStyle = colors.idle;
    context.fillRect(geometry.left, 4, plot, 8);
    context.fillStyle = colors.accent;
    const width = Math.max(3, (end - begin) / this.longest * plot);
    context.fillRect(geometry.left + Math.min(begin / this.longest * plot, plot - width), 4, width, 8);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "bottom";
    const units = (end - begin) * model.unitsPerTick;
    const step = roundStep(units, Math.max(2, plot / 110));
    const first = Math.ceil(begin * model.unitsPerTick / step - 1e-9);
    for (let mark = first; mark * step <= end * model.unitsPerTick * (1 + 1e-12); ++mark) {
      const x = this.x(mark * step / model.unitsPerTick);
      const text = timeText(mark * step, model.unit, 6);
      context.textAlign = x > geometry.width - 30 ? "right" : x < geometry.left + 10 ? "left" : "center";
      context.fillStyle = colors.faint;
      context.fillRect(Math.min(x, geometry.width - 1), kAxisHeight - 5, 1, 5);
      context.fillStyle = colors.text;
      context.fillText(text, x, kAxisHeight - 6);
    }
  }

  x(time) { return this.geometry.left + (time - this.begin) / (this.end - this.begin) * this.geometry.plotWidth(); }
  timeAt(x) { return this.begin + (x - this.geometry.left) / this.geometry.plotWidth() * (this.end - this.begin); }

  setWindow(begin, end) {
    const length = Math.min(this.longest, Math.max(end - begin, 8));
    this.begin = Math.min(Math.max(0, begin), this.longest - length);
    this.end = this.begin + length;
    // The action that the tooltip described has moved.
    this.tip.hidden = true;
    this.draw();
  }
  // Centre of zooming by buttons and keys: the selected action, else the pointer, else the middle.
  focus() {
    const within = time => time >= this.begin && time <= this.end;
    if (this.selected) {
      const {group, rank, index} = this.selected;
      const spans = this.models[group].ranks[rank];
      const middle = (Math.max(this.begin, spans.start[index]) + Math.min(this.end, spans.end[index])) / 2;
      if (spans.end[index] >= this.begin && spans.start[index] <= this.end) return middle;
    }
    return this.pointed !== undefined && within(this.timeAt(this.pointed)) ? this.timeAt(this.pointed) : (this.begin + this.end) / 2;
  }
  zoom(factor, at = this.focus()) {
    this.setWindow(at - (at - this.begin) / factor, at + (this.end - at) / factor);
  }
  pan(pixels) {
    const shift = pixels * (this.end - this.begin) / this.geometry.plotWidth();
    this.setWindow(this.begin + shift, this.end + shift);
  }
  fit() { this.setWindow(0, this.longest); }

  // The span under a point of the canvas.
  hit(x, y) {
    const at = y + this.scroller.scrollTop;
    const time = this.timeAt(x);
    if (x < this.geometry.left) return null;
    for (let group = 0; group < this.models.length; ++group) {
      const {rows, row} = this.geometry.groups[group];
      const model = this.models[group];
      const rank = Math.floor((at - rows) / row);
      if (rank < 0 || rank >= model.ranks.length || at < rows) continue;
      const within = at - rows - rank * row;
      for (let l = 0; l < model.lanes[rank].length; ++l) {
        const place = this.geometry.laneOf(group, l);
        if (within < place.y || within > place.y + place.height) continue;
        const lane = model.lanes[rank][l];
        const slack = 1.5 * (this.end - this.begin) / this.geometry.plotWidth();
        for (let i = lane.firstEndingAfter(time - slack); i < lane.count && lane.start[i] <= time + slack; ++i) {
          const half = lane.half?.[i] ?? 0;
          const lower = within > place.y + place.height / 2;
          if (half === 0 || (half === 2) === lower) return {group, rank, index: lane.position(i)};
        }
        return {group, rank, index: -1};
      }
      return {group, rank, index: -1};
    }
    return null;
  }

  select(group, rank, index, reveal = false) {
    this.selected = index < 0 ? null : {group, rank, index};
    if (this.selected && reveal) this.reveal(group, rank, index);
    const model = this.models[group];
    if (this.selected) {
      const spans = model.ranks[rank];
      this.status.textContent = `${model.label(rank, index)} on rank ${rank}, ${model.time(spans.start[index])} to ${model.time(spans.end[index])}`;
    }
    this.onSelect(this.selected ? model : null, rank, index, group);
    this.draw();
  }

  // Brings a span into view, wide enough to be seen.
  reveal(group, rank, index) {
    const spans = this.models[group].ranks[rank];
    const length = spans.end[index] - spans.start[index];
    const middle = (spans.start[index] + spans.end[index]) / 2;
    const wide = Math.min(this.end - this.begin, Math.max(60 * length, 8));
    if (spans.start[index] < this.begin || spans.end[index] > this.end || wide < this.end - this.begin) {
      this.setWindow(middle - wide / 2, middle + wide / 2);
    }
    const top = this.geometry.rowTop(group, rank);
    const bottom = top + this.geometry.groups[group].row;
    if (top < this.scroller.scrollTop || bottom > this.scroller.scrollTop + this.painter.height) {
      this.scroller.scrollTop = top - this.painter.height / 2;
    }
  }

  // direction 0: as typed; 1 and -1: the next and the previous match.
  find(direction) {
    const found = this.models.map(model => model.search(this.searchBox.value));
    if (found.some(matches => matches === null)) {
      this.matches = null;
      this.found.textContent = "";
      this.draw();
      return;
    }
    this.matches = found.map((matches, group) => {
      const byRank = this.models[group].ranks.map(() => new Set());
      for (const match of matches) byRank[match.rank].add(match.index);
      return byRank;
    });
    const all = found.flatMap((matches, group) => matches.map(match => ({...match, group})));
    if (direction === 0) this.at = -1;
    else if (all.length > 0) this.at = (this.at + direction + all.length) % all.length;
    this.found.textContent = all.length === 0 ? "nothing found" : `${this.at >= 0 ? this.at + 1 + " of " : ""}${countText(all.length)}`;
    if (direction !== 0 && all.length > 0) this.select(all[this.at].group, all[this.at].rank, all[this.at].index, true);
    this.draw();
  }

  // Selects the first action of the first rank that has any.
  selectFirst() {
    const group = this.models.findIndex(model => model.ranks.some(spans => spans.count > 0));
    if (group >= 0) this.select(group, this.models[group].ranks.findIndex(spans => spans.count > 0), 0, true);
  }
  step(direction) {
    if (!this.selected) return this.selectFirst();
    const {group, rank, index} = this.selected;
    const next = Math.min(this.models[group].ranks[rank].count - 1, Math.max(0, index + direction));
    this.select(group, rank, next, true);
  }
  changeRank(direction) {
    if (!this.selected) return this.selectFirst();
    const {group, rank, index} = this.selected;
    const {ranks} = this.models[group];
    let other = rank + direction;
    while (ranks[other]?.count === 0) other += direction;
    if (!ranks[other]) return;
    const middle = (ranks[rank].start[index] + ranks[rank].end[index]) / 2;
    const spans = ranks[other];
    this.select(group, other, Math.min(spans.count - 1, firstAfter(spans.end, middle, 0, spans.count)), true);
  }

  onKey(event) {
    const width = this.geometry.plotWidth();
    const actions = {
      "+": () => this.zoom(1.5), "=": () => this.zoom(1.5), "w": () => this.zoom(1.5), "-": () => this.zoom(1 / 1.5), "s": () => this.zoom(1 / 1.5),
      "0": () => this.fit(), "Home": () => this.setWindow(0, this.end - this.begin),
      "End": () => this.setWindow(this.longest - (this.end - this.begin), this.longest),
      "ArrowLeft": () => this.pan(-width / 8), "a": () => this.pan(-width / 8), "ArrowRight": () => this.pan(width / 8), "d": () => this.pan(width / 8),
      "n": () => this.step(1), "p": () => this.step(-1), "ArrowDown": () => this.changeRank(1), "ArrowUp": () => this.changeRank(-1),
      "c": () => { this.pathBox.click(); }, "/": () => this.searchBox.focus(), "Escape": () => this.select(0, 0, -1),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  }

  listen() {
    let drag = null;
    const position = event => {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    this.canvas.addEventListener("keydown", event => this.onKey(event));
    this.canvas.addEventListener("wheel", event => {
      const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
      if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(-event.deltaY * 0.004), this.timeAt(position(event)[0]));
      else if (Math.abs(sideways) > 0 && (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))) this.pan(sideways);
      else return;
      event.preventDefault();
    }, {passive: false});
    // Keep the times under the two fingers in place.
    const fingers = new Map();
    let held = null;
    const pinch = () => {
      const [first, second] = [...fingers.values()].sort((a, b) => a - b);
      if (!held) {
        held = [this.timeAt(first), this.timeAt(second)];
        return;
      }
      const perPixel = (held[1] - held[0]) / Math.max(8, second - first);
      if (!(perPixel > 0)) return;
      const begin = held[0] - (first - this.geometry.left) * perPixel;
      this.setWindow(begin, begin + perPixel * this.geometry.plotWidth());
    };
    this.canvas.addEventListener("pointerdown", event => {
      drag = {x: event.clientX, moved: 0};
      fingers.set(event.pointerId, position(event)[0]);
      held = null;
      if (fingers.size === 2) {
        drag.moved = Infinity;
        pinch();
      }
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", event => {
      this.pointed = position(event)[0];
      if (fingers.has(event.pointerId)) fingers.set(event.pointerId, this.pointed);
      if (fingers.size === 2) {
        pinch();
      } else if (drag) {
        drag.moved += Math.abs(event.clientX - drag.x);
        if (drag.moved > 3) this.pan(drag.x - event.clientX);
        drag.x = event.clientX;
        this.tip.hidden = true;
      } else {
        this.hover(event, ...position(event));
      }
    });
    const lift = event => {
      fingers.delete(event.pointerId);
      held = null;
      // The remaining finger continues to drag from its position.
      if (drag && fingers.size === 1) drag.x = [...fingers.values()][0] + this.canvas.getBoundingClientRect().left;
    };
    this.canvas.addEventListener("pointerup", event => {
      lift(event);
      if (fingers.size > 0) return;
      const clicked = drag && drag.moved <= 3;
      drag = null;
      if (!clicked) return;
      const hit = this.hit(...position(event));
      this.select(hit?.group ?? 0, hit?.rank ?? 0, hit?.index ?? -1);
    });
    this.canvas.addEventListener("pointercancel", event => {
      lift(event);
      if (fingers.size === 0) drag = null;
    });
    this.canvas.addEventListener("dblclick", event => this.zoom(4, this.timeAt(position(event)[0])));
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; this.pointed = undefined; });
    this.scroller.addEventListener("scroll", () => this.draw());
    let scrubs = false;
    const scrub = event => {
      const x = event.clientX - this.axis.getBoundingClientRect().left - this.geometry.left;
      const middle = x / this.geometry.plotWidth() * this.longest;
      const half = (this.end - this.begin) / 2;
      this.setWindow(middle - half, middle + half);
    };
    this.axis.addEventListener("pointerdown", event => { scrubs = true; this.axis.setPointerCapture(event.pointerId); scrub(event); });
    this.axis.addEventListener("pointermove", event => { if (scrubs) scrub(event); });
    this.axis.addEventListener("pointerup", () => { scrubs = false; });
    new ResizeObserver(() => { if (this.models.length > 0 && this.container.clientWidth !== this.geometry?.width) this.layout(); }).observe(this.container);
    window.addEventListener("beforeprint", () => this.print(true));
    window.addEventListener("afterprint", () => this.print(false));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  // Text on the memory that a rank holds under a point of its memory strip; empty elsewhere.
  memoryUnder(x, y) {
    if (x < this.geometry.left) return "";
    const at = y + this.scroller.scrollTop;
    for (let group = 0; group < this.models.length; ++group) {
      const {rows, row, memory} = this.geometry.groups[group];
      const {model} = this.geometry.groups[group];
      const rank = Math.floor((at - rows) / row);
      if (!memory || !model.memory || at < rows || rank >= model.ranks.length) continue;
      const below = at - rows - rank * row - this.geometry.memoryTop(group);
      if (below < 0 || below > memory) continue;
      const curve = model.memory[rank];
      const time = Math.min(model.makespan, Math.max(0, this.timeAt(x)));
      const held = bytes => model.unit === "s" ? gibText(bytes / 2 ** 30) : significant(bytes / 2 ** 30);
      const limit = curve.capacity > 0 ? ` of ${held(curve.capacity)}` : "";
      return `rank ${rank} holds ${held(curve.bytes[curve.at(time)])}${limit} at ${model.time(time, 4)}, at most ${held(curve.peak)}`;
    }
    return "";
  }

  hover(event, x, y) {
    const hit = this.hit(x, y);
    const held = this.memoryUnder(x, y);
    if ((!hit || hit.index < 0) && !held) {
      this.tip.hidden = true;
      return;
    }
    const model = held ? null : this.models[hit.group];
    const {index, rank} = hit ?? {};
    const spans = model?.ranks[rank];
    this.tip.textContent = held || `${model.label(rank, index)} · ${model.code(rank, index).kind} · ${model.time(spans.start[index])} + ${model.time(spans.end[index] - spans.start[index])}`;
    this.tip.hidden = false;
    const box = this.container.getBoundingClientRect();
    this.tip.style.left = Math.min(event.clientX - box.left + 12, box.width - this.tip.offsetWidth - 4) + "px";
    this.tip.style.top = event.clientY - box.top + 16 + "px";
  }
}
