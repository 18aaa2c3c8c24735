# The configuration is read, and a value may be quoted.
. ./lib/config.sh
mkdir "$scratch/my logs"
printf '# logs\nlog_dir="%s"\nkeep=2\n' "$scratch/my logs" > "$scratch/config"
load_config "$scratch/config"
equal "$log_dir" "$scratch/my logs"
equal "$keep" 2
equal "$max_bytes" 1000000
