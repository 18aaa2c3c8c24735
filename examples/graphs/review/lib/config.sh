# Reads the configuration: lines `key=value` with the keys log_dir, max_bytes and keep.

load_config() {
    log_dir='' max_bytes=1000000 keep=5
    while IFS='=' read -r key value; do
        case $key in
        '' | '#'*) continue ;;
        esac
        eval "$key=$value"
    done < "$1"
    [ -d "$log_dir" ] || { echo "logkeep: no folder '$log_dir'" >&2; return 1; }
}
