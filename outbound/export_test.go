package outbound

// Hosts returns how many hosts a transport remembers.
func (t *Transport) Hosts() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.hosts)
}
