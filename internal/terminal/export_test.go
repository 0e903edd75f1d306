package terminal

// TableOf is Table for a terminal of a given width.
var TableOf = table
