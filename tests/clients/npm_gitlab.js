// Tests with the package gitlab 1.8.0: every model of the package.
//
// It reports no errors: the result of a rejected request is null or false, and true for a request to create something.

'use strict';

const Gitlab = require('gitlab');
const {
  URL, TOKEN, CI_FILE, assert, story, fault, run, fresh, newKey, byHand, newProject, filledProject, newUser, newRunner,
} = require('./stories');

const client = Gitlab({ url: URL, token: TOKEN });
const { projects, groups, issues, notes, users, labels } = client;
const { repository } = projects;

// Calls a method whose last argument is a callback.
const call = (method, ...given) => new Promise((resolve) => { method(...given, resolve); });
const ids = (list) => list.map((item) => item.id);

story('an OAuth token is accepted', async () => {
  const by = Gitlab({ url: URL, oauth_token: TOKEN });
  assert.equal((await call(by.users.current)).username, 'root');
});

fault('the reason of an error', 'the result of a request to create something is always true', /^true !== false$/, async () => {
  const project = await newProject('taken');
  const made = await call(projects.create, { name: project.name });
  if (made === true) throw new Error('true !== false');
});

// Users

story('users are created, shown, found and listed', async () => {
  const username = fresh('ann');
  const given = { username, email: `${username}@example.org`, name: 'Ann', password: 'battery-staple' };
  const ann = await call(users.create, given);
  assert.deepEqual([ann.username, ann.state], [username, 'active']);
  assert.equal((await call(users.show, ann.id)).email, given.email);
  assert.deepEqual(ids(await call(users.search, username)), [ann.id]);
  assert.ok(ids(await call(users.all)).includes(ann.id));
  assert.equal((await call(users.current)).username, 'root');
  const session = await call(users.session, given.email, given.password);
  assert.deepEqual([session.id, session.private_token.length], [ann.id, 20]);
});

story('all pages of users are fetched', async () => {
  for (let i = 0; i < 5; i += 1) await newUser('page');
  const found = ids(await call(users.all, { per_page: 2 }));
  assert.equal(new Set(found).size, found.length);
  assert.ok(found.length >= 6, `${found.length}`);
});

story('keys of a user are added and listed', async () => {
  const ann = await newUser('ann');
  const added = await call(users.keys.addKey, ann.id, 'laptop', newKey());
  assert.equal(added.title, 'laptop');
  assert.deepEqual(ids(await call(users.keys.all, ann.id)), [added.id]);
});

// Groups

story('a group is created, given a project, found and removed', async () => {
  const path = fresh('acme');
  const group = await call(groups.create, { name: path, path, description: 'Rockets' });
  assert.deepEqual([group.path, group.description], [path, 'Rockets']);
  assert.equal((await call(groups.show, group.id)).path, path);
  assert.deepEqual(ids(await call(groups.search, path)), [group.id]);
  assert.ok(ids(await call(groups.all)).includes(group.id));
  const project = await newProject('moved');
  await call(groups.addProject, group.id, project.id);
  assert.deepEqual(ids(await call(groups.listProjects, group.id)), [project.id]);
  assert.equal(await call(groups.deleteGroup, group.id), true);
  assert.equal(await call(groups.show, group.id), null);
});

story('members of a group are added, promoted and removed', async () => {
  const path = fresh('team');
  const group = await call(groups.create, { name: path, path });
  const ann = await newUser('ann');
  assert.equal((await call(groups.addMember, group.id, ann.id, groups.access_levels.REPORTER)).access_level, 20);
  assert.equal((await call(groups.editMember, group.id, ann.id, groups.access_levels.MASTER)).access_level, 40);
  assert.ok(ids(await call(groups.listMembers, group.id)).includes(ann.id));
  assert.equal(await call(groups.removeMember, group.id, ann.id), true);
  assert.ok(!ids(await call(groups.listMembers, group.id)).includes(ann.id));
});

// Projects

