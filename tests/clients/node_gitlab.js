// Tests with node-gitlab 1.6.1: every resource of the library, in the order of its own list.

'use strict';

const Gitlab = require('node-gitlab');
const {
  URL, TOKEN, CI_FILE, assert, story, fault, run, fresh, newKey, byHand, newProject, filledProject, newUser,
} = require('./stories');

const options = { api: `${URL}/api/v3`, privateToken: TOKEN };
const client = Gitlab.create(options);

// The promises of the library cover only some of its methods; its callbacks cover all.
function call(resource, method, params) {
  return new Promise((resolve, reject) => {
    client[resource][method](params, (error, result) => (error ? reject(error) : resolve(result)));
  });
}

const refused = (status, message) => (error) => {
  assert.equal(error.statusCode, status);
  if (message !== undefined) assert.deepEqual(error.data.resBody, message);
  return true;
};

const ids = (list) => list.map((item) => item.id);

// The three ways to call it

story('promises answer', async () => {
  const users = await Gitlab.createPromise(options).users.list({ username: 'root' });
  assert.deepEqual(users.map((user) => user.username), ['root']);
});

story('thunks answer', async () => {
  const thunk = Gitlab.createThunk(options).users.list({ username: 'root' });
  const users = await new Promise((resolve, reject) => thunk((error, list) => (error ? reject(error) : resolve(list))));
  assert.deepEqual(users.map((user) => user.username), ['root']);
});

story('a wrong token is an error with its status', async () => {
  const stranger = Gitlab.createPromise({ ...options, privateToken: 'abcdefghijklmnopqrst' });
  await assert.rejects(stranger.users.list({}), refused(401, { message: '401 Unauthorized' }));
});

fault('reasons by field', 'it converts an object to text', /^\[object Object\]$/, async () => {
  const project = await newProject('taken');
  await call('projects', 'create', { name: project.name });
});

// Projects

story('a project is created, read, listed, changed and removed', async () => {
  const name = fresh('rocket');
  const project = await call('projects', 'create', { name, description: 'Flies' });
  assert.deepEqual([project.name, project.description, project.visibility_level], [name, 'Flies', 0]);
  assert.equal((await call('projects', 'get', { id: project.id })).path_with_namespace, `root/${name}`);
  assert.equal((await call('projects', 'get', { id: `root%2F${name}` })).id, project.id);
  assert.ok(ids(await call('projects', 'list', { per_page: 100 })).includes(project.id));
  assert.deepEqual(ids(await call('projects', 'search', { query: name })), [project.id]);
  const changed = await call('projects', 'update', { id: project.id, description: 'Flies higher' });
  assert.equal(changed.description, 'Flies higher');
  assert.equal(await call('projects', 'remove', { id: project.id }), true);
  await assert.rejects(call('projects', 'get', { id: project.id }), refused(404, { message: '404 Project Not Found' }));
});

fault('a project by its path', 'it requests /project?path=…, which version 3 does not have', /404/, () =>
  call('projects', 'getByPath', { path: 'root/rocket' }));

story('a project is forked', async () => {
  const source = await filledProject();
  const group = await call('groups', 'create', { name: fresh('forks'), path: fresh('forks') });
  const fork = await call('projects', 'fork', { id: source.id, namespace: group.path });
  assert.equal(fork.forked_from_project.id, source.id);
  assert.equal(fork.path_with_namespace, `${group.path}/${source.path}`);
});

story('events of a project are listed', async () => {
  const project = await filledProject();
  const events = await call('projects', 'listEvents', { id: project.id });
  assert.deepEqual(events.map((event) => event.action_name), ['pushed to', 'pushed new', 'created']);
  assert.equal(events[0].author_username, 'root');
});

story('labels are created, listed, changed and removed', async () => {
  const { id } = await newProject('labeled');
  const label = await call('projects', 'createLabel', { id, name: 'bug', color: '#D9534F' });
  assert.deepEqual([label.name, label.color], ['bug', '#D9534F']);
  await call('projects', 'updateLabel', { id, name: 'bug', new_name: 'defect', color: '#123456' });
  const [only] = await call('projects', 'getLabels', { id });
  assert.deepEqual([only.name, only.color, only.open_issues_count], ['defect', '#123456', 0]);
  await call('projects', 'deleteLabel', { id, name: 'defect' });
  assert.deepEqual(await call('projects', 'getLabels', { id }), []);
});

