#!/bin/sh
# usage: scripts/get-llvm.sh [options] [PREFIX]
#
# Makes an LLVM that knows gfx950 (LLVM 20 or later) available in PREFIX/bin:
# llc, opt, ld.lld, llvm-objdump and a few more. PREFIX is .toolchain/llvm unless
# given. Nothing is installed outside PREFIX, and root is not needed. In this order:
#
#   1. tools on this machine (PATH, names with a version such as llc-22, ROCm's
#      folder) are linked to;
#   2. Debian packages are downloaded with an apt state of their own, signatures
#      verified, and unpacked below PREFIX/root together with the C library they
#      were built for; the programs in PREFIX/bin run them under that library;
#   3. an LLVM 19 on this machine is linked to, with a warning: it compiles for
#      gfx942 and not for gfx950.
#
# A second run is a no-op, an interrupted run leaves PREFIX as it was, and PREFIX
# may be moved. Exit status 0: PREFIX/bin is usable.
#
#   --quiet          say nothing when PREFIX is up to date
#   --force          build PREFIX anew
#   --no-system      skip step 1 and 3
#   --no-packages    skip step 2
#   --rocm DIR       where ROCm lives; /opt/rocm unless given
#   --repo URI       Debian archive of step 2, unless the one this machine's apt uses
#   --keyring FILE   keys of that archive, unless Debian's
set -eu

suite=trixie
min=20
releases='22 21 20' # of LLVM, the best first
need='llc opt ld.lld llvm-objdump'
more='llvm-mc llvm-readelf llvm-mca llvm-as llvm-dis llvm-nm'
stamp_name=get-llvm.stamp

say() { printf 'get-llvm: %s\n' "$*" >&2; }
die() {
	say "error: $*"
	exit 1
}

quiet= force= no_system= no_packages= repo= prefix=
rocm=/opt/rocm
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help)
		sed -n '2,/^set -eu/{/^set -eu/d;s/^# \{0,1\}//p;}' "$0"
		exit 0
		;;
	--quiet) quiet=1 ;;
	--force) force=1 ;;
	--no-system) no_system=1 ;;
	--no-packages) no_packages=1 ;;
	--rocm | --repo | --keyring)
		[ $# -ge 2 ] || die "$1 needs a value"
		case $1 in
		--rocm) rocm=$2 ;;
		--repo) repo=$2 ;;
		--keyring) keyring=$2 ;;
		esac
		shift
		;;
	-*) die "unknown option $1 ($0 --help lists them)" ;;
	*)
		[ -z "$prefix" ] || die "more than one PREFIX: $prefix and $1"
		prefix=$1
		;;
	esac
	shift
done

prefix=${prefix:-.toolchain/llvm}
while [ "${prefix%/}" != "$prefix" ]; do prefix=${prefix%/}; done
[ -n "$prefix" ] || die "PREFIX must not be /"
parent=$(dirname -- "$prefix")
mkdir -p -- "$parent"
prefix=$(cd -- "$parent" && pwd -P)/$(basename -- "$prefix")
case $prefix in
*:*) die "PREFIX must not contain a colon, which separates library folders: $prefix" ;;
esac
stamp=$prefix/$stamp_name

# major TOOL prints the major LLVM version of TOOL, or nothing.
major() {
	"$1" --version 2>/dev/null </dev/null |
		sed -n 's/.*\(LLVM version\|LLD\) \([0-9][0-9]*\)\..*/\2/p' | sed -n 1p
}

# knows_gfx950 LLC. Never compile with -mcpu=gfx950 to find out: an older llc
# ignores the name and aborts later.
knows_gfx950() {
	"$1" -march=amdgcn -mcpu=help </dev/null 2>&1 | grep -q '^ *gfx950 '
}

warn_old() { say "warning: LLVM $1 has no gfx950 (MI350, MI355X): only gfx942 and older can be compiled"; }

# ---- left behind by a killed run ----
for d in "$prefix".old.*; do
	[ -d "$d" ] || continue
	kill -0 "${d##*.}" 2>/dev/null && continue
	if [ -e "$prefix" ]; then rm -rf -- "$d"; else mv -- "$d" "$prefix"; fi
done
for d in "$prefix".tmp.*; do
	[ -d "$d" ] || continue
	kill -0 "${d##*.}" 2>/dev/null || rm -rf -- "$d"
done

