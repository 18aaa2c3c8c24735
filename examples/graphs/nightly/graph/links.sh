#!/bin/sh
# Prints each link below $INPUT_FOLDER that leads to no file, as JSON lines.
set -eu
find "$INPUT_FOLDER" -name '*.md' | LC_ALL=C sort | while IFS= read -r file; do
    grep -no '](\([^)#:]*\.md\))' "$file" | tr -d '()]' | while IFS=: read -r line target; do
        [ -e "$(dirname "$file")/$target" ] ||
            printf '{"file": "%s", "line": %s, "target": "%s"}\n' "$file" "$line" "$target"
    done
done
