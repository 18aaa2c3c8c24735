# Renames logs that have grown past a size, and begins them anew.

rotate() {
    for file in "$1"/*.log; do
        [ -f "$file" ] || continue
        [ "$(wc -c < "$file")" -gt "$2" ] || continue
        mv "$file" "$file.$(date +%s)"
        : > "$file"
    done
}
