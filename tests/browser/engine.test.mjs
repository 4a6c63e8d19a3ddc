// The page's engine gives the same answers as the program, figure by figure.
import assert from 'node:assert/strict';
import {createRequire} from 'node:module';
import {readFileSync, writeFileSync} from 'node:fs';
import {gzipSync} from 'node:zlib';
import {join} from 'node:path';
import {test} from 'node:test';
import {flopcastJson, mutated, project, scratch} from './support.mjs';

const kWeb = process.env.FLOPCAST_WEB ?? join(project, 'build/wasm/web');
const wasmBinary = readFileSync(join(kWeb, 'engine.wasm'));  // without it, Node.js would look for it at a URL
const engine = await createRequire(import.meta.url)(join(kWeb, 'engine.js'))({wasmBinary});
const ask = question => JSON.parse(engine.ccall('flopcast_answer', 'string', ['string'], [JSON.stringify(question)]));

// Same keys in the same order, equal texts, numbers equal to twelve digits; returns the number of numbers.
function assertSame(a, b, place) {
  if (typeof a === 'number' && typeof b === 'number') {
    assert.ok(Math.abs(a - b) <= 1e-12 * Math.max(Math.abs(a), Math.abs(b)), `${place}: ${a} and ${b}`);
    return 1;
  }
  if (a === null || typeof a !== 'object') {
    assert.equal(a, b, place);
    return 0;
  }
  assert.deepEqual(Object.keys(a), Object.keys(b), place);
  return Object.keys(a).reduce((sum, key) => sum + assertSame(a[key], b[key], `${place}/${key}`), 0);
}

function* jobs() {
  const on = (model, cluster, nodes, layout, training = {}) => ({model, cluster: {name: cluster, nodes}, layout, training});
  const a100 = (layout, training) => on('gpt3-175b', 'dgx-a100-80g', 8, {global_batch_size: 64, ...layout}, training);
  for (const recompute of ['none', 'selective', 'full']) {
    yield a100({tp: 8, pp: 8, recompute});
    yield a100({tp: 8, pp: 8, vpp: 3, schedule: 'interleaved', recompute, sequence_parallel: true}, {stack: 'megatron-2022'});
  }
  for (const schedule of ['gpipe', '1f1b', 'eager-1f1b', 'zb-h1', 'zb-h2', 'pipedream', 'pipedream-2bw', 'pipemare']) {
    yield a100({tp: 4, pp: 16, schedule});
  }
  for (const [schedule, vpp] of [['interleaved', 2], ['bfs', 2], ['zbv', 2], ['interleaved-zb', 2], ['v-half', 2], ['hanayo', 2]]) {
    yield on('llama3-8b', 'dgx-h100', 2, {tp: 2, pp: 8, vpp, schedule, global_batch_size: 64});
  }
  for (const zero of [0, 1, 2, 3]) yield on('llama3-8b', 'dgx-h100', 4, {tp: 4, zero, global_batch_size: 64});
  for (const data_parallel of ['ddp', 'fsdp', 'ps', 'byteps']) yield on('gpt2-1.5b', 'dgx-a100-80g', 2, {data_parallel, global_batch_size: 64});
  for (const model of ['bert-large', 'bloom-7b1', 'deepseek-v3', 'llama2-70b', 'mixtral-8x7b', 'megatron-1t']) {
    yield on(model, 'dgx-h100', 64, {tp: 8, pp: 1, global_batch_size: 512});
    yield on(model, 'dgx-a100-80g', 64, {tp: 8, pp: 4, ep: 1, global_batch_size: 512}, {sequence_length: 4096, tokens: '300B', price_per_gpu_hour: 2.5});
  }
  for (const precision of ['fp32', 'bf16', 'fp16']) yield on('llama3-8b', 'dgx-h100', 1, {tp: 2, pp: 2, global_batch_size: 32}, {precision});
  for (const tensor_parallel of ['1d', '2d', '3d']) yield on('gpt3-6.7b', 'dgx-a100-80g', 1, {tp: tensor_parallel === '2d' ? 4 : 8, tensor_parallel, global_batch_size: 16});
  yield {...on('llama3-8b', 'dgx-h100', 16, {tp: 2, global_batch_size: 256}, {tokens: '1T'}), failures: {preset: 'llama3', spares: 1, runs: 50}};
  yield on('llama3-70b', 'dgx-h100', 16, {tp: 8, pp: 4, cp: 4, global_batch_size: 64}, {sequence_length: 32768});
  // Fabrics, asynchronous schedules, offload, adapters, experts and uneven stages.
  for (const {job} of JSON.parse(readFileSync(join(project, 'tests/golden/corpus_jobs.json'), 'utf8'))) yield job;
}

