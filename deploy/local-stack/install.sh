#!/bin/sh
# Installs what package-lock.json names, unless node_modules holds it already. One run at a time per clone.
set -eu
cd "$(dirname "$0")/../.."

command -v node >/dev/null 2>&1 || { echo 'warren needs Node 20.19 or newer; there is no node on PATH' >&2; exit 69; }
# Plain JavaScript that an old Node can read. Exit 0: node_modules is what package-lock.json says; 1: it is not; 69: too old.
check_node() {
  node - <<'JS'
const fs = require('fs');
const have = process.versions.node.split('.').map(Number);
if (have[0] < 20 || (have[0] === 20 && have[1] < 19)) {
  console.error('warren needs Node 20.19 or newer; this is Node ' + process.versions.node);
  process.exit(69);
}
function packagesOf(file) {
  return JSON.parse(fs.readFileSync(file, 'utf8')).packages;
}
function isInstalled() {
  const installed = packagesOf('node_modules/.package-lock.json'); // npm writes it last
  return Object.entries(packagesOf('package-lock.json')).every(([path, entry]) => {
    if (path === '' || entry.link === true) return true;
    const found = installed[path];
    if (found === undefined) return entry.optional === true; // for another platform
    return found.version === entry.version && found.integrity === entry.integrity;
  });
}
try {
  process.exit(isInstalled() ? 0 : 1);
} catch (_) {
  process.exit(1); // no or half an installation
}
JS
}

up_to_date() {
  status=0
  check_node || status=$?
  [ "$status" -le 1 ] || exit "$status"
  return "$status"
}
up_to_date && exit 0
command -v npm >/dev/null 2>&1 || { echo 'warren needs npm, which comes with Node; there is none on PATH' >&2; exit 69; }

mkdir -p .warren
waited=0
until mkdir .warren/install.lock 2>/dev/null; do
  owner=$(cat .warren/install.lock/pid 2>/dev/null || true)
  # A lock whose process is gone was left by a kill. A fresh one has no pid for a moment.
  if [ -n "$owner" ] && ! kill -0 "$owner" 2>/dev/null; then rm -rf .warren/install.lock; continue; fi
  [ "$waited" -gt 0 ] || echo "another make (pid ${owner:-unknown}) installs in this clone; waiting"
  waited=$((waited + 1))
  if [ "$waited" -gt 600 ]; then echo 'gave up after ten minutes; if no make runs, remove .warren/install.lock' >&2; exit 75; fi
  sleep 1
done
echo $$ >.warren/install.lock/pid
trap 'rm -rf .warren/install.lock' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
if up_to_date; then exit 0; fi

echo 'installing packages from the npm registry (first time: about 1 minute, 300 MB on disk)'
if ! npm ci --no-progress --fetch-retries=2 --fetch-retry-mintimeout=1000 --fetch-retry-maxtimeout=5000 >.warren/npm.log 2>&1; then
  if grep -Eq 'ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ERR_SOCKET_TIMEOUT|FETCH_ERROR' .warren/npm.log; then
    echo 'the npm registry cannot be reached: check the network, the proxy, and `npm config get registry`' >&2
    exit 69
  fi
  tail -n 20 .warren/npm.log >&2
  echo 'npm ci failed; its whole output is in .warren/npm.log' >&2
  exit 1
fi
