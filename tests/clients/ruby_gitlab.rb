# Tests with the gem gitlab as packaged by Debian, currently 4.17.
#
# The gem is written for version 4 of the API. Requests that both versions have are tests that must pass; requests that
# only version 4 has are known faults of the client.

require_relative 'stories'

# Signing in, the version, pages

story 'a wrong token is refused' do
  stranger = Gitlab.client(endpoint: "#{URL}/api/v3", private_token: 'abcdefghijklmnopqrst')
  refused(Gitlab::Error::Unauthorized, '401 Unauthorized') { stranger.user }
end

story 'a sign-in with a password returns a token' do
  ann = new_user('ann')
  session = CLIENT.session(ann.email, 'battery-staple')
  equal [session.id, session.private_token.size], [ann.id, 20]
end

story 'the version is shown' do
  equal CLIENT.version.version, '8.14.0'
end

story 'pages are followed by their links' do
  5.times { new_user('page') }
  found = CLIENT.users(per_page: 2).auto_paginate
  equal ids(found).uniq.size, found.size
  raise Unexpected, found.size.to_s unless found.size >= 6
end

story 'an administrator acts as another user' do
  ann = new_user('ann')
  as_ann = Gitlab.client(endpoint: "#{URL}/api/v3", private_token: TOKEN, sudo: ann.username)
  begin
    equal as_ann.user.id, ann.id
  ensure
    # The client stores sudo in its class.
    Gitlab.client(endpoint: "#{URL}/api/v3", private_token: TOKEN, sudo: nil)
  end
end

# Users

story 'a user is created, shown, found, changed and removed' do
  ann = new_user('ann')
  equal [ann.name, ann.state], %w[ann active]
  equal CLIENT.user(ann.id).email, ann.email
  equal CLIENT.user.username, 'root'
  equal ids(CLIENT.user_search(ann.username)), [ann.id]
  equal CLIENT.edit_user(ann.id, bio: 'Builds rockets').bio, 'Builds rockets'
  CLIENT.delete_user(ann.id)
  refused(Gitlab::Error::NotFound, '404 User Not Found') { CLIENT.user(ann.id) }
end

fault 'a user is blocked', 'it sends POST, version 3 requires PUT', Gitlab::Error::MethodNotAllowed do
  CLIENT.block_user(new_user('ann').id)
end

fault 'a user is unblocked', 'it sends POST, version 3 requires PUT', Gitlab::Error::MethodNotAllowed do
  CLIENT.unblock_user(new_user('ann').id)
end

story 'keys of the caller and of other users are added, shown, listed and removed' do
  ann = new_user('ann')
  theirs = CLIENT.create_ssh_key('laptop', new_key, user_id: ann.id)
  equal ids(CLIENT.ssh_keys(user_id: ann.id)), [theirs.id]
  equal CLIENT.key(theirs.id).user.username, ann.username
  CLIENT.delete_ssh_key(theirs.id, user_id: ann.id)
  equal CLIENT.ssh_keys(user_id: ann.id).size, 0
  own = CLIENT.create_ssh_key('desk', new_key)
  equal CLIENT.ssh_key(own.id).title, 'desk'
  equal ids(CLIENT.ssh_keys), [own.id]
  CLIENT.delete_ssh_key(own.id)
  equal CLIENT.ssh_keys.size, 0
end

story 'addresses of the caller and of other users are added, shown, listed and removed' do
  ann = new_user('ann')
  theirs = CLIENT.add_email("#{fresh('further')}@example.org", ann.id)
  equal ids(CLIENT.emails(ann.id)), [theirs.id]
  CLIENT.delete_email(theirs.id, ann.id)
  equal CLIENT.emails(ann.id).size, 0
  own = CLIENT.add_email("#{fresh('further')}@example.org")
  equal CLIENT.email(own.id).email, own.email
  CLIENT.delete_email(own.id)
  equal CLIENT.emails.size, 0
end

# Groups, projects, members

