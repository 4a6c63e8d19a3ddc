// Builds the page from its data.

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
    main.append(section("Timeline", "timeline", gpus ? element("p", {class: "note", "data-fact": "row"}, gpus) : "", steady ? element("p", {class: "note"}, `The drawing starts with an empty pipeline. Bars mark where the weights change; the pipeline stays full meanwhile. Once it is full, a step takes ${timeText(steady.result.iteration.time_s, "s")}, including updates and reductions, which are not drawn.`) : "", holder, panel));
    timeline = new TimelineView(holder, (model, rank, index, group) => showDetails(panel, timeline, model, rank, index, group), data.terms.step);
    timeline.show(models);
    showDetails(panel, timeline, null);
  }
  for (const part of [stepSection(views, data.terms), memorySection(views, data.terms), bubbleSection(views, data.terms), ranksSection(views, data.terms), jobSection(views, data.command) ?? commandSection(data.command), assumptionsSection(views)]) {
    if (part) main.append(part);
  }
  main.append(element("footer", {}, `Made by ${data.tool}. This page loads nothing from the network.`));
  return timeline;
}

const reportData = document.getElementById("report-data");
if (reportData) {
  const data = JSON.parse(reportData.textContent);
  const timeline = showReport(document.querySelector("main"), data);
  // For tests, and for use in the browser's console.
  window.flopcast = {data, timeline};
  requestAnimationFrame(() => setTimeout(() => { window.flopcast.shownAfterMs = performance.now(); }));
}
