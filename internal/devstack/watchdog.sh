# When standard input ends, this script stops the servers of the directory $1 and then removes the
# directory. It stops the PostgreSQL server in $1/data, the NATS server of $1/nats.pid and the
# pooler of $1/pooler.pid. It removes the container that $1/container names and the network that
# $1/network names.
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

# If Docker does not know the container, nothing of it is left.
unbox() {
	if read -r name <"$dir/container"; then
		docker unpause "$name"
		docker rm -f -v "$name" || docker info || return
		docker inspect "$name" >/dev/null && return
	fi
	rm -f "$dir/container"
}

unnet() {
	if read -r name <"$dir/network"; then
		docker network rm "$name" || docker info || return
		docker network inspect "$name" >/dev/null && return
	fi
	rm -f "$dir/network"
}

if command -v docker; then
	n=0
	while [ -e "$dir/container" ] && [ "$n" -lt 20 ]; do
		n=$((n + 1))
		unbox || sleep 0.2 || sleep 1
	done
	n=0 # the containers of the network have their own watchdogs, which must first remove the containers
	while [ -e "$dir/network" ] && [ "$n" -lt 50 ]; do
		n=$((n + 1))
		unnet
		[ ! -e "$dir/network" ] || sleep 0.2 || sleep 1
	done
fi

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
