package webhook_test

import (
	"context"
	"log"
	"net/http"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/webhook"
)

// A program that receives webhooks of Stripe.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	check(err)
	type payment struct{ ID, Type string }

	in := inbox.New(pool, nil, inbox.Config{})
	succeeded := postroom.NewType[payment]("stripe.charge.succeeded", nil) // the receiver stores only this type
	in.Handle(inbox.Subscription{Name: "payments.apply"},
		succeeded.Handler(func(ctx context.Context, tx pgx.Tx, _ postroom.Event, p payment) error {
			_, err := tx.Exec(ctx, "INSERT INTO payment VALUES ($1, $2)", p.ID, p.Type)
			return err
		}))
	stripe := webhook.NewReceiver(in, webhook.ReceiverConfig{
		Source: "/webhooks/stripe", Handler: "payments.apply", Scheme: webhook.Stripe(os.Getenv("STRIPE_WEBHOOK_SECRET")),
	})
	check(stripe.Check(ctx))
	http.Handle("/webhooks/stripe", stripe)
	go func() { check(http.ListenAndServe(":8080", nil)) }()
	check(postroom.Run(ctx, in))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
