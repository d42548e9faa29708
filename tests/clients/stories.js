// Tells small named stories one after the other, all of them even if one fails, and counts how they ended.
//
// The server is given by GABLE_URL and was started for one script alone; see crates/xtask/src/clients.rs.

'use strict';

const assert = require('node:assert/strict');
const crypto = require('node:crypto');

const URL = process.env.GABLE_URL;
const TOKEN = process.env.GABLE_ROOT_TOKEN;
const PATIENCE = 20_000;

const stories = [];
let number = 0;

// Something that works.
function story(name, tell) {
  stories.push({ name, tell });
}

// Something that the client itself gets wrong, with the reason; how it shows is part of the story, so a client that
// suddenly does it, or fails in another way, fails here.
function fault(name, reason, expected, tell) {
  stories.push({ name, tell, reason, expected });
}

// A name that nobody else has.
function fresh(name) {
  number += 1;
  return `${name}${number}`;
}

// A public key that nobody else has.
function newKey() {
  const field = (bytes) => Buffer.concat([Buffer.from(Uint32Array.of(bytes.length).buffer).swap32(), bytes]);
  const blob = Buffer.concat([field(Buffer.from('ssh-ed25519')), field(crypto.randomBytes(32))]);
  return `ssh-ed25519 ${blob.toString('base64')}`;
}

// What a client does not offer, done by hand to prepare a story or to look behind it.
async function byHand(method, path, body, version = 'v3') {
  const headers = { 'PRIVATE-TOKEN': TOKEN, 'Content-Type': 'application/json' };
  const answer = await fetch(`${URL}/api/${version}${path}`, { method, headers, body: body && JSON.stringify(body) });
  const text = await answer.text();
  return { status: answer.status, body: text && JSON.parse(text) };
}

const CI_FILE = 'test:\n  script: make test\n';

async function newProject(name, more) {
  const { status, body } = await byHand('POST', '/projects', { name: fresh(name), ...more });
  assert.equal(status, 201, JSON.stringify(body));
  return body;
}

// A project with files on its default branch.
async function filledProject(files = { 'README.md': 'hello\n', 'src/main.rs': 'fn main() {}\n' }) {
  const project = await newProject('filled');
  for (const [path, content] of Object.entries(files)) {
    const given = { file_path: path, branch_name: 'master', content, commit_message: `Add ${path}` };
    const { status, body } = await byHand('POST', `/projects/${project.id}/repository/files`, given);
    assert.equal(status, 201, JSON.stringify(body));
  }
  return project;
}

// Somebody whose name nobody else has.
async function newUser(name) {
  const username = fresh(name);
  const given = { username, email: `${username}@example.org`, name, password: 'battery-staple' };
  const { status, body } = await byHand('POST', '/users', given);
  assert.equal(status, 201, JSON.stringify(body));
  return body;
}

// A runner that serves one project.
async function newRunner(project) {
  const { body } = await byHand('GET', `/projects/${project.id}`);
  const joined = await byHand('POST', '/runners', { token: body.runners_token, description: 'by hand' }, 'v4');
  assert.equal(joined.status, 201, JSON.stringify(joined.body));
  return joined.body;
}

// A client that throws inside a callback throws at nobody; the story that is told at the time takes it.
let current = null;
process.on('uncaughtException', (error) => (current ? current(error) : process.exit(70)));

function tellOnce({ tell }) {
  let clock;
  const ends = new Promise((_, reject) => {
    current = reject;
    clock = setTimeout(() => reject(new Error('the client never answered')), PATIENCE);
  });
  return Promise.race([Promise.resolve().then(tell), ends]).finally(() => {
    clearTimeout(clock);
    current = null;
  });
}

async function run() {
  const begin = Date.now();
  let [passed, failed, faults] = [0, 0, 0];
  for (const it of stories) {
    const error = await tellOnce(it).then(() => null, (error) => error ?? new Error('refused without a reason'));
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
