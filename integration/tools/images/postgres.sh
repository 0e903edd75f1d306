#!/bin/sh
#
# This is the entrypoint of the PostgreSQL image that the script build makes. The official image
# reads many variables. This script reads those that tests use: POSTGRES_USER, POSTGRES_PASSWORD,
# POSTGRES_DB and POSTGRES_INITDB_ARGS. It runs as the server's user, and can use only the shell and
# the server's own programs.

set -eu

if [ "${1:-}" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
    user=${POSTGRES_USER:-postgres}
    database=${POSTGRES_DB:-$user}
    password=/tmp/password

    umask 077
    printf '%s\n' "${POSTGRES_PASSWORD:?set POSTGRES_PASSWORD: the server asks every client for it}" >"$password"
    # shellcheck disable=SC2086 # arguments, to be split
    initdb --username="$user" --pwfile="$password" --auth-local=trust --auth-host=scram-sha-256 ${POSTGRES_INITDB_ARGS:-}
    : >"$password"

    echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
    echo "listen_addresses = '*'" >>"$PGDATA/postgresql.conf"
    if [ "$database" != postgres ]; then
        echo "CREATE DATABASE \"$database\";" | postgres --single -D "$PGDATA" postgres
    fi
fi

exec "$@"
