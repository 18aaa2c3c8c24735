# Runs every test in a shell and a scratch folder of its own. Exit code 1 if one fails.
set -u
equal() {
    [ "$1" = "$2" ] || { printf '  expected %s\n  but got  %s\n' "$2" "$1"; exit 1; }
}
failed=0
for test in tests/*_test.sh; do
    scratch=$(mktemp -d)
    if (set -eu && . "./$test"); then echo "ok     $test"; else echo "FAILED $test"; failed=1; fi
    rm -rf "$scratch"
done
exit "$failed"
