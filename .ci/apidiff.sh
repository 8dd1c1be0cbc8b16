#!/usr/bin/env sh
# Prints what has changed in the exported API of each released module since a commit, its latest tag if none is given,
# and fails if a change breaks programs or adapters. Modules in subfolders depend on core/adapter, core.NewFor,
# core.Bind, OnDeny and OnError of whichever root their users have, so these count as much as what programs use.
set -eu
cd "$(dirname "$0")/.."
tool=golang.org/x/exp/cmd/apidiff@v0.0.0-20261014143641-f0251eb4aa3e
dir=$(mktemp -d)
trap 'rm -rf "$dir"; git worktree prune' EXIT

# apidiff runs the tool for the module in a folder. It prints what the tool complains of if it fails.
apidiff() {
	folder=$1
	shift
	go run -C "$folder" "$tool" -m "$@" 2>"$dir/messages" || { cat "$dir/messages" >&2; exit 1; }
}

# compare FOLDER BASE PATTERN compares the module in a folder with a commit, or with the latest tag of that pattern.
compare() {
	base=${2:-$(git describe --tags --abbrev=0 --match "$3" 2>/dev/null || true)}
	module=$(go list -C "$1" -m)
	if [ -z "$base" ]; then
		echo "apidiff: $module has no release to compare with" >&2
		return 0
	fi
	tree=$dir/$(echo "$1" | tr / -)
	git worktree add --quiet --detach "$tree" "$base"
	if [ ! -e "$tree/$1/go.mod" ]; then
		echo "apidiff: $module is not in $base" >&2
		return 0
	fi
	apidiff "$tree/$1" -w "$dir/base.api" "$module"
	echo "apidiff: $module since $base"
	apidiff "$1" "$dir/base.api" "$module"
	if [ -n "$(apidiff "$1" -incompatible "$dir/base.api" "$module")" ]; then
		echo "apidiff: these changes of $module break code that uses its API" >&2
		broken=1
	fi
}

broken=0
compare . "${1:-}" 'v[0-9]*'
compare echolimit/v5 "${1:-}" 'echolimit/v5.*'
compare fiberlimit/v3 "${1:-}" 'fiberlimit/v3.*'
compare core/grpclimit "${1:-}" 'core/grpclimit/v*'
exit $broken
