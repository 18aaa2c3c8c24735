#!/bin/sh
# Reads advisories on stdin, and prints each one that concerns a version in a services/*/deps.lock, as JSON lines.
set -eu
mkdir -p scratch
cat > scratch/advisories.csv
for lock in services/*/deps.lock; do
    service=${lock#services/}
    awk -v service="${service%/deps.lock}" '
        function older(a, b,    x, y, i) {
            split(a, x, "."); split(b, y, ".")
            for (i = 1; i <= 3; i++) if (x[i] + 0 != y[i] + 0) return x[i] + 0 < y[i] + 0
            return 0
        }
        NR == FNR { split($0, f, ","); if (f[2] != "package") { n++; id[n] = f[1]; package[n] = f[2]; fixed[n] = f[3]; severity[n] = f[4]; symbol[n] = f[5]; summary[n] = f[6] } next }
        { for (i = 1; i <= n; i++) if ($1 == package[i] && older($2, fixed[i]))
            printf "{\"service\": \"%s\", \"package\": \"%s\", \"version\": \"%s\", \"fixed_in\": \"%s\", \"advisory\": \"%s\", \"severity\": \"%s\", \"symbol\": \"%s\", \"summary\": \"%s\"}\n", service, $1, $2, fixed[i], id[i], severity[i], symbol[i], summary[i] }
    ' FS=' ' scratch/advisories.csv "$lock"
done
