// Times zhebrak's llm-cluster-simulator on layouts of GPT-3 175B on 128 nodes of eight A100: one query per layout, after a
// pass over all of them that warms up Node.js's compiler. bench_forecast runs it.
//     node zhebrak_queries.mjs CHECKOUT LAYOUTS
// CHECKOUT: github.com/zhebrak/llm-cluster-simulator after `npm ci`; LAYOUTS: a JSON file with a list of {tp, pp, dp,
// micro_batch_size, global_batch_size, recompute, sequence_parallel, zero}. Prints microseconds, one query per line; NaN
// for a layout that it rejects.
import {mkdtempSync, readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {tmpdir} from 'node:os';
import {join, resolve} from 'node:path';
import {pathToFileURL} from 'node:url';

const [checkout, layouts] = process.argv.slice(2).map(path => resolve(path));
const {buildSync} = createRequire(join(checkout, 'package.json'))('esbuild');
const bundle = join(mkdtempSync(join(tmpdir(), 'zhebrak-')), 'simulator.mjs');
const core = join(checkout, 'src/core');
buildSync({
  stdin: {
    contents: `export {getSimulationMetrics} from './simulation/engine.ts';
               export {createMultiNodeCluster} from './hardware/topology.ts';`,
    resolveDir: core,
    loader: 'ts',
  },
  bundle: true, platform: 'node', format: 'esm', outfile: bundle, logLevel: 'error',
});
const {createMultiNodeCluster, getSimulationMetrics} = await import(pathToFileURL(bundle));
const clusterConfig = createMultiNodeCluster('a100-80gb', 8, 128);
const configs = JSON.parse(readFileSync(layouts, 'utf8')).map(layout => ({
  clusterConfig,
  modelId: 'gpt3-175b',
  globalBatchSize: layout.global_batch_size,
  microBatchSize: layout.micro_batch_size,
  sequenceLength: 2048,
  strategyType: layout.zero > 0 ? 'zero1-tp-pp' : 'ddp-tp-pp',
  strategyConfig: {
    tp: layout.tp, pp: layout.pp, dp: layout.dp, dpType: layout.zero > 0 ? 'zero-1' : 'ddp',
    sequenceParallel: layout.sequence_parallel, pipelineSchedule: '1f1b',
  },
  activationCheckpointing: layout.recompute !== 'none',
  checkpointingGranularity: layout.recompute === 'selective' ? 'selective' : 'full',
  flashAttention: false,
  mixedPrecision: 'bf16',
}));

let sum = 0;
function microseconds(config) {
  const begin = process.hrtime.bigint();
  try {
    sum += getSimulationMetrics(config).timing.total;
  } catch {
    return NaN;
  }
  return Number(process.hrtime.bigint() - begin) / 1e3;
}
configs.forEach(microseconds);
for (const config of configs) console.log(microseconds(config));
if (!(sum > 0)) throw new Error('no layout was simulated');