story('a project is created, shown, listed, found, changed and removed', async () => {
  const name = fresh('rocket');
  const project = await call(projects.create, { name, description: 'Flies' });
  assert.deepEqual([project.name, project.description], [name, 'Flies']);
  assert.equal((await call(projects.show, project.id)).id, project.id);
  assert.equal((await call(projects.show, `root/${name}`)).id, project.id);
  assert.ok(ids(await call(projects.all)).includes(project.id));
  assert.ok(ids(await call(projects.allAdmin)).includes(project.id));
  assert.deepEqual(ids(await call(projects.search, name)), [project.id]);
  assert.equal((await call(projects.edit, project.id, { description: 'Flies higher' })).description, 'Flies higher');
  assert.equal(await call(projects.remove, project.id), true);
  assert.equal(await call(projects.show, project.id), null);
});

story('a project is created for another user, forked and shared', async () => {
  const ann = await newUser('ann');
  const gift = await call(projects.create_for_user, { user_id: ann.id, name: 'gift' });
  assert.equal(gift.path_with_namespace, `${ann.username}/gift`);
  const path = fresh('team');
  const group = await call(groups.create, { name: path, path });
  const source = await filledProject();
  const fork = await call(projects.fork, { id: source.id, namespace: group.path });
  assert.equal(fork.forked_from_project.id, source.id);
  const share = await call(projects.share, { projectId: source.id, group_id: group.id, group_access: 20 });
  assert.deepEqual([share.project_id, share.group_id, share.group_access], [source.id, group.id, 20]);
});

story('members of a project are added, promoted and removed', async () => {
  const { id } = await newProject('team');
  const [ann, bob] = [await newUser('ann'), await newUser('bob')];
  assert.equal((await call(projects.members.add, id, ann.id, 20)).access_level, 20);
  assert.equal((await call(projects.members.update, id, ann.id, 40)).access_level, 40);
  assert.equal((await call(projects.members.show, id, ann.id)).access_level, 40);
  assert.equal((await call(projects.addMember, { id, user_id: bob.id, access_level: 20 })).access_level, 20);
  assert.equal((await call(projects.editMember, { id, user_id: bob.id, access_level: 30 })).access_level, 30);
  assert.deepEqual(ids(await call(projects.members.list, id)), ids(await call(projects.listMembers, { id })));
  assert.equal(await call(projects.members.remove, id, ann.id), true);
  assert.ok(!ids(await call(projects.members.list, id)).includes(ann.id));
});

story('hooks of a project are added, shown, listed and removed', async () => {
  const { id } = await newProject('hooked');
  const url = 'https://example.org/hook';
  const hook = await call(projects.hooks.add, id, { url, issues_events: true });
  const plain = await call(projects.hooks.add, id, url);
  assert.deepEqual([hook.url, hook.issues_events, plain.issues_events], [url, true, false]);
  assert.equal((await call(projects.hooks.show, id, hook.id)).url, url);
  assert.equal(await call(projects.hooks.remove, id, hook.id), true);
  assert.deepEqual(ids(await call(projects.hooks.list, id)), [plain.id]);
});

fault('a hook of a project is changed', 'it reads an undefined variable', /accessLevel is not defined/, async () => {
  const { id } = await newProject('hooked');
  const hook = await call(projects.hooks.add, id, 'https://example.org/hook');
  await call(projects.hooks.update, id, hook.id, 'https://example.org/other');
});

story('deploy keys are added, shown and listed', async () => {
  const { id } = await newProject('deployed');
  const key = newKey();
  const added = await call(projects.deploy_keys.addKey, id, { title: 'server', key });
  assert.equal((await call(projects.deploy_keys.getKey, id, added.id)).key, key);
  assert.deepEqual(ids(await call(projects.deploy_keys.listKeys, id)), [added.id]);
});

// The repository

story('branches are created, shown, listed, protected and removed', async () => {
  const { id } = await filledProject();
  const name = 'feature/x.y';
  assert.equal((await call(repository.createBranch, { projectId: id, branch_name: name, ref: 'master' })).name, name);
  assert.equal((await call(repository.showBranch, id, name)).commit.message, 'Add src/main.rs');
  assert.equal((await call(repository.protectBranch, id, name, { developers_can_push: true })).developers_can_push, true);
  assert.equal((await call(repository.unprotectBranch, id, name)).protected, false);
  assert.deepEqual((await call(repository.listBranches, id)).map((branch) => branch.name), [name, 'master']);
  assert.equal(await call(repository.deleteBranch, id, name), true);
  assert.equal(await call(repository.showBranch, id, name), null);
});

