// Asks the engine whenever a control changes, and shows the answer.

class App {
  constructor(engine, binary) {
    this.engine = engine;
    this.binary = binary;  // for a separate worker
    this.names = this.ask({ask: "names"});
    this.state = this.addressed() ?? this.stateOf(kLessons[0]);
    const holder = document.querySelector(".timeline");
    this.panel = document.querySelector(".details");
    this.timeline = new TimelineView(holder, (model, rank, index, group) => showDetails(this.panel, this.timeline, model, rank, index, group), this.names.terms.step);
    showDetails(this.panel, this.timeline, null);
    window.addEventListener("hashchange", () => {
      const state = this.addressed();
      if (state && encodeState(state) === encodeState(this.state)) return;
      this.state = state ?? this.state;
      this.controls();
      this.refresh();
    });
    this.presets();
    this.controls();
    this.refresh();
  }

  // Question in the address, or null. If the address is invalid, the next answer includes a notice.
  addressed() {
    const text = location.hash.slice(1);
    const state = text === "" ? null : decodeState(text);
    this.notice = text !== "" && !state ? "This page cannot read the question in the address: it may be truncated, or from another version." : "";
    return state;
  }

  ask(question) { return JSON.parse(this.engine.ccall("flopcast_answer", "string", ["string"], [JSON.stringify(question)])); }

  stateOf(lesson) {
    const defaults = lesson.mode === "job" ? kDefaultJob : kDefaultSchedule;
    return {mode: lesson.mode, sides: lesson.sides.map(side => ({...defaults, ...side})), shown: lesson.sides.length - 1, lesson: lesson.key};
  }

  presets() {
    const button = lesson => element("button", {type: "button", "data-lesson": lesson.key, onclick: () => {
      this.state = this.stateOf(lesson);
      this.controls();
      this.refresh();
      this.timeline.fit();
    }}, lesson.title);
    this.solved = new Set();
    document.getElementById("presets").replaceChildren(...kLessons.map(button));
    document.getElementById("tasks").replaceChildren(element("span", {class: "note"}, "Ten tasks:"), ...kTasks.map(button));
  }

  controls() {
    const {state} = this;
    const side = state.sides[state.shown];
    const tab = (text, key, pressed, action) => element("button", {type: "button", "data-key": key, "aria-pressed": String(pressed), onclick: action}, text);
    const change = (key, value) => {
      const pasted = side.config !== undefined;
      side[key] = value;
      if (value === undefined) delete side[key];
      // The last choice counts: choosing a model replaces a pasted one.
      if (key === "model") delete side.config;
      if (key === "model" || key === "config") delete state.lesson;
      if (key === "name" || key === "schedule") fitChunks(side, this.names);
      // These choices affect other controls, such as a schedule's chunks.
      if (["model", "name", "schedule"].includes(key) || (side.config !== undefined) !== pasted) this.controls();
      this.later();
    };
    const switchTo = mode => {
      if (state.mode === mode) return;
      this.state = {mode, sides: [{...(mode === "job" ? kDefaultJob : kDefaultSchedule)}], shown: 0};
      this.controls();
      this.refresh();
      this.timeline.fit();
    };
    const compare = element("label", {class: "check"}, element("input", {type: "checkbox", "data-key": "compare", checked: state.sides.length > 1, onchange: event => {
      if (event.target.checked) state.sides.push({...side});
      else state.sides = [side];
      state.shown = state.sides.length - 1;
      this.controls();
      this.refresh();
    }}), "compare two");
    const sides = state.sides.length < 2 ? "" : element("div", {class: "tabs"}, ...["A", "B"].map((name, i) => tab(name, "side" + name, state.shown === i, () => {
      state.shown = i;
      this.controls();
      this.refresh();
    })));
    const fields = (state.mode === "job" ? jobControls(side, this.names, change, () => this.plan(side)) : scheduleControls(side, this.names, change)).map(field => this.explained(field));
    const copied = element("span", {class: "note", "aria-live": "polite"});
    const share = element("div", {class: "share"}, element("button", {type: "button", "data-key": "share", onclick: async () => {
      try {
        await navigator.clipboard.writeText(location.href);
        copied.textContent = "address copied";
      } catch {
        copied.textContent = "copy the address above";
      }
    }}, "Share"), copied);
    replaceKeepingFocus(document.getElementById("controls"),
      element("div", {class: "tabs"}, tab("Schedules", "mode-schedule", state.mode === "schedule", () => switchTo("schedule")), tab("Model on a cluster", "mode-job", state.mode === "job", () => switchTo("job"))),
      compare, sides, ...fields, share);
  }

