#!/bin/sh
# usage: scripts/next.sh [DEVICE [LLVM]]
#
# Says on standard error what to try after make run. Every command works as it
# stands; on ref none needs LLVM.
device=${1:+ --device $1}
llvm=${2:+ --llvm \'$2\'}
if [ "${1:-}" = ref ]; then
	native='bin/kiln doctor'
else
	native="bin/kiln compile --model testdata/tiny-dsv4 --target gfx950 -o bin/tiny.kiln$llvm && bin/kiln inspect bin/tiny.kiln"
fi
cat >&2 <<END

try next:
  bin/kiln run --model testdata/tiny-dsv4 --prompt 'type Buffer' --temperature 0.8 --top-p 0.95 --seed 7$device$llvm
  $native
  bin/kiln dump --model testdata/configs/flash --entry decode | less
END
