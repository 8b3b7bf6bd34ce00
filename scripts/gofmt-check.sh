#!/usr/bin/env bash
# Fails, naming the files, when gofmt would change a Go file of the tree.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bad=$(find . -name .git -prune -o -name .toolchain -prune -o -name '*.go' -exec gofmt -l {} +)
if [ -n "$bad" ]; then
  printf 'gofmt would change:\n%s\n' "$bad" >&2
  exit 1
fi
