// Shared by the tests in the browser: the program, the browser, and a folder for their files.
import {execFileSync} from 'node:child_process';
import {mkdtempSync, readFileSync, readdirSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {dirname, join, resolve} from 'node:path';
import {fileURLToPath} from 'node:url';
import {chromium} from 'playwright-core';

export const project = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
export const program = process.env.FLOPCAST ?? join(project, 'build/dev/cli/flopcast');
export const scratch = mkdtempSync(join(tmpdir(), 'flopcast-browser-'));

/** Inputs that the program's own readers are tried with, by name. */
export function mutated(target, count, seed) {
  const folder = join(scratch, `mutated-${target}`);
  const fuzz = process.env.FLOPCAST_FUZZ ?? join(project, 'build/dev/tests/fuzz');
  execFileSync(fuzz, ['--emit', folder, '--executions', `${count}`, '--seed', `${seed}`, '--target', target]);
  return readdirSync(folder).sort().map(name => join(folder, name));
}

export function flopcast(...words) {
  return execFileSync(program, words, {cwd: project, encoding: 'utf8', maxBuffer: 1 << 30, stdio: ['ignore', 'pipe', 'ignore']});
}
export const flopcastJson = (...words) => JSON.parse(flopcast(...words, '--format', 'json'));
// Every run prints speeds; they are compared with their limits only on a quiet machine: FLOPCAST_QUIET_MACHINE=1.
export const quiet = process.env.FLOPCAST_QUIET_MACHINE === '1';
export const bytesOf = file => readFileSync(file);

// Without a GPU and without network access.
const kFlags = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
                '--disable-component-update', '--disable-sync'];
export const launch = () => chromium.launch({executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: kFlags});

// Opens a file; errors in the console and network requests fail the test.
export async function open(browser, file, options = {}) {
  const page = await browser.newPage({viewport: {width: 1240, height: 900}, ...options});
  page.complaints = [];
  page.on('pageerror', error => page.complaints.push(error.message));
  page.on('console', message => { if (message.type() === 'error') page.complaints.push(message.text()); });
  page.on('request', request => { if (!/^(file|data|blob):/.test(request.url())) page.complaints.push(`asked for ${request.url()}`); });
  await page.goto('file://' + file + (options.fragment ?? ''));
  return page;
}
