#!/bin/sh
# Checks an answer: it cites its sources as `(PATH:LINE)`, and each of these lines exists.
set -u
cited=$(grep -o '([^() ]*:[0-9]*)' "$OUTPUT_PATH" | LC_ALL=C sort -u)
[ -n "$cited" ] || { echo "The answer cites no source. Write (PATH:LINE) after each statement."; exit 1; }
missing=$(printf '%s\n' "$cited" | tr -d '()' | while IFS=: read -r file line; do
    [ -n "$(sed -n "${line}p" "$file" 2>/dev/null)" ] || echo "$file has no line $line"
done)
[ -z "$missing" ] || { printf '%s\n' "$missing"; exit 1; }