for (const resource of ['projectMembers', 'members', 'groupMembers']) {
  story(`${resource}: members are added, promoted and removed`, async () => {
    const ann = await newUser('ann');
    const path = fresh('team');
    const place = resource === 'groupMembers' ? await call('groups', 'create', { name: path, path }) : await newProject('team');
    const member = { id: place.id, user_id: ann.id };
    const joined = await call(resource, 'create', { ...member, access_level: 20 });
    assert.deepEqual([joined.username, joined.access_level], [ann.username, 20]);
    assert.equal((await call(resource, 'update', { ...member, access_level: 40 })).access_level, 40);
    assert.equal((await call(resource, 'get', { ...member })).access_level, 40);
    assert.ok(ids(await call(resource, 'list', { id: place.id })).includes(ann.id));
    await call(resource, 'remove', { ...member });
    assert.ok(!ids(await call(resource, 'list', { id: place.id })).includes(ann.id));
  });
}

// The repository

story('branches are listed, shown, protected and unprotected', async () => {
  const { id } = await filledProject();
  assert.deepEqual((await call('repository', 'getBranches', { id })).map((branch) => branch.name), ['master']);
  const branch = 'master';
  assert.equal((await call('repository', 'protectBranch', { id, branch })).protected, true);
  assert.equal((await call('repository', 'unprotectBranch', { id, branch })).protected, false);
  assert.equal((await call('repository', 'getBranch', { id, branch })).commit.message, 'Add src/main.rs');
});

story('a branch is created, shown, listed and removed', async () => {
  const { id } = await filledProject();
  const branch = 'feature/x.y';
  const made = await call('repositoryBranches', 'create', { id, branch_name: branch, ref: 'master' });
  assert.equal(made.name, branch);
  assert.equal((await call('repositoryBranches', 'get', { id, branch })).commit.message, 'Add src/main.rs');
  const names = (await call('repositoryBranches', 'list', { id })).map((kept) => kept.name);
  assert.deepEqual(names, [branch, 'master']);
  assert.deepEqual(await call('repositoryBranches', 'remove', { id, branch }), { branch_name: branch });
  await assert.rejects(call('repositoryBranches', 'get', { id, branch }), refused(404, { message: '404 Branch Not Found' }));
});

for (const method of ['protect', 'unprotect']) {
  fault(`repositoryBranches.${method}`, 'it has this.this in its code', /undefined.*onePath/, async () => {
    const { id } = await filledProject();
    await call('repositoryBranches', method, { id, branch: 'master' });
  });
}

story('tags are created and listed', async () => {
  const { id } = await filledProject();
  const tag = await call('repository', 'createTag', { id, tag_name: 'v1.0', ref: 'master', message: 'First' });
  assert.deepEqual([tag.name, tag.message], ['v1.0', 'First']);
  assert.deepEqual((await call('repository', 'getTags', { id })).map((kept) => kept.name), ['v1.0']);
});

story('commits, trees and differences are read', async () => {
  const { id } = await filledProject();
  const commits = await call('repository', 'getCommits', { id, ref_name: 'master' });
  assert.deepEqual(commits.map((commit) => commit.title), ['Add src/main.rs', 'Add README.md']);
  const tree = await call('repository', 'getTree', { id, ref_name: 'master' });
  assert.deepEqual(tree.map((entry) => entry.path), ['src', 'README.md']);
  const compared = await call('repository', 'compare', { id, from: commits[1].id, to: commits[0].id });
  assert.deepEqual(compared.diffs.map((diff) => diff.new_path), ['src/main.rs']);
});

