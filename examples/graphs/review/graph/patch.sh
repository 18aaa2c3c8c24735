#!/bin/sh
# Writes fixes/$ID.patch, the difference between the sources and the copy with the fix, and prints it.
set -eu
(cd "fixes/$ID/tree" && find . -type f) | LC_ALL=C sort | while IFS= read -r file; do
    file=${file#./}
    cmp -s "$file" "fixes/$ID/tree/$file" ||
        diff -u --label "a/$file" --label "b/$file" "$file" "fixes/$ID/tree/$file" || [ $? = 1 ]
done > "fixes/$ID.patch"
cat "fixes/$ID.patch"
