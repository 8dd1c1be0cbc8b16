#!/bin/sh
# Makes sure that redis-server is on PATH; the tests start servers of their own.
# Where it is missing, it is installed with the package manager of the system.
set -eu

have() { command -v "$1" >/dev/null 2>&1; }

as_root() {
	if [ "$(id -u)" -ne 0 ] && have sudo; then
		sudo "$@"
	else
		"$@"
	fi
}

if have redis-server; then
	redis-server --version
	exit 0
fi

if have apt-get; then
	as_root apt-get update
	# The package also starts a server on port 6379, which the tests never use.
	as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y --no-install-recommends redis-server
elif have dnf; then
	as_root dnf install -y redis
elif have apk; then
	as_root apk add redis
elif have brew; then
	brew install redis # refuses to run as root
else
	echo "redis-server is missing, and so are apt-get, dnf, apk and brew:" \
		"install Redis so that redis-server is on PATH." >&2
	exit 1
fi

if ! have redis-server; then
	echo "redis was installed, but redis-server is not on PATH ($PATH)." >&2
	exit 1
fi
redis-server --version
