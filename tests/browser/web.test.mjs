// The web page from the user's view: from a file, with sliders, presets and an address to share.
import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import {readFileSync, writeFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {join} from 'node:path';
import {flopcast, flopcastJson, launch, open, project, quiet, scratch} from './support.mjs';

const kPage = join(process.env.FLOPCAST_WEB ?? join(project, 'build/wasm/web'), 'flopcast.html');
let browser;
before(async () => { browser = await launch(); });
after(async () => { await browser.close(); });

const opened = async (options = {}) => {
  const page = await open(browser, kPage, options);
  await page.waitForFunction(() => window.flopcast);
  return page;
};
const value = (page, path, side = 0) => page.locator(`[data-path="${path}"]`).nth(side).getAttribute('data-value').then(Number);
// Requested in the next frame, or after a pause if answers take long, and drawn in the frame after.
const settled = async page => {
  await page.waitForFunction(() => !window.flopcast.pending);
  await page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))));
};
const trouble = page => page.locator('#trouble').innerText();
const fragmentOf = (page, state) => page.evaluate(text => '#' + btoa(text).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, ''), JSON.stringify(state));
const stateOf = page => JSON.parse(Buffer.from(new URL(page.url()).hash.slice(1), 'base64url').toString());

test('the first preset, and a slider moved', async () => {
  const page = await opened();
  assert.equal(await value(page, 'metrics.makespan'), 21);
  assert.ok(Math.abs(await value(page, 'metrics.idle_fraction') - 3 / 7) < 1e-12);
  await page.locator('[data-key="microbatches"]').press('ArrowRight');
  await settled(page);
  assert.ok(Math.abs(await value(page, 'metrics.idle_fraction') - 3 / 8) < 1e-12, '(p - 1) / (m + p - 1) of 5 microbatches');
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test('every preset shows what it teaches', async () => {
  const page = await opened();
  const show = async lesson => { await page.locator(`[data-lesson="${lesson}"]`).click(); await settled(page); };
  await show('memory');
  assert.deepEqual([await value(page, 'figures.activations', 0), await value(page, 'figures.activations', 1)], [8, 4]);
  assert.equal(await value(page, 'metrics.makespan', 0), await value(page, 'metrics.makespan', 1));
  await show('interleaving');
  assert.ok(await value(page, 'metrics.idle_fraction', 1) < await value(page, 'metrics.idle_fraction', 0));
  await show('zero');
  assert.ok(await value(page, 'metrics.idle_fraction', 1) < 0.5 * await value(page, 'metrics.idle_fraction', 0));
  const longest = await value(page, 'metrics.span', 1);
  await page.locator('[data-key="name"]').selectOption('zb-h1');
  await settled(page);
  const spans = flopcastJson('schedule', 'compare', '--pp', '4', '-m', '12', '--schedule', 'zb-h2,zb-h1').schedules.map(schedule => schedule.span);
  assert.deepEqual([longest, await value(page, 'metrics.span', 1)], spans);
  assert.ok(longest < spans[1], 'zb-h2 leaves no gaps');
  await show('2bw');
  assert.deepEqual([await value(page, 'figures.weight_copies', 0), await value(page, 'figures.weight_copies', 1)], [1, 2]);
  assert.ok(await value(page, 'figures.steady_bubble', 1) < 1e-9);
  await show('gpt3');
  const told = flopcastJson('simulate', 'examples/gpt3-175b-64-gpus/job.json');
  assert.ok(Math.abs(await value(page, 'iteration.time_s') / told.iteration.time_s - 1) < 1e-12);
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test('as many chunks are simulated as the slider says', async () => {
  const page = await opened();
  const slider = page.locator('[data-key="vpp"]');
  await page.locator('[data-lesson="gpt3"]').click();
  await slider.press('Home');
  await settled(page);
  const told = flopcastJson('simulate', 'examples/gpt3-175b-64-gpus/job.json', '--vpp', '1');
  assert.equal(await slider.getAttribute('aria-valuetext'), '1');
  assert.ok(Math.abs(await value(page, 'iteration.time_s') / told.iteration.time_s - 1) < 1e-12);
  // A schedule without chunks has no slider for them, and the question has no number of chunks.
  await page.locator('[data-key="schedule"]').selectOption('1f1b');
  await settled(page);
  assert.equal(await slider.count(), 0);
  assert.equal(await page.locator('#trouble').innerText(), '');

  await page.locator('[data-lesson="interleaving"]').click();
  await slider.press('Home');
  await settled(page);
  const makespan = await value(page, 'metrics.makespan', 1);
  assert.equal(makespan, await value(page, 'metrics.makespan', 0), 'of one chunk it is 1F1B');
  // A schedule that accepts certain numbers of chunks offers only these; the nearest one is chosen.
  await page.locator('[data-key="name"]').selectOption('hanayo');
  await settled(page);
  assert.equal(await slider.getAttribute('aria-valuetext'), '2');
  await slider.press('ArrowRight');
  assert.equal(await slider.getAttribute('aria-valuetext'), '4');
  await settled(page);
  assert.equal(await page.locator('#trouble').innerText(), '');
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test('a pasted config.json is the model until one is chosen', async () => {
  const file = join(project, 'examples/llama3-70b-config/config.json');
  const page = await opened();
  await page.locator('[data-lesson="gpt3"]').click();
  const named = await value(page, 'iteration.time_s');
  const model = page.locator('[data-key="model"]');
  const config = page.locator('[data-key="config"]');
  await config.fill(readFileSync(file, 'utf8'));
  await settled(page);
  assert.equal(await config.evaluate(node => node === document.activeElement), true, 'whoever types there stays there');
  assert.equal(await model.evaluate(node => node.selectedOptions[0].text), '(pasted config.json)');
  assert.equal(stateOf(page).lesson, undefined);
  const told = flopcastJson('simulate', '--model', file, '--cluster', '8xdgx-a100-80g', '--tp', '8', '--pp', '8', '--mbs', '1', '--gbs', '64', '--seq', '2048',
                            '--vpp', '2', '--schedule', 'interleaved', '--recompute', 'selective', '--sequence-parallel', '--stack', 'megatron-2022');
  await page.locator('[data-key="vpp"]').press('ArrowLeft');
  await settled(page);
  assert.equal(await trouble(page), '');
  assert.ok(Math.abs(await value(page, 'iteration.time_s') / told.iteration.time_s - 1) < 1e-12);
  // The page gives the sequence length, so the file's is not used.
  assert.doesNotMatch(await page.locator('#sections').innerText(), /max_position_embeddings/);

  await page.locator('[data-key="vpp"]').press('ArrowRight');
  await model.selectOption('gpt3-175b');
  await settled(page);
  assert.equal(stateOf(page).sides[0].config, undefined);
  assert.equal(await config.inputValue(), '');
  assert.equal(await value(page, 'iteration.time_s'), named);
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test('ten tasks: none is reached at once, each can be, and what has to stay is held to', async () => {
  const page = await opened();
  const answers = {
    'task-idle': [{microbatches: 32}], 'task-memory': [{name: '1f1b'}], 'task-half': [{name: 'interleaved', vpp: 4}], 'task-free': [{name: 'zb-h1'}],
    'task-links': [{vpp: 2}], 'task-fit': [{pp: 4, sp: true}, {zero: 3, recompute: 'full'}], 'task-fast': [{recompute: 'selective', sp: true, vpp: 3, schedule: 'interleaved'}],
    'task-long': [{cp: 4}], 'task-experts': [{ep: 8, pp: 2}], 'task-price': [{nodes: 4}],
  };
  const told = page.locator('[data-fact="task"]');
  const answerWith = async sides => {
    await page.evaluate(sides => {
      Object.assign(window.flopcast.state.sides[0], sides);
      window.flopcast.controls();
      window.flopcast.refresh();
    }, sides);
    await settled(page);
    return told.innerText();
  };
  const buttons = page.locator('#tasks [data-lesson]');
  assert.equal(await buttons.count(), Object.keys(answers).length);
  for (const [task, ways] of Object.entries(answers)) {
    for (const way of ways) {
      await page.locator(`[data-lesson="${task}"]`).click();
      await settled(page);
      assert.match(await told.innerText(), /^Not yet/, task);
      assert.match(await answerWith(way), /^Reached/, `${task} by ${JSON.stringify(way)}`);
    }
    assert.match(await page.locator(`[data-lesson="${task}"]`).innerText(), /^✓/);
  }
  await page.locator('[data-lesson="task-fit"]').click();
  assert.match(await answerWith({model: 'llama3-8b'}), /^Not yet.*must stay unchanged: model/);
  await page.locator('[data-lesson="task-idle"]').click();
  assert.match(await answerWith({microbatches: 16}), /^Not yet: 15.8 % idle/);
  await page.locator('[data-lesson="bubble"]').click();
  await settled(page);
  assert.match(await page.locator('#lesson').innerText(), /grey triangles/);
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test('a preset that was changed no longer claims what it shows', async () => {
  const page = await opened();
  const button = page.locator('[data-lesson="bubble"]');
  const lesson = page.locator('#lesson');
  assert.equal(await button.getAttribute('aria-pressed'), 'true');
  assert.match(await lesson.innerText(), /grey triangles are the bubble/);
  await page.locator('[data-key="microbatches"]').press('ArrowRight');
  await settled(page);
  assert.equal(await button.getAttribute('aria-pressed'), 'false');
  assert.doesNotMatch(await lesson.innerText(), /grey triangles are the bubble/);
  assert.match(await lesson.innerText(), /Changed from the preset “Your first bubble”[^]*Try:/);
  await page.locator('[data-key="microbatches"]').press('ArrowLeft');
  await settled(page);
  assert.equal(await button.getAttribute('aria-pressed'), 'true');
  await page.close();
});

test('a slice is told as part of its microbatch', async () => {
  const page = await opened();
  await page.locator('[data-key="name"]').selectOption('terapipe');
  await settled(page);
  await page.getByPlaceholder('find').fill('2F1.3');
  await page.getByPlaceholder('find').press('Enter');
  assert.equal(await page.locator('[data-fact="microbatch"]').innerText(), '1');
  assert.equal(await page.locator('[data-fact="slice"]').innerText(), '3');
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test('the keyboard stays where it was', async () => {
  const page = await opened();
  const focused = () => page.evaluate(() => document.activeElement.dataset.key ?? document.activeElement.tagName);
  await page.locator('[data-key="name"]').focus();
  await page.locator('[data-key="name"]').selectOption('interleaved');
  await settled(page);
  assert.equal(await focused(), 'name');
  await page.locator('[data-key="compare"]').press('Space');
  assert.equal(await focused(), 'compare');
  for (const key of ['sideA', 'sideB', 'mode-job', 'mode-schedule']) {
    await page.locator(`[data-key="${key}"]`).press('Enter');
    assert.equal(await focused(), key);
  }
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test('addresses that no page wrote', async () => {
  const page = await opened();
  const job = {mode: 'job', sides: [{}]};
  for (const state of [{mode: 'schedule', sides: [{name: 5}]}, {mode: 'schedule', sides: [{name: {}}]}, {mode: 'schedule', sides: [null]},
                       {mode: 'schedule', sides: [{pp: '4'}]}, {mode: 'schedule', sides: [{other: 1}]}, {...job, sides: [{config: 7}]},
                       {...job, sides: [{cluster: null}]}, {...job, sides: [[]]}, {mode: 'other', sides: [{}]}, {mode: 'schedule', sides: []}]) {
    const other = await opened({fragment: await fragmentOf(page, state)});
    assert.equal(await value(other, 'metrics.makespan'), 21, JSON.stringify(state));
    assert.match(await trouble(other), /cannot read the question in the address/);
    assert.deepEqual(other.complaints, [], JSON.stringify(state));
    await other.close();
  }
  // Values that controls cannot set lead to an error with help; an unknown lesson is ignored.
  for (const [side, mode] of [[{pp: -3}, 'schedule'], [{pp: 2.5}, 'schedule'], [{name: '1f1c'}, 'schedule'], [{tp: 0}, 'job'], [{nodes: 2.4}, 'job'],
                              [{cluster: 'none'}, 'job'], [{config: ''}, 'job'], [{config: '{'}, 'job']]) {
    const other = await opened({fragment: await fragmentOf(page, {mode, sides: [side], shown: 5, lesson: {}})});
    assert.notEqual(await trouble(other), '', JSON.stringify(side));
    assert.deepEqual(other.complaints, [], JSON.stringify(side));
    await other.close();
  }
  await page.close();
});

test('a field takes whole numbers only', async () => {
  const page = await opened();
  await page.locator('[data-key="mode-job"]').click();
  const nodes = page.locator('[data-key="nodes"]');
  for (const text of ['2.4', '', '0', '-1']) {
    await nodes.fill(text);
    await nodes.press('Tab');
    await settled(page);
    assert.equal(await nodes.inputValue(), '8', `"${text}" is none`);
    assert.equal(stateOf(page).sides[0].nodes, 8);
  }
  await nodes.fill('16');
  await nodes.press('Tab');
  await settled(page);
  assert.equal(stateOf(page).sides[0].nodes, 16);
  await page.close();
});

test('what would stop the page is refused at once', async () => {
  const page = await opened();
  const large = {mode: 'schedule', sides: [{name: 'interleaved', pp: 32, microbatches: 2048, vpp: 8}]};
  const huge = {mode: 'schedule', sides: [{name: 'gpipe', pp: 512, microbatches: 100000}]};
  const job = {mode: 'job', sides: [{nodes: 64, tp: 8, pp: 64, vpp: 12, gbs: 2048, model: 'megatron-1t'}]};
  for (const state of [large, huge, job]) {
    const other = await opened({fragment: await fragmentOf(page, state)});
    assert.match(await trouble(other), /actions are more than the 100000 that the page can draw/);
    assert.ok(await other.evaluate(() => window.flopcast.askedMs) < 1000);
    await other.close();
  }
  await page.close();
});

test('a plan is searched beside the page, and one of its layouts taken', async () => {
  const page = await opened();
  await page.getByText('Model on a cluster').click();
  await page.locator('[data-key="model"]').selectOption('llama3-70b');
  await page.locator('[data-key="cluster"]').selectOption('dgx-h100');
  await page.locator('[data-key="nodes"]').fill('32');
  await page.locator('[data-key="nodes"]').press('Tab');
  await page.getByText('Find the best layouts').click();
  await page.locator('#plan [data-rank="1"]').waitFor();
  const took = await page.evaluate(() => window.flopcast.planMs);
  console.log(`llama3-70b on 32 nodes planned in ${took.toFixed(0)} ms, the worker's start included`);
  if (quiet) assert.ok(took < 2000, `${took} ms`);
  const first = await page.locator('#plan tbody tr').first().innerText();
  await page.locator('#plan [data-rank="1"]').click();
  const step = Number(await page.locator('[data-path="iteration.time_s"]').getAttribute('data-value'));
  assert.ok(first.includes(`${Number((step * 1e3).toPrecision(4))} ms`), `${first} and ${step}`);
  assert.match(await page.locator('section[aria-labelledby=advice]').innerText(), /of the step is compute/);
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test('the batch of a step stays when the layout moves', async () => {
  const page = await opened();
  await page.locator('[data-lesson="gpt3"]').click();
  assert.match(await page.locator('[data-fact=shape]').innerText(), /^64 GPUs: 1 replica of the model \(dp\), 64 microbatches/);
  const tokens = await value(page, 'iteration.tokens_per_s') * await value(page, 'iteration.time_s');
  await page.locator('[data-key="tp"]').press('ArrowLeft');
  await settled(page);
  assert.match(await page.locator('[data-fact=shape]').innerText(), /^64 GPUs: 2 replicas of the model \(dp\), 32 microbatches/);
  assert.ok(Math.abs(await value(page, 'iteration.tokens_per_s') * await value(page, 'iteration.time_s') / tokens - 1) < 1e-9, 'as many tokens a step');
  const told = flopcastJson('simulate', 'examples/gpt3-175b-64-gpus/job.json', '--tp', '4', '--dp', '2', '--precision', 'bf16', '--tokens', '300B', '--price', '2');
  await page.locator('[data-key="precision"]').selectOption('bf16');
  for (const [key, text] of [['tokens', '300'], ['price', '2']]) {
    await page.locator(`[data-key="${key}"]`).fill(text);
    await page.locator(`[data-key="${key}"]`).press('Tab');
  }
  await settled(page);
  assert.ok(Math.abs(await value(page, 'iteration.time_s') / told.iteration.time_s - 1) < 1e-12);
  assert.ok(Math.abs(await value(page, 'training.cost_usd') / told.training.cost_usd - 1) < 1e-12);
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test('an address holds everything, and a mistake tells what is valid', async () => {
  const page = await opened();
  await page.locator('[data-lesson="gpt3"]').click();
  await page.locator('[data-key="compare"]').check();
  await page.locator('[data-key="recompute"]').selectOption('full');
  await settled(page);
  const times = [await value(page, 'iteration.time_s', 0), await value(page, 'iteration.time_s', 1)];
  assert.ok(times[1] > times[0], 'recomputation takes time');
  const other = await opened({fragment: new URL(page.url()).hash});
  assert.deepEqual([await value(other, 'iteration.time_s', 0), await value(other, 'iteration.time_s', 1)], times);
  await other.locator('[data-key="nodes"]').fill('7');
  await other.locator('[data-key="nodes"]').press('Tab');
  await settled(other);
  assert.match(await other.locator('#trouble').innerText(), /^B: layout/);
  assert.deepEqual(other.complaints, []);
  await other.close();
  const damaged = await opened({fragment: '#not-a-state'});
  assert.equal(await value(damaged, 'metrics.makespan'), 21);
  await damaged.close();
  await page.close();
});

test('16 stages and 192 microbatches answer in under 50 ms', async () => {
  const page = await opened();
  const times = await page.evaluate(() => {
    const app = window.flopcast;
    const names = app.names;
    const job = {ask: 'simulate', job: {model: 'gpt3-175b', cluster: {name: 'dgx-a100-80g', nodes: 16}, layout: {tp: 8, pp: 16, global_batch_size: 192}}};
    const schedule = {ask: 'view', schedule: {name: '1f1b', pp: 16, microbatches: 192}};
    const fastest = question => {
      let least = Infinity;
      for (let i = 0; i < 12; ++i) {
        const started = performance.now();
        const answer = app.ask(question);
        if (answer.error) throw new Error(answer.error.problem);
        least = Math.min(least, performance.now() - started);
      }
      return least;
    };
    return {job: fastest(job), schedule: fastest(schedule), models: names.models.length};
  });
  console.log(`16 stages, 192 microbatches: a job ${times.job.toFixed(1)} ms, a schedule with its timeline ${times.schedule.toFixed(1)} ms`);
  if (quiet) {
    assert.ok(times.job < 50, `${times.job} ms`);
    assert.ok(times.schedule < 50, `${times.schedule} ms`);
  }
  await page.close();
});

// Text saved by the button.
async function saved(page, as) {
  const [download] = await Promise.all([page.waitForEvent('download'), page.locator(`[data-export="${as}"]`).click()]);
  return {name: download.suggestedFilename(), text: readFileSync(await download.path(), 'utf8')};
}

test('what is shown is saved as the program would write it', async () => {
  const page = await opened({acceptDownloads: true});
  const figure = await saved(page, 'svg');
  assert.equal(figure.name, 'timeline.svg');
  assert.match(figure.text, /^<svg[\s\S]*<\/svg>\s*$/);
  assert.equal(await page.locator('[data-export="job"]').count(), 0, 'a schedule is no job');
  await page.locator('[data-lesson="gpt3"]').click();
  await settled(page);
  const job = join(scratch, 'saved.json');
  writeFileSync(job, (await saved(page, 'job')).text);
  for (const [as, flag] of [['svg', '--svg'], ['trace', '--trace'], ['html', '--html']]) {
    const file = join(scratch, `saved.${as}`);
    flopcast('simulate', job, flag, file);
    const ours = (await saved(page, as)).text;
    const plain = text => text.replace(/"command":\s?"[^"]*"/g, '').replace(/\d+\.\d{9,}/g, number => Number(number).toPrecision(9));
    if (as === 'svg') assert.equal(ours, readFileSync(file, 'utf8'));
    else assert.equal(plain(ours).length > 1000 && plain(ours).slice(0, 500), plain(readFileSync(file, 'utf8')).slice(0, 500));
  }
  // The command asks the same question.
  const command = await page.locator('[data-fact="command"]').textContent();
  assert.match(command, /^flopcast simulate --model gpt3-175b --cluster dgx-a100-80g --nodes 8 /);
  const told = flopcastJson(...command.split(' ').slice(1));
  assert.ok(Math.abs(await value(page, 'iteration.time_s') / told.iteration.time_s - 1) < 1e-12);
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test('hardware of one\'s own takes the place of the cluster\'s', async () => {
  const page = await opened();
  await page.locator('[data-lesson="gpt3"]').click();
  await settled(page);
  await page.locator('details.own summary').click();
  for (const [key, text] of [['peak', '600'], ['memory', '141'], ['bandwidth', '4.8'], ['links', '450'], ['nic', '400']]) {
    await page.locator(`[data-key="${key}"]`).fill(text);
    await page.locator(`[data-key="${key}"]`).press('Enter');
    await settled(page);
  }
  const own = join(scratch, 'own.json');
  const job = JSON.parse(readFileSync(join(project, 'examples/gpt3-175b-64-gpus/job.json'), 'utf8').replace(/^\s*\/\/.*$/gm, ''));
  job.cluster = {name: 'dgx-a100-80g', nodes: 8, intra_bandwidth: '450GB/s', nic_bandwidth: '400Gbit/s',
                 device: {peak: {bf16: '600TFLOP/s', fp16: '600TFLOP/s'}, memory_capacity: '141GiB', memory_bandwidth: '4.8TB/s'}};
  writeFileSync(own, JSON.stringify(job));
  const told = flopcastJson('simulate', own);
  assert.ok(Math.abs(await value(page, 'iteration.time_s') / told.iteration.time_s - 1) < 1e-12);
  assert.ok(await page.locator('.cards').innerText().then(text => text.includes('141')));
  const again = await opened({fragment: new URL(page.url()).hash});
  assert.equal(await value(again, 'iteration.time_s'), await value(page, 'iteration.time_s'));
  assert.equal(await again.locator('details.own').getAttribute('open'), '');
  assert.deepEqual([page.complaints, again.complaints], [[], []]);
  await page.close();
  await again.close();
});

test('a word is explained where it stands', async () => {
  const page = await opened();
  await page.locator('[data-lesson="gpt3"]').click();
  await settled(page);
  for (const [holder, name, words] of [['#figures', 'What is MFU?', /FLOPs/], ['#controls', 'What is zero?', /replica/i]]) {
    const button = page.locator(holder).getByRole('button', {name});
    const text = button.locator('xpath=following-sibling::*[1]');
    assert.equal(await text.isVisible(), false);
    await button.press('Enter');
    assert.match(await text.innerText(), words);
    assert.equal(await button.getAttribute('aria-expanded'), 'true');
    await button.press('Enter');
    assert.equal(await text.isVisible(), false);
  }
  // Every term that the page refers to is in the table.
  assert.ok(await page.locator('.tip').count() >= 15);
  assert.deepEqual(page.complaints, []);
  await page.close();
});

test('on a phone a slider and what it changes are seen at once, and axe finds no barrier', async () => {
  const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
  for (const width of [1400, 800, 390]) {
    const page = await opened({viewport: {width, height: 844}, bypassCSP: true});
    await page.locator('[data-lesson="gpt3"]').click();
    await settled(page);
    await page.evaluate(() => document.getElementById('figures').scrollIntoView());
    const slider = page.locator('[data-key="gbs"]');
    await slider.scrollIntoViewIfNeeded();
    const [card, control] = [await page.locator('.card').first().boundingBox(), await slider.boundingBox()];
    assert.ok(card.y >= -1 && card.y + card.height <= 844 && control.y >= 0 && control.y + control.height <= 844, `${width}: ${card.y} and ${control.y}`);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width, 'nothing to scroll sideways');
    await page.getByRole('button', {name: 'What is MFU?'}).click();
    await page.locator('details.own summary').click();
    await page.evaluate(axe);
    const {violations} = await page.evaluate(() => window.axe.run());
    assert.deepEqual(violations.map(({id, nodes}) => `${id}: ${nodes[0].html}`), [], `${width} pixels`);
    await page.close();
  }
});