story 'a group is created, shown, found, changed, given a project and removed' do
  path = fresh('acme')
  group = CLIENT.create_group(path, path, description: 'Rockets')
  equal [group.path, group.description], [path, 'Rockets']
  equal ids(CLIENT.group_search(path)), [group.id]
  equal CLIENT.groups(per_page: 100).map(&:id).include?(group.id), true
  equal CLIENT.edit_group(group.id, description: 'Larger').description, 'Larger'
  project = new_project('moved')
  CLIENT.transfer_project_to_group(group.id, project.id)
  equal ids(CLIENT.group_projects(group.id)), [project.id]
  equal CLIENT.group(path).projects.map(&:id), [project.id]
  CLIENT.create_issue(project.id, 'It leaks')
  equal CLIENT.group_issues(group.id).map(&:title), ['It leaks']
  CLIENT.delete_group(group.id)
  refused(Gitlab::Error::NotFound, '404 Group Not Found') { CLIENT.group(group.id) }
end

story 'members of a group are added, promoted and removed' do
  path = fresh('team')
  group = CLIENT.create_group(path, path)
  ann = new_user('ann')
  equal CLIENT.add_group_member(group.id, ann.id, 20).access_level, 20
  equal CLIENT.edit_group_member(group.id, ann.id, 40).access_level, 40
  equal CLIENT.group_member(group.id, ann.id).username, ann.username
  CLIENT.remove_group_member(group.id, ann.id)
  equal ids(CLIENT.group_members(group.id)).include?(ann.id), false
end

story 'namespaces are listed' do
  path = fresh('space')
  CLIENT.create_group(path, path)
  equal CLIENT.namespaces(search: path).map { |space| [space.path, space.kind] }, [[path, 'group']]
end

story 'a project is created, shown, found, changed and removed' do
  project = new_project('rocket', description: 'Flies')
  equal [project.description, project.visibility_level], ['Flies', 0]
  equal CLIENT.project(project.path_with_namespace).id, project.id
  equal ids(CLIENT.projects(search: project.name)), [project.id]
  equal ids(CLIENT.project_search(project.name)), [project.id]
  equal CLIENT.edit_project(project.id, description: 'Flies higher').description, 'Flies higher'
  equal CLIENT.delete_project(project.id), true
  refused(Gitlab::Error::NotFound, '404 Project Not Found') { CLIENT.project(project.id) }
end

story 'a project is created for another user' do
  ann = new_user('ann')
  gift = CLIENT.create_project('gift', user_id: ann.id)
  equal gift.path_with_namespace, "#{ann.username}/gift"
end

story 'a project is starred, archived and shared' do
  project = new_project('rocket')
  equal CLIENT.star_project(project.id).star_count, 1
  equal CLIENT.unstar_project(project.id).star_count, 0
  equal CLIENT.archive_project(project.id).archived, true
  equal CLIENT.unarchive_project(project.id).archived, false
  path = fresh('team')
  group = CLIENT.create_group(path, path)
  equal CLIENT.share_project_with_group(project.id, group.id, 20).group_access, 20
  CLIENT.unshare_project_with_group(project.id, group.id)
  equal CLIENT.project(project.id).shared_with_groups, []
end

story 'members of a project are added, promoted and removed' do
  project = new_project('team')
  ann = new_user('ann')
  equal CLIENT.add_team_member(project.id, ann.id, 20).access_level, 20
  equal CLIENT.edit_team_member(project.id, ann.id, 40).access_level, 40
  equal CLIENT.team_member(project.id, ann.id).username, ann.username
  CLIENT.remove_team_member(project.id, ann.id)
  equal ids(CLIENT.team_members(project.id)).include?(ann.id), false
end

fault 'a project is forked', 'it sends /projects/:id/fork, version 3 has /projects/fork/:id', Gitlab::Error::MethodNotAllowed do
  CLIENT.create_fork(filled_project.id)
end

story 'a fork relation is created and removed' do
  source = new_project('source')
  project = new_project('fork')
  CLIENT.make_forked_from(project.id, source.id)
  equal CLIENT.project(project.id).forked_from_project.id, source.id
  CLIENT.remove_forked(project.id)
  equal CLIENT.project(project.id).to_h.key?('forked_from_project'), false
end

story 'a file is uploaded' do
  project = new_project('files')
  Tempfile.create(['dk', '.png']) do |file|
    file.write('PNG')
    file.flush
    equal CLIENT.upload_file(project.id, file.path).markdown.start_with?('![dk'), true
  end
end

