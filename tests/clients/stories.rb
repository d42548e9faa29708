# Runs named tests with the gem gitlab one after the other, continues after a failure, and counts the results.
#
# The server at GABLE_URL was started for one script alone; see crates/xtask/src/clients.rs.

require 'base64'
require 'gitlab'
require 'securerandom'
require 'tempfile'

URL = ENV.fetch('GABLE_URL')
TOKEN = ENV.fetch('GABLE_ROOT_TOKEN')
CLIENT = Gitlab.client(endpoint: "#{URL}/api/v3", private_token: TOKEN)
# Runners are registered with version 4, as in GitLab.
JOINING = Gitlab.client(endpoint: "#{URL}/api/v4", private_token: TOKEN)

# An archive with a file `out` that contains `made of bricks`.
ARCHIVE = 'UEsDBBQAAAAAAAAAIQCCdwSjDgAAAA4AAAADAAAAb3V0bWFkZSBvZiBicmlja3NQSwECFAMUAAAAAAAAACEAgncEow4AAAAOAAAA' \
          'AwAAAAAAAAAAAAAAgAEAAAAAb3V0UEsFBgAAAAABAAEAMQAAAC8AAAAAAA=='

# An unexpected result.
class Unexpected < StandardError; end

STORIES = []
COUNTER = (1..).each

# Adds a test that must pass.
def story(name, &test)
  STORIES << { name: name, test: test }
end

# Adds a test of something that the client gets wrong, with the reason and the expected error.
def fault(name, reason, expected, &test)
  STORIES << { name: name, test: test, reason: reason, expected: expected }
end

def equal(found, wanted)
  raise Unexpected, "#{found.inspect} instead of #{wanted.inspect}" unless found == wanted
end

def refused(error, message = nil)
  yield
rescue error => refusal
  equal(refusal.message[/message: (.*)\. Request URI/, 1], message) if message
else
  raise Unexpected, "#{error} did not come"
end

def fresh(name)
  "#{name}#{COUNTER.next}"
end

def new_key
  fields = ['ssh-ed25519', SecureRandom.bytes(32)].map { |field| [field.bytesize].pack('N') + field.b }
  "ssh-ed25519 #{Base64.strict_encode64(fields.join)}"
end

def new_user(name)
  username = fresh(name)
  CLIENT.create_user("#{username}@example.org", 'battery-staple', username, name: name)
end

def new_project(name, **more)
  CLIENT.create_project(fresh(name), **more)
end

# The method of the client sends a request of version 4; this one is of version 3.
def add_file(project, path, content)
  given = { file_path: path, branch_name: 'master', content: content, commit_message: "Add #{path}" }
  CLIENT.post("/projects/#{project.id}/repository/files", body: given)
end

def filled_project
  project = new_project('filled')
  add_file(project, 'README.md', "hello\n")
  add_file(project, 'src/main.rs', "fn main() {}\n")
  project
end

def built_project
  project = new_project('built')
  add_file(project, '.gitlab-ci.yml', "test:\n  script: make test\n")
  project
end

def ids(list)
  list.map(&:id)
end

def run_test(it)
  it[:test].call
  nil
rescue StandardError => error
  error
end

# Runs all tests and exits with the result.
def run
  began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  counts = STORIES.map { |it| outcome(it, run_test(it)) }.tally
  seconds = (Process.clock_gettime(Process::CLOCK_MONOTONIC) - began).round(1)
  passed, failed, faults = %i[passed failed fault].map { |kind| counts.fetch(kind, 0) }
  puts "#{passed} passed, #{failed} failed, #{faults} known faults of the client in #{seconds} s"
  exit(failed.zero?)
end

def outcome(it, error)
  if it[:reason] && it[:expected] === error
    puts "the client's own fault: #{it[:name]}: #{it[:reason]}"
    :fault
  elsif it[:reason]
    but = error ? "failed otherwise: #{error.class}: #{error.message}" : 'works'
    puts "FAILED #{it[:name]}: known as a fault of the client (#{it[:reason]}), but it #{but}"
    :failed
  elsif error
    puts "FAILED #{it[:name]}: #{error.class}: #{error.message}", error.backtrace.grep(/tests.clients/)
    :failed
  else
    :passed
  end
end
