#!/bin/sh
# Makes fixes/together/tree, a copy of the repository with all patches applied.
set -eu
ID=together sh graph/copy.sh
for id in $IDS; do
    git apply --directory=fixes/together/tree "fixes/$id.patch"
done
