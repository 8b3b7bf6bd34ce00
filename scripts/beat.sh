#!/bin/sh
# usage: scripts/beat.sh WHAT COMMAND...
#
# Runs COMMAND, and while it runs says WHAT on standard error every two seconds. The
# exit status is COMMAND's.
set -u

what=$1
shift
# kill -0: a signal ends this script at once, with no chance to clean up. What sleep
# would hold open is closed, so that a reader of our output need not wait for it.
(
	start=$(date +%s)
	while sleep 1.7 </dev/null >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
		printf '%s: %d s\n' "$what" "$(($(date +%s) - start))" >&2
	done
) &
beat=$!
trap 'kill "$beat" 2>/dev/null' EXIT
"$@"
