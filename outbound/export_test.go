package outbound

// Hosts returns how many hosts a transport remembers.
func (t *Transport) Hosts() int {
	t.hosts.mu.Lock()
	defer t.hosts.mu.Unlock()
	return len(t.hosts.known)
}

// Parts returns how many parts of windows are kept with retries in them, of all hosts.
func (t *Transport) Parts() (n int) {
	t.hosts.mu.Lock()
	defer t.hosts.mu.Unlock()
	for _, h := range t.hosts.known {
		h.budget.mu.Lock()
		n += len(h.budget.retries)
		h.budget.mu.Unlock()
	}
	return n
}
