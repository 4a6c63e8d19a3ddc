// Asks the engine whenever a control moves, and shows the answer.

class App {
  constructor(engine) {
    this.engine = engine;
    this.names = this.ask({ask: "names"});
    this.state = decodeState(location.hash.slice(1)) ?? this.stateOf(kLessons[0]);
    const holder = document.querySelector(".timeline");
    this.panel = document.querySelector(".details");
    this.timeline = new TimelineView(holder, (model, rank, index, group) => showDetails(this.panel, this.timeline, model, rank, index, group));
    showDetails(this.panel, this.timeline, null);
    window.addEventListener("hashchange", () => {
      const state = decodeState(location.hash.slice(1));
      if (!state || encodeState(state) === encodeState(this.state)) return;
      this.state = state;
      this.controls();
      this.refresh();
    });
    this.presets();
    this.controls();
    this.refresh();
  }

  ask(question) { return JSON.parse(this.engine.ccall("flopcast_answer", "string", ["string"], [JSON.stringify(question)])); }

  stateOf(lesson) {
    const defaults = lesson.mode === "job" ? kDefaultJob : kDefaultSchedule;
    return {mode: lesson.mode, sides: lesson.sides.map(side => ({...defaults, ...side})), shown: lesson.sides.length - 1, lesson: lesson.key};
  }

  presets() {
    const buttons = kLessons.map(lesson => element("button", {type: "button", "data-lesson": lesson.key, onclick: () => {
      this.state = this.stateOf(lesson);
      this.controls();
      this.refresh();
      this.timeline.fit();
    }}, lesson.title));
    document.getElementById("presets").replaceChildren(...buttons);
  }

  controls() {
    const {state} = this;
    const side = state.sides[state.shown];
    const tab = (text, pressed, action) => element("button", {type: "button", "aria-pressed": String(pressed), onclick: action}, text);
    const change = (key, value) => {
      side[key] = value;
      if (value === undefined) delete side[key];
      // A schedule's own controls, such as its chunks.
      if (key === "name" || key === "schedule") {
        fitChunks(side, this.names);
        this.controls();
      }
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
    const sides = state.sides.length < 2 ? "" : element("div", {class: "tabs"}, ...["A", "B"].map((name, i) => tab(name, state.shown === i, () => {
      state.shown = i;
      this.controls();
      this.refresh();
    })));
    const fields = state.mode === "job" ? jobControls(side, this.names, change) : scheduleControls(side, this.names, change);
    const copied = element("span", {class: "note", "aria-live": "polite"});
    const share = element("div", {class: "share"}, element("button", {type: "button", onclick: async () => {
      try {
        await navigator.clipboard.writeText(location.href);
        copied.textContent = "address copied";
      } catch {
        copied.textContent = "copy the address above";
      }
    }}, "Share"), copied);
    document.getElementById("controls").replaceChildren(
      element("div", {class: "tabs"}, tab("Schedules", state.mode === "schedule", () => switchTo("schedule")), tab("Model on a cluster", state.mode === "job", () => switchTo("job"))),
      compare, sides, ...fields, share);
  }

  // Once a frame, however fast a slider moves.
  later() {
    this.pending ??= requestAnimationFrame(() => {
      this.pending = null;
      this.refresh();
    });
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
    for (const id of ["figures", "sections"]) document.getElementById(id).classList.toggle("stale", failed >= 0);
    if (failed >= 0) return;
    this.views = answers.map((view, i) => this.named(view, i, answers.length > 1));
    this.timeline.show(this.views.map(view => new TimelineModel(view)));
    showDetails(this.panel, this.timeline, null);
    const cards = figureCards(this.views);
    document.getElementById("figures").replaceChildren(...(cards ? [cards] : []));
    const parts = [stepSection(this.views), memorySection(this.views), bubbleSection(this.views), ranksSection(this.views), ...assumptionsSection(this.views)];
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

  lesson() {
    const lesson = kLessons.find(lesson => lesson.key === this.state.lesson);
    for (const button of document.querySelectorAll("[data-lesson]")) button.setAttribute("aria-pressed", String(button.dataset.lesson === lesson?.key));
    document.getElementById("lesson").replaceChildren(...(lesson ? [element("h2", {}, lesson.title), element("p", {}, lesson.look), element("p", {}, element("strong", {}, "Try: "), lesson.play)] : []));
  }

  trouble(error, side) {
    const place = this.state.sides.length > 1 && error ? "AB"[side] + ": " : "";
    document.getElementById("trouble").replaceChildren(...(error ? [
      element("p", {}, element("strong", {}, place + (error.field ? error.field + ": " : "")), error.problem),
      element("p", {class: "note"}, error.help)] : []));
  }
}

function sideName(letter, mode, side) {
  if (mode === "schedule") return `${letter} ${side.name}`;
  return `${letter} tp ${side.tp} pp ${side.pp}${side.vpp > 1 ? "×" + side.vpp : ""}`;
}

createEngine().then(engine => { window.flopcast = new App(engine); });
