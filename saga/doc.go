// Package saga runs processes across services. A saga is a list of steps. Each step sends a command
// to a service and waits for its reply. If a step fails, or takes too long, the saga undoes the
// steps so far, in reverse order. So each process ends as done or as undone, or tools show it as
// stuck until an operator decides.
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
// A [Saga] is a transactional handler of an inbox. A process is called an instance, and has one
// row. A saga has no loop, consumer or broker of its own. In one transaction it locks the row,
// decides what an event means, does the steps that need not wait, changes the row, and writes the
// commands that follow. So each command is written once, and an event that fails is held and tried
// again like any event. Do not make the saga's own subscription ordered: the row already says which
// events count, and a dead reply would block the deadline of its instance.
//
// A reply counts if its CausationID is the id of a command of the step for which the instance
// waits. A participant is any handler that answers with Event.Follow; see [Participant]. If an
// event is no reply, or is a late or second reply, the saga acknowledges and notes it, and changes
// nothing else.
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
// use the same thing, the service that owns the thing must decide which process gets it.
package saga