  // A control with the button that explains its term.
  explained(field) {
    const key = field instanceof HTMLElement && (field.matches("[data-key]") ? field : field.querySelector("[data-key]"))?.dataset.key;
    const word = Object.hasOwn(kControlWords, key || "") ? tip(this.names.words, kControlWords[key]) : "";
    return word === "" ? field : element("div", {class: "worded"}, field, word);
  }

  // The current view as files and as a command, for the side whose controls are shown.
  exports() {
    const {mode, sides, shown} = this.state;
    const question = {...questionOf(mode, sides[shown], this.names), ask: "export"};
    const told = element("span", {class: "note", "aria-live": "polite"});
    const typed = mode !== "job" ? "" : question.config !== undefined ? "flopcast simulate job.json" : this.ask({...question, as: "command"}).text;
    const save = as => {
      const answer = this.ask({...question, as, ...(typed ? {command: typed} : {})});
      if (answer.error) {
        told.textContent = answer.error.problem;
        return;
      }
      const link = element("a", {href: URL.createObjectURL(new Blob([answer.text])), download: kExports[as][1]});
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
      told.textContent = `${kExports[as][1]} saved`;
    };
    return element("div", {class: "exports", role: "group", "aria-label": "Save what is shown"}, element("span", {class: "note"}, "Save:"),
      ...exportsOf(mode).map(as => element("button", {type: "button", "data-export": as, onclick: () => save(as)}, kExports[as][0])), told,
      typed ? element("details", {class: "figures"}, element("summary", {}, "as a command"), element("code", {"data-fact": "command"}, typed)) : "");
  }

  // Searches all layouts of a side's model, cluster and batch in a worker, so that the page stays responsive.
  async plan(side) {
    const holder = document.getElementById("plan");
    const question = {ask: "plan", job: openJobOf(side, this.names), ...(side.config === undefined ? {} : {config: side.config})};
    const started = performance.now();
    holder.replaceChildren(section("Layouts", "plan-title", element("p", {class: "note"}, "Searching every layout of this model on these GPUs …")));
    const asked = this.planned = (this.planned ?? 0) + 1;
    const answer = await this.askAside(question);
    // Another search has started in the meantime.
    if (asked !== this.planned) return;
    this.planMs = performance.now() - started;
    holder.replaceChildren(section("Layouts, best first", "plan-title", ...this.planParts(answer, side)));
  }

  askAside(question) {
    if (!this.worker) {
      const script = document.getElementById("engine").textContent + `;onmessage = first => createEngine({wasmBinary: first.data}).then(engine => {
        onmessage = event => postMessage(engine.ccall("flopcast_answer", "string", ["string"], [event.data]));
        postMessage("");
      });`;
      this.worker = new Worker(URL.createObjectURL(new Blob([script], {type: "text/javascript"})));
      this.worker.postMessage(this.binary);
      this.workerReady = new Promise(done => this.worker.addEventListener("message", done, {once: true}));
    }
    const last = this.workerReady;
    const answered = last.then(() => new Promise(done => {
      this.worker.addEventListener("message", event => done(JSON.parse(event.data)), {once: true});
      this.worker.postMessage(JSON.stringify(question));
    }));
    // Questions are answered one after the other.
    this.workerReady = answered;
    return answered;
  }

