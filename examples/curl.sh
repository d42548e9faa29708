#!/usr/bin/env bash
# Creates a project, a branch and an issue with curl, and waits for a pipeline:
#
#   gable serve --runner 1
#   GABLE_TOKEN=<the token> examples/curl.sh
set -euo pipefail

url=${GABLE_URL:-http://127.0.0.1:8080}
: "${GABLE_TOKEN:?set it to a token, such as the one that the first start prints}"

# The token is passed in a file descriptor, because every user of a machine can read the arguments of its processes.
api() {
    local method=$1 path=$2
    shift 2
    curl --silent --show-error --fail-with-body --request "$method" \
        --config <(printf 'header = "PRIVATE-TOKEN: %s"\n' "$GABLE_TOKEN") "$@" "$url/api/v3$path"
}

# Prints the first value of a key in a response. For anything beyond an example, use jq.
value() {
    grep --only-matching --max-count 1 "\"$1\":\(\"[^\"]*\"\|[^,}]*\)" | head -n 1 | cut -d: -f2- | tr -d '"'
}

echo "signed in as $(api GET /user | value username)"

project=$(api POST /projects --data-urlencode "name=hello-curl-$$" --data-urlencode "description=Made by curl" | value id)
echo "created project $project"

# Creates a file with a commit. Parameters are sent as a form here; JSON works as well.
ci_file='test:
  script:
    - echo "hello from $CI_PROJECT_NAME"
'
api POST "/projects/$project/repository/files" \
    --data-urlencode "file_path=.gitlab-ci.yml" --data-urlencode "branch_name=master" \
    --data-urlencode "content=$ci_file" --data-urlencode "commit_message=Say hello" >/dev/null
api POST "/projects/$project/repository/branches" --data "branch_name=feature&ref=master" >/dev/null
echo "branches:$(api GET "/projects/$project/repository/branches" | grep -o '"name":"[^"]*"' | cut -d: -f2 | tr -d '"' | sed 's/^/ /' | tr -d '\n')"

issue=$(api POST "/projects/$project/issues" --data-urlencode "title=Say goodbye, too" --data "labels=idea" | value iid)
echo "created issue #$issue"

# The commit has started a pipeline, which waits until a runner takes its job.
pipeline=$(api GET "/projects/$project/pipelines" | value id)
for _ in $(seq 60); do
    status=$(api GET "/projects/$project/pipelines/$pipeline" | value status)
    case $status in
        success | failed | canceled) break ;;
    esac
    sleep 1
done
echo "pipeline $pipeline: $status"
build=$(api GET "/projects/$project/builds" | value id)
api GET "/projects/$project/builds/$build/trace" | grep "hello from" || true

api DELETE "/projects/$project" >/dev/null
echo "deleted project $project"
test "$status" = success