# ---- already there? ----
if [ -z "$force" ] && [ -f "$stamp" ]; then
	have=$(major "$prefix/bin/llc" || true)
	if [ -n "$have" ] && grep -qx "major=$have" "$stamp"; then
		[ "$have" -ge "$min" ] || warn_old "$have"
		[ -n "$quiet" ] || say "up to date: LLVM $have in $prefix/bin ($(sed -n 's/^source=//p' "$stamp"))"
		exit 0
	fi
	say "the tools in $prefix no longer run, or are another version: building anew"
fi
if [ -e "$prefix" ] && [ ! -f "$stamp" ] && [ -n "$(ls -A -- "$prefix" 2>/dev/null)" ]; then
	die "$prefix exists and was not made by this script"
fi

# ---- everything is made in a folder beside PREFIX and moved there at the end ----
tmp=$prefix.tmp.$$
old=$prefix.old.$$
beat=
cleanup() {
	hush
	rm -rf -- "$tmp"
	if [ -e "$old" ]; then
		if [ -e "$prefix" ]; then rm -rf -- "$old"; else mv -- "$old" "$prefix"; fi
	fi
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
# beat DOING [DIR] says every two seconds until hush that it still goes on, and how
# large DIR has become. What sleep would hold open is closed, so that nobody waits
# for it.
beat() {
	hush
	(
		start=$(date +%s)
		while sleep 1.7 </dev/null >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
			kb=
			if [ $# -eq 2 ]; then kb=$(du -sk -- "$2" 2>/dev/null | sed 's/[^0-9].*//'); fi
			say "  $1, ${kb:+$((kb / 1000)) MB after }$(($(date +%s) - start)) s"
		done
	) &
	beat=$!
}
hush() {
	if [ -n "$beat" ]; then kill "$beat" 2>/dev/null || true; fi
	beat=
}
fresh() {
	rm -rf -- "$tmp"
	mkdir -p -- "$tmp/bin"
}

# finish MAJOR SOURCE checks what is in $tmp, and moves it to PREFIX if it works.
finish() {
	if [ "$(major "$tmp/bin/llc")" != "$1" ]; then
		say "the llc made from $2 does not run"
		return 1
	fi
	if [ "$1" -ge "$min" ] && ! knows_gfx950 "$tmp/bin/llc"; then
		say "the llc made from $2 does not list gfx950"
		return 1
	fi
	printf 'major=%s\nsource=%s\n' "$1" "$2" >>"$tmp/$stamp_name"
	if [ -e "$prefix" ]; then mv -- "$prefix" "$old"; fi
	mv -- "$tmp" "$prefix"
	rm -rf -- "$old"
	size=$(du -sm -- "$prefix" | sed 's/[^0-9].*//')
	say "ready: LLVM $1 from $2, $size MB in $prefix"
}

# resolve DIR NAME prints the path of a tool; an empty DIR stands for PATH.
resolve() {
	if [ -n "$1" ]; then
		[ -x "$1/$2" ] && printf '%s\n' "$1/$2"
	else
		found=$(command -v "$2" 2>/dev/null) || return 1
		case $found in
		/*) printf '%s\n' "$found" ;;
		*/*) printf '%s\n' "$(pwd)/$found" ;;
		*) return 1 ;; # a function or a builtin
		esac
	fi
}

