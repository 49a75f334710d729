#!/bin/sh
# Starts the miner in a detached screen session, so that it outlives your login.
# Attach with `screen -r @NAME@`, detach with Ctrl-A D, stop it with Ctrl-C.
set -eu
quasar="@QUASAR@"
workspace="@WORKSPACE@"
if screen -ls | grep -q '[0-9]\.@NAME@[[:space:]].*tached)'; then
	echo "already running: screen -r @NAME@" >&2
	exit 1
fi
# Restart after every failure: bans end, disks get mounted, hotkeys get registered.
exec screen -dmS @NAME@ sh -c 'until "$0" run --log text -C "$1"; do echo "Again in five minutes."; sleep 300; done' \
	"$quasar" "$workspace"