  planParts(answer, side) {
    if (answer.error) return [element("p", {class: "warning"}, (answer.error.field ? answer.error.field + ": " : "") + answer.error.problem), element("p", {class: "note"}, answer.error.help)];
    const columns = ["", "tp", "cp", "pp", "chunks", "ep", "dp", "microbatch", "schedule", "recomputation", "ZeRO", "step", "MFU", "memory"];
    const rows = answer.ranked.map(({layout, result}, i) => element("tr", {}, element("th", {scope: "row"},
      element("button", {type: "button", "data-rank": i + 1, onclick: () => this.use(layout, side)}, `Use ${i + 1}`)),
      ...[layout.tp, layout.cp ?? 1, layout.pp, layout.vpp ?? 1, layout.ep ?? 1, layout.dp, layout.micro_batch_size, layout.schedule ?? "–", layout.recompute, layout.zero ?? 0,
        timeText(result.iteration.time_s, "s"), percentText(result.iteration.mfu), gibText(result.memory.peak_gib)].map(text => element("td", {}, String(text)))));
    const {enumerated, simulated} = answer.space;
    return [element("div", {class: "wide", tabindex: "0", role: "region", "aria-label": "layouts"}, element("table", {},
      element("thead", {}, element("tr", {}, ...columns.map(name => element("th", {scope: "col"}, name)))), element("tbody", {}, ...rows))),
      element("p", {class: "note"}, `${countText(enumerated)} layouts evaluated, ${countText(simulated)} simulated.`)];
  }

  // Applies a layout of the plan to the controls.
  use(layout, side) {
    for (const key of ["tp", "cp", "pp", "ep", "vpp", "zero"]) side[key] = layout[key] ?? (key === "zero" ? 0 : 1);
    side.mbs = layout.micro_batch_size;
    side.schedule = layout.schedule ?? "1f1b";
    side.recompute = layout.recompute;
    side.sp = layout.sequence_parallel ?? false;
    this.controls();
    this.refresh();
    document.getElementById("figures").scrollIntoView({block: "start"});
  }

  // Refreshes once per frame, however fast a slider moves; if answers take long, only when the slider rests.
  later() {
    const kLongMs = 400;
    const kRestMs = 250;
    const ask = () => {
      this.pending = null;
      this.refresh();
    };
    if (this.askedMs > kLongMs) {
      clearTimeout(this.rest);
      this.pending = this.rest = setTimeout(ask, kRestMs);
    } else {
      this.pending ??= requestAnimationFrame(ask);
    }
  }

  refresh() {
    const started = performance.now();
    const {state} = this;
    history.replaceState(null, "", "#" + encodeState(state));
    const answers = state.sides.map(side => this.ask(questionOf(state.mode, side, this.names)));
    this.askedMs = performance.now() - started;
    const failed = answers.findIndex(answer => answer.error);
    this.trouble(failed < 0 ? null : answers[failed].error, failed);
    this.lesson();
    this.task(failed < 0 ? answers : null);
    const shape = document.querySelector("[data-fact=shape]");
    if (shape && state.mode === "job") shape.textContent = shapeText(state.sides[state.shown], this.names);
    if (state.mode !== "job") document.getElementById("plan").replaceChildren();
    for (const id of ["figures", "sections"]) document.getElementById(id).classList.toggle("stale", failed >= 0);
    if (failed >= 0) return;
    this.views = answers.map((view, i) => this.named(view, i, answers.length > 1));
    this.timeline.show(this.views.map(view => new TimelineModel(view)));
    showDetails(this.panel, this.timeline, null);
    const cards = figureCards(this.views);
    for (const card of cards?.children ?? []) {
      const path = card.querySelector("[data-path]").dataset.path;
      if (Object.hasOwn(kFigureWords, path)) card.append(tip(this.names.words, kFigureWords[path], card.querySelector("h2").textContent));
    }
    document.getElementById("figures").replaceChildren(...(cards ? [cards] : []), this.exports());
    const {terms} = this.names;
    const parts = [adviceSection(this.views.length === 1 ? this.views[0].advice : null), stepSection(this.views, terms), memorySection(this.views, terms), bubbleSection(this.views, terms), ranksSection(this.views, terms), warningsSection(this.views), jobSection(this.views), assumptionsSection(this.views)];
    document.getElementById("sections").replaceChildren(...parts.filter(part => part));
    this.shownMs = performance.now() - started;
  }

