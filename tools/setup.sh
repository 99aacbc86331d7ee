#!/bin/sh
# Makes .venv with the pinned dependencies and, as root, installs the Debian packages that the product needs.
# With `browser`, also what the tests of the console look at pages with.
# Safe to run again: what is done is skipped. Nothing here asks a question or reads standard input.
set -eu
cd "$(dirname "$0")/.."
exec </dev/null

fail() {
	echo "setup: $*" >&2
	exit 1
}

find_python() {
	for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
		if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
			command -v "$candidate"
			return
		fi
	done
	fail "Python 3.11 or newer was not found. Install it, or name it: make PYTHON=/path/to/python3 …"
}

# Installs Debian packages as root; otherwise says which ones are missing.
need() {
	if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
		fail "these Debian packages are missing: $*. Install them (as root: apt-get install $*) and run this again."
	fi
	echo "setup: installing $*"
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -q >/dev/null || fail "apt-get update failed; see its words above."
	apt-get install -q -y --no-install-recommends "$@" >/dev/null || fail "apt-get install $* failed; see its words above."
}

python=$(find_python)
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
missing=""
command -v git >/dev/null || missing="$missing git"
command -v bwrap >/dev/null || missing="$missing bubblewrap"
# Debian splits venv's pip from Python; the module is there but cannot make an environment.
"$python" -c 'import venv, ensurepip' 2>/dev/null || missing="$missing python$version-venv"
if [ "${1:-}" = browser ]; then
	command -v chromium >/dev/null || missing="$missing chromium fonts-dejavu-core fonts-wqy-zenhei"
fi
# shellcheck disable=SC2086 # a list of package names
[ -z "$missing" ] || need $missing

# The environment holds absolute paths, so a moved checkout needs a new one; new pins need a new install.
place="$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable), sys.version)') $(pwd -P)"
pins=$(cat constraints.txt pyproject.toml tools/setup.sh | sha256sum)
if [ -f .venv/.place ] && [ "$(cat .venv/.place)" = "$place" ] && .venv/bin/python -c '' 2>/dev/null; then
	if [ -f .venv/.pins ] && [ "$(cat .venv/.pins)" = "$pins" ]; then
		exit 0
	fi
else
	echo "setup: making .venv with Python $version"
	rm -rf .venv
	"$python" -m venv .venv || fail "the virtual environment could not be made; see Python's words above."
	printf '%s' "$place" >.venv/.place
fi
rm -f .venv/.pins
echo "setup: installing the pinned packages"
pip() {
	.venv/bin/python -m pip install -q --disable-pip-version-check --no-deps "$@" ||
		fail "pip could not install the pinned packages; see its words above."
}
# The old pip of some Debians reads neither newer wheels' tags nor every proxy setting: replace it first.
pip "$(grep '^pip==' constraints.txt)"
pip -r constraints.txt
pip --no-build-isolation --editable .
printf '%s' "$pins" >.venv/.pins
