#!/bin/sh
# Makes sure that programs are on PATH which the tests start: sh scripts/install.sh redis-server nginx
# Those that are missing are installed with the package manager of the system.
set -eu

have() { command -v "$1" >/dev/null 2>&1; }

version() {
	case $1 in
	chromium) "$1" --version ;;
	*) "$1" -v ;;
	esac
}

as_root() {
	if [ "$(id -u)" -ne 0 ] && have sudo; then
		sudo "$@"
	else
		"$@"
	fi
}

# Debian has nginx where only root has it on PATH.
PATH="$PATH:/usr/sbin:/usr/local/sbin"

for program in "$@"; do
	if have "$program"; then
		version "$program"
		continue
	fi
	package=$program
	if have apt-get; then
		as_root apt-get update
		# The package also starts a server on the usual port, which the tests never use.
		as_root env DEBIAN_FRONTEND=noninteractive \
			apt-get install -y --no-install-recommends "$package"
	else
		package=${program%-server} # redis
		if have dnf; then
			as_root dnf install -y "$package"
		elif have apk; then
			as_root apk add "$package"
		elif have brew; then
			brew install "$package" # refuses to run as root
		else
			echo "$program is missing, and so are apt-get, dnf, apk and brew:" \
				"install it so that it is on PATH." >&2
			exit 1
		fi
	fi
	if ! have "$program"; then
		echo "$package was installed, but $program is not on PATH ($PATH)." >&2
		exit 1
	fi
	version "$program"
done