story 'hooks of a project are added, shown, listed, changed and removed' do
  project = new_project('hooked')
  url = 'https://example.org/hook'
  hook = CLIENT.add_project_hook(project.id, url, issues_events: true)
  equal [hook.url, hook.push_events, hook.issues_events], [url, true, true]
  equal CLIENT.edit_project_hook(project.id, hook.id, "#{url}/2", push_events: false).push_events, false
  equal CLIENT.project_hook(project.id, hook.id).url, "#{url}/2"
  equal ids(CLIENT.project_hooks(project.id)), [hook.id]
  CLIENT.delete_project_hook(project.id, hook.id)
  equal CLIENT.project_hooks(project.id).size, 0
end

story 'system hooks are added, tested, listed and removed' do
  hook = CLIENT.add_hook('http://127.0.0.1:9/hook')
  equal CLIENT.hook(hook.id).event_name, 'project_create'
  equal ids(CLIENT.hooks).include?(hook.id), true
  CLIENT.delete_hook(hook.id)
  equal ids(CLIENT.hooks).include?(hook.id), false
end

story 'deploy keys are added, shown, listed, enabled elsewhere and removed' do
  project = new_project('deployed')
  key = new_key
  added = CLIENT.create_deploy_key(project.id, 'server', key)
  equal CLIENT.deploy_key(project.id, added.id).key, key
  other = new_project('deployed')
  equal CLIENT.enable_deploy_key(other.id, added.id).id, added.id
  equal ids(CLIENT.deploy_keys(other.id)), [added.id]
  CLIENT.delete_deploy_key(project.id, added.id)
  equal CLIENT.deploy_keys(project.id).size, 0
end

fault 'a deploy key is disabled', 'it sends POST, version 3 requires DELETE', Gitlab::Error::MethodNotAllowed do
  project = new_project('deployed')
  added = CLIENT.create_deploy_key(project.id, 'server', new_key)
  CLIENT.disable_deploy_key(project.id, added.id)
end

story 'events of a project and of a user are listed' do
  project = filled_project
  equal CLIENT.project_events(project.id).map(&:action_name), ['pushed to', 'pushed new', 'created']
  equal CLIENT.user_events(CLIENT.user.id).first.project_id, project.id
end

# The repository

story 'branches are listed, shown and removed' do
  project = filled_project
  CLIENT.post("/projects/#{project.id}/repository/branches", body: { branch_name: 'feature/x.y', ref: 'master' })
  equal CLIENT.branches(project.id).map(&:name), %w[feature/x.y master]
  equal CLIENT.branch(project.id, 'feature/x.y').commit.message, 'Add src/main.rs'
  equal CLIENT.delete_branch(project.id, 'feature/x.y').branch_name, 'feature/x.y'
  equal CLIENT.branches(project.id).map(&:name), %w[master]
end

fault 'a branch is created', 'it sends branch, version 3 requires branch_name', Gitlab::Error::BadRequest do
  CLIENT.create_branch(filled_project.id, 'feature', 'master')
end

fault 'a branch is protected', 'it sends /protected_branches, which came with version 4', Gitlab::Error::NotFound do
  CLIENT.protect_branch(filled_project.id, 'master')
end

fault 'a branch is unprotected', 'it sends /protected_branches, which came with version 4', Gitlab::Error::NotFound do
  CLIENT.unprotect_branch(filled_project.id, 'master')
end

story 'merged branches are removed' do
  project = filled_project
  CLIENT.post("/projects/#{project.id}/repository/branches", body: { branch_name: 'merged', ref: 'master' })
  CLIENT.delete_merged_branches(project.id)
end

story 'tags are created, released, shown, listed and removed' do
  project = filled_project
  equal CLIENT.create_tag(project.id, 'v1.0', 'master', 'First').message, 'First'
  CLIENT.create_release(project.id, 'v1.0', 'Great')
  equal CLIENT.update_release(project.id, 'v1.0', 'Greater').description, 'Greater'
  equal CLIENT.tag(project.id, 'v1.0').release.description, 'Greater'
  equal CLIENT.tags(project.id).map(&:name), %w[v1.0]
  CLIENT.delete_tag(project.id, 'v1.0')
  equal CLIENT.tags(project.id).size, 0
end

story 'commits, differences, trees and contributors are read' do
  project = filled_project
  newest, first = CLIENT.commits(project.id).to_a
  equal [newest.title, first.title], ['Add src/main.rs', 'Add README.md']
  equal CLIENT.commit(project.id, newest.id).stats.additions, 1
  equal CLIENT.commit_diff(project.id, newest.id).map(&:new_path), %w[src/main.rs]
  equal CLIENT.compare(project.id, first.id, newest.id).commits.map { |commit| commit['id'] }, [newest.id]
  equal CLIENT.tree(project.id).map(&:path), %w[src README.md]
  equal CLIENT.contributors(project.id).map(&:commits), [2]
