# Each service says what it depends on.
for service in services/*/; do
    [ -s "$service/deps.lock" ] || { echo "$service has no deps.lock"; exit 1; }
done
