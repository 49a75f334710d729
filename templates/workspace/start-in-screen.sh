#!/bin/sh
# Starts the miner in a detached screen session, so that it outlives your login.
# Look at it with `screen -r quasar-miner`; leave it with Ctrl-A D, end it with Ctrl-C.
set -eu
if screen -ls | grep -q '[0-9]\.quasar-miner[[:space:]]'; then
	echo "it runs already: screen -r quasar-miner" >&2
	exit 1
fi
# When the miner has ended, a shell stays open, so that its last words can be read.
exec screen -dmS quasar-miner sh -c '"$0" run --log text -C "$1"; exec "${SHELL:-sh}"' \
	"@QUASAR@" "@WORKSPACE@"
