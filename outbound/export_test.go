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
	for _, e := range t.hosts.known {
		h := hostIn(e)
		h.budget.mu.Lock()
		n += len(h.budget.retries)
		h.budget.mu.Unlock()
	}
	return n
}

// Looked returns how many hosts a transport has examined in order to forget some.
func (t *Transport) Looked() int {
	t.hosts.mu.Lock()
	defer t.hosts.mu.Unlock()
	return t.hosts.looked
}
