package session

import (
	"regexp"
	"strings"
)

var (
	// commands are statements that leave something in the session, with the word behind.
	commands = regexp.MustCompile(`(?i)(?:^|;|\*/|--[^\n]*\n)\s*(listen|prepare|declare|load|set|reset|discard)\s+(\w*)`)

	// functions are calls of set_config, up to the end of simple arguments.
	functions = regexp.MustCompile(`(?i)\bset_config\s*\([^()]*\)?`)

	// local is the end of a call that sets something for the transaction alone.
	local = regexp.MustCompile(`(?i),\s*true\s*\)$`)
)

// Keeps reports whether a statement may leave behind what End does not take away: a
// notification channel, a prepared statement, a cursor, a library; and, if the pool has a
// hook, a setting. Whoever sends one for a user has to close the connection afterwards.
func (p *Pool) Keeps(sql string) bool {
	for _, found := range commands.FindAllStringSubmatch(sql, -1) {
		switch command, what := strings.ToLower(found[1]), strings.ToLower(found[2]); command {
		case "set", "reset", "discard":
			if p.hooked && what != "local" && what != "constraints" && what != "transaction" {
				return true
			}
		default:
			return true
		}
	}
	if !p.hooked {
		return false
	}
	for _, call := range functions.FindAllString(sql, -1) {
		if !local.MatchString(call) {
			return true
		}
	}
	return false
}