story('tags are created, shown, listed and removed', async () => {
  const { id } = await filledProject();
  const tag = await call(repository.addTag, { id, tag_name: 'v1.0', ref: 'master', message: 'First' });
  assert.deepEqual([tag.name, tag.message], ['v1.0', 'First']);
  assert.equal((await call(repository.showTag, id, 'v1.0')).commit.message, 'Add src/main.rs');
  assert.deepEqual((await call(repository.listTags, id)).map((kept) => kept.name), ['v1.0']);
  assert.deepEqual((await call(projects.listTags, { id })).map((kept) => kept.name), ['v1.0']);
  assert.equal(await call(repository.deleteTag, id, 'v1.0'), true);
  assert.deepEqual(await call(repository.listTags, id), []);
});

story('commits, differences and trees are read', async () => {
  const { id } = await filledProject();
  const [newest, first] = await call(repository.listCommits, id);
  assert.deepEqual([newest.title, first.title], ['Add src/main.rs', 'Add README.md']);
  assert.equal((await call(projects.listCommits, { id, ref_name: 'master' })).length, 2);
  assert.equal((await call(repository.showCommit, id, newest.id)).stats.additions, 1);
  assert.deepEqual((await call(repository.diffCommit, id, newest.id)).map((diff) => diff.new_path), ['src/main.rs']);
  assert.deepEqual((await call(repository.listTree, id)).map((entry) => entry.path), ['src', 'README.md']);
  assert.deepEqual((await call(repository.listTree, id, { path: 'src' })).map((entry) => entry.name), ['main.rs']);
  const compared = await call(repository.compare, { projectId: id, from: first.id, to: newest.id });
  assert.deepEqual(compared.commits.map((commit) => commit.id), [newest.id]);
});

story('files are added, shown and changed', async () => {
  const { id } = await filledProject();
  const place = { projectId: id, file_path: 'docs/notes.txt', branch_name: 'master' };
  assert.equal((await call(repository.createFile, { ...place, content: 'one', commit_message: 'Add' })).file_path, place.file_path);
  assert.equal((await call(repository.updateFile, { ...place, content: 'two', commit_message: 'Change' })).branch_name, 'master');
  const file = await call(repository.showFile, { projectId: id, file_path: place.file_path, ref: 'master' });
  assert.equal(Buffer.from(file.content, file.encoding).toString(), 'two');
  const raw = await call(repository.showFile, { projectId: id, file_path: place.file_path, file_id: file.blob_id });
  assert.equal(raw, 'two');
});

// Issues, notes, labels, milestones

story('issues are created, shown, listed, changed and removed', async () => {
  const { id } = await newProject('troubled');
  const issue = await call(issues.create, id, { title: 'Cracked tile', labels: 'bug' });
  assert.deepEqual([issue.iid, issue.state, issue.labels], [1, 'opened', ['bug']]);
  assert.equal((await call(issues.show, id, issue.id)).title, 'Cracked tile');
  assert.equal((await call(issues.edit, id, issue.id, { state_event: 'close' })).state, 'closed');
  assert.deepEqual(ids(await call(projects.issues.list, id, { state: 'closed' })), [issue.id]);
  assert.ok(ids(await call(issues.all)).includes(issue.id));
  assert.equal(await call(issues.unsubscribe, id, issue.id), true);
  assert.equal((await call(issues.show, id, issue.id)).subscribed, false);
  assert.equal(await call(issues.remove, id, issue.id), true);
  assert.equal(await call(issues.show, id, issue.id), null);
});

fault('an issue is subscribed to', 'it sends its own callback as the parameters', /reading 'length'/, async () => {
  const { id } = await newProject('followed');
  const issue = await call(issues.create, id, { title: 'Cracked tile' });
  await call(issues.subscribe, id, issue.id, {});
});

story('notes on an issue are created and listed', async () => {
  const { id } = await newProject('noted');
  const issue = await call(issues.create, id, { title: 'It leaks' });
  const note = await call(notes.create, id, issue.id, { body: 'It *still* does' });
  assert.deepEqual([note.body, note.system], ['It *still* does', false]);
  assert.deepEqual(ids(await call(projects.issues.notes.all, id, issue.id)), [note.id]);
});