end

story 'an archive is fetched' do
  equal CLIENT.repo_archive(filled_project.id).read(2).bytes, [0x1f, 0x8b]
end

story 'comments on a commit are created and listed' do
  project = filled_project
  CLIENT.create_commit_comment(project.id, 'master', 'Nice', path: 'src/main.rs', line: 1, line_type: 'new')
  equal CLIENT.commit_comments(project.id, 'master').map(&:note), %w[Nice]
end

story 'statuses of a commit are set and listed' do
  project = filled_project
  sha = CLIENT.commit(project.id, 'master').id
  equal CLIENT.update_commit_status(project.id, sha, 'success', name: 'outside').status, 'success'
  equal CLIENT.commit_status(project.id, sha).map(&:name), %w[outside]
end

fault 'a commit of several changes is created', 'it sends branch, version 3 requires branch_name', Gitlab::Error::BadRequest do
  actions = [{ action: 'create', file_path: 'a', content: 'a' }]
  CLIENT.create_commit(filled_project.id, 'master', 'Add a', actions)
end

files = 'it has the path in the address, version 3 in file_path'
fault('a file is shown', files, Gitlab::Error::NotFound) { CLIENT.get_file(filled_project.id, 'README.md', 'master') }
fault('a file is fetched', files, Gitlab::Error::NotFound) { CLIENT.file_contents(filled_project.id, 'README.md') }
fault('a file is added', files, Gitlab::Error::NotFound) do
  CLIENT.create_file(filled_project.id, 'a', 'master', 'a', 'Add a')
end
fault('a file is changed', files, Gitlab::Error::NotFound) do
  CLIENT.edit_file(filled_project.id, 'README.md', 'master', 'a', 'Change it')
end
fault('a file is removed', files, Gitlab::Error::NotFound) do
  CLIENT.remove_file(filled_project.id, 'README.md', 'master', 'Away')
end

# Issues, notes, labels, boards, milestones

story 'an issue is created, listed, changed, closed, reopened, moved and removed' do
  project = new_project('troubled')
  issue = CLIENT.create_issue(project.id, 'Cracked tile', labels: 'bug')
  equal [issue.iid, issue.state, issue.labels], [1, 'opened', %w[bug]]
  equal CLIENT.issue(project.id, issue.id).title, 'Cracked tile'
  equal CLIENT.edit_issue(project.id, issue.id, title: 'Broken tile').title, 'Broken tile'
  equal CLIENT.close_issue(project.id, issue.id).state, 'closed'
  equal CLIENT.reopen_issue(project.id, issue.id).state, 'reopened'
  equal ids(CLIENT.issues(project.id)), [issue.id]
  equal ids(CLIENT.issues).include?(issue.id), true
  elsewhere = new_project('elsewhere')
  moved = CLIENT.move_issue(project.id, issue.id, to_project_id: elsewhere.id)
  equal moved.project_id, elsewhere.id
  CLIENT.delete_issue(elsewhere.id, moved.id)
  refused(Gitlab::Error::NotFound, '404 Not found') { CLIENT.issue(elsewhere.id, moved.id) }
end

fault 'an issue is subscribed to', 'it sends /subscribe, version 3 has /subscription', Gitlab::Error::NotFound do
  project = new_project('followed')
  CLIENT.subscribe_to_issue(project.id, CLIENT.create_issue(project.id, 'Cracked tile').id)
end

fault 'an issue is unsubscribed from', 'it sends /unsubscribe, version 3 has /subscription', Gitlab::Error::NotFound do
  project = new_project('followed')
  CLIENT.unsubscribe_from_issue(project.id, CLIENT.create_issue(project.id, 'Cracked tile').id)
end

story 'notes on an issue are created, shown, listed, changed and removed' do
  project = new_project('noted')
  issue = CLIENT.create_issue(project.id, 'It leaks')
  note = CLIENT.create_issue_note(project.id, issue.id, 'It *still* does')
  equal CLIENT.edit_issue_note(project.id, issue.id, note.id, 'No more').body, 'No more'
  equal CLIENT.issue_note(project.id, issue.id, note.id).body, 'No more'
  equal ids(CLIENT.issue_notes(project.id, issue.id)), [note.id]
  CLIENT.delete_issue_note(project.id, issue.id, note.id)
  equal CLIENT.issue_notes(project.id, issue.id).size, 0
