# Removes the directory $1 once standard input ends, after stopping what runs for
# it: the PostgreSQL server in $1/data, the NATS server of $1/nats.pid, the pooler of
# $1/pooler.pid, the container that $1/container names and the network that $1/network
# names.
#
# The only write end of standard input is held by the process that owns the
# directory, so the input ends when that process does, however it does.
trap '' HUP INT QUIT TERM
dir=$1
lock=$dir/data/postmaster.pid
while read -r _; do :; done

# A killed postmaster leaves its pid behind, for another process to get: it
# must name the directory in its arguments, too.
running() {
	if [ -r "/proc/$1/cmdline" ]; then
		tr '\0' ' ' <"/proc/$1/cmdline" | grep -qF -e "$dir"
	else
		ps -o args= -p "$1" | grep -qF -e "$dir"
	fi
}

# A killed postmaster leaves its System V shared memory behind as well; line 7
# has its key and id.
free() {
	id=$(sed -n 's/^ *[0-9][0-9]*  *\([0-9][0-9]*\) *$/\1/p' "$lock" | tail -n 1)
	[ -z "$id" ] || ipcrm -m "$id"
}

# A NATS server and a pooler can be killed at once: nothing of them is to stay. The
# file of the first has no end of line, which read takes for a failure.
end_at_once() {
	pid=
	[ ! -e "$1" ] || read -r pid <"$1"
	[ -z "$pid" ] || ! running "$pid" || kill -s KILL "$pid"
}

# Of what Docker does not know, nothing is left.
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
	n=0 # its containers have watchdogs of their own
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