  named(view, i, several) {
    if (!several) return view;
    const letter = "AB"[i];
    const name = sideName(letter, this.state.mode, this.state.sides[i]);
    const title = this.state.mode === "schedule" ? letter + " " + view.timeline.title : name;
    return {...view, name, short: letter, timeline: {...view.timeline, title}};
  }

  // A preset's text describes its initial figures; after a change, only the suggestions remain.
  lesson() {
    const lesson = kLessons.find(lesson => lesson.key === this.state.lesson);
    const changed = lesson && JSON.stringify(this.state.sides) !== JSON.stringify(this.stateOf(lesson).sides);
    for (const button of document.querySelectorAll("[data-lesson]")) button.setAttribute("aria-pressed", String(button.dataset.lesson === lesson?.key && !changed));
    document.getElementById("lesson").replaceChildren(...(lesson ? [
      ...(changed ? [element("p", {class: "note"}, `Changed from the preset “${lesson.title}”.`)] : [element("h2", {}, lesson.title), element("p", {}, lesson.look)]),
      element("p", {}, element("strong", {}, "Try: "), lesson.play)] : []));
  }

  // Progress of a task according to the engine. Any side may reach the goal, but fixed controls must be unchanged.
  task(answers) {
    const task = kTasks.find(task => task.key === this.state.lesson);
    if (!task) return;
    const begun = this.stateOf(task).sides[0];
    const {sides} = this.state;
    const stays = side => task.asked.filter(key => side[key] !== begun[key]);
    const reached = answers !== null && answers.some((answer, i) => stays(sides[i]).length === 0 && task.reached(answer));
    if (reached) this.solved.add(task.key);
    const moved = [...new Set(sides.flatMap(stays))];
    const told = reached ? "Reached: " : "Not yet: ";
    const state = answers === null ? "no answer" : answers.map(task.now).join(" and ");
    document.getElementById("lesson").replaceChildren(element("h2", {}, task.title), element("p", {}, task.goal),
      element("p", {"aria-live": "polite", "data-fact": "task"}, element("strong", {}, told), state + (!reached && moved.length > 0 ? `; these must stay unchanged: ${moved.join(", ")}` : "") + "."));
    for (const button of document.querySelectorAll("#tasks [data-lesson]")) {
      const {key, title} = kTasks.find(task => task.key === button.dataset.lesson);
      button.setAttribute("aria-pressed", String(key === task.key));
      button.textContent = (this.solved.has(key) ? "✓ " : "") + title;
    }
  }

  trouble(error, side) {
    const place = this.state.sides.length > 1 && error ? "AB"[side] + ": " : "";
    const notice = this.notice ? [element("p", {}, this.notice)] : [];
    this.notice = "";
    document.getElementById("trouble").replaceChildren(...notice, ...(error ? [
      element("p", {}, element("strong", {}, place + (error.field ? error.field + ": " : "")), error.problem),
      element("p", {class: "note"}, error.help)] : []));
  }
}

// Replaces controls and keeps the keyboard focus.
function replaceKeepingFocus(holder, ...nodes) {
  const focused = holder.contains(document.activeElement) ? document.activeElement : null;
  const selection = focused instanceof HTMLTextAreaElement ? [focused.selectionStart, focused.selectionEnd] : null;
  holder.replaceChildren(...nodes);
  if (!focused) return;
  const successor = holder.querySelector(`[data-key="${focused.dataset.key}"]`);
  successor?.focus({preventScroll: true});
  if (selection) successor?.setSelectionRange(...selection);
}

function sideName(letter, mode, side) {
  if (mode === "schedule") return `${letter} ${side.name}`;
  return `${letter} tp ${side.tp} pp ${side.pp}${side.vpp > 1 ? "×" + side.vpp : ""}`;
}

// The engine's WebAssembly, stored in the page compressed and as text.
async function engineBinary() {
  const packed = Uint8Array.from(atob(document.getElementById("engine-binary").textContent), letter => letter.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}
engineBinary().then(async binary => { window.flopcast = new App(await createEngine({wasmBinary: binary}), binary); });