end

story 'labels are created, listed and changed' do
  project = new_project('labeled')
  equal CLIENT.create_label(project.id, 'bug', '#D9534F').name, 'bug'
  equal CLIENT.edit_label(project.id, 'bug', new_name: 'defect').name, 'defect'
  equal CLIENT.labels(project.id).map(&:name), %w[defect]
end

fault 'a label is removed', 'it sends the name in the path, version 3 requires the parameter name', Gitlab::Error::NotFound do
  project = new_project('labeled')
  CLIENT.create_label(project.id, 'bug', '#D9534F')
  CLIENT.delete_label(project.id, 'bug')
end

fault 'a label is subscribed to', 'it sends /subscribe, version 3 has /subscription', Gitlab::Error::NotFound do
  project = new_project('labeled')
  CLIENT.create_label(project.id, 'bug', '#D9534F')
  CLIENT.subscribe_to_label(project.id, 'bug')
end

story 'lists of a board are created, moved and removed' do
  project = new_project('arranged')
  made = %w[bug done].map { |name| CLIENT.create_label(project.id, name, '#D9534F') }
  board = CLIENT.boards(project.id).first
  lists = made.map { |label| CLIENT.create_board_list(project.id, board.id, label.id) }
  equal lists.map(&:position), [0, 1]
  CLIENT.edit_board_list(project.id, board.id, lists[1].id, 0)
  equal CLIENT.board_list(project.id, board.id, lists[1].id).position, 0
  CLIENT.delete_board_list(project.id, board.id, lists[1].id)
  equal ids(CLIENT.board_lists(project.id, board.id)), [lists[0].id]
end

fault 'boards are created', 'in version 3 every project has exactly one board', Gitlab::Error::MethodNotAllowed do
  CLIENT.create_board(new_project('arranged').id, 'second')
end

story 'milestones are created, shown, listed, given issues and closed' do
  project = new_project('planned')
  milestone = CLIENT.create_milestone(project.id, '1.0', due_date: '2026-12-31')
  CLIENT.create_issue(project.id, 'It leaks', milestone_id: milestone.id)
  equal CLIENT.milestone_issues(project.id, milestone.id).map(&:title), ['It leaks']
  equal CLIENT.edit_milestone(project.id, milestone.id, state_event: 'close').state, 'closed'
  equal CLIENT.milestone(project.id, milestone.id).due_date, '2026-12-31'
  equal ids(CLIENT.milestones(project.id)), [milestone.id]
end

fault 'a milestone is removed', 'version 3 has no such route', Gitlab::Error::MethodNotAllowed do
  project = new_project('planned')
  CLIENT.delete_milestone(project.id, CLIENT.create_milestone(project.id, '1.0').id)
end

# Pipelines, builds, variables, triggers, runners

story 'pipelines are started, shown, listed, canceled and retried' do
  project = built_project
  pipeline = CLIENT.create_pipeline(project.id, 'master')
  equal [pipeline.ref, pipeline.status], %w[master pending]
  equal CLIENT.cancel_pipeline(project.id, pipeline.id).status, 'canceled'
  equal CLIENT.retry_pipeline(project.id, pipeline.id).status, 'running'
  equal CLIENT.pipeline(project.id, pipeline.id).sha, CLIENT.commit(project.id, 'master').id
  equal CLIENT.pipelines(project.id).size, 2
end

story 'builds are listed, shown, canceled and retried' do
  project = built_project
  build = CLIENT.builds(project.id).first
  equal [build.name, build.status], %w[test pending]
  equal CLIENT.build_cancel(project.id, build.id).status, 'canceled'
  equal CLIENT.build(project.id, build.id).status, 'canceled'
  again = CLIENT.build_retry(project.id, build.id)
  equal again.status, 'pending'
  equal CLIENT.build_cancel(project.id, again.id).id, again.id
  refused(Gitlab::Error::Forbidden, '403 Forbidden  - Build is not erasable!') { CLIENT.build_erase(project.id, again.id) }
  equal CLIENT.commit_builds(project.id, CLIENT.commit(project.id, 'master').id).map(&:name).uniq, %w[test]
  refused(Gitlab::Error::NotFound) { CLIENT.build_artifacts(project.id, build.id) }
