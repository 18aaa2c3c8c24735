#!/bin/sh
# Prints the advisories from $INPUT_FEED, a file or an address. An address needs `[sandbox] network`.
set -eu
case $INPUT_FEED in
https://*) curl -fsS --max-time 60 "$INPUT_FEED" ;;
*) cat "$INPUT_FEED" ;;
esac
