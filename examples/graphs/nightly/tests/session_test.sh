# A session that begins has none before it.
[ ! -e var/session ] || { echo "var/session is there already"; rm var/session; exit 1; }
echo 1001 > var/session
