package doctor_test

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/doctor"
)

// A stream that drops its oldest messages when it is full loses events. The doctor reports that
// before the stream is full, and says which command corrects it.
func ExampleDoctor_Examine() {
	servers := devtest.ForExample() // a migrated database, a NATS server with JetStream
	defer servers.Close()
	ctx := context.Background()
	js, err := jetstream.New(servers.NATS)
	if err != nil {
		servers.Fatal(err)
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"order.>"}, MaxMsgs: 1000})
	fmt.Println("stream:", err)

	report, err := doctor.New(servers.Pool, servers.NATS, doctor.Config{Streams: []string{"SHOP"}}).Examine(ctx)
	fmt.Println("healthy:", report.Healthy(), err)
	for _, f := range report.Of(doctor.Fault) {
		if f.Check == "streams" { // the example's database has other faults
			fmt.Println(f.Subject+":", f.Text) // and f.Remedy
		}
	}
	// Output:
	// stream: <nil>
	// healthy: false <nil>
	// SHOP: it drops old events to take new ones, at 1000 messages
}
