# A log that has grown is renamed, and a small one stays.
. ./lib/rotate.sh
echo 'a line that is long enough' > "$scratch/web.log"
echo short > "$scratch/api.log"
rotate "$scratch" 10
equal "$(wc -c < "$scratch/web.log" | tr -d ' ')" 0
equal "$(cat "$scratch/api.log")" short
equal "$(cat "$scratch"/web.log.*)" 'a line that is long enough'
