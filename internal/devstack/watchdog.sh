# Removes the directory $1 once standard input ends, after stopping the
# PostgreSQL server that runs in $1/data, if one does.
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
