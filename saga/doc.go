// Package saga runs processes across services. A saga is a list of steps. Each step sends a command
// to a service and waits for its reply. If a step fails, or takes too long, the saga undoes the
// steps before it in reverse order. So each process ends done or undone, or is visibly stuck until
// an operator decides.
//
//	checkout := saga.New(pool, shop, saga.Definition[Order]{
//		Name: "checkout", Version: 1,
//		Steps: []saga.Step[Order]{
//			{Name: "open", Undo: saga.Local(cancelOrder)},
//			{
//				Name: "payment", Within: 15 * time.Minute,
//				Do: saga.Send("payment.charge", whole), Done: saga.On("payment.charged", paid),
//				Failed: saga.On("payment.declined", refused),
//				Undo:   saga.Send("payment.refund", whole), Undone: saga.On("payment.refunded", nothing),
//			},
//			{Name: "confirm", Do: saga.Local(confirmOrder)},
//		},
//	})
//	in.Handle(inbox.Subscription{Name: "checkout", Stream: "SHOP", Types: checkout.Types()}, checkout)
//	err := checkout.Begin(ctx, tx, order.ID, order) // in the transaction of the order
//
// # How it works
//
// A [Saga] is a transactional handler of an inbox. It has a row for each process; the row is an
// instance. It has no loop, no consumer and no broker. In one transaction it locks the row, decides
// what an event means, does the steps that need not wait, changes the row, and writes the commands
// that follow. So each command is written once, and an event that fails is held and tried again
// like any event. Do not make the saga's own subscription ordered: the row decides, and a dead
// reply would hold up its deadline.
//
// A reply counts if the command that the instance waits for caused it (CausationID). A participant
// is any handler that answers with Event.Follow; see [Participant]. A late reply, a second reply,
// and an event that is not a reply are acknowledged and noted, and change nothing.
//
// Deadlines are scheduled events of the type "<name>.deadline", so a stream must store "<name>.>".
// A deadline says that the outcome of a step is unknown, so compensation begins with that step's
// own Undo. The command and its Undo have the same key: give both to one ordered handler
// (inbox.HoldKey), so that the Undo cannot overtake the command.
//
// # What is not covered
//
// Steps run one after the other. There are no parallel steps and no loops. A step can be a saga of
// another service, which answers with its [End]. Processes do not see each other: if two processes
// use one thing, the service that owns it must decide between them.
package saga
