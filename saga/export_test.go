package saga

// LookAt makes a page that has to search read only n instances at a time.
func (s *Store) LookAt(n int) { s.lookAt = n }
