package relaycmd

const help = `Publish committed events to NATS JetStream until SIGTERM or SIGINT. Any number of relays
may run for a database. One of them leads: it publishes. The others stand by. If the
leader ends, another relay leads.

If the database or the broker is unavailable, the relay waits, even at its start. If a
person has to correct something, it exits with status 1, and the error says what to
correct. For example, the first relay of a database does not start if a stream can lose
events that it has acknowledged. The error then names the risk. To accept the risk, give
that name:

    --accept discard-old,memory-storage

With --atomic the relay publishes up to 1,000 events with one acknowledgement. That is
faster if the broker syncs each acknowledged message to its disk, or if many events have
the same key. 'postroom stream ensure NAME --atomic' makes a stream that accepts such
batches.

If something goes wrong while the relay runs, it keeps running: the log and /readyz say
what is wrong. After the first signal the relay waits for the acknowledgements of the
events that it sent, records them and ends. Another relay leads within a second. A
second signal ends the relay at once: then some events are published twice, and
consumers drop the second copies.

With --listen the relay serves
  /livez    200 while the relay runs; if you get another answer, restart the relay
  /readyz   200 if the relay works; otherwise 503 and the reason. The relay works if it
            is connected to the broker and has checked its streams. It must also lead
            and record its progress, or stand by, or be paused by an operator.
  /metrics  in the format of Prometheus
/livez and /readyz send JSON. During an outage /readyz is 503 and /livez is 200, because a
restart does not help.

'postroom relay pause' stops all relays of the database from publishing for a while.

The relay logs to standard error. Instead of a flag you can set the environment variable
that the flag's description names.`
