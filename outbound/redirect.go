package outbound

// follow finds out whether the request follows from a redirect, as http.Client makes
// it: of which operation, whose time goes on, and whether it left the host on the way.
func (op *operation) follow() {
	for r := op.req.Response; r != nil && r.Request != nil; r = r.Request.Response {
		if op.earlier == nil {
			op.earlier, _ = r.Request.Context().Value(resultOf{}).(*operation)
		}
		if r.Request.URL != nil && !sameOrigin(r.Request.URL, op.req.URL) {
			op.foreign = true
		}
	}
	if op.earlier != nil {
		op.deadline = op.earlier.deadline
	}
}

func (op *operation) earlierHost() string {
	if r := op.req.Response; r != nil && r.Request != nil && r.Request.URL != nil {
		return hostOf(r.Request.URL)
	}
	return "another host"
}
