package outbound

// follow finds out whether the request follows from a redirect, as http.Client makes
// it: of which operation, whose time goes on, whether the vendor may have acted on that,
// whatever becomes of this one, and whether it left the host on the way.
func (op *operation) follow() {
	for r := op.req.Response; r != nil && r.Request != nil; r = r.Request.Response {
		if op.earlier == nil {
			op.earlier, _ = r.Request.Context().Value(resultOf{}).(*operation)
		}
		if r.Request.URL != nil && op.req.URL != nil && !sameOrigin(r.Request.URL, op.req.URL) {
			op.foreign = true
		}
	}
	if op.earlier != nil {
		op.deadline = op.earlier.deadline
		op.acted = op.earlier.mayHaveActed()
		op.delivered, op.unsure = op.acted, op.acted
	}
}

// mayHaveActed reports whether the vendor may have acted on the operation, or on one that
// it follows from.
func (op *operation) mayHaveActed() bool { return op.acted || op.unsure && !isSafe(op.req.Method) }

func (op *operation) earlierHost() string {
	if r := op.req.Response; r != nil && r.Request != nil && r.Request.URL != nil {
		return hostOf(r.Request.URL)
	}
	return "another host"
}
