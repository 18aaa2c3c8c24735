# The newest logs stay, and what is no rotated log is left alone.
. ./lib/prune.sh
for number in 1 2 3 4; do
    : > "$scratch/web.log.$number"
    touch -t "2024010${number}0000" "$scratch/web.log.$number"
done
: > "$scratch/notes.txt"
prune "$scratch" 2
equal "$(cd "$scratch" && echo *)" "notes.txt web.log.3 web.log.4"
