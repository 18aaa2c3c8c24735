#!/bin/sh
# Makes fixes/$ID/tree, a copy of the repository in which one fix is made and tested.
set -eu
rm -rf "fixes/$ID" "fixes/$ID.patch"
mkdir -p "fixes/$ID/tree"
for entry in *; do
    case $entry in
    fixes | target | node_modules) ;;   # made by this graph, or by builds
    *) cp -R "$entry" "fixes/$ID/tree/" ;;
    esac
done