# link_tools DIR SUFFIX LOW HIGH links a complete set of tools of one version
# between LOW and HIGH, and sets ver; otherwise it links nothing.
link_tools() {
	fresh
	ver=
	for t in $need; do
		p=$(resolve "$1" "$t$2") || return 1
		case $p in "$prefix"/*) return 1 ;; esac # made by an earlier run
		v=$(major "$p") || return 1
		if [ -z "$v" ] || [ "$v" -lt "$3" ] || [ "$v" -gt "$4" ]; then return 1; fi
		[ -z "$ver" ] || [ "$v" = "$ver" ] || return 1
		ver=$v
		[ "$t" != llc ] || [ "$3" -lt "$min" ] || knows_gfx950 "$p" || return 1
		ln -s -- "$p" "$tmp/bin/$t"
	done
	for t in $more; do
		if p=$(resolve "$1" "$t$2"); then ln -s -- "$p" "$tmp/bin/$t"; fi
	done
}

# find_tools LOW HIGH SUFFIX... tries PATH, PATH with the version suffixes, ROCm.
find_tools() {
	low=$1 high=$2
	shift 2
	for sfx in '' "$@"; do
		if link_tools '' "$sfx" "$low" "$high"; then
			where="PATH${sfx:+ (llc$sfx)}"
			return 0
		fi
	done
	where=$rocm/llvm/bin
	link_tools "$where" '' "$low" "$high"
}

# ---- 1. on the machine ----
if [ -z "$no_system" ]; then
	say "looking for LLVM >= $min with gfx950 in PATH and in $rocm"
	suffixes=
	for n in $releases; do suffixes="$suffixes -$n"; done
	# shellcheck disable=SC2086 # a list
	if find_tools "$min" 999 $suffixes && finish "$ver" "$where"; then exit 0; fi
	say "none found"
fi

# ---- 2. Debian packages ----
# debian_uri prints the main Debian archive of this machine's apt configuration.
debian_uri() {
	if [ -n "$repo" ]; then
		printf '%s\n' "$repo"
		return
	fi
	# shellcheck disable=SC2016 # $(REPO_URI) is apt's own placeholder
	apt-get indextargets --format '$(REPO_URI)' 2>/dev/null |
		awk '{ u = $0; sub(/\/+$/, "", u); n = split(u, p, "/") }
		     p[n] == "debian" { print $0; exit }'
}

# aptly PROGRAM ARGS... is apt-get or apt-cache with our source and state only.
aptly() {
	apt=$1
	shift
	"$apt" \
		-o Dir::State="$tmp/apt/state" \
		-o Dir::State::Lists="$tmp/apt/lists" \
		-o Dir::State::status="$tmp/apt/status" \
		-o Dir::Cache="$tmp/apt/cache" \
		-o Dir::Etc::sourcelist="$tmp/apt/sources.list" \
		-o Dir::Etc::sourceparts=/dev/null \
		-o Dir::Etc::preferences=/dev/null \
		-o Dir::Etc::preferencesparts=/dev/null \
		-o APT::Sandbox::User="$(id -un)" \
		-o APT::Get::AllowUnauthenticated=false \
		-o Acquire::AllowInsecureRepositories=false \
		-o Acquire::Languages=none \
		-o Acquire::Retries=2 \
		-o APT::Update::Error-Mode=any \
		-o Acquire::http::Timeout=20 \
		"$@"
}

# wrapper TOOL writes the program that runs an unpacked tool under the unpacked C
# library. It finds the tree from its own path, so that PREFIX can be moved.
wrapper() {
	cat >"$tmp/bin/$1" <<-END
		#!/bin/sh
		# Written by get-llvm.sh: $1 of Debian's LLVM $rel under its own C library.
		r=\${0%/*}/..
		exec "\$r/$loader" --argv0 '$1' --library-path "$(printf '%s' "$libpath" | sed 's,[^:]*,$r/&,g')" "\$r/root/usr/lib/llvm-$rel/bin/$1" "\$@"
	END
	chmod 755 "$tmp/bin/$1"
}

# below FILE prints the path of a file of $tmp as seen from PREFIX.
below() { printf '%s\n' "${1#"$tmp"/}"; }

from_debian() {
	for c in apt-get apt-cache dpkg-deb awk; do
		command -v "$c" >/dev/null 2>&1 || {
			say "no $c: not a Debian-like system"
			return 1
		}
	done
	[ -r "$keyring" ] || {
		say "no keyring $keyring (package debian-archive-keyring)"
		return 1
	}
	uri=$(debian_uri)
	[ -n "$uri" ] || {
		say "the apt configuration names no Debian archive (give one with --repo)"
		return 1
	}
	fresh
	mkdir -p -- "$tmp/apt/state" "$tmp/apt/lists/partial" "$tmp/apt/cache/archives/partial" "$tmp/apt/debs" "$tmp/root"
	: >"$tmp/apt/status"
	printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$uri" "$suite" >"$tmp/apt/sources.list"
	say "reading the package index of Debian $suite"
	beat 'reading the index'
	aptly apt-get -qq update >&2 || {
		say "apt-get update failed"
		return 1
	}

	# One query for every name that may be wanted. A library that this release
	# knows under another name is left out; finish sees whether llc runs.
	libs='libc6 libstdc++6 libgcc-s1 zlib1g libzstd1 libxml2 libxml2-16 libicu76
		liblzma5 libffi8 libedit2 libbsd0 libmd0 libz3-4 libtinfo6'
	ask=$libs
	for n in $releases; do ask="$ask llvm-$n lld-$n libllvm$n llvm-$n-linker-tools"; done
	# shellcheck disable=SC2086 # a list
	known=$(aptly apt-cache -qq --no-all-versions show $ask 2>/dev/null | sed -n 's/^Package: //p')
	has() { printf '%s\n' "$known" | grep -qxF -- "$1"; }
	rel=
	for n in $releases; do
		if has "llvm-$n" && has "lld-$n"; then
			rel=$n
			break
		fi
	done
	[ -n "$rel" ] || {
		say "Debian $suite has no llvm >= $min"
		return 1
	}
	want= count=0
	for p in "llvm-$rel" "lld-$rel" "libllvm$rel" "llvm-$rel-linker-tools" $libs; do
		if has "$p"; then
			want="$want $p"
			count=$((count + 1))
		fi
	done

	# shellcheck disable=SC2086 # a list
	bytes=$(aptly apt-get -qq --print-uris download $want | awk '{ n += $3 } END { print n + 0 }')
	say "downloading LLVM $rel: $count packages, $((bytes / 1000000)) MB"
	beat downloading "$tmp/apt/debs"
	# With one -q apt prints a line a file, also when nobody looks at a terminal.
	# shellcheck disable=SC2086 # a list
	(cd -- "$tmp/apt/debs" && aptly apt-get -q download $want >&2) || {
		say "the download failed"
		return 1
	}
	say "unpacking"
	beat unpacking
	for d in "$tmp"/apt/debs/*.deb; do
		dpkg-deb -x "$d" "$tmp/root" || {
			say "cannot unpack ${d##*/}"
			return 1
		}
	done
	rm -rf -- "$tmp/apt"

	# Keep the licences and what the tools load; drop the rest.
	for d in "$tmp"/root/* "$tmp"/root/usr/* "$tmp"/root/usr/share/*; do
		case ${d#"$tmp"/root/} in
		usr | usr/lib | usr/lib64 | usr/share | usr/share/doc | lib | lib64) ;;
		*) rm -rf -- "$d" ;;
		esac
	done
	find "$tmp/root/usr/share" -type f ! -name copyright -exec rm -f -- {} +
	bin=$tmp/root/usr/lib/llvm-$rel/bin
	keep=' '
	for t in $need $more; do
		keep="$keep$t "
		if [ -L "$bin/$t" ]; then keep="$keep$(readlink -- "$bin/$t") "; fi
	done
	for f in "$bin"/*; do
		case $keep in *" ${f##*/} "*) ;; *) rm -f -- "$f" ;; esac
	done
	rm -rf -- "$tmp/root/usr/lib/llvm-$rel/include" "$tmp/root/usr/lib/llvm-$rel/share"

	loader=$(find "$tmp/root" -name 'ld-linux*.so.*' ! -type d | sort | sed -n 1p)
	libc=$(find "$tmp/root" -name libc.so.6 ! -type d | sort | sed -n 1p)
	llvmlib=$(find "$tmp/root" -name "libLLVM.so.$rel*" ! -type d | sort | sed -n 1p)
	if [ -z "$loader" ] || [ -z "$libc" ] || [ -z "$llvmlib" ]; then
		say "the packages lack a loader, a C library or libLLVM"
		return 1
	fi
	loader=$(below "$loader")
	libpath=$(below "$(dirname -- "$libc")")
	d=$(below "$(dirname -- "$llvmlib")")
	[ "$d" = "$libpath" ] || libpath=$libpath:$d
	for t in $need $more; do
		if [ -e "$bin/$t" ]; then
			wrapper "$t"
		else
			say "warning: no $t in the packages"
		fi
	done
	# What a program needs that loads libLLVM itself.
	printf 'loader=%s\nlibpath=%s\nlibllvm=%s\n' "$loader" "$libpath" "$(below "$llvmlib")" >"$tmp/$stamp_name"
}

if [ -z "$no_packages" ]; then
	if from_debian && hush && finish "$rel" "Debian $suite packages"; then exit 0; fi
	hush
fi

# ---- 3. LLVM 19 ----
if [ -z "$no_system" ] && find_tools 19 19 -19 && finish "$ver" "$where"; then
	warn_old "$ver"
	exit 0
fi

die "no usable LLVM, and none could be fetched.
  Install llc, opt, ld.lld and llvm-objdump of LLVM >= $min with the AMDGPU target: packages llvm-22 and
  lld-22 (or -21, -20) of Debian or Ubuntu, llvm and lld of other systems, or ROCm's llvm (--rocm DIR).
  Then run $0 again.
  Without LLVM everything that computes on --device ref works, such as make run DEVICE=ref;
  make TOOLCHAIN=none skips this step, and the tests that need LLVM say that they are skipped."
