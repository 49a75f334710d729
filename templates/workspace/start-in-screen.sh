#!/bin/sh
# Starts the miner in a detached screen session, so that it outlives your login.
# Look at it with `screen -r @NAME@`; leave it with Ctrl-A D, end it with Ctrl-C.
set -eu
if screen -ls | grep -q '[0-9]\.@NAME@[[:space:]].*tached)'; then
	echo "it runs already: screen -r @NAME@" >&2
	exit 1
fi
# Nothing is final but a stop: a ban passes, a disk is mounted late, a hotkey is registered at last.
exec screen -dmS @NAME@ sh -c 'until "$0" run --log text -C "$1"; do echo "Again in five minutes."; sleep 300; done' \
	"@QUASAR@" "@WORKSPACE@"