test('the same JSON in gives the same JSON out, to twelve digits', () => {
  const file = join(scratch, 'job.json');
  let answered = 0;
  let refused = 0;
  let numbers = 0;
  for (const job of jobs()) {
    writeFileSync(file, JSON.stringify(job));
    let told = null;
    try {
      told = flopcastJson('simulate', file);
    } catch (error) {
      assert.equal(error.status, 2, JSON.stringify(job));
    }
    const shown = ask({ask: 'simulate', job});
    if (told === null) {
      assert.ok(shown.error, JSON.stringify(job));
      ++refused;
      continue;
    }
    assert.ok(!shown.error, JSON.stringify(shown.error));
    numbers += assertSame(told, shown, job.model);
    ++answered;
  }
  console.log(`${answered} jobs answered alike (${numbers} numbers), ${refused} refused by both`);
  assert.ok(answered >= 290 && refused < 15, `${answered} answered, ${refused} refused`);
});

test('a plan is the program\'s, to twelve digits', () => {
  const file = join(scratch, 'open.json');
  const jobs = [
    {model: 'llama3-70b', cluster: {name: 'dgx-h100', nodes: 32}, layout: {global_batch_size: 512}, training: {}},
    {model: 'gpt3-6.7b', cluster: {name: 'dgx-a100-80g', nodes: 2}, layout: {global_batch_size: 64, pp: 2}, training: {tokens: '100B'}},
  ];
  for (const job of jobs) {
    writeFileSync(file, JSON.stringify(job));
    const told = flopcastJson('plan', file);
    const started = performance.now();
    const shown = ask({ask: 'plan', job});
    console.log(`${job.model} on ${job.cluster.nodes} nodes: planned in ${(performance.now() - started).toFixed(0)} ms`);
    assert.ok(!shown.error, JSON.stringify(shown.error));
    assert.ok(told.ranked.length >= 5);
    for (const key of ['best', 'ranked', 'pareto', 'space', 'rejected']) assertSame(told[key], shown[key], `${job.model}/${key}`);
  }
  const hopeless = ask({ask: 'plan', job: {...jobs[0], model: 'megatron-1t', cluster: {name: 'dgx-h100', nodes: 1}}});
  assert.match(hopeless.error.problem, /no layout/);
});

test('a schedule without a job takes as long as the program says', () => {
  const numbers = {pp: 4, microbatches: 8, forward: 2, backward: 4, weight: 2, p2p: 0.2};
  const agree = (name, asked, vpp) => {
    const words = ['--pp', asked.pp, '--microbatches', asked.microbatches, '--forward', asked.forward, '--backward', asked.backward,
                   '--backward-weight', asked.weight, '--p2p', asked.p2p, ...(vpp ? ['--vpp', vpp] : [])].map(String);
    const told = flopcastJson('schedule', 'compare', '--schedule', name, ...words).schedules[0];
    const shown = ask({ask: 'view', schedule: {name, ...asked, ...(vpp ? {vpp} : {})}});
    const place = `${name}, v ${vpp}`;
    assert.ok(!shown.error, JSON.stringify(shown.error));
    assertSame(told.makespan, shown.metrics.makespan, place);
    assertSame(told.bubble_fraction, shown.metrics.idle_fraction, place);
  };
  for (const schedule of ['gpipe', '1f1b', 'interleaved', 'zb-h2', 'zbv', 'dualpipe', 'terapipe', 'chimera', 'v-half', 'hanayo']) agree(schedule, numbers);
  // Numbers of chunks that do not divide the ticks of a unit, and a single chunk.
  const uneven = {...numbers, forward: 1, backward: 2, weight: 1, p2p: 0};
  for (const vpp of [1, 2, 3, 6, 7]) for (const schedule of ['interleaved', 'interleaved-zb', 'bfs', 'gis']) agree(schedule, uneven, vpp);
  agree('hanayo', uneven, 6);
  agree('interleaved', {...numbers, forward: 1.1, backward: 1.9, weight: 0.7}, 3);
});

