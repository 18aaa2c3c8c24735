#!/bin/sh
# Runs one test, so many times, and says how each one ended. The tool `run_test`.
test=$1 times=$2
for round in $(seq "$times"); do
    if output=$(sh "$test" 2>&1); then echo "run $round: ok"; else echo "run $round: FAILED: $output"; fi
done