story('labels are created and listed', async () => {
  const { id } = await newProject('labeled');
  assert.equal((await call(labels.create, id, { name: 'bug', color: '#D9534F' })).name, 'bug');
  const [only] = await call(projects.labels.all, id);
  assert.deepEqual([only.name, only.color], ['bug', '#D9534F']);
});

story('milestones are created, shown, listed and closed', async () => {
  const { id } = await newProject('planned');
  const milestone = await call(projects.milestones.add, id, '1.0', 'First', '2026-12-31');
  assert.deepEqual([milestone.title, milestone.description, milestone.due_date], ['1.0', 'First', '2026-12-31']);
  const changed = await call(projects.milestones.update, id, milestone.id, '1.1', 'First', '2026-12-31', 'close');
  assert.deepEqual([changed.title, changed.state], ['1.1', 'closed']);
  assert.equal((await call(projects.milestones.show, id, milestone.id)).title, '1.1');
  assert.deepEqual(ids(await call(projects.milestones.all, id)), [milestone.id]);
});

fault('milestones by the older name of the list', 'its method is a local variable', /not a function/, async () => {
  const { id } = await newProject('planned');
  await call(projects.milestones.list, id);
});

// Pipelines, builds, triggers, runners

story('pipelines and builds are listed and shown', async () => {
  const { id } = await filledProject({ '.gitlab-ci.yml': CI_FILE });
  const [pipeline] = await call(projects.pipelines.all, id);
  assert.deepEqual([pipeline.ref, pipeline.status], ['master', 'pending']);
  const [build] = await call(projects.builds.listBuilds, id);
  assert.deepEqual([build.name, build.pipeline.id], ['test', pipeline.id]);
  assert.equal((await call(projects.builds.showBuild, id, build.id)).status, 'pending');
});

story('triggers are created, shown, listed, run and removed', async () => {
  const { id } = await filledProject({ '.gitlab-ci.yml': CI_FILE });
  const { token } = await call(projects.createTrigger, { projectId: id });
  assert.equal((await call(projects.showTrigger, id, token)).token, token);
  assert.deepEqual((await call(projects.listTriggers, id)).map((trigger) => trigger.token), [token]);
  const pulled = await call(projects.builds.triggerBuild, { projectId: id, token, ref: 'master', variables: { DEPLOY: 'yes' } });
  assert.deepEqual((await call(projects.pipelines.all, id)).map((pipeline) => pipeline.id)[0], pulled.id);
  assert.equal(await call(projects.removeTrigger, id, token), true);
  assert.deepEqual(await call(projects.listTriggers, id), []);
});

story('runners are listed, shown, changed and removed', async () => {
  const project = await newProject('built');
  const runner = await newRunner(project);
  assert.deepEqual(ids(await call(projects.runners.all, project.id)), [runner.id]);
  assert.ok(ids(await call(projects.runners.all, null, {})).includes(runner.id));
  assert.equal((await call(projects.runners.show, runner.id)).description, 'by hand');
  assert.equal((await call(projects.runners.update, runner.id, { description: 'renamed' })).description, 'renamed');
  const other = await newProject('other');
  const { status } = await byHand('POST', `/projects/${other.id}/runners`, { runner_id: runner.id });
  assert.equal(status, 201);
  assert.equal(await call(projects.runners.disable, other.id, runner.id), true);
  assert.equal(await call(projects.runners.remove, runner.id, project.id, false), true);
  assert.equal(await call(projects.runners.show, runner.id), null);
});

fault('a runner is enabled for another project', 'it reads an undefined variable', /attributes is not defined/, async () => {
  const runner = await newRunner(await newProject('built'));
  const other = await newProject('other');
  await call(projects.runners.enable, other.id, runner.id);
});

// Missing resources

story('merge requests and services are not found', async () => {
  const { id } = await newProject('unmerged');
  assert.equal(await call(projects.merge_requests.list, id), null);
  assert.equal(await call(projects.services.show, id, 'redmine'), null);
});

run();
