#!/bin/sh
# Looks for the servers that tests start: sh .ci/install.sh redis-server nginx
# If INSTALL or CI is set, it installs those that are missing with the package manager of the system. Otherwise it only
# says that they are missing, since the tests that need them are skipped.
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
	if [ -z "${INSTALL:-}${CI:-}" ]; then
		echo "$program is missing, so no test that starts it can run." \
			"INSTALL=1 installs it with the package manager, such as apt-get." >&2
		continue
	fi
	packages=$program
	if have apt-get; then
		# Chromium ends at its first text if there are no fonts, and its package does not depend on any.
		[ "$program" != chromium ] || packages="$packages fonts-dejavu-core"
		as_root apt-get -o Acquire::http::Timeout=30 update
		# Debian's packages start their servers unless this program forbids it. The tests start servers themselves.
		policy=/usr/sbin/policy-rc.d
		if [ ! -e $policy ]; then
			trap 'as_root rm -f $policy' EXIT
			printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null
			as_root chmod +x $policy
		fi
		# shellcheck disable=SC2086 # several packages
		as_root env DEBIAN_FRONTEND=noninteractive \
			apt-get install -y --no-install-recommends $packages
	else
		packages=${program%-server} # redis
		if have dnf; then
			[ "$program" != chromium ] || packages="$packages dejavu-sans-fonts"
			# shellcheck disable=SC2086 # as above
			as_root dnf install -y $packages
		elif have apk; then
			[ "$program" != chromium ] || packages="$packages font-dejavu"
			# shellcheck disable=SC2086 # as above
			as_root apk add $packages
		elif have brew; then
			brew install "$packages" # refuses to run as root
		else
			echo "$program is missing, and so are apt-get, dnf, apk and brew:" \
				"install it so that it is on PATH." >&2
			exit 1
		fi
	fi
	if ! have "$program"; then
		echo "$packages: installed, but $program is not on PATH ($PATH)." >&2
		exit 1
	fi
	version "$program"
done