story('files are downloaded by commit, by id and as an archive', async () => {
  const { id } = await filledProject();
  const blob = await call('repository', 'getBlob', { id, sha: 'master', filepath: 'README.md' });
  assert.equal(blob.toString(), 'hello\n');
  const tree = await call('repository', 'getTree', { id });
  const raw = await call('repository', 'getRawBlob', { id, sha: tree[1].id });
  assert.equal(raw.toString(), 'hello\n');
  const archive = await call('repository', 'archive', { id, sha: 'master' });
  assert.deepEqual([...archive.subarray(0, 2)], [0x1f, 0x8b]);
});

story('a file is added, read, changed and removed', async () => {
  const { id } = await filledProject();
  const place = { id, file_path: 'docs/notes.txt', branch_name: 'master' };
  const added = await call('repositoryFiles', 'create', { ...place, content: 'one', commit_message: 'Add notes' });
  assert.deepEqual(added, { file_path: 'docs/notes.txt', branch_name: 'master' });
  const read = async () => {
    const file = await call('repositoryFiles', 'get', { id, file_path: 'docs/notes.txt', ref: 'master' });
    return Buffer.from(file.content, file.encoding).toString();
  };
  assert.equal(await read(), 'one');
  await call('repositoryFiles', 'update', { ...place, content: 'two', commit_message: 'Change notes' });
  assert.equal(await read(), 'two');
  await call('repositoryFiles', 'remove', { ...place, commit_message: 'Away with them' });
  await assert.rejects(read(), refused(404, { message: '404 File Not Found' }));
});

// Users, issues, milestones, hooks, groups, keys

story('a user is created, read, found, changed and removed', async () => {
  const username = fresh('ann');
  const given = { username, email: `${username}@example.org`, name: 'Ann', password: 'battery-staple' };
  const ann = await call('users', 'create', given);
  assert.deepEqual([ann.username, ann.state, ann.is_admin], [username, 'active', false]);
  assert.equal((await call('users', 'get', { user_id: ann.id })).email, given.email);
  assert.deepEqual(ids(await call('users', 'list', { search: username })), [ann.id]);
  assert.equal((await call('users', 'update', { user_id: ann.id, bio: 'Builds rockets' })).bio, 'Builds rockets');
  await call('users', 'remove', { user_id: ann.id });
  await assert.rejects(call('users', 'get', { user_id: ann.id }), refused(404, { message: '404 User Not Found' }));
});

story('an issue is created, read, listed, changed and removed', async () => {
  const { id } = await newProject('troubled');
  const issue = await call('issues', 'create', { id, title: 'Cracked tile', labels: 'bug,heat shield' });
  assert.deepEqual([issue.iid, issue.state, issue.labels], [1, 'opened', ['bug', 'heat shield']]);
  const place = { id, issue_id: issue.id };
  assert.equal((await call('issues', 'get', { ...place })).author.username, 'root');
  assert.equal((await call('issues', 'update', { ...place, state_event: 'close' })).state, 'closed');
  assert.deepEqual(ids(await call('issues', 'list', { id, state: 'closed' })), [issue.id]);
  await call('issues', 'remove', { ...place });
  await assert.rejects(call('issues', 'get', { ...place }), refused(404, { message: '404 Not found' }));
});

story('notes on an issue are created, listed, read and changed', async () => {
  const { id } = await newProject('noted');
  const issue = await call('issues', 'create', { id, title: 'It leaks' });
  const place = { id, issue_id: issue.id };
  const note = await call('issues', 'createNote', { ...place, body: 'It *still* does' });
  assert.deepEqual([note.body, note.system], ['It *still* does', false]);
  assert.equal((await call('issues', 'updateNote', { ...place, note_id: note.id, body: 'No more' })).body, 'No more');
  assert.equal((await call('issues', 'getNote', { ...place, note_id: note.id })).body, 'No more');
  assert.deepEqual(ids(await call('issues', 'listNotes', { ...place })), [note.id]);
});

story('a milestone is created, read, listed, given issues and closed', async () => {
  const { id } = await newProject('planned');
  const milestone = await call('milestones', 'create', { id, title: '1.0', due_date: '2026-12-31' });
  const place = { id, milestone_id: milestone.id };
  assert.deepEqual([milestone.iid, milestone.state, milestone.due_date], [1, 'active', '2026-12-31']);
  await call('issues', 'create', { id, title: 'It leaks', milestone_id: milestone.id });
  assert.deepEqual((await call('milestones', 'listIssues', { ...place })).map((issue) => issue.title), ['It leaks']);
  assert.equal((await call('milestones', 'update', { ...place, state_event: 'close' })).state, 'closed');
  assert.equal((await call('milestones', 'get', { ...place })).title, '1.0');
  assert.deepEqual(ids(await call('milestones', 'list', { id })), [milestone.id]);
});

