#!/bin/sh
# Keeps the newest line of each order in var/orders.csv.
set -eu
before=$(wc -l < var/orders.csv)
awk -F, 'NR == 1 { print; next } { line[$1] = $0; if (!($1 in place)) { place[$1] = ++n; id[n] = $1 } }
    END { for (i = 1; i <= n; i++) print line[id[i]] }' var/orders.csv > var/orders.csv.new
mv var/orders.csv.new var/orders.csv
echo "orders.csv: $((before)) lines before, $(($(wc -l < var/orders.csv))) now"
