#!/usr/bin/env sh
# Prints what has changed in the exported API since a commit, the latest tag if none is given, and fails if a change
# breaks programs or adapters. Modules in subfolders depend on core/adapter, core.NewFor, core.Bind, OnDeny and OnError
# of whichever root their users have, so these count as much as what programs use.
set -eu
cd "$(dirname "$0")/.."
base=${1:-$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || true)}
if [ -z "$base" ]; then
	echo "apidiff: there is no release to compare with" >&2
	exit 0
fi
tool=golang.org/x/exp/cmd/apidiff@v0.0.0-20261014143641-f0251eb4aa3e
module=$(go list -m)
dir=$(mktemp -d)
trap 'git worktree remove --force "$dir/base" 2>/dev/null || true; rm -rf "$dir"' EXIT
git worktree add --quiet --detach "$dir/base" "$base"
(cd "$dir/base" && go run "$tool" -m -w "$dir/base.api" "$module")
changes=$(go run "$tool" -m -incompatible "$dir/base.api" "$module")
go run "$tool" -m "$dir/base.api" "$module"
if [ -n "$changes" ]; then
	echo "apidiff: these changes since $base break code that uses the API" >&2
	exit 1
fi
