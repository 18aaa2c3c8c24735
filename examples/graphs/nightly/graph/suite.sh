#!/bin/sh
# Runs each test $INPUT_TIMES times, and prints each one that failed at least once, as JSON lines.
set -u
mkdir -p scratch
for round in $(seq "$INPUT_TIMES"); do
    for test in tests/*_test.sh; do
        sh "$test" > "scratch/$(basename "$test").$round.log" 2>&1 || echo "$test"
    done
done | LC_ALL=C sort | uniq -c | while read -r failed test; do
    printf '{"test": "%s", "failed": %s, "of": %s}\n' "$test" "$failed" "$INPUT_TIMES"
done
