package relay

import "strings"

// uncovered returns those of want that no subject of have covers.
func uncovered(want, have []string) []string {
	var missing []string
	for _, w := range want {
		covered := false
		for _, h := range have {
			covered = covered || covers(h, w)
		}
		if !covered {
			missing = append(missing, w)
		}
	}
	return missing
}

// covers reports whether every subject that matches b also matches a. '*'
// stands for one token, '>' for one or more at the end.
func covers(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i, token := range as {
		switch {
		case token == ">":
			return len(bs) > i
		case i >= len(bs), bs[i] == ">":
			return false
		case token != "*" && token != bs[i]:
			return false
		}
	}
	return len(as) == len(bs)
}
