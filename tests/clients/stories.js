// Runs named tests one after the other, continues after a failure, and counts the results.
//
// The server at GABLE_URL was started for one script alone; see crates/xtask/src/clients.rs.

'use strict';

const assert = require('node:assert/strict');
const crypto = require('node:crypto');

const URL = process.env.GABLE_URL;
const TOKEN = process.env.GABLE_ROOT_TOKEN;
const TIMEOUT_MS = 20_000;

const stories = [];
let number = 0;

// Adds a test that must pass.
function story(name, test) {
  stories.push({ name, test });
}

// Adds a test of something that the client gets wrong, with the reason and the expected error. It fails if the client
// succeeds or fails in another way.
function fault(name, reason, expected, test) {
  stories.push({ name, test, reason, expected });
}

// Returns a unique name.
function fresh(name) {
  number += 1;
  return `${name}${number}`;
}

// Returns a unique public key.
function newKey() {
  const field = (bytes) => Buffer.concat([Buffer.from(Uint32Array.of(bytes.length).buffer).swap32(), bytes]);
  const blob = Buffer.concat([field(Buffer.from('ssh-ed25519')), field(crypto.randomBytes(32))]);
  return `ssh-ed25519 ${blob.toString('base64')}`;
}

// Sends a request without the client, to prepare a test or to check its result.
async function byHand(method, path, body, version = 'v3') {
  const headers = { 'PRIVATE-TOKEN': TOKEN, 'Content-Type': 'application/json' };
  const answer = await fetch(`${URL}/api/${version}${path}`, { method, headers, body: body && JSON.stringify(body) });
  const text = await answer.text();
  // A load balancer answers with HTML.
  assert(answer.status < 502, `${method} ${path}: ${answer.status} ${text}`);
  return { status: answer.status, body: text && JSON.parse(text) };
}

const CI_FILE = 'test:\n  script: make test\n';

async function newProject(name, more) {
  const { status, body } = await byHand('POST', '/projects', { name: fresh(name), ...more });
  assert.equal(status, 201, JSON.stringify(body));
  return body;
}

// Creates a project with files on its default branch.
async function filledProject(files = { 'README.md': 'hello\n', 'src/main.rs': 'fn main() {}\n' }) {
  const project = await newProject('filled');
  for (const [path, content] of Object.entries(files)) {
    const given = { file_path: path, branch_name: 'master', content, commit_message: `Add ${path}` };
    const { status, body } = await byHand('POST', `/projects/${project.id}/repository/files`, given);
    assert.equal(status, 201, JSON.stringify(body));
  }
  return project;
}

// Creates a user with a unique name.
async function newUser(name) {
  const username = fresh(name);
  const given = { username, email: `${username}@example.org`, name, password: 'battery-staple' };
  const { status, body } = await byHand('POST', '/users', given);
  assert.equal(status, 201, JSON.stringify(body));
  return body;
}

// Registers a runner for one project.
async function newRunner(project) {
  const { body } = await byHand('GET', `/projects/${project.id}`);
  const joined = await byHand('POST', '/runners', { token: body.runners_token, description: 'by hand' }, 'v4');
  assert.equal(joined.status, 201, JSON.stringify(joined.body));
  return joined.body;
}

// An exception in a callback of the client has no caller that could catch it; it fails the current test.
let current = null;
process.on('uncaughtException', (error) => (current ? current(error) : process.exit(70)));

function runTest({ test }) {
  let clock;
  const ends = new Promise((_, reject) => {
    current = reject;
    clock = setTimeout(() => reject(new Error('the client never answered')), TIMEOUT_MS);
  });
  return Promise.race([Promise.resolve().then(test), ends]).finally(() => {
    clearTimeout(clock);
    current = null;
  });
}

async function run() {
  const begin = Date.now();
  let [passed, failed, faults] = [0, 0, 0];
  for (const it of stories) {
    const error = await runTest(it).then(() => null, (error) => error ?? new Error('rejected without a reason'));
    const text = error && String(error.message ?? error);
    if (it.reason && text && it.expected.test(text)) {
      faults += 1;
      console.log(`the client's own fault: ${it.name}: ${it.reason}`);
    } else if (it.reason) {
      failed += 1;
      const but = error ? `failed otherwise: ${text}` : 'works';
      console.log(`FAILED ${it.name}: known as a fault of the client (${it.reason}), but it ${but}`);
    } else if (error) {
      failed += 1;
      console.log(`FAILED ${it.name}: ${error.stack ?? text}`);
    } else {
      passed += 1;
    }
  }
  const seconds = ((Date.now() - begin) / 1000).toFixed(1);
  console.log(`${passed} passed, ${failed} failed, ${faults} known faults of the client in ${seconds} s`);
  process.exit(failed === 0 ? 0 : 1);
}

module.exports = {
  URL, TOKEN, CI_FILE, assert, story, fault, run, fresh, newKey, byHand, newProject, filledProject, newUser, newRunner,
};
