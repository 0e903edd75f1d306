package relaycmd

const help = `Publish committed events to NATS JetStream until SIGTERM or SIGINT. Any number of
relays may run for a database: one leads, the others stand by and take over.

The relay waits if the database or the broker is away, also at its start. It exits with
status 1 if a person has to correct something; the error says what. One such error is a
stream that acknowledges events and can lose them. You can accept such a stream by the
name of the risk, which the error gives:

    --accept discard-old,memory-storage

With --atomic it publishes up to 1,000 events with one acknowledgement. That is faster if
the broker syncs each acknowledged message to its disk, or if many events have one key.
'postroom stream ensure NAME --atomic' makes a stream for it.

If something goes wrong while the relay runs, it goes on: the log and /readyz say what is
wrong. After the first signal the relay waits for the acknowledgements of what it sent,
records them and ends; another relay leads within a second. A second signal ends it at
once: then some events are published twice, and consumers absorb that.

With --listen it serves
  /livez    200 while it runs; anything else: start it again
  /readyz   200 while it leads and records, stands by, or is paused by an operator;
            503 and why otherwise
  /metrics  in the format of Prometheus
The first two answer in JSON. During an outage /readyz is 503 and /livez 200, because a
restart does not help.

'postroom relay pause' lets all relays of the database publish nothing for a while.

The log goes to standard error. Each flag can be set by the environment variable
behind it instead.`
