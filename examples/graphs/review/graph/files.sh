#!/bin/sh
# Lists the files to review, one a line: those that differ from $INPUT_BASE in a git repository, all of
# them if it is empty. What is no text, and what the graph itself consists of, is left out.
set -eu
if [ -n "$INPUT_BASE" ]; then
    git -c core.quotePath=off diff --name-only --diff-filter=d "$INPUT_BASE" -- .
elif git rev-parse --is-inside-work-tree > /dev/null 2>&1; then
    git -c core.quotePath=off ls-files
else
    find . -type f ! -path './.*' ! -path './fixes/*' | sed 's|^\./||'
fi | LC_ALL=C sort | while IFS= read -r file; do
    case $file in
    .* | graph/* | offline/* | prompts/* | schemas/* | agents.toml | *.md) continue ;;
    esac
    if grep -Iq . "$file"; then printf '%s\n' "$file"; fi
done
