// Puts the page together from its data.

function showReport(main, data) {
  const {views} = data;
  const withTimeline = views.filter(view => view.timeline);
  main.append(element("header", {}, element("h1", {}, data.title), data.answer ? element("p", {class: "answer"}, data.answer) : "", data.question ? element("p", {class: "question"}, data.question) : ""));
  const cards = figureCards(views);
  if (cards) main.append(cards);
  const warnings = warningsSection(views);
  if (warnings) main.append(warnings);
  for (const part of [adviceSection(data.advice), ...figureSections(data.figures), ...(data.tables ?? []).map(tableSection)]) {
    if (part) main.append(part);
  }
  const run = runSection(views);
  if (run) main.append(run);
  let timeline = null;
  if (withTimeline.length > 0) {
    const holder = element("div", {class: "timeline"});
    const panel = element("div", {class: "details", "aria-live": "polite"});
    const models = withTimeline.map(view => new TimelineModel(view));
    const steady = views.find(isSteady);
    const gpus = rowsStandFor(withTimeline);
    main.append(section("Timeline", "timeline", gpus ? element("p", {class: "note", "data-fact": "row"}, gpus) : "", steady ? element("p", {class: "note"}, `Drawn from an empty pipeline on. The weights change where the bars are, while the pipeline stays full; once it is, a step takes ${timeText(steady.result.iteration.time_s, "s")}, updates and reductions included, which are not drawn.`) : "", holder, panel));
    timeline = new TimelineView(holder, (model, rank, index, group) => showDetails(panel, timeline, model, rank, index, group), data.terms.step);
    timeline.show(models);
    showDetails(panel, timeline, null);
  }
  for (const part of [stepSection(views, data.terms), memorySection(views, data.terms), bubbleSection(views, data.terms), ranksSection(views, data.terms), jobSection(views, data.command) ?? commandSection(data.command), assumptionsSection(views)]) {
    if (part) main.append(part);
  }
  main.append(element("footer", {}, `Made by ${data.tool}. Nothing is loaded from elsewhere.`));
  return timeline;
}

const reportData = document.getElementById("report-data");
if (reportData) {
  const data = JSON.parse(reportData.textContent);
  const timeline = showReport(document.querySelector("main"), data);
  // What a test or a curious reader asks in the console.
  window.flopcast = {data, timeline};
  requestAnimationFrame(() => setTimeout(() => { window.flopcast.shownAfterMs = performance.now(); }));
}
