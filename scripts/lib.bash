# shellcheck shell=bash
# What the scripts share: where things are, and how they speak. Sourced, never run.

# The scripts can be called from any folder.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
ROOT=$PWD
ENGINES=$ROOT/.engines
TOOLS=$ENGINES/tools
# shellcheck disable=SC2034 # for those who source this
BIN=$ENGINES/bin

# say TEXT…: progress, on stderr, so that a script's output stays its result.
say() { printf '== %s\n' "$*" >&2; }

# die TEXT…: says what is wrong and ends the script.
die() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# modules: the folders with a go.mod, the root module (`.`) first.
modules() {
	files 'go.mod' '*/go.mod' | xargs -r -n 1 dirname | LC_ALL=C sort
}

# files PATTERN…: the files of the working tree that are or would be committed.
files() {
	git ls-files --cached --others --exclude-standard --deduplicate -- "$@" | while IFS= read -r f; do
		if [ -f "$f" ]; then printf '%s\n' "$f"; fi
	done
}

# none: passes its input on, and fails if there was any: for findings.
none() { if grep .; then return 1; fi; }

# has_packages: whether the module in the current folder has a package yet.
has_packages() { [ -n "$(go list ./... 2>/dev/null)" ]; }

# tool NAME: the path of a pinned tool, built if need be.
tool() {
	"$ROOT/scripts/tools" "$1" >&2
	printf '%s\n' "$TOOLS/$1"
}
