// Package saga runs business processes across services. A saga is a list of steps. Each step sends
// a command to a service and waits for its reply. If a step fails or takes too long, the saga
// undoes what was done so far, in reverse order. So each process ends as done or as undone. If a
// process makes no progress, tools show it as stuck until an operator decides.
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
//	in.Handle(inbox.Subscription{Name: "checkout", Stream: "SHOP"}, checkout)
//	err := checkout.Begin(ctx, tx, order.ID, order) // in the transaction of the order
//
// # How it works
//
// A [Saga] is a transactional handler of an inbox, without a loop, consumer or broker of its own.
// Each process is an instance, with one row in the table saga. For each event, in one transaction,
// the saga locks the row, decides what the event means, does steps up to one that waits for a
// reply, changes the row, and writes the commands. So each command is written once. If the saga
// fails, the inbox tries the event again. The inbox refuses a saga whose subscription has an Order: a
// dead reply would block the deadline, which has the same key. The row already says which reply is
// due.
//
// An instance waits for a reply whose CausationID is the id of a command of the current step.
// Event.Follow sets this field, so any handler that answers with Follow is a participant; see
// [Participant]. If an event is no reply, or is a late or second reply, the saga acknowledges it,
// notes it in the row, and changes nothing else.
//
// A deadline is a scheduled event of the type "<name>.deadline" (the name of the saga), so a stream
// must store "<name>.>". After the deadline, the outcome of the step is unknown, so the saga undoes
// this step first. A command and its Undo have the same key: the participant must give both to one
// ordered handler (inbox.HoldKey), so that no Undo overtakes its command.
//
// # What is not covered
//
// Steps run one after the other, never in parallel or in a loop. A command can start a saga of
// another service, whose [End] event is then the reply. Instances know nothing of each other: if
// two need the same resource, the owner of the resource must decide which instance gets it.
package saga