test('mistakes come back with field, problem and help', () => {
  const job = {model: 'gpt3-175b', cluster: {name: 'dgx-a100-80g', nodes: 8}, layout: {tp: 7, global_batch_size: 64}};
  const {error} = ask({ask: 'simulate', job});
  assert.equal(error.field, 'layout.tp');
  assert.match(error.help, /1, 2, 4, 8/);
  for (const question of [{}, {ask: 'view'}, {ask: 'view', schedule: {name: '1f1c'}}, {ask: 'view', schedule: {name: '1f1b', forward: -1}},
                          {ask: 'view', schedule: {name: '1f1b', pp: 1e9}}, {ask: 'simulate', job: 3}, {ask: 5}, {ask: {}}, 5, [], 'view',
                          {ask: 'view', schedule: 7}, {ask: 'view', schedule: {name: 5}}, {ask: 'simulate', job, config: 7}, {ask: 'simulate', job: 3, config: '{}'},
                          {ask: 'view', schedule: {name: 'terapipe', pp: 8, microbatches: 6000}}, {ask: 'simulate', job, config: '{'},
                          {ask: 'simulate', job: {...job, layout: {...job.layout, tp: 8, pp: 8, schedule: 'file:/etc/passwd'}}}]) {
    assert.ok(ask(question).error?.problem, JSON.stringify(question));
  }
});

// Inputs from the tests of the program's readers: an answer or an error, never an exception.
test('mutated jobs, models, schedules and results are answered or refused', () => {
  const here = {cluster: {name: 'dgx-h100', nodes: 1}, layout: {global_batch_size: 8}};
  let answered = 0;
  let refused = 0;
  for (const name of ['job', 'hugging-face', 'result'].flatMap(target => mutated(target, 150, 5))) {
    const input = readFileSync(name, 'utf8');
    const questions = [{ask: 'simulate', config: input, job: {model: '', ...here}}];
    try {
      const job = JSON.parse(input);
      questions.push({ask: 'simulate', job}, {ask: 'view', schedule: job}, {ask: 'plan', job}, job);
    } catch (error) {
      assert.ok(error instanceof SyntaxError);
    }
    for (const question of questions) {
      const answer = ask(question);
      if (answer.error) {
        assert.ok(answer.error.problem, name);
        assert.doesNotMatch(answer.error.problem, /internal|bug/, `${name}: ${answer.error.problem}`);
        ++refused;
      } else {
        ++answered;
      }
    }
  }
  console.log(`${answered} mutated questions answered, ${refused} refused`);
  assert.ok(answered > 20 && refused > 100, `${answered} answered, ${refused} refused`);
});

test('a config.json of the hub is a model', () => {
  const file = join(project, 'examples/llama3-70b-config/config.json');
  const told = flopcastJson('simulate', '--model', file, '--cluster', '4xdgx-h100', '--tp', '8', '--gbs', '64');
  const shown = ask({ask: 'simulate', config: readFileSync(file, 'utf8'), job: {model: '', cluster: {name: 'dgx-h100', nodes: 4}, layout: {tp: 8, global_batch_size: 64}}});
  assert.ok(!shown.error, JSON.stringify(shown.error));
  assert.equal(shown.job.model.layers, told.job.model.layers);
  assert.ok(Math.abs(shown.iteration.time_s / told.iteration.time_s - 1) < 1e-12);
});

test('page and engine together stay below a megabyte, gzipped', () => {
  const bytes = readFileSync(join(kWeb, 'flopcast.html'));
  const zipped = gzipSync(bytes, {level: 9}).length;
  console.log(`page with its engine: ${(bytes.length / 1e6).toFixed(2)} MB, gzipped ${(zipped / 1e6).toFixed(3)} MB`);
  assert.ok(zipped < 1e6, `${zipped} bytes`);
});
