# Removes the oldest rotated logs, so that at most so many are left.

prune() {
    count=0
    for file in $(ls -t "$1"); do
        case $file in
        *.log.*) ;;
        *) continue ;;
        esac
        count=$((count + 1))
        [ "$count" -le "$2" ] || rm -f "$1/$file"
    done
}
