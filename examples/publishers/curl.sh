#!/bin/sh
# Submits a task to Warren over HTTP and shows it a moment later. Needs curl.
#
#   WARREN_URL=http://127.0.0.1:8080 WARREN_TOKEN=… sh examples/publishers/curl.sh text.digest '{"text": "hello"}'
#
# Prints the task as it was accepted, then as it stands. Exit 22: refused; the problem document says which field and why.
set -eu

url=${WARREN_URL:-http://127.0.0.1:8080}
type=${1:?the task type, such as text.digest}
input=${2:?the input, a JSON object}

# The token goes by a file descriptor: arguments can be read by every user of the machine.
call() {
  if [ -n "${WARREN_TOKEN:-}" ]; then
    printf 'header = "authorization: Bearer %s"\n' "$WARREN_TOKEN" | curl --config - --silent --show-error --fail-with-body "$@"
  else
    curl --silent --show-error --fail-with-body "$@"
  fi
}

accepted=$(call --header 'content-type: application/json' \
  --data "{\"type\": \"$type\", \"input\": $input}" "$url/v1/tasks") || {
  code=$?
  printf '%s\n' "$accepted"
  exit "$code"
}
printf '%s\n' "$accepted"

id=$(printf '%s' "$accepted" | sed -n 's/^{"id":"\([0-9a-f-]*\)".*/\1/p')
call "$url/v1/tasks/$id"
printf '\n'
