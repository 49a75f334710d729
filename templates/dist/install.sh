#!/bin/sh
# usage: [PREFIX=DIR] ./install.sh [--uninstall]
# Installs quasar, or removes it. PREFIX is /usr/local for root, and ~/.local for everybody else. Everything lies in
# PREFIX/lib/quasar; PREFIX/bin and PREFIX/share only link to it.
set -eu

fail() { # EXIT_CODE MESSAGE
	echo "install.sh: $2" >&2
	exit "$1"
}

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
prefix=${PREFIX:-$([ "$(id -u)" = 0 ] && echo /usr/local || echo "$HOME/.local")}

check_machine() {
	[ "$(uname -m)" = @MACHINE@ ] || fail 3 "this quasar is for @MACHINE@; this machine is $(uname -m)"
	glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null) ||
		fail 3 "quasar needs glibc; this system has another C library"
	glibc=${glibc#glibc }
	[ "$(printf '%s\n' @GLIBC@ "$glibc" | sort -V | head -n 1)" = @GLIBC@ ] ||
		fail 3 "quasar needs glibc @GLIBC@ or later; this system has $glibc. Use a newer system, or build quasar there"
}

# each file that is linked, by its path below PREFIX
linked() {
	(cd "$1" && find bin share -type f)
}

remove() {
	linked "$prefix/lib/quasar" | while read -r file; do
		[ "$(readlink "$prefix/$file")" != "$prefix/lib/quasar/$file" ] || rm "$prefix/$file"
	done
	rm -rf "$prefix/lib/quasar"
}

# The files are in place before anything links to them; a quasar that runs keeps the old ones open.
install() {
	rm -rf "$prefix/lib/quasar.new"
	mkdir -p "$prefix/lib"
	cp -R "$here" "$prefix/lib/quasar.new"
	[ ! -d "$prefix/lib/quasar" ] || remove
	mv "$prefix/lib/quasar.new" "$prefix/lib/quasar"
	linked "$prefix/lib/quasar" | while read -r file; do
		mkdir -p "$prefix/$(dirname "$file")"
		ln -sf "$prefix/lib/quasar/$file" "$prefix/$file"
	done
}

case ${1:-} in
'')
	check_machine
	mkdir -p "$prefix" 2>/dev/null && [ -w "$prefix" ] ||
		fail 3 "cannot write to $prefix; name another place with PREFIX=DIR"
	prefix=$(cd "$prefix" && pwd -P)
	[ "$here" != "$prefix/lib/quasar" ] || fail 2 "this is the installed quasar already"
	install
	"$prefix/bin/quasar" --version
	echo "Installed to $prefix. To remove it: $prefix/lib/quasar/install.sh --uninstall"
	case :$PATH: in
	*:"$prefix/bin":*) echo "Next: quasar doctor" ;;
	*) echo "Next: add $prefix/bin to your PATH, then run: quasar doctor" ;;
	esac
	;;
--uninstall)
	# the installed script knows where it is
	[ "${here%/lib/quasar}" = "$here" ] || prefix=${here%/lib/quasar}
	[ -d "$prefix/lib/quasar" ] || fail 3 "no quasar is installed in $prefix; name another place with PREFIX=DIR"
	prefix=$(cd "$prefix" && pwd -P)
	remove
	echo "Removed from $prefix. Wallets and workspaces stay."
	;;
-h | --help) sed -n '2,4s/^# //p' "$0" ;;
*) fail 2 "unknown argument \"$1\"; see ./install.sh --help" ;;
esac
