# The newest line of an order counts.
state=$(awk -F, '$1 == "1001" { state = $2 } END { print state }' var/orders.csv)
[ "$state" = sent ]
