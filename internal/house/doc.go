// Package house has tests of the form of this repository: what packages import, what the public
// packages export, whether the documentation fits the code, and which words comments use. The
// package has no code besides tests. It also writes the generated pages of the documentation: see
// make api.
package house