fault('a milestone is removed', 'version 3 has no such route, but every resource has remove', /405/, async () => {
  const { id } = await newProject('planned');
  const milestone = await call('milestones', 'create', { id, title: '1.0' });
  await call('milestones', 'remove', { id, milestone_id: milestone.id });
});

story('a hook of a project is created, read, listed, changed and removed', async () => {
  const { id } = await newProject('hooked');
  const url = 'https://example.org/hook?key=1';
  const hook = await call('hooks', 'create', { id, url, issues_events: true });
  assert.deepEqual([hook.url, hook.push_events, hook.issues_events], [url, true, true]);
  const place = { id, hook_id: hook.id };
  assert.equal((await call('hooks', 'update', { ...place, url, push_events: false })).push_events, false);
  assert.equal((await call('hooks', 'get', { ...place })).url, url);
  assert.deepEqual(ids(await call('hooks', 'list', { id })), [hook.id]);
  await call('hooks', 'remove', { ...place });
  assert.deepEqual(await call('hooks', 'list', { id }), []);
});

story('a system hook is created, tested, listed and removed', async () => {
  const hook = await call('globalHooks', 'create', { url: 'http://127.0.0.1:9/hook' });
  assert.equal((await call('globalHooks', 'get', { hook_id: hook.id })).event_name, 'project_create');
  assert.ok(ids(await call('globalHooks', 'list', {})).includes(hook.id));
  await call('globalHooks', 'remove', { hook_id: hook.id });
  assert.ok(!ids(await call('globalHooks', 'list', {})).includes(hook.id));
});

story('a group is created, read, listed, changed, given a project and removed', async () => {
  const path = fresh('acme');
  const group = await call('groups', 'create', { name: path, path, description: 'Rockets' });
  assert.deepEqual([group.path, group.description], [path, 'Rockets']);
  assert.ok(ids(await call('groups', 'list', { search: path })).includes(group.id));
  assert.equal((await call('groups', 'update', { id: group.id, description: 'Larger' })).description, 'Larger');
  const project = await newProject('moved');
  await call('groups', 'transferProject', { id: group.id, project_id: project.id });
  assert.deepEqual(ids((await call('groups', 'get', { id: group.id })).projects), [project.id]);
  await call('groups', 'remove', { id: group.id });
  await assert.rejects(call('groups', 'get', { id: group.id }), refused(404, { message: '404 Group Not Found' }));
});

story('a deploy key is added, read, listed and removed', async () => {
  const { id } = await newProject('deployed');
  const key = newKey();
  const added = await call('deployKeys', 'create', { id, title: 'server', key });
  assert.deepEqual([added.title, added.key], ['server', key]);
  assert.equal((await call('deployKeys', 'get', { id, key_id: added.id })).key, key);
  assert.deepEqual(ids(await call('deployKeys', 'list', { id })), [added.id]);
  await call('deployKeys', 'remove', { id, key_id: added.id });
  assert.deepEqual(await call('deployKeys', 'list', { id }), []);
});

// Routes without a method of the library, with `request`

story('other routes are requested by path', async () => {
  const { id } = await filledProject({ '.gitlab-ci.yml': CI_FILE });
  const request = Gitlab.createPromise(options).request;
  const pipelines = await request('get', '/projects/:id/pipelines', { id });
  assert.deepEqual(pipelines.map((pipeline) => pipeline.ref), ['master']);
  const builds = await request('get', '/projects/:id/builds', { id });
  assert.deepEqual(builds.map((build) => [build.name, build.status]), [['test', 'pending']]);
});

story('merge requests are not found', async () => {
  const { id } = await newProject('unmerged');
  await assert.rejects(call('mergeRequests', 'list', { id }), refused(404));
});

run();
