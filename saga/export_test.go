package saga

// LookAt lets a page that has to search look at fewer instances in one go.
func (s *Store) LookAt(n int) { s.lookAt = n }
