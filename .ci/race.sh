#!/bin/sh
# Fails if Go cannot build with the race detector here, and says why. It needs cgo, and so a C compiler with its C
# library; whether both work is found out by building a program.
set -eu

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
printf 'package main\n\nfunc main() {}\n' >"$dir/main.go"

if reason=$(go build -race -o "$dir/main" "$dir/main.go" 2>&1); then
	exit 0
fi
cat >&2 <<END
The tests with the race detector are skipped, because it cannot be built here:
  $(echo "$reason" | grep -v '^#' | head -n 1)
It needs cgo (CGO_ENABLED is $(go env CGO_ENABLED)) and a C compiler (CC is $(go env CC)). To install one:
  apt-get install gcc libc6-dev | dnf install gcc | apk add gcc musl-dev | xcode-select --install
END
exit 1
