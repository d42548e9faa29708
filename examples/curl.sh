#!/usr/bin/env bash
# From a token to a finished pipeline, with nothing but curl:
#
#   gable serve --runner 1
#   GABLE_TOKEN=<the token> examples/curl.sh
set -euo pipefail

url=${GABLE_URL:-http://127.0.0.1:8080}
: "${GABLE_TOKEN:?set it to a token, such as the one that the first start has printed}"

# The token goes through a file descriptor: arguments of a program are there for everybody on the machine.
api() {
    local method=$1 path=$2
    shift 2
    curl --silent --show-error --fail-with-body --request "$method" \
        --config <(printf 'header = "PRIVATE-TOKEN: %s"\n' "$GABLE_TOKEN") "$@" "$url/api/v3$path"
}

# The first value of a key in an answer. For anything beyond an example, use jq.
value() {
    grep --only-matching --max-count 1 "\"$1\":\(\"[^\"]*\"\|[^,}]*\)" | head -n 1 | cut -d: -f2- | tr -d '"'
}

echo "I am $(api GET /user | value username)."

project=$(api POST /projects --data-urlencode "name=hello-curl-$$" --data-urlencode "description=Made by curl" | value id)
echo "The project has the number $project."

# A file, by a commit. Parameters are a form here; JSON does as well.
ci_file='test:
  script:
    - echo "hello from $CI_PROJECT_NAME"
'
api POST "/projects/$project/repository/files" \
    --data-urlencode "file_path=.gitlab-ci.yml" --data-urlencode "branch_name=master" \
    --data-urlencode "content=$ci_file" --data-urlencode "commit_message=Say hello" >/dev/null
api POST "/projects/$project/repository/branches" --data "branch_name=feature&ref=master" >/dev/null
echo "Its branches:$(api GET "/projects/$project/repository/branches" | grep -o '"name":"[^"]*"' | cut -d: -f2 | tr -d '"' | sed 's/^/ /' | tr -d '\n')."

issue=$(api POST "/projects/$project/issues" --data-urlencode "title=Say goodbye, too" --data "labels=idea" | value iid)
echo "Issue #$issue is open."

# The commit has started a pipeline; a runner takes it. Without one it waits.
pipeline=$(api GET "/projects/$project/pipelines" | value id)
for _ in $(seq 60); do
    status=$(api GET "/projects/$project/pipelines/$pipeline" | value status)
    case $status in
        success | failed | canceled) break ;;
    esac
    sleep 1
done
echo "Pipeline $pipeline: $status."
build=$(api GET "/projects/$project/builds" | value id)
api GET "/projects/$project/builds/$build/trace" | grep "hello from" || true

api DELETE "/projects/$project" >/dev/null
echo "The project is gone again."
test "$status" = success
