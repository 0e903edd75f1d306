# When standard input ends, this script stops the servers of the directory $1 and then removes the
# directory. It stops the PostgreSQL server in $1/data, the NATS server of $1/nats.pid and the
# pooler of $1/pooler.pid.
#
# Only the process that owns the directory has the write end of standard input. So the input ends
# when that process ends, even if it is killed.
trap '' HUP INT QUIT TERM
dir=$1
lock=$dir/data/postmaster.pid
while read -r _; do :; done

# A killed postmaster leaves its pid file behind, and another process can get the same pid. So the
# arguments of the process must also name the directory.
running() {
	if [ -r "/proc/$1/cmdline" ]; then
		tr '\0' ' ' <"/proc/$1/cmdline" | grep -qF -e "$dir"
	else
		ps -o args= -p "$1" | grep -qF -e "$dir"
	fi
}

# A killed postmaster also leaves its System V shared memory behind. Line 7 of postmaster.pid has
# the key and the id of this memory.
free() {
	id=$(sed -n 's/^ *[0-9][0-9]*  *\([0-9][0-9]*\) *$/\1/p' "$lock" | tail -n 1)
	[ -z "$id" ] || ipcrm -m "$id"
}

# The script kills a NATS server and a pooler at once, because it keeps nothing of them. nats.pid
# has no end of line, so read fails, but it still sets pid.
end_at_once() {
	pid=
	[ ! -e "$1" ] || read -r pid <"$1"
	[ -z "$pid" ] || ! running "$pid" || kill -s KILL "$pid"
}

end_at_once "$dir/nats.pid"
end_at_once "$dir/pooler.pid"
n=0
while [ -e "$dir" ] && [ "$n" -lt 150 ]; do
	n=$((n + 1))
	if [ -e "$lock" ] && read -r pid <"$lock" && [ -n "$pid" ] && running "$pid"; then
		signal=INT
		[ "$n" -le 50 ] || signal=QUIT
		[ "$n" -le 100 ] || signal=KILL
		kill -s "$signal" "$pid"
	else
		[ ! -e "$lock" ] || free
		rm -rf "$dir"
	fi
	[ ! -e "$dir" ] || sleep 0.1 || sleep 1
done
