// The web page as people use it: from a file, with sliders, presets and an address to share.
import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import {join} from 'node:path';
import {flopcastJson, launch, open, project, quiet} from './support.mjs';

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
// Two frames: one in which the answer is asked for, one in which it is drawn.
const settled = page => page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))));

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
  // A schedule without chunks has no slider for them, and none are asked for.
  await page.locator('[data-key="schedule"]').selectOption('1f1b');
  await settled(page);
  assert.equal(await slider.count(), 0);
  assert.equal(await page.locator('#trouble').innerText(), '');

  await page.locator('[data-lesson="interleaving"]').click();
  await slider.press('Home');
  await settled(page);
  const makespan = await value(page, 'metrics.makespan', 1);
  assert.equal(makespan, await value(page, 'metrics.makespan', 0), 'of one chunk it is 1F1B');
  // What accepts some numbers of chunks only offers these, and takes the nearest.
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