end

story 'traces and artifacts are fetched and erased' do
  project = built_project
  runner = JOINING.register_runner(CLIENT.project(project.id).runners_token)
  job = JOINING.post('/jobs/request', body: { token: runner.token }, unauthenticated: true)
  Tempfile.create(['artifacts', '.zip']) do |file|
    file.binmode
    file.write(Base64.decode64(ARCHIVE))
    file.rewind
    form = { 'Content-Type' => 'multipart/form-data', 'JOB-TOKEN' => job.token }
    JOINING.post("/jobs/#{job.id}/artifacts", body: { file: file }, headers: form, unauthenticated: true)
  end
  # The client would expect JSON here, so the request is sent without it.
  ended = HTTParty.put("#{URL}/api/v4/jobs/#{job.id}", body: { token: job.token, state: 'success' })
  equal ended.code, 200
  equal CLIENT.build(project.id, job.id).status, 'success'
  equal CLIENT.build_artifacts(project.id, job.id).read, Base64.decode64(ARCHIVE)
  equal CLIENT.build_erase(project.id, job.id).erased_at.nil?, false
  refused(Gitlab::Error::NotFound) { CLIENT.build_artifacts(project.id, job.id) }
end

fault 'jobs by the name of version 4', 'it sends /jobs, version 3 has /builds', Gitlab::Error::NotFound do
  CLIENT.jobs(built_project.id)
end

fault 'a CI file is checked', 'it sends /lint, version 3 has /ci/lint', Gitlab::Error::NotFound do
  CLIENT.validate_gitlab_ci_yml('test: {script: make}')
end

story 'variables are created, shown, listed, changed and removed' do
  project = new_project('variable')
  equal CLIENT.create_variable(project.id, 'DEPLOY', 'yes').value, 'yes'
  equal CLIENT.update_variable(project.id, 'DEPLOY', 'no').value, 'no'
  equal CLIENT.variable(project.id, 'DEPLOY').value, 'no'
  CLIENT.remove_variable(project.id, 'DEPLOY')
  equal CLIENT.variables(project.id).size, 0
end

story 'triggers are created, shown by token, listed and removed' do
  project = built_project
  trigger = CLIENT.create_trigger(project.id, 'ignored')
  equal CLIENT.trigger(project.id, trigger.token).token, trigger.token
  equal CLIENT.triggers(project.id).map(&:token), [trigger.token]
  CLIENT.remove_trigger(project.id, trigger.token)
  equal CLIENT.triggers(project.id).size, 0
end

fault 'a trigger is run', 'it sends /trigger/pipeline, version 3 has /trigger/builds', Gitlab::Error::NotFound do
  project = built_project
  CLIENT.run_trigger(project.id, CLIENT.create_trigger(project.id, 'ignored').token, 'master')
end

story 'runners are registered with version 4 and are shown, changed, shared and removed with version 3' do
  project = new_project('built')
  runner = JOINING.register_runner(project.runners_token, description: 'by hand')
  JOINING.verify_auth_registered_runner(runner.token)
  equal CLIENT.runner(runner.id).description, 'by hand'
  equal CLIENT.update_runner(runner.id, description: 'renamed').description, 'renamed'
  equal ids(CLIENT.runners).include?(runner.id), true
  equal ids(CLIENT.all_runners).include?(runner.id), true
  other = new_project('other')
  equal CLIENT.project_enable_runner(other.id, runner.id).id, runner.id
  equal ids(CLIENT.project_runners(other.id)), [runner.id]
  CLIENT.project_disable_runner(other.id, runner.id)
  equal CLIENT.project_runners(other.id).size, 0
  CLIENT.delete_runner(runner.id)
  refused(Gitlab::Error::NotFound) { CLIENT.runner(runner.id) }
end

# Missing resources

story 'merge requests, snippets and wikis are not found' do
  project = new_project('unmerged')
  refused(Gitlab::Error::NotFound) { CLIENT.merge_requests(project.id) }
  refused(Gitlab::Error::NotFound) { CLIENT.snippets(project.id) }
  refused(Gitlab::Error::NotFound) { CLIENT.wikis(project.id) }
end

run
